"""Does every sink keep what it is given, and say what to install where it cannot?"""

import io
import json
import sys

import pytest
import torch
import wandb
from torch import nn

import nero
from nero.diagnostics import (
    FigureSink,
    JsonLinesSink,
    LiveTableSink,
    Sink,
    TensorBoardSink,
    TurningMonitor,
    WandbSink,
)

PNG = b"\x89PNG\r\n\x1a\n"
NUM_STEPS = 3


def watch(*sinks, **options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = nero.Nero(model)
    with TurningMonitor(optimizer, every=1, sinks=sinks, **options) as monitor:
        for _ in range(NUM_STEPS):
            optimizer.zero_grad()
            model(torch.randn(32, 8)).square().mean().backward()
            optimizer.step()
    return monitor.last_report


def test_json_lines(tmp_path):
    path = tmp_path / "not there yet" / "turning.jsonl"
    last = watch(JsonLinesSink(path))
    watch(JsonLinesSink(path))  # a resumed run goes on at the end
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 1, 2, 3]
    assert lines[2] == json.loads(json.dumps(last.as_dict()))
    assert lines[0]["layers"][0]["name"] == "0.weight"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # tensorboard's own
def test_tensorboard(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    last = watch(TensorBoardSink(tmp_path / "ours"))
    writer = SummaryWriter(str(tmp_path / "theirs"))
    watch(TensorBoardSink(writer, prefix="angles"))
    writer.add_scalar("loss", 1.0, 0)  # still open
    writer.close()
    for directory, prefix in (("ours", "turning"), ("theirs", "angles")):
        events = EventAccumulator(str(tmp_path / directory)).Reload()
        curve = events.Scalars(f"{prefix}/0.weight/angle_median")
        assert [point.step for point in curve] == [1, 2, 3]
        assert curve[-1].value == pytest.approx(last["0.weight"].angle.median)
        histogram = events.Histograms(f"{prefix}/2.weight/angle")[-1].histogram_value
        assert histogram.num == sum(histogram.bucket) == 4
        assert f"{prefix}/num_skipped" in events.Tags()["scalars"]


def test_wandb_offline(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_SILENT", "true")
    with wandb.init(mode="offline", dir=str(tmp_path), project="nero") as run:
        last = watch(WandbSink(run))
        summary = dict(run.summary)
    assert summary["turning/step"] == NUM_STEPS
    assert summary["turning/0.weight/angle_median"] == pytest.approx(last["0.weight"].angle.median)
    histogram = summary["turning/0.weight/angle"]
    assert sum(histogram["values"]) == 16
    assert len(histogram["bins"]) == len(histogram["values"]) + 1
    assert any(tmp_path.rglob("*.wandb"))


def test_live_table_keeps_layers_that_are_not_in_turn():
    from rich.console import Console

    screen = io.StringIO()
    console = Console(file=screen, width=120, force_terminal=True)
    watch(sink := LiveTableSink(console), max_layers=1)
    assert isinstance(sink, Sink)
    last = screen.getvalue().rpartition("step 3")[2]
    assert "0.weight" in last
    assert "2.weight" in last
    assert "max/lr" in last


def test_live_table_shows_what_was_found():
    from rich.console import Console

    screen = io.StringIO()
    watch(LiveTableSink(Console(file=screen, width=120)), too_far=1e-9)
    assert "neurons turned by more than 1e-09 rad" in screen.getvalue()


def test_figure(tmp_path, monkeypatch):
    path = tmp_path / "not there yet" / "angles.png"
    watch(sink := FigureSink(path))
    assert path.read_bytes().startswith(PNG)
    axes = sink.draw().axes[0]
    labels = axes.get_legend_handles_labels()[1]
    assert labels == ["0.weight", "2.weight", "lr"]
    assert axes.lines[0].get_xdata().tolist() == [1, 2, 3]
    monkeypatch.setattr("nero.diagnostics.sinks.figure._MAX_NAMES", 1)
    assert sink.draw().axes[0].get_legend_handles_labels()[1] == ["0.weight", "lr"]
    FigureSink(tmp_path / "nothing.png").close()
    assert not (tmp_path / "nothing.png").exists()


def test_figure_names_the_layers_of_a_compiled_model():
    model = torch.compile(nn.Linear(8, 4))
    optimizer = nero.Nero(model)
    with TurningMonitor(optimizer, sinks=[sink := FigureSink()]) as monitor:
        for param in model.parameters():
            param.grad = torch.randn_like(param)
        optimizer.step()
    assert monitor.last_report.names == ["_orig_mod.weight"]
    labels = sink.draw().axes[0].get_legend_handles_labels()[1]
    assert labels == ["orig_mod.weight", "lr"]


@pytest.mark.parametrize(
    ("package", "make"),
    [
        ("rich", LiveTableSink),
        ("matplotlib", FigureSink),
        ("wandb", lambda: WandbSink(None)),
    ],
)
def test_what_to_install_is_said(package, make, monkeypatch):
    for name in [*sys.modules]:
        if name.split(".")[0] == package:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError, match=f"pip install {package}"):
        make()


def test_tensorboard_is_asked_for_by_name(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ModuleNotFoundError, match="pip install tensorboard"):
        TensorBoardSink(tmp_path)


def test_sinks_without_close_are_fine():
    class Last:
        def write(self, report):
            self.report = report

    assert watch(sink := Last()) is sink.report


def test_a_figure_of_neurons_that_stand_still_is_drawn(tmp_path):
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with TurningMonitor(optimizer, model, sinks=[FigureSink(tmp_path / "still.png")]):
        model.weight.grad = torch.ones(4, 8)
        optimizer.step()
    assert (tmp_path / "still.png").read_bytes().startswith(PNG)


class Broken:
    """A sink that fails, as one does whose disk is full or whose service is down."""

    num_calls = 0

    def write(self, report):
        self.num_calls += 1
        raise OSError("no space left")

    def close(self):
        raise OSError("still no space left")


class Reports(list):
    write = list.append


def test_a_sink_that_raises_is_disabled_and_training_goes_on():
    with pytest.warns(UserWarning, match=r"Broken raised OSError\('no space left'\)") as caught:
        last = watch(broken := Broken(), reports := Reports())
    assert len(caught) == 1  # also for `close`, which raises too
    assert broken.num_calls == 1
    assert [report.step for report in reports] == [1, 2, 3]
    assert reports[-1] is last


def test_a_sink_that_cannot_be_closed_does_not_keep_others_open(tmp_path):
    class Unclosable(Broken):
        def write(self, report):
            pass

    with pytest.warns(UserWarning, match="Unclosable raised OSError"):
        watch(Unclosable(), FigureSink(tmp_path / "angles.png"))
    assert (tmp_path / "angles.png").exists()


def test_equal_sinks_are_not_confused():
    class Full(Reports):
        def write(self, report):
            raise OSError("full")

    with pytest.warns(UserWarning, match="Full raised"):
        watch(Full(), reports := Reports())  # both are empty lists, hence equal
    assert len(reports) == NUM_STEPS


def test_whoever_wants_the_error_gets_it():
    model = nn.Linear(8, 4)
    optimizer = nero.Nero(model)
    monitor = TurningMonitor(optimizer, sinks=[Broken()], on_error="raise")
    model.weight.grad = torch.randn(4, 8)
    with pytest.raises(OSError, match=r"^no space left"):
        optimizer.step()
    assert monitor.last_report.step == 1
    with pytest.raises(OSError, match="still no space left"):
        monitor.close()

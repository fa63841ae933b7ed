"""Does every sink keep what it is given, and say what to install where it cannot?"""

import io
import sys

import pytest
import torch
import wandb
from torch import nn

import nero
from nero.diagnostics import Sink, TurningMonitor
from nero_tools.sinks import FigureSink, LiveTableSink, TensorBoardSink, WandbSink
from tests.diagnostics.watching import NUM_STEPS, watch

PNG = b"\x89PNG\r\n\x1a\n"


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
    monkeypatch.setattr("nero_tools.sinks.figure._MAX_NAMES", 1)
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


def test_a_figure_of_neurons_that_stand_still_is_drawn(tmp_path):
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with TurningMonitor(optimizer, model, sinks=[FigureSink(tmp_path / "still.png")]):
        model.weight.grad = torch.ones(4, 8)
        optimizer.step()
    assert (tmp_path / "still.png").read_bytes().startswith(PNG)

"""Do the commands run from end to end, and write what they say?"""

import json
import sys

import pytest
import torch

from nero_tools.bench import child, fresh_process, step_time, training_share
from nero_tools.bench.plot import save_chart
from nero_tools.bench.run import ModelResult, StepResult
from nero_tools.bench.timing import Spread

PNG = b"\x89PNG\r\n\x1a\n"
QUICK = ["--rounds", "2", "--settle-ms", "0", "--evict-mb", "0.1"]


def test_step_time_prints_tables_and_writes_json_and_a_chart(tmp_path, capsys):
    shapes = "mlp-tiny,llama-tiny"
    out, chart = tmp_path / "out.json", tmp_path / "out.png"
    files = ["--json", str(out), "--plot", str(chart), "--no-latency", "--resident", ""]
    chosen = ["--optimizers", "bare,sgd-fused,adamw-fused,nero"]
    assert step_time.main(["--shapes", shapes, *chosen, "--threads", "1,2", *QUICK, *files]) == 0
    printed = capsys.readouterr().out
    assert "x sgd-fused" in printed
    assert "llama-tiny: 19,616 parameters, float32, 2 threads" in printed
    assert chart.read_bytes().startswith(PNG)
    written = json.loads(out.read_text())
    assert written["versions"]["torch"] == torch.__version__
    assert {"date", "command", "machine", "commit"} <= written.keys()
    assert [(r["model"], r["threads"]) for r in written["results"]] == [
        (shape, threads) for shape in shapes.split(",") for threads in (1, 2)
    ]
    for result in written["results"]:
        steps = result["optimizers"]
        assert [*steps] == ["bare", "sgd-fused", "adamw-fused", "nero"]
        assert all(r["num_disturbed"] <= r["num_samples"] <= 4 for r in steps.values())
        assert all(r["ratios"].keys() == {*steps} - {"nero"} for r in steps.values())
        assert all(r["share_changed"] > 0.5 for r in steps.values())
        assert steps["nero"]["state_bytes"] < steps["adamw-fused"]["state_bytes"]


def test_a_chart_has_room_for_times_that_scatter(tmp_path):
    steady = StepResult(Spread(0.14, 0.13, 0.15, 4), {}, 0, 0, 1.0, 4, 0)
    scattered = StepResult(Spread(0.14, 0.13, 1.75, 4), {}, 0, 0, 1.0, 4, 0)
    steps = {"sgd-fused": scattered, "nero": steady}
    result = ModelResult("mlp-tiny", 672, 2688, "float32", "cpu", 1, steps)
    save_chart([result], tmp_path / "out.png")  # matplotlib warns if it does not fit
    assert (tmp_path / "out.png").read_bytes().startswith(PNG)


@pytest.mark.slow
def test_a_process_is_watched_as_it_grows():
    seen = fresh_process.resident_temporary_bytes(
        "gpt-small", "adamw-foreach", dtype="float32", threads=1
    )
    if not sys.platform.startswith("linux"):
        assert seen is None
        return
    # Square roots of 13.9 million second moments, and little else.
    assert 0.9 < seen / (4 * 13_890_432) < 2.5


def test_first_step_is_timed_in_parts(monkeypatch):
    asked = []
    monkeypatch.setattr(
        fresh_process, "_ask_child", lambda *args, env: asked.append(env) or child.first_step()
    )
    written = fresh_process.first_step_seconds()
    assert asked[0]["NUMBA_CACHE_DIR"] == asked[1]["NUMBA_CACHE_DIR"]
    assert written.keys() == {"cold", "cached"}
    assert written["cold"].keys() == {"import", "build", "first_step", "second_step"}
    assert all(seconds >= 0 for seconds in written["cold"].values())


def test_extra_tables(capsys):
    spans = {"import": 0.1, "build": 0.2, "first_step": 3.0, "second_step": 0.001}
    extra = {
        "first_step_seconds": {"cold": spans, "cached": spans},
        "resident_temporary_bytes": {"gpt-tiny": {"nero": 1000, "nero-plain": None}},
    }
    step_time._print_extra(extra, {"gpt-tiny": 100_000})
    printed = capsys.readouterr().out
    assert "1,000          1.00%" in printed
    assert "3.00" in printed


def test_training_share(tmp_path, capsys):
    out = tmp_path / "share.json"
    size = ["--shape", "gpt-tiny", "--batch", "2", "--length", "8", "--threads", "1"]
    before = torch.get_num_threads()
    assert training_share.main([*size, "--rounds", "2", "--json", str(out)]) == 0
    assert torch.get_num_threads() == before
    assert "share of the step" in capsys.readouterr().out
    written = json.loads(out.read_text())
    assert [*written["times"]] == ["nero", "adamw-fused", "adamw-foreach", "nero-plain"]


def test_shares_are_of_the_whole_step():
    times = training_share.Times(gradient_ms=[90.0, 80.0], step_ms=[10.0, 20.0])
    share = times.share
    assert (share.median, share.low, share.high) == pytest.approx((0.15, 0.125, 0.175))
    assert training_share._rows({"a": times})[1][1:4] == ["85", "15", "15.00%"]


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--shapes", "gpt5", "'gpt5' must be one of gpt2-124m"),
        ("--optimizers", "nero,adam", "'adam' must be one of bare"),
        ("--threads", "0", "'0' must be a whole number from 1"),
    ],
)
def test_mistakes_are_named(option, value, message, capsys):
    with pytest.raises(SystemExit):
        step_time.main([option, value])
    assert message in capsys.readouterr().err

"""`nero bench` as someone without the repository meets it."""

import json

import pytest
import torch

from nero.cli import main
from nero_tools.bench.command import write_report
from nero_tools.bench.run import StepResult
from nero_tools.bench.timing import OthersClock, Spread, Timings

QUICK = ["--shapes", "mlp-tiny", "--rounds", "2", "--settle-ms", "0", "--evict-mb", "0.1"]


def test_prints_a_table(capsys):
    assert main(["bench", *QUICK]) == 0
    printed = capsys.readouterr().out
    assert f"torch {torch.__version__}" in printed
    assert "mlp-tiny: 672 parameters, float32" in printed
    assert "nero-plain" in printed


def test_prints_json(capsys):
    assert main(["bench", *QUICK, "--threads", "1", "--dtype", "bfloat16", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    (result,) = printed["results"]
    assert result["dtype"] == "bfloat16"
    assert result["optimizers"]["nero"]["share_changed"] > 0.5


def test_writes_json_and_prints_the_table(tmp_path, capsys):
    out = tmp_path / "bench.json"
    assert main(["bench", *QUICK, "--optimizers", "nero", "--json", str(out)]) == 0
    assert "mlp-tiny" in capsys.readouterr().out
    assert [*json.loads(out.read_text())["results"][0]["optimizers"]] == ["nero"]


def test_on_a_busy_machine_noisy_numbers_are_printed_and_flagged(monkeypatch, capsys):
    """Other processes keep two CPUs busy in every round."""
    monkeypatch.setattr(OthersClock, "share", lambda self: 2.0)
    only = ["--optimizers", "nero,adamw-fused"]
    assert main(["bench", *QUICK, *only, "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    nero = result["optimizers"]["nero"]
    assert nero["milliseconds"] is nero["ratios"]["adamw-fused"] is None  # targets look at these
    assert nero["noisy_milliseconds"]["num"] == nero["num_samples"] == nero["num_disturbed"]
    assert nero["noisy_ratios"]["adamw-fused"]["median"] > 0
    assert main(["bench", *QUICK, *only]) == 0
    printed = capsys.readouterr().out
    for row in [line for line in printed.splitlines() if line.startswith(("nero", "adamw"))]:
        assert row.count("~") == 4, row  # time, quartiles, ratio, bandwidth
        assert " - " not in row
    assert "~ noisy: other load disturbed every sample" in printed


def test_calm_numbers_are_not_flagged(monkeypatch, capsys):
    monkeypatch.setattr(Timings, "is_calm", lambda self, name: [True] * len(self.samples[name]))
    assert main(["bench", *QUICK, "--optimizers", "nero,adamw-fused"]) == 0
    assert "~" not in capsys.readouterr().out


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_says_that_there_is_no_gpu(capsys):
    assert main(["bench", *QUICK, "--device", "cuda"]) == 2
    assert "no CUDA device" in capsys.readouterr().err


def test_kernel_for_gpus_is_left_out_on_a_cpu_and_says_why(capsys):
    assert main(["bench", *QUICK, "--optimizers", "nero,nero-fused", "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert result["left_out"] == {"nero-fused": "on CPUs, nero is the fused one"}


def test_bandwidth_is_what_a_step_moves_over_its_time(capsys):
    assert main(["bench", *QUICK, "--optimizers", "sgd-fused,adamw-fused", "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    for name, copies in (("sgd-fused", 3), ("adamw-fused", 7)):
        moved = result["optimizers"][name]["moved_bytes"]
        assert moved == pytest.approx(copies * 4 * 672, rel=0.02)  # AdamW also counts its steps
    step = StepResult(Spread(2.0, 2.0, 2.0, 1), {}, 0, 0, 1.0, 1, 0, moved_bytes=10**9)
    assert step.gigabytes_per_second == 500


def test_on_a_gpu_the_self_test_and_the_prediction_are_shown(capsys):
    test = {
        "device": "a GPU",
        "dtype": "float32",
        "stochastic": False,
        "momentum": None,
        "shared": True,
    }
    test |= {"num_cases": 35, "seconds": 0.1, "passed": True, "error": None, "differences": []}
    report = {"date": "today", "machine": {"gpu": "NVIDIA L4"}, "versions": {}, "results": []}
    write_report(report | {"self_tests": [test], "predicted_ms": 4.994}, None)
    printed = capsys.readouterr().out
    assert "35     0.10  passed" in " ".join(printed.splitlines())
    assert "predicted from its machine code: 4.99 ms" in printed
    write_report(report | {"self_tests": [test], "predicted_ms": None}, None)
    assert (
        "no prediction for this GPU; there are predictions for A100, H100"
        in capsys.readouterr().out
    )


def test_refuses_a_negative_rest(capsys):
    with pytest.raises(SystemExit):
        main(["bench", "--settle-ms", "-1"])
    assert "'-1' must be a number from 0 to 1e+06" in capsys.readouterr().err

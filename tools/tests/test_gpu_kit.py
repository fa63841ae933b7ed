"""The kit for people with a GPU: the same code on a CPU, and files that are refused."""

import copy
import json
import re

import pytest
import torch

from nero_tools.gpu_kit.__main__ import main
from nero_tools.gpu_kit.measure import FULL, PRESETS
from nero_tools.gpu_kit.read import read_kit, text
from nero_tools.models import MODELS


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A file made by the command itself."""
    path = tmp_path_factory.mktemp("kit") / "gpu.json"
    assert main([str(path), "--device", "cpu", "--tiny"]) == 0
    return json.loads(path.read_text())


@pytest.fixture
def saved(tmp_path):
    def save(kit):
        path = tmp_path / "gpu.json"
        path.write_text(kit if isinstance(kit, str) else json.dumps(kit))
        return str(path)

    return save


def test_a_run_on_a_cpu_is_read_back(written, saved, capsys):
    path = saved(written)
    assert main([path, "--read"]) == 0
    shown = capsys.readouterr().out
    assert shown.strip() == text(read_kit(path)).strip()
    assert {step["model"] for step in written["steps"]} == {"gpt-tiny", "resnet-tiny"}
    for step in written["steps"]:
        assert {"adamw-fused", "sgd-fused", "nero", "nero-polar"} <= step["optimizers"].keys()
    for name in ("gpt-tiny", "adamw-fused", *PRESETS, "no CUDA graphs on cpu"):
        assert name in shown
    for curve in written["curves"]:  # the same code and device twice
        assert curve["device"] == curve["cpu"]
        assert len(set(curve["cpu"])) == len(curve["cpu"]) == 5


def test_a_full_run_has_five_models():
    assert len({*FULL.models}) == 5
    assert {*FULL.models, FULL.curve_model} <= MODELS.keys()


def nan_on_the_device(kit):
    kit["curves"][1]["device"][-1] = None


def test_a_loss_that_is_not_finite_is_shown(written, saved):
    kit = copy.deepcopy(written)
    nan_on_the_device(kit)
    assert "not finite on the device" in text(read_kit(saved(kit)))


CORRUPTIONS = {
    "schema": (lambda k: k.update(kit_schema=0), "is not a file of the gpu kit"),
    "no device": (lambda k: k.pop("device"), "device is missing"),
    "no name": (lambda k: k["device"].update(name=""), "device: name is empty"),
    "versions": (lambda k: k["versions"].pop("torch"), "versions: torch is missing"),
    "no steps": (lambda k: k.update(steps=[]), "steps is empty"),
    "steps of another kind": (lambda k: k.update(steps={}), "steps must be a list"),
    "a step is a number": (lambda k: k.update(steps=[3]), r"steps\[0\] must be an object"),
    "negative time": (
        lambda k: _times(k).update(median=-1.0),
        "median must be finite and at least",
    ),
    "no time": (
        lambda k: _nero(k).update(milliseconds=None, noisy_milliseconds=None),
        "nero has no milliseconds",
    ),
    "quartiles": (lambda k: _times(k).update(low=1e9), "must lie in"),
    "text for a number": (
        lambda k: _nero(k).update(state_bytes="many"),
        "state_bytes must be a number, not 'many'",
    ),
    "share": (lambda k: _nero(k).update(share_changed=2.0), "share_changed must be at most 1"),
    "capture": (
        lambda k: k["captures"]["rows"].update(result="fine"),
        "captures.rows: result must be one of",
    ),
    "no capture": (lambda k: k["captures"].pop("polar"), "captures: polar is missing"),
    "lengths": (lambda k: k["curves"][0]["cpu"].pop(), "the same number of losses"),
    "presets": (lambda k: k["curves"].reverse(), "curves must be of the presets"),
    "a loss on the CPU": (
        lambda k: k["curves"][0]["cpu"].__setitem__(2, None),
        "cpu, step 2: loss must be a number, not None",
    ),
    "a self-test": (
        lambda k: k.update(self_tests=[{"device": "x", "dtype": "y"}]),
        r"self_tests\[0\]: passed is missing",
    ),
}


def _nero(kit):
    return kit["steps"][0]["optimizers"]["nero"]


def _times(kit):
    figures = _nero(kit)
    return figures["milliseconds"] or figures["noisy_milliseconds"]


@pytest.mark.parametrize(("change", "message"), CORRUPTIONS.values(), ids=CORRUPTIONS)
def test_a_corrupted_file_is_refused(change, message, written, saved, capsys):
    kit = copy.deepcopy(written)
    change(kit)
    path = saved(kit)
    assert main([path, "--read"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"gpu kit: {path}")

    assert re.search(message, error), error


@pytest.mark.parametrize("content", ["", "{", "[]", "3"])
def test_what_is_no_file_of_the_kit_is_refused(content, saved, capsys):
    assert main([saved(content), "--read"]) == 2
    assert "gpu kit: " in capsys.readouterr().err


def test_a_missing_file_or_device_is_refused(tmp_path, capsys):
    assert main([str(tmp_path / "none.json"), "--read"]) == 2
    assert "cannot read" in capsys.readouterr().err
    if not torch.cuda.is_available():
        assert main([str(tmp_path / "gpu.json")]) == 2
        assert "torch sees no CUDA or ROCm device" in capsys.readouterr().err
    assert main([str(tmp_path / "no" / "gpu.json"), "--device", "cpu", "--tiny"]) == 2
    assert "make it first" in capsys.readouterr().err

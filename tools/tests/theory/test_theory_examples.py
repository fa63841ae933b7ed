"""The examples of the theory run, and the page says what their record says."""

import json
import sys
from pathlib import Path

import pytest

from examples import neuron_turning_figure, relative_trust

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "theory.md").read_text()
RECORD = json.loads((ROOT / "records" / "theory-relative-trust.json").read_text())


def test_relative_trust(tmp_path, monkeypatch, capsys):
    record, figure = tmp_path / "record.json", tmp_path / "figure.png"
    arguments = ["--steps", "2", "--record", str(record), "--figure", str(figure)]
    monkeypatch.setattr(sys, "argv", ["relative_trust.py", *arguments])
    relative_trust.main()
    assert "fraction_trusted" in capsys.readouterr().out
    written = json.loads(record.read_text())
    assert written["robustness"]["num_errors"] > 0  # two steps are not enough
    assert len(written["steps"]) == 2
    assert written["summary"].keys() == RECORD["summary"].keys()
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_neuron_turning_figure(tmp_path, monkeypatch):
    out = tmp_path / "turning.png"
    monkeypatch.setattr(sys, "argv", ["neuron_turning_figure.py", "--out", str(out)])
    neuron_turning_figure.main()
    assert out.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("kind", RECORD["summary"])
def test_the_page_has_the_recorded_fractions(kind):
    told = RECORD["summary"][kind]
    held = ", ".join(f"{share:.0%}" for share in told["fraction_trusted"])
    ratios = ", ".join(f"{ratio:.2g}" for ratio in told["median_left_over_right"])
    step, loss = kind.split(", ")
    names = {
        "cross_entropy": "cross-entropy",
        "linear": "linear",
        "one_sample": "linear, one sample",
    }
    step = "Nero's" if step == "nero" else step
    assert f"| {step} | {names[loss]} | {held} | {ratios} |" in PAGE


def test_the_page_has_the_recorded_robustness():
    told = RECORD["robustness"]
    assert f"{told['alpha_below_rad']:.4f} radians" in PAGE
    assert f"{told['samples_needed_paper']:,}" in PAGE
    assert f"{told['samples_needed_exact']:,}" in PAGE
    assert (
        f"is {told['bound_paper']:.0f}, and {told['bound_exact']:.0f} with exact caps"
        in " ".join(PAGE.split())
    )
    rotations = RECORD["random_rotations"].values()
    counts = " | ".join(f"{20 * told['fraction_with_an_error']:.0f}" for told in rotations)
    assert f"with an error | {counts} |" in PAGE

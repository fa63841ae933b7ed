"""The conformance vectors are what the float64 loop says, and Nero passes them."""

import pytest
import torch

from conformance.check import check_case, load_cases, main
from conformance.nero_torch import run
from reference.vectors import FOLDER, cases, render


def test_the_committed_vectors_are_those_of_the_loop():
    made = {f"{case['name']}.json": render(case) for case in cases()}
    assert {path.name: path.read_text() for path in FOLDER.glob("*.json")} == made


@pytest.mark.parametrize("case", load_cases(), ids=lambda case: case["name"])
def test_nero_passes(case):
    assert check_case(case, run(case)) is None


@pytest.mark.parametrize("case", load_cases(), ids=lambda case: case["name"])
def test_nero_passes_in_float32(case):
    # Six float32 steps; weights near one, averages scaled by their own size.
    assert check_case(case, run(case, torch.float32), tolerance=1e-5) is None


def test_the_checker_sees_a_wrong_implementation(capsys):
    assert main(["conformance.nero_torch:run"]) == 0
    assert main(["reference.test_vectors:run_slightly_off"]) == 1
    assert "FAIL  balanced: after step 1: weight[0] is" in capsys.readouterr().out


def run_slightly_off(case):
    snapshots = run(case)
    for snapshot in snapshots[1:]:
        snapshot["weight"][0] += 1e-9
    return snapshots

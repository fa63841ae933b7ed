"""Today's numbers are those of the record, on every machine and within its rounding."""

import json
from pathlib import Path

import pytest
import torch

from tests.gold import checkpoints
from tests.gold.cases import EAGER, INTERPRETER
from tests.gold.record import FAST_INTERPRETER, run_in_interpreter
from tests.gold.statistics_of import TOLERANCES, agrees, statistics, summary
from tests.gold.trajectory import SHORT

RECORD = json.loads(Path(__file__).with_name("record.json").read_text())


def assert_as_recorded(case, tensors):
    recorded, found = RECORD[case], summary(tensors)
    assert found.keys() == recorded.keys()
    for name in recorded:
        if name in tensors:
            assert agrees(tensors[name], recorded[name]), f"{name}: {found[name]}, {recorded[name]}"
        else:
            assert found[name] == recorded[name], f"counter {name}"


@pytest.mark.parametrize("name", EAGER)
def test_case(name):
    case = EAGER[name]
    if case.missing:
        pytest.skip(f"{case.missing} is not installed")
    assert_as_recorded(name, case.run(SHORT))


def test_case_in_tritons_interpreter():
    missing = INTERPRETER[FAST_INTERPRETER].missing
    if missing:
        pytest.skip(f"{missing} is not installed")
    assert_as_recorded(FAST_INTERPRETER, run_in_interpreter(FAST_INTERPRETER)[FAST_INTERPRETER])


def test_every_recorded_case_is_tested():
    assert RECORD.keys() == EAGER.keys() | {FAST_INTERPRETER}


@pytest.mark.parametrize("name", checkpoints.CASES)
def test_checkpoint_of_an_earlier_version_trains_on(name):
    checkpoint = checkpoints.load(name)
    for backend, expected in checkpoint["expected"].items():
        found = checkpoints.resumed(checkpoints.CASES[name], checkpoint, backend)
        assert found.keys() == expected.keys()
        for tensor, value in found.items():
            # As for the record; elements near zero are held to the largest of their tensor.
            rtol = TOLERANCES[value.dtype]
            atol = rtol * float(expected[tensor].abs().max())
            torch.testing.assert_close(value, expected[tensor], rtol=rtol, atol=atol)


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_a_small_change_would_be_seen(dtype):
    tensor = torch.linspace(-1, 1, 30, dtype=torch.float64).to(dtype)
    recorded = statistics(tensor)
    assert agrees(tensor, recorded)
    assert not agrees(tensor * (1 + 4 * TOLERANCES[dtype]), recorded)

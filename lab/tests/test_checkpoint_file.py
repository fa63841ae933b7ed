"""A checkpoint holds every generator, and is replaced as a whole."""

import random
from pathlib import Path

import numpy as np
import torch

from nero_lab.engine import checkpoint


def draw() -> tuple[float, float, float]:
    return torch.rand(()).item(), np.random.rand(), random.random()


def test_every_generator_is_restored(tmp_path: Path) -> None:
    path = tmp_path / checkpoint.FILE_NAME
    checkpoint.save(path, {"random": checkpoint.random_state()})
    expected = [draw() for _ in range(3)]
    state = checkpoint.load(path, torch.device("cpu"))
    assert state is not None
    checkpoint.set_random_state(state["random"])
    assert [draw() for _ in range(3)] == expected


def test_a_new_one_takes_the_place_of_the_old(tmp_path: Path) -> None:
    path = tmp_path / checkpoint.FILE_NAME
    assert checkpoint.load(path, torch.device("cpu")) is None
    for number in (1, 2):
        checkpoint.save(path, {"number": number})
        assert checkpoint.load(path, torch.device("cpu")) == {"number": number}
    assert [file.name for file in tmp_path.iterdir()] == [checkpoint.FILE_NAME]


def test_alone_there_is_one_rank() -> None:
    assert checkpoint.select_rank(checkpoint.gather_ranks({"a": 1})) == {"a": 1}

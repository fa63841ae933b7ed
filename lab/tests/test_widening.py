"""Which rates a sweep adds to its grid."""

import math
from pathlib import Path

import pytest
from made_up_runs import write_run

from nero_lab.engine import records
from nero_lab.runner.config import RunConfig
from nero_lab.sweep.widening import wider

SCORES = {  # of a task whose scores are errors: the less the better
    "inside": {0.01: 3.0, 0.03: 1.0, 0.1: 2.0},
    "smallest": {0.01: 1.0, 0.03: 2.0, 0.1: 3.0},
    "largest": {0.06: 3.0, 0.08: 2.0, 0.1: 1.0},
    "diverged": {0.01: math.inf, 0.03: math.inf, 0.1: math.inf},
}


def sweep(folder: Path, **scores: dict[float, float]) -> list[tuple[RunConfig, records.RunRecord]]:
    found = []
    for optimizer, by_rate in scores.items():
        for lr, score in by_rate.items():
            for seed in (0, 1):
                config = RunConfig("cifar-vgg11", "cpu", optimizer, lr, seed)
                status = "diverged" if math.isinf(score) else "finished"
                write_run(folder, config, [score], status=status)
                record = records.read(folder / config.name / records.FILE_NAME)
                assert record is not None
                found.append((config, record))
    return found


@pytest.mark.parametrize(
    ("case", "added"),
    [("inside", None), ("smallest", 0.003), ("largest", 0.2), ("diverged", 0.003)],
)
def test_a_ratebeyond_an_end_that_is_best(tmp_path: Path, case: str, added: float | None) -> None:
    more = wider(sweep(tmp_path, nero=SCORES[case]), max_rates=5)
    assert [(config.lr, config.seed) for config in more] == [(added, 0), (added, 1)] * (
        added is not None
    )


def test_notbeyond_what_is_allowed(tmp_path: Path) -> None:
    assert wider(sweep(tmp_path, nero=SCORES["smallest"]), max_rates=3) == []


def test_all_get_as_many_rates_when_no_best_one_is_an_end(tmp_path: Path) -> None:
    four = {**SCORES["inside"], 0.3: 4.0}
    (first, second) = wider(sweep(tmp_path, nero=four, adam=SCORES["inside"]), max_rates=9)
    assert (first.optimizer, first.lr, second.seed) == ("adam", 0.3, 1)


def test_one_rate_says_nothing_of_where_to_look(tmp_path: Path) -> None:
    assert wider(sweep(tmp_path, nero={0.01: 1.0}), max_rates=5) == []


def test_not_before_all_runs_are_done(tmp_path: Path) -> None:
    found = sweep(tmp_path, nero=SCORES["smallest"])
    config = found[0][0]
    write_run(tmp_path, config, [1.0], status="unfinished")
    record = records.read(tmp_path / config.name / records.FILE_NAME)
    assert record is not None
    assert wider([(config, record), *found[1:]], max_rates=5) == []


def test_smaller_rates_where_both_ends_diverged(tmp_path: Path) -> None:
    four = {0.01: 2.0, 0.03: 1.0, 0.1: 2.0, 0.3: 3.0}
    hot = {0.01: math.inf, 0.03: 1.0, 0.1: math.inf}
    more = wider(sweep(tmp_path, nero=four, adam=hot), max_rates=9)
    assert {(config.optimizer, config.lr) for config in more} == {("adam", 0.003)}


def test_a_rate_of_zero_is_no_end(tmp_path: Path) -> None:
    more = wider(sweep(tmp_path, nero={0.0: 1.0, 0.01: 2.0, 0.03: 3.0}), max_rates=9)
    assert {config.lr for config in more} == {0.003}

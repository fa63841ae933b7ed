"""The protocol: which runs follow from those that are there."""

from collections import Counter
from pathlib import Path

import pytest
from made_up_runs import write_run

from nero_lab.engine import records
from nero_lab.protocol.plan import NUM_RATES, PLAN, Comparison, Entrant, around
from nero_lab.protocol.queue import make_runs, next_run, status_lines
from nero_lab.protocol.wanted import too_far_behind, wanted
from nero_lab.runner.config import RunConfig
from nero_lab.runner.execute import RunDirs, run
from nero_lab.runner.history import existing_record
from nero_lab.tasks import TASKS

SMALL = Comparison(
    "deep",
    "mnist-deep",
    (Entrant("sgd", (0.01, 0.1, 1.0)), Entrant("nero-rows", (0.01, 0.03), default=0.03)),
    num_seeds=2,
)


def make_up(folder: Path, optimizer: str, lr: float, accuracy: float, **more: object) -> None:
    config = RunConfig("mnist-deep", "smoke", optimizer, lr, seed=int(str(more.pop("seed", 0))))
    write_run(folder, config, [accuracy / 2, accuracy], status=str(more.pop("status", "finished")))


def names(folder: Path) -> list[str]:
    found = wanted(SMALL, "smoke", lambda config: existing_record(config, folder))
    return [item.config.name.rpartition("/")[2] for item in found]


RATES = [f"sgd-lr{lr}-seed0" for lr in ("0.01", "0.1", "1")]
PRESET = ["nero-rows-lr0.01-seed0", "nero-rows-lr0.03-seed0"]


def test_rates_come_first_and_then_the_seeds_of_the_best_and_of_the_default(tmp_path: Path) -> None:
    assert names(tmp_path) == [*RATES, *PRESET, "nero-rows-lr0.03-seed1"]
    for lr, accuracy in ((0.01, 0.2), (0.1, 0.6), (1.0, 0.5)):
        make_up(tmp_path, "sgd", lr, accuracy)
    make_up(tmp_path, "nero-rows", 0.01, 0.9)  # better than the default, which is scored
    make_up(tmp_path, "nero-rows", 0.03, 0.1)
    assert names(tmp_path) == [*RATES, *PRESET, "sgd-lr0.1-seed1", "nero-rows-lr0.03-seed1"]


def test_a_best_rate_at_an_end_adds_one_beyond_it_but_not_for_ever(tmp_path: Path) -> None:
    for lr, accuracy in ((0.01, 0.2), (0.1, 0.6), (1.0, 0.7)):
        make_up(tmp_path, "sgd", lr, accuracy)
    assert names(tmp_path)[3] == "sgd-lr10-seed0"
    make_up(tmp_path, "sgd", 10.0, 0.8)
    assert names(tmp_path)[4] == "sgd-lr100-seed0"
    make_up(tmp_path, "sgd", 100.0, 0.9)
    assert len([name for name in names(tmp_path) if "sgd" in name and "seed0" in name]) == 5
    assert "sgd-lr100-seed1" in names(tmp_path)


def test_a_stopped_run_is_not_the_best_rate(tmp_path: Path) -> None:
    for lr, accuracy, status in ((0.01, 0.2, "finished"), (0.1, 0.3, "finished")):
        make_up(tmp_path, "sgd", lr, accuracy, status=status)
    make_up(tmp_path, "sgd", 1.0, 0.9, status="stopped")
    assert "sgd-lr0.1-seed1" in names(tmp_path)


@pytest.mark.parametrize(
    ("accuracy", "epoch", "is_stopped"),
    [(0.76, 2, True), (0.78, 2, False), (0.1, 1, False), (0.1, 3, False)],
)
def test_a_run_far_behind_at_half_time_is_stopped(
    tmp_path: Path, accuracy: float, epoch: int, is_stopped: bool
) -> None:
    config = RunConfig("mnist-deep", "mini", "sgd", 0.1)
    write_run(tmp_path, RunConfig("mnist-deep", "mini", "sgd", 1.0), [0.5, 1.0, 1.0, 1.0])
    other = existing_record(RunConfig("mnist-deep", "mini", "sgd", 1.0), tmp_path)
    stop = too_far_behind(config, [None, other])
    assert bool(stop(epoch, {"train_accuracy": accuracy})) == is_stopped
    assert too_far_behind(config, [None])(epoch, {"train_accuracy": accuracy}) is None


def test_the_runs_of_a_preset_are_never_stopped(tmp_path: Path) -> None:
    found = wanted(SMALL, "smoke", lambda config: existing_record(config, tmp_path))
    beside = {item.config.name.rpartition("/")[2]: len(item.beside) for item in found}
    assert {beside[name] for name in RATES} == {3}
    assert {beside[name] for name in PRESET} == {0}


def test_scores_below_zero_are_not_stopped(tmp_path: Path) -> None:
    config = RunConfig("pong", "smoke")
    write_run(tmp_path, RunConfig("pong", "smoke", lr=0.1), [-3.0, -3.0])
    stop = too_far_behind(config, [existing_record(RunConfig("pong", "smoke", lr=0.1), tmp_path)])
    assert stop(1, {"valid_reward": -20.0}) is None


def test_a_rule_ends_a_run_and_the_record_says_why(tmp_path: Path, data_dir: Path) -> None:
    config = RunConfig("mnist-deep", "smoke", "sgd", 0.01)
    dirs = RunDirs(tmp_path, data_dir, tensorboard=False, quiet=True)
    record = run(config, dirs, stop=lambda epoch, scores: "too slow" if epoch == 1 else None)
    assert (record.status, len(record.epochs)) == ("stopped", 1)
    assert record.end is not None
    assert record.end["message"] == "too slow"
    assert run(config, dirs).status == "stopped"  # it is done


@pytest.mark.slow
def test_the_queue_makes_all_runs_once_and_leaves_no_checkpoints(
    tmp_path: Path, data_dir: Path
) -> None:
    plan = [Comparison("c", "mnist-deep", (Entrant("sgd", (1e-3, 1e-2)),), num_seeds=2)]
    dirs = RunDirs(tmp_path, data_dir, tensorboard=False, quiet=True)
    lines: list[str] = []
    assert make_runs(plan, "smoke", dirs, say=lines.append) == {}
    made = {path.parent.name for path in tmp_path.rglob(records.FILE_NAME)}
    assert len(made) == len(lines) > 2  # two rates are two ends, so there is another
    assert not list(tmp_path.rglob("*.pt"))
    assert next_run(plan, "smoke", dirs, {}) is None
    assert make_runs(plan, "smoke", dirs, say=lines.append) == {}
    assert len(lines) == len(made)
    (status,) = status_lines(plan, "smoke", dirs)
    assert status.startswith("c: ")
    assert "to do" not in status


def test_a_failed_run_is_named_and_does_not_hold_up_the_others(tmp_path: Path) -> None:
    plan = [Comparison("c", "mnist-deep", (Entrant("sgd", (0.1, 1.0)),), num_seeds=1)]
    dirs = RunDirs(tmp_path / "runs", tmp_path / "no-data", tensorboard=False, quiet=True)
    failed = make_runs(plan, "smoke", dirs, say=lambda line: None)
    assert len(failed) == 2
    assert all("train-images" in why for why in failed.values())


def test_the_plan_gives_every_tuned_optimizer_as_many_rates_and_no_key_twice() -> None:
    assert max(Counter(comparison.key for comparison in PLAN).values()) == 1
    for comparison in PLAN:
        assert "mini" in TASKS[comparison.task].recipes
        for entrant in comparison.entrants:
            assert list(entrant.lrs) == sorted(set(entrant.lrs))
            if entrant.default is None:
                assert len(entrant.lrs) == NUM_RATES
            else:
                is_alone = comparison.key.startswith(("default/", "published/"))
                assert entrant.default in (entrant.lrs if is_alone else entrant.lrs[1:-1])
            for lr in entrant.lrs:
                RunConfig(comparison.task, "mini", entrant.optimizer, lr, 0, comparison.variant)


def test_mini_recipes_are_in_float32_and_say_what_they_shrank() -> None:
    found = [task.recipes["mini"] for task in TASKS.values() if "mini" in task.recipes]
    assert len(found) == 13
    for recipe in found:
        assert recipe.precision == "float32"
        assert recipe.shrunk
        assert recipe.epochs % 2 == 0  # so that half time is the end of an epoch


def test_rates_around_one() -> None:
    assert around(0.003) == (0.0003, 0.0009, 0.003, 0.009, 0.03)

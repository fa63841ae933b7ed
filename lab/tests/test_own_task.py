"""A task of a user's own: run and resumed, by the example in ``examples``."""

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import forget_modules
from test_run import assert_resumes_to_the_bit, dirs

from nero_lab.cli.arguments import parse
from nero_lab.engine.schedules import Constant, Cosine, Steps
from nero_lab.runner import RunConfig, run
from nero_lab.sweep import grid
from nero_lab.tasks import TASKS, find_task

EXAMPLE = Path(__file__).parents[1] / "examples" / "spirals.py"


@pytest.fixture(autouse=True)
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put the example where the command is given."""
    shutil.copy(EXAMPLE, tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    forget_modules(tmp_path)


def test_the_example_is_short() -> None:
    lines = EXAMPLE.read_text().splitlines()
    assert len([line for line in lines if line.strip()]) <= 66


def test_the_example_learns(tmp_path: Path) -> None:
    config = RunConfig("spirals:TASK", epochs=10, options={"num_points": 1024})
    record = run(config, dirs(tmp_path / "runs", tmp_path))
    assert record.last("valid_accuracy") > 0.7  # seen: 0.78; guessing: 0.5


def test_the_example_resumes_to_the_bit(tmp_path: Path) -> None:
    assert_resumes_to_the_bit(RunConfig("spirals:TASK", scale="smoke"), tmp_path, tmp_path)


def test_an_own_task_cannot_pass_for_one_of_the_lab() -> None:
    assert find_task("spirals:TASK").name == "spirals:TASK"
    assert find_task("pong") is TASKS["pong"]
    config = RunConfig("nero_lab.tasks.pong:PONG")
    assert config.name == "nero_lab.tasks.pong.PONG/cpu/nero-lr0.01-seed0"
    assert [found.task for found in grid("spirals:TASK", lrs=[0.1])] == ["spirals:TASK"]


def test_runs_of_an_own_task_have_its_name(tmp_path: Path) -> None:
    assert RunConfig("spirals:TASK").name == "spirals/cpu/nero-lr0.01-seed0"
    named = "from dataclasses import replace\n\nimport spirals\n"
    named += "\n".join(
        f"{name} = replace(spirals.TASK, name={own!r})"
        for name, own in {"OTHER": "two-spirals", "PATH": "../spirals", "LAB": "pong"}.items()
    )
    (tmp_path / "named.py").write_text(named)
    names = [RunConfig(f"named:{each}").name.split("/cpu")[0] for each in ("OTHER", "PATH", "LAB")]
    assert names == ["two-spirals", "named.PATH", "named.LAB"]


def test_settings_of_a_recipe_can_be_changed() -> None:
    options = {
        "batch_size": 20,
        "clip_norm": 0.5,
        "precision": "bfloat16",
        "schedule": "Steps(at=(0.5, 0.75), factor=.2)",
        "width": 8,
    }
    config = RunConfig("spirals:TASK", options=options)
    recipe, plain = config.recipe, RunConfig("spirals:TASK").recipe
    assert (recipe.batch_size, recipe.clip_norm, recipe.precision) == (20, 0.5, "bfloat16")
    assert recipe.schedule == Steps(at=(0.5, 0.75), factor=0.2)
    assert recipe.options == {**plain.options, "width": 8}
    assert plain.schedule == Cosine()
    assert RunConfig("pong", options={"clip_norm": None}).recipe.clip_norm is None
    assert config.name == (
        "spirals/cpu/nero-lr0.01-seed0-batch_size=20-clip_norm=0.5-precision=bfloat16-"
        "schedule=Steps(at=(0.5,0.75),factor=0.2,warmup=0.0)-width=8"
    )
    # Optimizers that bring their own schedule keep the warm-up alone.
    own = RunConfig("spirals:TASK", optimizer="schedule-free", options={"schedule": "Linear"})
    assert own.recipe.schedule == Constant()


def test_the_command_of_a_run_with_settings_makes_the_same_run() -> None:
    options = {"clip_norm": None, "schedule": "Cosine(warmup=0.1)", "precision": "bfloat16"}
    config = RunConfig("spirals:TASK", options=options)
    args = parse(shlex.split(config.command)[1:])
    assert RunConfig(args.task, lr=args.lr, options=dict(args.set)).name == config.name

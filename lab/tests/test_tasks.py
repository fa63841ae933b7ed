"""What every task promises, whatever it trains."""

import pytest
import torch
from parameters import num_params

from nero_lab.cli.listing import print_task, print_tasks
from nero_lab.engine.optimizers import OPTIMIZERS
from nero_lab.engine.task import Task
from nero_lab.models.resnet import resnet18
from nero_lab.models.translation import Translator
from nero_lab.models.vgg import VGG11
from nero_lab.runner.options import check_variant
from nero_lab.tasks import TASKS

each_task = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)


@each_task
def test_every_scale_and_variant_has_the_same_options(task: Task) -> None:
    assert set(task.recipes) - {"mini"} == {"paper", "cpu", "smoke"}
    (options,) = {frozenset(recipe.options) for recipe in task.recipes.values()}
    assert options
    for changes in task.variants.values():
        check_variant(changes, task)


@each_task
def test_every_recipe_says_how_long_it_takes(task: Task) -> None:
    assert all(recipe.takes for recipe in task.recipes.values())


@each_task
def test_a_published_rate_is_one_of_the_published_grid(task: Task) -> None:
    assert set(task.grids) <= set(task.lrs)
    for optimizer, grid in task.grids.items():
        assert task.lrs[optimizer] in grid
        assert list(grid) == sorted(set(grid))


def test_optimizers_that_are_compared_are_tuned_over_as_many_rates() -> None:
    grids = {name: task.grids for name, task in TASKS.items() if task.grids}
    assert set(grids) == {
        *("cifar-vgg11", "mnist-deep", "cgan"),
        *("cifar-resnet18", "wikitext2", "multi30k", "pong"),
    }
    sizes = {name: {key: len(grid) for key, grid in found.items()} for name, found in grids.items()}
    paper = {"nero": 5, "sgd": 5, "adam": 5, "lamb": 5}
    assert sizes.pop("mnist-deep") == dict.fromkeys(paper, 4)
    vgg = sizes.pop("cifar-vgg11")  # with the ablation, which the paper tuned more finely
    assert list(vgg.values()) == [6] * 10
    assert all(found == paper for found in sizes.values())


def test_sizes_at_paper_scale_are_those_of_the_networks() -> None:
    recipes = {name: TASKS[name].recipes["paper"].options for name in TASKS}
    translator = {key: recipes["multi30k"][key] for key in ("num_layers", "width", "hidden")}
    vgg = {key: recipes["cifar-vgg11"][key] for key in ("width", "init", "biases", "head")}
    with torch.device("meta"):
        networks = {
            "cifar-vgg11": VGG11(**vgg),
            "cifar-resnet18": resnet18(width=recipes["cifar-resnet18"]["width"]),
            # The vocabulary of Multi30k, as the lab splits it.
            "multi30k": Translator(vocabulary=9_495, padding=0, **translator),
        }
    for name, network in networks.items():
        assert TASKS[name].paper_parameters == num_params(network)


def test_the_list_has_a_line_for_every_task(capsys: pytest.CaptureFixture[str]) -> None:
    print_tasks()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[: len(TASKS)]] == [*TASKS]
    assert {*OPTIMIZERS} <= {word.strip(",") for word in lines[-2].split()}


@pytest.mark.parametrize("task", TASKS.values(), ids=[*TASKS])
def test_a_task_fits_a_terminal_without_cutting_names(
    task: Task, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    print_task(task)
    printed = capsys.readouterr().out
    lines = [line.split() for line in printed.splitlines() if line]
    assert {*OPTIMIZERS, *task.recipes} <= {words[0] for words in lines}
    assert f"{task.name}: {task.title}" in printed
    assert set(task.variants) <= {word.strip(",;") for words in lines for word in words}

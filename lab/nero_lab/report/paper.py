"""The numbers published by the paper and its authors, read from the files next to this module."""

from functools import cache
from importlib.resources import files

import pandas as pd
from pandas import DataFrame

TABLE = {
    "cgan": "the CIFAR-10 cGAN",
    "cifar-vgg11": "VGG-11 (CIFAR-10)",
    "cifar-resnet18": "ResNet-18 (CIFAR-10)",
    "wikitext2": "the WikiText-2 transformer",
    "multi30k": "the Multi30k transformer",
    "pong": "Pong (PPO)",
}
"""The tasks of Table 1, in its order, with their names in a sentence."""


def scores(task: str, optimizer: str | None = None) -> DataFrame:
    """Return the paper's scores on a task, for all optimizers or for one."""
    found = _read("scores.csv")
    found = found[found.task == task]
    return found if optimizer is None else found[found.optimizer == optimizer]


def curves(task: str, metric: str) -> DataFrame:
    """Return the authors' curves at every learning rate; only the best ones have more than one point."""
    found = _read("curves.csv")
    return found[(found.task == task) & (found.metric == metric)]


def best_curves(task: str, metric: str) -> DataFrame:
    """Return the authors' curves at the learning rate that they chose for each optimizer."""
    return curves(task, metric).query("num_seeds > 1")


def at(curves: DataFrame, x: float) -> DataFrame:
    """Return the curves' points at an epoch or step, or their last points if they end before it."""
    reached = curves[(curves.x >= x) | (curves.x == curves.x.max())]
    return reached.groupby("optimizer", sort=False).head(1)


@cache
def _read(name: str) -> DataFrame:
    with (files("nero_lab.report") / "published" / name).open() as file:
        return pd.read_csv(file, keep_default_na=False, na_values=["nan"])

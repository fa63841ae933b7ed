"""The numbers that the paper and its authors published, read from the files beside this module."""

from functools import cache
from importlib.resources import files

import pandas as pd
from pandas import DataFrame

TABLE = {
    "cgan": "the CIFAR-10 cGAN",
    "cifar-vgg11": "VGG-11 on CIFAR-10",
    "cifar-resnet18": "ResNet-18 on CIFAR-10",
    "wikitext2": "the WikiText-2 transformer",
    "multi30k": "the Multi30k transformer",
    "pong": "PPO on Pong",
}
"""The tasks of Table 1, in its order, and how a sentence names them."""


def scores(task: str, optimizer: str | None = None) -> DataFrame:
    """Return the scores that the paper gives on a task, of one optimizer if it is named."""
    found = _read("scores.csv")
    found = found[found.task == task]
    return found if optimizer is None else found[found.optimizer == optimizer]


def curves(task: str, metric: str) -> DataFrame:
    """Return the authors' curves at every rate; those of rates that were not the best are one point."""
    found = _read("curves.csv")
    return found[(found.task == task) & (found.metric == metric)]


def best_curves(task: str, metric: str) -> DataFrame:
    """Return the authors' curves at the rate that they chose for each optimizer."""
    return curves(task, metric).query("num_seeds > 1")


def at(curves: DataFrame, x: float) -> DataFrame:
    """Return the points of curves at an epoch or step, the last if it is later."""
    reached = curves[(curves.x >= x) | (curves.x == curves.x.max())]
    return reached.groupby("optimizer", sort=False).head(1)


@cache
def _read(name: str) -> DataFrame:
    with (files("nero_lab.report") / "published" / name).open() as file:
        return pd.read_csv(file, keep_default_na=False, na_values=["nan"])

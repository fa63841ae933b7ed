"""The numbers that the paper and its authors published, read from the files beside this module."""

import csv
import math
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from nero_lab.engine.task import Task


@dataclass(frozen=True)
class TableRow:
    """Where a task is in Table 1: the value of a column, and how a sentence names the task."""

    column: str
    value: str
    title: str


TABLE = {
    "cgan": TableRow("task", "cgan", "the CIFAR-10 cGAN"),
    "cifar-vgg11": TableRow("model", "VGG-11", "VGG-11 on CIFAR-10"),
    "cifar-resnet18": TableRow("model", "ResNet-18", "ResNet-18 on CIFAR-10"),
    "wikitext2": TableRow("task", "language-model", "the WikiText-2 transformer"),
    "multi30k": TableRow("task", "translation", "the Multi30k transformer"),
    "pong": TableRow("task", "ppo", "PPO on Pong"),
}
"""The tasks of Table 1, in its order."""

# The rows of the ablation: (optimiser, fix_mean, fix_norm) -> our name.
_ABLATION = {
    ("nero", "0", "0"): "nero-none",
    ("nero", "1", "0"): "nero-mean",
    ("nero", "0", "1"): "nero-norm",
    ("nero", "1", "1"): "nero",
    ("madam", "0", "0"): "madam",
    ("madam", "1", "1"): "madam-balanced",
    ("lamb", "0", "0"): "lamb",
    ("lamb", "1", "1"): "lamb-balanced",
}


@dataclass(frozen=True)
class Published:
    """A number of the paper: mean and standard deviation over three seeds, and the rate."""

    mean: float
    spread: float
    lr: float
    where: str  # "Table 1" or "ablation"
    metric: str = ""  # named only if it is not the task's


@dataclass(frozen=True)
class PublishedCurve:
    """A curve that the authors published: mean and range over seeds."""

    optimizer: str
    variant: str
    lr: float
    num_seeds: int
    x: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    def range_at(self, x: float) -> tuple[float, float]:
        """Return lowest and highest value over seeds at an epoch or step, the last if it is later."""
        index = next((i for i, own in enumerate(self.x) if own >= x), -1)
        return self.low[index], self.high[index]


def published(task: Task, optimizer: str) -> list[Published]:
    """Return what the paper gives for an optimiser on a task: none, one or two numbers."""
    found = []
    if task.name in TABLE:
        place = TABLE[task.name]
        for row in _read("table_results.csv"):
            if row[place.column] == place.value and row["optimiser"] == optimizer:
                other = row["metric"] == "FID" and "fid" not in task.metric.name
                mean, spread, lr = (float(row[key]) for key in ("mean", "spread", "best_lr"))
                found.append(Published(mean, spread, lr, "Table 1", "FID" if other else ""))
    if task.name == "cifar-vgg11":
        for row in _read("table_ablation.csv"):
            if _ABLATION[row["optimiser"], row["fix_mean"], row["fix_norm"]] == optimizer:
                keys = ("top1_error_percent", "spread", "best_lr")
                mean, spread, lr = (float(row[key]) for key in keys)
                found.append(Published(mean, spread, lr, "ablation"))
    return found


def curves(task: Task, metric: str) -> list[PublishedCurve]:
    """Return the authors' curves of a metric at every rate; those of lesser rates are one point."""
    if (task.name, metric) == ("mnist-deep", "train_accuracy"):
        return _curves("mnist_100_layer_curves.csv")
    if (task.name, metric) == ("mnist-reparam", "train_accuracy"):
        return _curves("mnist_reparameterised_adam_curves.csv", x="step")
    if task.name == "multi30k" and metric in ("train_perplexity", "valid_perplexity"):
        return _curves("multi30k_curves.csv", prefix=metric.split("_")[0] + "_")
    return []


def best_curves(task: Task, metric: str) -> list[PublishedCurve]:
    """Return the authors' curves at the rate that they chose for each optimiser."""
    return [curve for curve in curves(task, metric) if curve.num_seeds > 1]


def _curves(name: str, *, x: str = "epoch", prefix: str = "") -> list[PublishedCurve]:
    grouped: dict[tuple[str, str, float], list[dict[str, str]]] = {}
    for row in _read(name):
        variant = f"sigma-{row['sigma']}" if "sigma" in row else ""
        key = (row.get("optimiser", "adam"), variant, float(row.get("lr", "0.01")))
        grouped.setdefault(key, []).append(row)
    return [
        PublishedCurve(
            *key,
            int(rows[0]["num_seeds"]),
            tuple(float(row[x]) for row in rows),
            tuple(float(row[prefix + "mean"]) for row in rows),
            tuple(float(row[prefix + "low"]) for row in rows),
            tuple(float(row[prefix + "high"]) for row in rows),
        )
        for key, rows in grouped.items()
    ]


def reached_the_end(curve: PublishedCurve, all_curves: list[PublishedCurve]) -> bool:
    """Say whether a curve goes on to the last epoch of any, with a number."""
    last = max(other.x[-1] for other in all_curves)
    return curve.x[-1] == last and math.isfinite(curve.mean[-1])


@cache
def _read(name: str) -> list[dict[str, str]]:
    text = (files("nero_lab.report") / "published" / name).read_text()
    return list(csv.DictReader(text.splitlines()))

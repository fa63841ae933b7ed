"""The plan, as data: the comparisons of the protocol, in the order in which they are run.

``lab/PROTOCOL.md`` says the same in words, and why.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from nero_lab.engine.optimizers import OPTIMIZERS
from nero_lab.tasks import TASKS


@dataclass(frozen=True)
class Entrant:
    """One optimizer in a comparison.

    Args:
        optimizer: its name.
        lrs: the learning rates that are run with the first seed, from small to large.
        default: the learning rate to score regardless of the others; None to score the best one.
    """

    optimizer: str
    lrs: tuple[float, ...]
    default: float | None = None


@dataclass(frozen=True)
class Comparison:
    """Optimizers that are compared with one another on one task.

    Args:
        key: a name, unique in the plan.
        task: name of a task.
        entrants: who is compared.
        variant: of the task.
        num_seeds: number of seeds at each optimizer's scored learning rate.
    """

    key: str
    task: str
    entrants: tuple[Entrant, ...]
    variant: str | None = None
    num_seeds: int = 3


NUM_RATES = 5
"""Learning rates that every tuned optimizer gets."""

MAX_ADDED = 2
"""Rates that are added beyond an end of those, while the best one is that end."""

MAX_BEHIND = 0.3
"""A run whose score at half time is worse than another rate's by more than this share is stopped."""

PRESETS = ("nero-rows", "nero-polar")
TODAY_TASKS = (
    *("shakespeare", "wikitext2", "multi30k", "zipf-words"),
    *("cifar-vit", "cifar-resnet18", "shakespeare-moe"),
)
PLAIN_TASKS = ("cifar-vgg11", "mnist-deep")  # whose networks have no normalization layers
TRANSFER_VARIANTS = (
    *(None, "width-64", "width-256", "layers-2", "layers-8", "layers-16"),
    *("steps-600", "steps-1200"),
)
TABLE_1_TASKS = ("wikitext2", "multi30k", "cifar-vgg11", "cifar-resnet18", "cgan")  # and Pong, last
OF_PAPER = ("nero", "sgd", "adam", "lamb")

_COSINE = ("wikitext2", "multi30k")  # their own schedules have no warm-up, and steps or a triangle
_CONVOLUTIONAL = ("cifar-resnet18", "cifar-vgg11")  # torch's Muon takes matrices only
_BATCH_NORM = ("cifar-resnet18",)  # schedule-free AdamW refuses it
# The published rates go with losses summed over words (0.0001) and with 20 epochs; see the tasks.
_USUAL = {("multi30k", "sgd"): 0.1, ("multi30k", "nero"): 0.01, ("multi30k", "adam"): 0.001}


def around(lr: float) -> tuple[float, ...]:
    """Return five rates, half a decade apart, with the given one in the middle.

    Example:
        >>> around(0.01)
        (0.001, 0.003, 0.01, 0.03, 0.1)
    """
    return tuple(float(f"{lr * factor:.6g}") for factor in (0.1, 0.3, 1, 3, 10))


def _variant(task: str) -> str | None:
    return "cosine" if task in _COSINE else None


def _preset(name: str) -> Entrant:
    lr = OPTIMIZERS[name].lr
    return Entrant(name, (lr / 2, lr, 2 * lr), default=lr)


def _today(task: str, *rivals: str, key: str, num_seeds: int = 3) -> Comparison:
    tuned = (Entrant(name, OPTIMIZERS[name].grid) for name in rivals)
    entrants = (*map(_preset, PRESETS), *tuned)
    return Comparison(f"{key}/{task}", task, entrants, _variant(task), num_seeds)


def _of_paper(
    task: str, optimizers: tuple[str, ...], *, key: str, num_seeds: int = 3
) -> Comparison:
    found: Mapping[str, float] = TASKS[task].lrs
    usual = {name: _USUAL.get((task, name), found[name]) for name in optimizers}
    entrants = tuple(Entrant(name, around(lr)) for name, lr in usual.items())
    return Comparison(f"{key}/{task}", task, entrants, num_seeds=num_seeds)


def _scored_at(optimizer: str, *lrs: float) -> tuple[Entrant, ...]:
    return tuple(Entrant(optimizer, (lr,), default=lr) for lr in lrs)


def _lower() -> tuple[Entrant, ...]:
    tried = (0.0015, 0.003, 0.006)
    return tuple(Entrant(name, tried, default=0.003) for name in PRESETS)


def _transfer(variant: str | None) -> Comparison:
    tuned = (Entrant(name, OPTIMIZERS[name].grid) for name in ("adamw", "muon"))
    presets = (replace(one, lrs=(*one.lrs, 2 * one.lrs[-1])) for one in map(_preset, PRESETS))
    entrants = (*presets, *tuned)
    key = f"transfer/{variant or 'base'}"
    return Comparison(key, "shakespeare-transfer", entrants, variant, num_seeds=1)


def _first(task: str) -> tuple[str, ...]:
    return ("adamw", "sgd-momentum") if task in _CONVOLUTIONAL else ("adamw", "muon")


def _others(task: str) -> tuple[str, ...]:
    names = ("sgd-momentum", "normuon") if task not in _CONVOLUTIONAL else ()
    return (*names, "soap", *(() if task in _BATCH_NORM else ("schedule-free",)))


def _everybody(task: str) -> tuple[str, ...]:
    return (*_first(task), *_others(task))


PLAN: tuple[Comparison, ...] = (
    *(_today(task, *_first(task), key="today") for task in (*TODAY_TASKS, *PLAIN_TASKS)),
    *(_of_paper(task, OF_PAPER, key="table-1") for task in TABLE_1_TASKS),
    _of_paper(
        "cifar-vgg11",
        ("nero", "nero-none", "nero-mean", "nero-norm"),
        key="constraints",
        num_seeds=5,
    ),
    _of_paper(
        "cifar-vgg11",
        ("nero", "nero-none", "madam", "madam-balanced", "lamb", "lamb-balanced"),
        key="granularity",
        num_seeds=5,
    ),
    *(
        Comparison(
            f"reparameterization/{variant}",
            "mnist-reparam",
            (Entrant("adam-momentum", around(0.01)), Entrant("adam", around(0.01))),
            variant,
            num_seeds=5,
        )
        for variant in ("sigma-1", "sigma-100")
    ),
    _of_paper("mnist-deep", OF_PAPER, key="deep"),
    *(_today(task, *_others(task), key="others") for task in TODAY_TASKS if _others(task)),
    *(_today(task, *_everybody(task), key="seeds", num_seeds=5) for task in TODAY_TASKS),
    _of_paper(
        "cifar-vgg11", ("nero", "madam-balanced", "lamb-balanced"), key="twenty-seeds", num_seeds=20
    ),
    Comparison("published/multi30k", "multi30k", _scored_at("sgd", 0.03, 0.1)),
    *(
        Comparison(f"default/{task}", task, _scored_at("nero", OPTIMIZERS["nero"].lr))
        for task in TABLE_1_TASKS
    ),
    Comparison("lower/mnist-deep", "mnist-deep", _lower()),
    *map(_transfer, TRANSFER_VARIANTS),
    _of_paper("pong", OF_PAPER, key="table-1"),
)
"""Every comparison, in the order in which they are run; runs that two of them share are made once."""

"""Random tensors to step: shapes, layouts, constraints, options, and some rows spoiled."""

import math
import random

import torch

from nero.backends.triton.cases import _Maker
from nero.backends.triton.launch import Variant, _why_not_memory
from nero.core.sphere import Sphere
from nero.core.update import Update

_CONSTRAINTS = (
    Sphere(), Sphere(centre=False), Sphere(radius=None), Sphere("initial"), Sphere(3.0),
    Sphere(radius=None, centre=False),
)  # fmt: skip
_FAN_INS = (
    *(1, 2, 3, 12, 16, 27, 32, 33, 48, 64, 75, 100, 128, 147, 256, 257, 272),
    *(768, 777, 1024, 1040, 2064),
)


def random_updates(variant: Variant, *, num: int, seed: int) -> list[Update]:
    """Return updates that the kernel of this variant can walk."""
    make, pick, found = _Maker(variant, seed), random.Random(seed), []
    while len(found) < num:
        fan_in = pick.choice(_FAN_INS)
        neurons = pick.randint(1, 40 if fan_in <= 64 else 6)
        few = min(fan_in, 40)  # columns and pieces take many blocks
        shape, dims = pick.choice((
            ((neurons, fan_in), (0,)), ((few, neurons), (1,)), ((neurons * few,), None),
            ((2, few, neurons), (0, 2)), ((few, min(neurons, 3), 3, 3), (1,)),
        ))  # fmt: skip
        options = {
            "constraint": pick.choice(_CONSTRAINTS), "norm": pick.choice(("rms", "peak")),
            "beta": pick.choice((0.0, 0.9, 0.999)), "maximize": pick.random() < 0.3,
            "nonfinite": pick.choice(("skip", "propagate")), "lr": pick.choice((0.01, 0.5)),
        }  # fmt: skip
        update = make(f"{shape}", shape, dims, **options).update
        if variant.shared and update.neurons.is_elementwise:  # nothing to sum over ranks
            continue
        for _ in range(3):  # some elements, or the neurons around them
            row = tuple(pick.randrange(n) for n in shape)
            size = pick.choice((0.0, 1e-30, 1e30, math.nan, math.inf))
            update.grad[row if pick.random() < 0.5 else row[:1]] *= size
        if pick.random() < 0.3:
            update.weight[0] = pick.choice((0.0, 0.25))
        if pick.random() < 0.2:
            update = update._replace(lr=torch.tensor(0.02))
        if _why_not_memory(update) is None:
            found.append(update)
    return found

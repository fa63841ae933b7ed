"""Detect trained weights, and warn before the default constraint changes them.

Weights count as trained if most of them are in layers whose `training_score` is above the threshold. We
check the whole model, then each of its top-level children, because a trained body may have a larger new
head. Layers that already obey the constraint, because Nero trained them, are skipped. We sample blocks of
a few layers.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch._subclasses import FakeTensor

from nero.checks.advice import is_chosen
from nero.core.held import Held
from nero.core.sphere import Sphere, as_constraint, is_balanced, project
from nero.core.traces import MIN_SIZE, THRESHOLD, training_score
from nero.core.warn import warn_user
from nero.hold import hold_in

Group: TypeAlias = Mapping[str, Any]

MIN_CHANGE = 0.1  # relative; rounding or averaging weights changes them by less
MIN_LAYERS = 4  # of a child that is judged by itself
NUM_PICKS, NUM_CHILDREN = 21, 5
# Torch works on so few numbers in one thread, where waiting for busy cores could cost more than the work.
NUM_NUMBERS, BLOCK = 30_720, (160, 192)


@dataclass(frozen=True, eq=False)
class Layer:
    """The neurons of one parameter."""

    name: str
    param: Tensor
    weight: Tensor
    """This rank's shard of the parameter, viewed so that `fan_in_dims` applies."""
    fan_in_dims: tuple[int, ...]
    constraint: Sphere
    """The constraint onto which its neurons will be projected."""

    def rows(self, num_rows: int, num_columns: int) -> Tensor:
        """Return evenly spaced neurons, and the first weights of each, as a matrix on the CPU."""
        neuron_dims = [d for d in range(self.weight.ndim) if d not in self.fan_in_dims]
        weight = self.weight.detach().permute(*neuron_dims, *self.fan_in_dims)
        for d in range(len(neuron_dims)):
            kept = min(weight.shape[d], max(num_rows, 1))
            places = slice(None, None, weight.shape[d] // kept)
            weight = weight[(slice(None),) * d + (places,)].narrow(d, 0, kept)
            num_rows //= kept
        for d in reversed(range(len(neuron_dims), weight.ndim)):
            kept = min(weight.shape[d], max(num_columns, 1))
            weight = weight.narrow(d, 0, kept)
            num_columns //= kept
        return weight.flatten(len(neuron_dims)).flatten(0, -2).cpu()


def layers_of(
    groups: Iterable[Group],
    constraint: Sphere | None = None,
    *,
    among: Mapping[Tensor, Held] | None = None,
) -> list[Layer]:
    """Return the layers to check, in groups without a chosen constraint.

    They are trainable, large enough, and their neurons are not sharded.

    Args:
        groups: param groups.
        constraint: the constraint of groups without one.
        among: the parameters to check, as this rank holds them; by default all.
    """
    layers = []
    for group in groups:
        sphere = group.get("constraint", constraint)
        if sphere is None or is_chosen(group, "constraint"):
            continue
        names = group.get("param_names", ())
        is_named = len(names) == len(
            group["params"]
        )  # engines may take parameters, and leave names
        for place, param in enumerate(group["params"]):
            if not param.requires_grad or param.is_meta:
                continue
            if among is not None and param not in among:
                continue
            held = hold_in(group, param) if among is None else among[param]
            neurons = held.neurons
            if held.neuron_mesh_dims:
                continue
            weight = neurons.view(held.local)
            size = min(neurons.fan_in, weight.numel() // neurons.fan_in)
            if size >= MIN_SIZE and not isinstance(weight, FakeTensor):
                name = names[place] if is_named else ""
                layers.append(
                    Layer(name, param, weight, neurons.fan_in_dims, as_constraint(sphere))
                )
    return layers


@torch.no_grad()
def warn_if_trained(layers: Sequence[Layer]) -> bool:
    """Warn if these layers, or those of one child, are trained and not on the constraint.

    Returns:
        Whether it did.
    """
    projected = cache(_projected)
    score = cache(lambda layer: training_score(layer.rows(*BLOCK)))

    def is_trained(layer: Layer) -> bool:
        return projected(layer).is_on_a_sphere or score(layer) > THRESHOLD

    for part, members in _parts(layers) if layers else ():
        off = [layer for layer in _picks(members) if projected(layer).ratio > MIN_CHANGE]
        # Most weights and most layers must look trained: one large sinusoidal table is not a trained model.
        if all(2 * sum(map(is_trained, each)) > len(each) for each in (off, {*off})):
            changed = sum(projected(layer).change_sq for layer in off)
            total = _Projected(changed, sum(projected(layer).size_sq for layer in off))
            spheres = " or ".join(dict.fromkeys(str(layer.constraint) for layer in off))
            warn_user(
                f"{part} look pretrained, and the default constraint changes them by "
                f"{total.ratio:.0%}: it projects every neuron to {spheres}. To fine-tune, pass "
                'constraint="initial", which leaves them unchanged. To project them anyway, pass the '
                'constraint, such as constraint="balanced"'
            )
            return True
    return False


class LoadWatch:
    """Warns at the first step after trained weights were loaded.

    Torch counts the writes to a tensor. Before the first step, and whenever a count has changed since the
    last one, the weights are checked as at construction. Weight clipping also writes before every step,
    so repeated checks become rare.
    """

    def __init__(self) -> None:
        self._budget = _MAX_JUDGMENTS
        self._params: list[Tensor] | None = None
        self._versions: list[int] = []

    def before_step(self, groups: Iterable[Group], constraint: Sphere | None = None) -> None:
        """Check the weights of these groups if they were written to."""
        if self._params is not None and self._versions == [*map(_version, self._params)]:
            self._budget = min(self._budget + 1 / _REST, _MAX_JUDGMENTS)
            return
        if self._budget < 1:
            return
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            return  # a graph cannot bring weights to the CPU
        self._budget -= 1
        layers = layers_of(groups, constraint)
        watched = [] if warn_if_trained(layers) else [layer.param for layer in layers]
        self._params = watched[:: len(watched) // 32 + 1]

    def after_step(self) -> None:
        """Record the write counts after the step."""
        self._versions = [*map(_version, self._params or [])]


_version = attrgetter("_version")
_MAX_JUDGMENTS = 3.0
_REST = 100
"""Steps without a write after which one more check is allowed, up to the maximum."""


def _parts(layers: Sequence[Layer]) -> list[tuple[str, Sequence[Layer]]]:
    """Return the model, then its largest top-level children, each with its name in the warning."""
    paths = [layer.name.split(".") for layer in layers]
    depth = 0  # number of leading name parts that all layers share
    while all(len(path) > depth + 1 and path[depth] == paths[0][depth] for path in paths):
        depth += 1
    children: dict[str, list[Layer]] = {}
    for layer, path in zip(layers, paths, strict=True):
        children.setdefault(".".join(path[: depth + 1]), []).append(layer)
    large = [(name, found) for name, found in children.items() if len(found) >= MIN_LAYERS]
    large.sort(key=lambda child: -sum(layer.weight.numel() for layer in child[1]))
    named = [(f"the weights of `{name}`", found) for name, found in large[:NUM_CHILDREN]]
    return [("the weights", layers), *named]


def _picks(layers: Sequence[Layer]) -> list[Layer]:
    """Sample layers in proportion to their sizes, so that half of them hold half of the weights."""
    ends = torch.tensor([layer.weight.numel() for layer in layers], dtype=torch.int64).cumsum(0)
    places = (2 * torch.arange(NUM_PICKS) + 1) * ends[-1:] // (2 * NUM_PICKS)
    return [layers[i] for i in torch.searchsorted(ends, places, right=True).tolist()]


class _Projected(NamedTuple):
    """The effect of projection on a sample of a layer's rows."""

    change_sq: float
    """Mean square of the change."""
    size_sq: float
    """Mean square of the weights."""
    is_on_a_sphere: bool = False
    """Whether all neurons have mean zero and the same norm, as after Nero, but never in fresh weights."""

    @property
    def ratio(self) -> float:
        return math.sqrt(self.change_sq / self.size_sq) if self.size_sq else 0.0


def _projected(layer: Layer) -> _Projected:
    fan_in = math.prod(layer.weight.shape[d] for d in layer.fan_in_dims)
    rows = layer.rows(min(16, NUM_NUMBERS // fan_in), fan_in)
    norm = torch.linalg.vector_norm(rows.double(), dim=1).median().item()
    is_on_a_sphere = norm > 0 and is_balanced(rows, fan_in_dims=(1,), constraint=Sphere(norm)).all()
    rows = rows.double()
    change = project(rows, fan_in_dims=(1,), constraint=layer.constraint) - rows
    sizes = change.square().mean().item(), rows.square().mean().item()
    return _Projected(*sizes, bool(is_on_a_sphere))

"""The cases of the self-test: each rule of an update, on a tensor of a few weights.

Users see case names, so each name says which single rule the case tests. All random numbers come from
a separate generator, and are the same everywhere.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nero.backends.geometry import scatters_noise
from nero.backends.triton.launch import Variant
from nero.backends.triton.table import TILES, Kind
from nero.core.neurons import Layout, Role
from nero.core.spec import STATE, Hyper
from nero.core.sphere import Sphere
from nero.core.update import Update

_LR, _STEP, _FAN_IN = 0.1, 2, 27
_HUGE, _TINY = 1e30, 1e-30  # their squares are outside float32's range


class Case(NamedTuple):
    """A parameter to step."""

    name: str
    update: Update
    rows: tuple[str, ...] = ()
    """Names of the rows along dim 0, if each is a case."""
    num_steps: int = 1


def cases(variant: Variant) -> list[Case]:
    """Return the cases that are stepped once: rules, options, and every kind of tile."""
    make = _Maker(variant)
    if variant.kept:
        lengths = (variant.kept // 2 + 16, variant.kept)
        return [*_awkward_tiles(make, {f"rows of up to {variant.kept}": lengths})]
    awkward = [_awkward_rows(make), _awkward_elements(make)]
    tiles = [*_tiles(make), *_awkward_tiles(make, _fan_ins())]
    if variant.momentum or variant.stochastic:  # the same lines of the kernel handle the options
        return [*awkward, *tiles]
    return [*awkward, _propagated(make), *_options(make), *tiles]


def moving_cases(variant: Variant) -> list[tuple[Case, Case]]:
    """Return the cases that are stepped twice: before and after an address or ``lr`` has changed."""
    if variant.kept:  # the kernel of all other tiles has them
        return []
    make = _Maker(variant, seed=1)
    moved, rated = make("a gradient that moves", (5,)), make("a learning rate that changes", (5,))
    return [
        (moved, _again(moved, grad=make.randn((5,)))),
        (rated, _again(rated, lr=_LR / 2)),
    ]


def _again(case: Case, **changes: Any) -> Case:
    return case._replace(update=case.update._replace(**changes), num_steps=2)


def twin(case: Case) -> Case:
    """Copy the tensors that a step writes; the gradient is shared."""
    update = case.update
    state = {key: tensor.clone() for key, tensor in update.state.items()}
    return case._replace(update=update._replace(weight=update.weight.clone(), state=state))


class _Maker:
    """Makes cases for one kernel."""

    def __init__(self, variant: Variant, seed: int = 0) -> None:
        self.variant, self._num_made = variant, 0
        self._generator = torch.Generator().manual_seed(seed)

    def randn(self, shape: tuple[int, ...]) -> Tensor:
        numbers = torch.randn(shape, generator=self._generator)
        return numbers.to(self.variant.device, self.variant.dtype)

    def __call__(
        self,
        name: str,
        shape: tuple[int, ...],
        neuron_dims: tuple[int, ...] | None = None,
        *,
        role: Role | None = None,
        lr: float | Tensor = _LR,
        rows: tuple[str, ...] = (),
        **options: Any,
    ) -> Case:
        """Make a case; elementwise without ``neuron_dims``."""
        device = self.variant.device
        role = role or ("other" if neuron_dims is None else "neuron")
        neurons = Layout(role, neuron_dims).at(shape)
        if self.variant.momentum is not None:
            is_half = self.variant.momentum == torch.bfloat16
            options["momentum_dtype"] = "bfloat16" if is_half else "float32"
            options = {"momentum": 0.9, **options}
        hyper = Hyper(stochastic_rounding=self.variant.stochastic, seed=5, **options)
        hyper = hyper.for_neurons(neurons)
        state = {}
        for key, spec in STATE.items():
            if spec.exists(neurons, hyper):
                size = {"scalar": (), "per neuron": neurons.state_shape, "per element": shape}
                made = torch.rand(size[spec.shape], generator=self._generator) + 0.5
                state[key] = made.to(device, spec.dtype_for(self.variant.dtype, hyper))
        state["step"].fill_(_STEP)
        state["num_skipped"].fill_(0)
        self._num_made += 1
        return Case(
            name,
            Update(
                weight=self.randn(shape) * 0.3,
                grad=self.randn(shape),
                state=state,
                neurons=neurons,
                hyper=hyper,
                lr=lr,
                position=self._num_made,
            ),
            rows,
        )


def _awkward_rows(make: _Maker) -> Case:
    rows = (
        "a usual row",
        "a gradient of zero",
        "a row of zeros",
        "a constant row",
        "a gradient with NaN",
        "a gradient with inf",
        "a huge gradient",
        "a tiny gradient",
        "a row that has missed steps",
        "a gradient of zero after missed steps",
    )
    case = make("awkward rows", (len(rows), _FAN_IN), (0,), rows=rows)
    weight, grad = case.update.weight, case.update.grad
    grad[1] = 0
    weight[2], weight[3] = 0, 0.25
    grad[4, 3], grad[5, 8] = math.nan, -math.inf
    grad[6] *= _HUGE
    grad[7] *= _TINY
    grad[9] = 0
    case.update.state["exp_avg_norm"][8:] = -0.0
    return case


def _fan_ins() -> dict[str, tuple[int, int]]:
    """Return two fan-ins for every kind of tile.

    The last block is short in the first and nearly full in the second.
    """
    long, strided = TILES[Kind.LONG][1], TILES[Kind.STRIDED][1]
    return {
        "rows of 3": (3, 3),
        "rows of 16": (16, 16),
        "rows of 48": (48, 48),
        "rows of 104": (104, 136),
        "wide rows": (272, 272),
        "rows of several blocks": (long + 16, 2 * long - 16),
        "columns": (40, 40),
        "odd rows of several blocks": (strided + 7, 2 * strided - 5),
    }


def _awkward_tiles(make: _Maker, fan_ins: dict[str, tuple[int, int]]) -> Iterator[Case]:
    """Make awkward neurons of some kinds of tile, with several blocks if the kind has them.

    Each kind is compiled separately, and so is each of a thread's numbers. The second case has the options
    that a kind has code for.
    """
    for name, (fan_in, other_fan_in) in fan_ins.items():
        dim = 1 if name == "columns" else 0
        shapes = [(5, fan_in), (3, other_fan_in)]
        first, second = shapes if dim == 0 else [shape[::-1] for shape in shapes]
        case = make(f"awkward {name}", first, (dim,), lr=1.0)
        weight, grad, state = case.update.weight, case.update.grad, case.update.state
        average = state["exp_avg_norm"].view(-1)
        grad.select(dim, 0).mul_(_TINY)  # is summed again in float64
        grad.select(dim, 1)[-1] = math.nan  # in the last block
        average[2] = -0.0  # has missed steps
        weight.select(dim, 3).zero_()
        _nearly_cancel(case.update, dim, 4)
        yield case

        case = make(f"{name} with options", second, (dim,), lr=1.0, constraint=Sphere("initial"))
        case.update.grad.select(dim, 0).mul_(_TINY)
        case.update.grad.select(dim, 1)[-1] = math.nan
        # No layout gives neurons this penalty, but the kernel has it.
        update = case.update._replace(hyper=case.update.hyper._replace(gain_penalty=0.5))
        _nearly_cancel(update, dim, 2)
        yield case._replace(update=update)


def _nearly_cancel(update: Update, dim: int, i: int) -> None:
    """Make a neuron nearly parallel to its step, and as long."""
    weight, grad = update.weight.select(dim, i), update.grad.select(dim, i)
    hyper, parallel = update.hyper, grad.clone()
    weight.mul_(0.03).add_(parallel, alpha=0.3)
    grad.sub_(hyper.gain_penalty * (weight - 1))
    average = math.sqrt(1 - hyper.beta**2) * parallel.float().norm()
    update.state["exp_avg_norm"].select(dim, i).fill_(average)
    if "exp_avg" in update.state:
        update.state["exp_avg"].select(dim, i).copy_(parallel)


def _propagated(make: _Maker) -> Case:
    rows = ("NaN that propagates", "zeros with a constant gradient", "zeros without a gradient")
    case = make("propagation", (3, _FAN_IN), (0,), rows=rows, nonfinite="propagate")
    weight, grad = case.update.weight, case.update.grad
    grad[0, 3] = math.nan
    weight[1:] = 0
    grad[1], grad[2] = 1, 0
    return case


def _awkward_elements(make: _Maker) -> Case:
    rows = (
        "a usual element",
        "an element without a gradient",
        "an element with NaN",
        "a huge gradient of an element",
        "a tiny gradient of an element",
        "an element that has missed steps",
    )
    case = make("awkward elements", (len(rows),), rows=rows)
    grad = case.update.grad
    grad[1], grad[2] = 0, math.nan
    grad[3] *= _HUGE
    grad[4] *= _TINY
    case.update.state["exp_avg_norm"][5] = -0.0
    return case


def _options(make: _Maker) -> list[Case]:
    device, shape = make.variant.device, (2, _FAN_IN)
    return [
        make("maximize", shape, (0,), maximize=True),
        make("a norm without a mean", shape, (0,), constraint=Sphere(centre=False)),
        make("a mean without a norm", shape, (0,), constraint=Sphere(radius=None)),
        make("initial norms", shape, (0,), constraint=Sphere("initial", centre=False)),
        make("radius 3 and beta 0.9", shape, (0,), constraint=Sphere(3.0), beta=0.9),
        make("a peak norm", shape, (0,), norm="peak", beta=0.9),
        make("the peak of elements", (5,), norm="peak", beta=0.9),
        make("a gain penalty", (5,), role="gain", gain_penalty=0.5),
        make("a learning rate on the device", (5,), lr=torch.tensor(0.02, device=device)),
        make("a learning rate of zero", (5,), lr=0.0),
    ]


def _tiles(make: _Maker) -> list[Case]:
    wide, long = 16 * 17, TILES[Kind.LONG][1] + 16
    made = [
        _elements(make),
        make("rows of 32", (34, 32), (0,)),
        make("rows of 64", (17, 64), (0,)),
        make("rows of 100", (3, 100), (0,)),
        make("wide rows", (1, wide), (0,)),
        make("rows of several blocks", (1, long), (0,)),
        make("columns", (40, 5), (1,)),
        make("stacked columns", (2, 6, 5), (0, 2)),
        make("rows in pieces", (6, 2, 2, 2), (1,)),
        make("pieces of several blocks", (TILES[Kind.STRIDED][1] // 9 + 2, 2, 3, 3), (1,)),
        make("rows at an odd address", (1, wide), (0,)),
    ]
    odd = made[-1].update
    made[-1] = made[-1]._replace(update=odd._replace(weight=_off_by_one(odd.weight)))
    image = make("channels_last", (2, 4, 2, 2), (0,))
    image = image._replace(update=_channels_last(image.update))
    if not scatters_noise(image.update):
        made.append(image)
    return made


def _elements(make: _Maker) -> Case:
    """Make more elements than threads; some have missed steps, and some of these have no gradient."""
    case = make("two tiles of elements", (TILES[Kind.ELEMENTS][0] + 3,))
    average = case.update.state["exp_avg_norm"]
    average[::2] *= -1
    average[::3] = -0.0
    case.update.grad[::4] = 0
    return case


def _off_by_one(tensor: Tensor) -> Tensor:
    room = tensor.new_empty(tensor.numel() + 1)
    return room[1:].view(tensor.shape).copy_(tensor)


def _channels_last(update: Update) -> Update:
    def moved(tensor: Tensor) -> Tensor:
        return tensor.to(memory_format=torch.channels_last)

    state = dict(update.state)
    if "exp_avg" in state:
        state["exp_avg"] = moved(state["exp_avg"])
    return update._replace(weight=moved(update.weight), grad=moved(update.grad), state=state)

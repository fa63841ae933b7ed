"""Check whether a network is balanced (Definition 2): which neurons are off, and by how much."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from nero.core.arguments import kind_of
from nero.core.sharding import is_sharded, to_local
from nero.core.warn import and_more
from nero.diagnostics.angle import measure, neuron_rows
from nero.diagnostics.neurons import (
    NamedNeurons,
    innermost,
    neurons_of_model,
    target_norms,
    watched_params,
)
from nero.diagnostics.report import number
from nero.functional import BALANCED, Sphere, balance_tolerance
from nero.layout import Overrides
from nero.optim import Balanced, Nero, project_
from nero.tables import aligned

COLUMNS = ("layer", "neurons", "off", "off mean", "off norm", "constraint", "which")
_MAX_SHOWN = 4
_CONSTANT = 1e-12  # a squared sine below this is float32 rounding


@dataclass(frozen=True)
class BalanceRow:
    """How balanced one parameter's neurons are."""

    name: str
    num_neurons: int
    constraint: str
    mean_drift: float | None
    """The largest |sum of w| / sqrt(fan-in) / |w| of a neuron; ``None`` if means are free."""
    norm_drift: float | None
    """The largest relative error of a neuron's norm; ``None`` if norms are free."""
    tolerance: float
    """Drifts up to this size are rounding errors; the table shows them as 0."""
    unbalanced: tuple[int, ...]
    """Positions of the neurons that are off, counted along the dims that index neurons."""
    without_direction: tuple[int, ...]
    """The unbalanced neurons that are zero, or constant if the mean must be zero. No projection can
    balance them; Nero gives them a direction at their first gradient."""

    def cells(self) -> tuple[str, ...]:
        """Return the row as text, one cell per column."""
        which = and_more(self.unbalanced, _MAX_SHOWN) or "-"
        if self.without_direction:
            which += f"; {len(self.without_direction):,} without direction"
        return (
            self.name,
            f"{self.num_neurons:,}",
            f"{len(self.unbalanced):,}",
            number(self.mean_drift, tolerance=self.tolerance),
            number(self.norm_drift, tolerance=self.tolerance),
            self.constraint,
            which,
        )


@dataclass(frozen=True)
class BalanceReport:
    """The result of [`check_balance`][nero.diagnostics.check_balance]: print it, or read `is_balanced`."""

    rows: tuple[BalanceRow, ...]
    explain: bool = True
    """Whether it prints as a table, or as one line."""

    @property
    def is_balanced(self) -> bool:
        """Whether every neuron obeys its constraint up to rounding."""
        return not any(row.unbalanced for row in self.rows)

    def summary(self) -> str:
        """Return one line that says whether the network is balanced, or how many neurons are off."""
        total = sum(row.num_neurons for row in self.rows)
        off = sum(len(row.unbalanced) for row in self.rows)
        if not total:
            return "no neurons to balance"
        if self.is_balanced:
            return f"balanced: all {total:,} neurons"
        return f"not balanced: {off:,} of {total:,} neurons are off"

    def __bool__(self) -> bool:
        return self.is_balanced

    def __str__(self) -> str:
        if not self.explain or not self.rows:
            return self.summary()
        table = aligned([COLUMNS, *(row.cells() for row in self.rows)], left=(0, 5, 6))
        return f"{table}\n\n{self.summary()}"


def check_balance(
    network: nn.Module | Optimizer,
    *,
    constraint: Sphere | str = BALANCED,
    overrides: Overrides = (),
    explain: bool = True,
) -> BalanceReport:
    """Check whether every neuron is balanced; if not, report which are off and by how much.

    Changes nothing. Sharded parameters need communication, a few numbers per neuron: call it on every rank.

    Args:
        network: a model, or one of this package's optimizers, which has its own constraints and, for
            ``constraint="initial"``, the neurons' initial norms.
        constraint: the constraint to check; those of Nero and Balanced take precedence.
        overrides: as in [`param_groups`][nero.param_groups]; needs a model.
        explain: print as a table of layers, not as one line.

    Example:
        >>> from nero.diagnostics import check_balance
        >>> model = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2))
        >>> check_balance(model, explain=False).is_balanced
        False
        >>> optimizer = nero.Nero(model)
        >>> _ = model[2].weight.data[1].mul_(1.5)
        >>> print(check_balance(model))
        layer     neurons  off  off mean  off norm  constraint      which
        0.weight        4    0         0         0  mean 0, norm 1  -
        2.weight        2    1         0       0.5  mean 0, norm 1  1
        <BLANKLINE>
        not balanced: 1 of 6 neurons are off
    """
    optimizer = None
    if isinstance(network, Optimizer):
        if overrides:
            raise TypeError("overrides match parameter names: pass the model, not an optimizer")
        optimizer = innermost(network)
        has_constraints = isinstance(optimizer, Nero | Balanced)
        layers = watched_params(optimizer, constraint=None if has_constraints else constraint)
    elif not isinstance(network, nn.Module):
        raise TypeError(f"network must be a model or an optimizer, not {kind_of(network)}")
    else:
        layers = neurons_of_model(network, constraint=constraint, overrides=overrides)
        layers = [layer for layer in layers if _has_weights(layer)]
        for layer in layers:
            if layer.constraint.radius == "initial":
                raise ValueError(
                    f'`{layer.name}`: constraint "initial" refers to initial norms, which only the '
                    "optimizer stores; pass the optimizer"
                )
    with torch.no_grad():
        rows = tuple(_row(layer, target_norms(optimizer, layer)) for layer in layers)
    return BalanceReport(rows, explain)


def balance_(
    model: nn.Module, *, constraint: Sphere | str = BALANCED, overrides: Overrides = ()
) -> BalanceReport:
    """Balance every neuron of ``model`` in place, and report the neurons that are still off.

    This is [`project_`][nero.project_] followed by `check_balance`, with the same arguments. Neurons
    without a direction (zero or constant) stay unchanged. Nero keeps its weights balanced, so this is for
    weights changed by something else.

    Example:
        >>> from nero.diagnostics import balance_
        >>> print(balance_(nn.Linear(8, 4)).summary())
        balanced: all 4 neurons
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, not {kind_of(model)}")
    project_(model, constraint=constraint, overrides=overrides)
    return check_balance(model, constraint=constraint, overrides=overrides)


def _has_weights(layer: NamedNeurons) -> bool:
    has_numbers = layer.param.is_floating_point() and not layer.param.is_meta
    return not layer.neurons.is_elementwise and has_numbers and bool(layer.param.numel())


def _row(layer: NamedNeurons, target: Tensor | float | None) -> BalanceRow:
    centre, tolerance = layer.sphere.centre, balance_tolerance(layer.param.dtype)
    total, norm = _total_and_norm(layer)
    # The same criterion as nero.functional.is_balanced; NaN is never within the tolerance.
    off_mean = total.abs() / math.sqrt(layer.neurons.fan_in)
    is_balanced = norm.isfinite()
    if centre:
        is_balanced &= off_mean <= tolerance * norm
    norm_drift = None
    if target is not None:
        if isinstance(target, Tensor):
            target = _in_order(layer, target.to(norm))
        norm_drift = (norm - target).abs() / target
        is_balanced &= norm_drift <= tolerance
    mean_drift = off_mean / norm  # the cosine of the angle to a constant
    is_constant = 1 - mean_drift.square() <= _CONSTANT
    has_no_direction = (norm == 0) | is_constant if centre else norm == 0
    return BalanceRow(
        name=layer.name,
        num_neurons=layer.neurons.num_neurons,
        constraint=str(layer.sphere),
        mean_drift=_largest(mean_drift) if centre else None,
        norm_drift=None if norm_drift is None else _largest(norm_drift),
        tolerance=tolerance,
        unbalanced=_positions(~is_balanced),
        without_direction=_positions(~is_balanced & has_no_direction),
    )


def _total_and_norm(layer: NamedNeurons) -> tuple[Tensor, Tensor]:
    """Return the sum and the norm of every neuron, in order."""
    rows = neuron_rows(to_local(layer.param.detach()), layer.neurons)
    turns = measure(rows, rows, None)  # as for a step that changes nothing
    total, norm_sq = turns.new_sum, turns.new_sq
    if is_sharded(layer.param):
        from nero.distributed import fan_in_mesh_dims
        from nero.distributed.collectives import all_reduce

        for mesh, mesh_dim in fan_in_mesh_dims(layer.param, layer.neurons):
            total, norm_sq = all_reduce(torch.stack([total, norm_sq]), mesh, mesh_dim)
    return _in_order(layer, total), _in_order(layer, norm_sq).sqrt()


def _in_order(layer: NamedNeurons, values: Tensor) -> Tensor:
    """Gather one number per neuron of the full parameter from this rank's."""
    if not is_sharded(layer.param):
        return values
    from nero.distributed import per_neuron

    zeros = per_neuron(layer.param, layer.neurons, dtype=values.dtype, device=values.device)  # type: ignore[arg-type]
    local = values.reshape(zeros.to_local().shape)
    gathered: Tensor = per_neuron(layer.param, layer.neurons, local).full_tensor()  # type: ignore[arg-type]
    return gathered.flatten()


def _largest(drifts: Tensor) -> float:
    finite = drifts[drifts.isfinite()]
    return finite.max().item() if finite.numel() else math.nan


def _positions(mask: Tensor) -> tuple[int, ...]:
    return tuple(mask.nonzero().flatten().tolist())

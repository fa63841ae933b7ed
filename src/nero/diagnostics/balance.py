"""Is a network balanced (Definition 2)? If not, which neurons are off, and by how much."""

import math

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from nero.core.sharding import is_sharded, to_local
from nero.diagnostics.angle import measure, neuron_rows
from nero.diagnostics.balance_report import BalanceReport, BalanceRow
from nero.diagnostics.neurons import NamedNeurons, neurons_of_model
from nero.diagnostics.watched import innermost, target_norms, watched_params
from nero.functional import BALANCED, Sphere, balance_tolerance
from nero.layout import Overrides
from nero.optim import Balanced, Nero, project_

_CONSTANT = 1e-12  # what rounding to float32 leaves of the square of a sine


def check_balance(
    network: nn.Module | Optimizer,
    *,
    constraint: Sphere | str = BALANCED,
    overrides: Overrides = (),
    explain: bool = True,
) -> BalanceReport:
    """Check whether every neuron is balanced; if not, report which are off and by how much.

    Nothing is changed. With sharded parameters it gathers a few numbers per neuron, parameter by parameter:
    call it on every rank.

    Args:
        network: a model, or an optimiser of this package, which knows its own constraints and, for
            ``constraint="initial"``, the norms that neurons started with.
        constraint: where neurons should be; the constraints of Nero and Balanced take precedence.
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
        found = watched_params(optimizer, constraint=None if has_constraints else constraint)
    else:
        found = neurons_of_model(network, constraint=constraint, overrides=overrides)
        found = [each for each in found if _has_weights(each)]
        for each in found:
            if each.constraint.radius == "initial":
                raise ValueError(
                    f'`{each.name}`: constraint "initial" names no norm to compare with; ask with the '
                    "optimizer that knows the initial norms"
                )
    with torch.no_grad():
        rows = tuple(_row(each, target_norms(optimizer, each)) for each in found)
    return BalanceReport(rows, explain)


def balance_(
    model: nn.Module, *, constraint: Sphere | str = BALANCED, overrides: Overrides = ()
) -> BalanceReport:
    """Balance every neuron of ``model``, in place, and return what is off even so.

    This is [`project_`][nero.project_], followed by `check_balance`. Neurons without a direction
    (zero, or constant) stay as they are. Nero keeps what it trains balanced; repair a network
    where something else moved its weights.

    Args:
        model: the model.
        constraint: where neurons should be.
        overrides: as in [`param_groups`][nero.param_groups].

    Example:
        >>> from nero.diagnostics import balance_
        >>> print(balance_(nn.Linear(8, 4)).summary())
        balanced: all 4 neurons
    """
    project_(model, constraint=constraint, overrides=overrides)
    return check_balance(model, constraint=constraint, overrides=overrides)


def _has_weights(each: NamedNeurons) -> bool:
    return not each.neurons.is_elementwise and not each.param.is_meta and bool(each.param.numel())


def _row(each: NamedNeurons, target: Tensor | float | None) -> BalanceRow:
    centre, tolerance = each.sphere.centre, balance_tolerance(each.param.dtype)
    total, norm = _total_and_norm(each)
    # As nero.functional.is_balanced judges; NaN is never within a tolerance.
    off_mean = total.abs() / math.sqrt(each.neurons.fan_in)
    is_balanced = norm.isfinite()
    if centre:
        is_balanced &= off_mean <= tolerance * norm
    norm_drift = None
    if target is not None:
        if isinstance(target, Tensor):
            target = _in_order(each, target.to(norm))
        norm_drift = (norm - target).abs() / target
        is_balanced &= norm_drift <= tolerance
    mean_drift = off_mean / norm  # the cosine of the angle to a constant
    is_constant = 1 - mean_drift.square() <= _CONSTANT
    has_no_direction = (norm == 0) | is_constant if centre else norm == 0
    return BalanceRow(
        name=each.name,
        num_neurons=each.neurons.num_neurons,
        constraint=str(each.sphere),
        mean_drift=_largest(mean_drift) if centre else None,
        norm_drift=None if norm_drift is None else _largest(norm_drift),
        tolerance=tolerance,
        unbalanced=_positions(~is_balanced),
        without_direction=_positions(~is_balanced & has_no_direction),
    )


def _total_and_norm(each: NamedNeurons) -> tuple[Tensor, Tensor]:
    """Return the sum and the norm of every neuron, in their order."""
    rows = neuron_rows(to_local(each.param.detach()), each.neurons)
    turns = measure(rows, rows, None)  # of a step that changes nothing
    total, norm_sq = turns.new_sum, turns.new_sq
    if is_sharded(each.param):
        from nero.distributed import fan_in_mesh_dims
        from nero.distributed.collectives import all_reduce

        for mesh, mesh_dim in fan_in_mesh_dims(each.param, each.neurons):
            total, norm_sq = all_reduce(torch.stack([total, norm_sq]), mesh, mesh_dim)
    return _in_order(each, total), _in_order(each, norm_sq).sqrt()


def _in_order(each: NamedNeurons, mine: Tensor) -> Tensor:
    """Return one number per neuron of the whole parameter, from those of this rank's neurons."""
    if not is_sharded(each.param):
        return mine
    from nero.distributed import per_neuron

    zeros = per_neuron(each.param, each.neurons, dtype=mine.dtype, device=mine.device)  # type: ignore[arg-type]
    local = mine.reshape(zeros.to_local().shape)
    gathered: Tensor = per_neuron(each.param, each.neurons, local).full_tensor()  # type: ignore[arg-type]
    return gathered.flatten()


def _largest(drifts: Tensor) -> float:
    finite = drifts[drifts.isfinite()]
    return finite.max().item() if finite.numel() else math.nan


def _positions(mask: Tensor) -> tuple[int, ...]:
    return tuple(mask.nonzero().flatten().tolist())

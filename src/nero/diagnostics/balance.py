"""Is a network balanced (Definition 2)? If not, which neurons are off, and by how much."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from nero.diagnostics.angle import neuron_rows
from nero.diagnostics.balance_report import BalanceReport, BalanceRow
from nero.diagnostics.watched import innermost, target_norms, watched_params
from nero.functional import BALANCED, Sphere, as_constraint, balance_tolerance, sum_dtype
from nero.core.sphere import target_radius
from nero.core.sharding import is_sharded, to_local
from nero.layout import Layout, Overrides, layout_from_options, param_groups
from nero.optim import Balanced, Nero, project_


def check_balance(
    network: nn.Module | Optimizer,
    *,
    constraint: Sphere | str = BALANCED,
    overrides: Overrides = (),
    explain: bool = True,
) -> BalanceReport:
    """Tell whether every neuron is balanced; if not, which are off and by how much.

    Nothing is changed. With sharded parameters it gathers a few numbers a neuron, parameter by parameter:
    ask on every rank.

    Args:
        network: a model, or an optimiser of this package, which knows its own constraints and, for
            ``constraint="initial"``, the norms that neurons started with.
        constraint: where neurons should be; what Nero and Balanced are told comes first.
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
    if isinstance(network, Optimizer):
        if overrides:
            raise TypeError("overrides match parameter names: pass the model, not an optimizer")
        found = _of_optimizer(innermost(network), as_constraint(constraint))
    else:
        found = _of_model(network, as_constraint(constraint), overrides)
    with torch.no_grad():
        return BalanceReport(tuple(_row(each) for each in found), explain)


def balance_(
    model: nn.Module, *, constraint: Sphere | str = BALANCED, overrides: Overrides = ()
) -> BalanceReport:
    """Balance every neuron of ``model``, in place, and return what is off even so.

    This is [`project_`][nero.project_], followed by a look. Neurons without a direction (zero, or constant)
    stay as they are. Nero keeps what it trains balanced; repair a network where something else moved its
    weights.

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


class _Found(NamedTuple):
    name: str
    param: Tensor
    layout: Layout
    constraint: Sphere
    target: Tensor | float | None


def _of_model(model: nn.Module, constraint: Sphere, overrides: Overrides) -> Iterator[_Found]:
    found = []
    for group in param_groups(model, overrides=overrides):
        for name, param in group["params"]:
            layout = layout_from_options(group, param.shape)
            sphere = as_constraint(group.get("constraint", constraint))
            if sphere.radius == "initial":
                raise ValueError(
                    f'`{name}`: constraint "initial" names no norm to compare with; ask with the optimizer '
                    "that knows the initial norms"
                )
            if not layout.is_elementwise(param.shape) and not param.is_meta and param.numel():
                sphere = sphere.for_fan_in(layout.fan_in(param.shape))
                found.append(_Found(name, param, layout, sphere, target_radius(sphere, None)))
    order = {name: index for index, (name, _) in enumerate(model.named_parameters())}
    return iter(sorted(found, key=lambda each: order[each.name]))


def _of_optimizer(optimizer: Optimizer, constraint: Sphere) -> Iterator[_Found]:
    has_constraints = isinstance(optimizer, Nero | Balanced)
    for each in watched_params(optimizer, constraint=None if has_constraints else constraint):
        target = target_norms(optimizer, each)
        yield _Found(each.name, each.param, each.layout, each.constraint, target)


def _row(found: _Found) -> BalanceRow:
    param, layout, centre = found.param, found.layout, found.constraint.centre
    tolerance = balance_tolerance(param.dtype)
    total, norm = _total_and_norm(param, layout)
    # As nero.functional.is_balanced judges; NaN is never within a tolerance.
    off_mean = total.abs() / math.sqrt(layout.fan_in(param.shape))
    is_balanced = norm.isfinite()
    if centre:
        is_balanced &= off_mean <= tolerance * norm
    norm_drift = None
    if found.target is not None:
        target = found.target
        if isinstance(target, Tensor):
            target = _in_order(param, layout, target.to(norm))
        norm_drift = (norm - target).abs() / target
        is_balanced &= norm_drift <= tolerance
    mean_drift = off_mean / norm  # the cosine of the angle to a constant
    is_constant = 1 - mean_drift.square() <= _CONSTANT
    has_no_direction = (norm == 0) | is_constant if centre else norm == 0
    return BalanceRow(
        name=found.name,
        num_neurons=layout.num_neurons(param.shape),
        constraint=str(found.constraint),
        mean_drift=_largest(mean_drift) if centre else None,
        norm_drift=None if norm_drift is None else _largest(norm_drift),
        tolerance=tolerance,
        unbalanced=_positions(~is_balanced),
        without_direction=_positions(~is_balanced & has_no_direction),
    )


_CONSTANT = 1e-12  # what rounding to float32 leaves of the square of a sine
_BLOCK = 2**20


def _total_and_norm(param: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
    rows = neuron_rows(to_local(param.detach()), layout)
    size = max(1, _BLOCK // max(rows.shape[1], 1))
    sums = []
    for block in rows.split(size):
        block = block.to(sum_dtype(block))
        sums.append(torch.stack([block.sum(1), block.square().sum(1)]))
    total, norm_sq = torch.cat(sums, dim=1)
    if is_sharded(param):
        from nero.distributed import fan_in_groups
        from nero.distributed.add_up import all_reduce

        for mesh_dim in fan_in_groups(param, layout):  # type: ignore[arg-type]
            both = torch.stack([total, norm_sq])
            total, norm_sq = all_reduce(both, param.device_mesh, mesh_dim)  # type: ignore[attr-defined]
    return _in_order(param, layout, total), _in_order(param, layout, norm_sq).sqrt()


def _in_order(param: Tensor, layout: Layout, mine: Tensor) -> Tensor:
    """Return one number a neuron of all neurons, in their order, from those that this rank has."""
    if not is_sharded(param):
        return mine
    from nero.distributed import per_neuron

    shape = per_neuron(param, layout, dtype=mine.dtype, device=mine.device).to_local().shape  # type: ignore[arg-type]
    gathered: Tensor = per_neuron(param, layout, mine.reshape(shape)).full_tensor()  # type: ignore[arg-type]
    return gathered.flatten()


def _largest(drifts: Tensor) -> float:
    finite = drifts[drifts.isfinite()]
    return finite.max().item() if finite.numel() else math.nan


def _positions(mask: Tensor) -> tuple[int, ...]:
    return tuple(mask.nonzero().flatten().tolist())

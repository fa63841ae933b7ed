"""From one number a neuron to a few numbers a layer, on the device, so that a report waits for it once."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from nero.diagnostics.angle import NeuronTurns
from nero.functional import Sphere

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""The quantiles of every distribution."""
# A norm of one, and a first step of lr = 0.01, lie in the middle of a bin: no rounding moves them over.
HISTOGRAM_EDGES = (0.0, *(10 ** (k / 8) for k in range(-65, 6, 2)))
"""Bounds of the histogram's bins: four a decade, from 1e-8 up to a half turn."""
DISTRIBUTION_SIZE = 4 + len(QUANTILES) + len(HISTOGRAM_EDGES) - 1
NUM_DISTRIBUTIONS = 3


def summarise(turns: NeuronTurns, constraint: Sphere, *, fan_in: int, too_far: float) -> Tensor:
    """Summarise the neurons of one parameter in one vector; `nero.diagnostics.report` reads it.

    Args:
        turns: what the step did to each neuron.
        constraint: where the neurons should be.
        fan_in: of the whole neuron.
        too_far: the angle from which on a turn is counted.
    """
    # What is no neuron becomes NaN, which counts nowhere: to leave it out would wait for the device.
    is_neuron = turns.present > 0
    angle, old, new = (
        torch.where(is_neuron, each, torch.nan)
        for each in (turns.angle, turns.old_sq.sqrt(), turns.new_sq.sqrt())
    )
    relative = torch.where(old > 0, turns.change_sq.sqrt() / old, torch.nan)
    mean_drift = turns.new_sum.abs() / (math.sqrt(fan_in) * new)
    target = turns.target if constraint.radius == "initial" else constraint.radius
    norm_drift = torch.full_like(new, -1.0) if target is None else (new / target - 1).abs()
    numbers = [
        (turns.change_sq.sum() / turns.old_sq.sum()).sqrt(),  # Equation 2, left
        _largest(mean_drift) if constraint.centre else new.new_tensor(-1.0),
        _largest(norm_drift),
        (angle == 0).sum(),
        (angle > too_far).sum(),
        (angle.isnan() & is_neuron).sum(),
        ((turns.grad_size == 0) & is_neuron).sum(),
        (~turns.grad_size.isfinite()).sum(),
    ]
    scalars = torch.stack([number.to(new.dtype) for number in numbers])
    return torch.cat([_distributions(torch.stack([angle, relative, new])).flatten(), scalars])


def _distributions(values: Tensor) -> Tensor:
    """Return number, mean, minimum, maximum, quantiles and histogram of what is finite, row by row."""
    is_finite = values.isfinite()
    num = is_finite.sum(1, keepdim=True)
    ordered = torch.where(is_finite, values, torch.inf).sort(1).values
    shares = values.new_tensor([0.0, 1.0, *QUANTILES])
    positions = shares * (num - 1).clamp(min=0)
    low = ordered.gather(1, positions.floor().long())
    high = ordered.gather(1, positions.ceil().long())
    # Of nothing at all, the quantiles are inf - inf, which is NaN.
    quantiles = low + (high - low) * (positions - positions.floor())
    edges = values.new_tensor(HISTOGRAM_EDGES).expand(len(values), -1).contiguous()
    below = torch.searchsorted(ordered, edges)
    below[:, -1:] = num  # the last bin takes what lies beyond it, too
    mean = torch.where(is_finite, values, 0.0).sum(1, keepdim=True) / num
    return torch.cat([num.to(mean), mean, quantiles, below.diff().to(mean)], dim=1)


def _largest(values: Tensor) -> Tensor:
    # A neuron that is zero or not finite drifts by NaN; it is counted elsewhere. Below zero means: none.
    return torch.where(values.isnan(), -1.0, values).amax()


def read_distribution(numbers: Sequence[float]) -> tuple[int, float, tuple[float, ...], list[int]]:
    """Read back number, mean, (minimum, maximum, quantiles) and histogram.

    Example:
        >>> from nero.diagnostics.summary import _distributions, read_distribution
        >>> [packed] = _distributions(torch.tensor([[1.0, 3.0]])).tolist()
        >>> num, mean, (low, high, *_), _ = read_distribution(packed)
        >>> num, mean, low, high
        (2, 2.0, 1.0, 3.0)
    """
    end = 4 + len(QUANTILES)
    return int(numbers[0]), numbers[1], tuple(numbers[2:end]), [int(n) for n in numbers[end:]]

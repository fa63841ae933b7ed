"""Reduce one number per neuron to a few per layer, on the device, so that a report synchronizes once."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from nero.diagnostics.angle import NeuronTurns
from nero.diagnostics.neurons import NamedNeurons

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""The quantiles of every distribution."""
# A norm of one and a first step of lr = 0.01 lie in the middle of a bin, where rounding cannot move them.
HISTOGRAM_EDGES = (0.0, *(10 ** (k / 8) for k in range(-65, 6, 2)))
"""Bounds of the histogram's bins: four per decade, from 1e-8 up to a half turn."""


def summarize(turns: NeuronTurns, layer: NamedNeurons, *, too_far: float) -> dict[str, Tensor]:
    """Summarize one parameter's neurons, by field of `LayerReport`, for `read_summary`."""
    # Padding becomes NaN, which counts nowhere: removing it would wait for the device.
    is_neuron = turns.present > 0
    angle, old, new = (
        torch.where(is_neuron, values, torch.nan)
        for values in (turns.angle, turns.old_sq.sqrt(), turns.new_sq.sqrt())
    )
    relative = torch.where(old > 0, turns.change_sq.sqrt() / old, torch.nan)
    mean_drift = turns.new_sum.abs() / (math.sqrt(layer.neurons.fan_in) * new)
    angles, changes, norms = _distributions(torch.stack([angle, relative, new]))
    return {
        "angle": angles,
        "relative_change": changes,
        "norm": norms,
        "layer_relative_change": (turns.change_sq.sum() / turns.old_sq.sum()).sqrt(),  # Equation 2
        "mean_drift": _largest(mean_drift) if layer.sphere.centre else new.new_tensor(-1.0),
        "norm_drift": _largest((new / turns.target - 1).abs()),
        "num_still": (angle == 0).sum(),
        "num_too_far": (angle > too_far).sum(),
        "num_undefined": (angle.isnan() & is_neuron).sum(),
        "num_zero_grad": ((turns.grad_size == 0) & is_neuron).sum(),
        "num_nonfinite_grad": (~turns.grad_size.isfinite()).sum(),
    }


def read_all(summaries: Sequence[Mapping[Any, Tensor]]) -> list[dict[Any, list[float]]]:
    """Return the tensors as numbers, with one synchronization per device."""
    flat = [tensor.reshape(-1) for summary in summaries for tensor in summary.values()]
    numbers = torch.cat([tensor.to(flat[0]) for tensor in flat]).cpu()
    parts = iter(numbers.split([len(tensor) for tensor in flat]))
    return [{name: next(parts).tolist() for name in summary} for summary in summaries]


def _distributions(values: Tensor) -> Tensor:
    """Return count, mean, minimum, maximum, quantiles and histogram of each row's finite values."""
    is_finite = values.isfinite()
    num = is_finite.sum(1, keepdim=True)
    ordered = torch.where(is_finite, values, torch.inf).sort(1).values
    shares = values.new_tensor([0.0, 1.0, *QUANTILES])
    positions = shares * (num - 1).clamp(min=0)
    low = ordered.gather(1, positions.floor().long())
    high = ordered.gather(1, positions.ceil().long())
    # Without finite values, the quantiles are inf - inf, which is NaN.
    quantiles = low + (high - low) * (positions - positions.floor())
    edges = values.new_tensor(HISTOGRAM_EDGES).expand(len(values), -1).contiguous()
    below = torch.searchsorted(ordered, edges)
    below[:, -1:] = num  # the last bin includes everything beyond it
    mean = torch.where(is_finite, values, 0.0).sum(1, keepdim=True) / num
    return torch.cat([num.to(mean), mean, quantiles, below.diff().to(mean)], dim=1)


def _largest(values: Tensor) -> Tensor:
    # The drift is NaN for neurons that are zero, not finite or without a target norm. -1 means none.
    return torch.where(values.isnan(), -1.0, values).amax()

"""A few numbers that stand for a tensor, and whether another machine's tensor agrees with them."""

import math

import torch
from torch import Tensor

# Bits depend on the processor: its vector width, its exp and sqrt, whether it fuses multiply and add.
# Gradients here do not depend on weights, so 50 steps add up 50 roundings and amplify none: 1e-5 is 80
# roundings of float32, and 1e-12 is as generous to float64. A 16-bit weight may round the other way at a
# step, and stays one unit in the last place apart from then on: four such units are allowed.
TOLERANCES = {
    torch.float64: 1e-12,
    torch.float32: 1e-5,
    torch.float16: 4 * torch.finfo(torch.float16).eps,
    torch.bfloat16: 4 * torch.finfo(torch.bfloat16).eps,
}
NUM_SAMPLES = 3


def summary(tensors: dict[str, Tensor]) -> dict[str, list[float]]:
    """Return the statistics of each tensor by name; counters are gathered into one list per kind."""
    found: dict[str, list[float]] = {}
    for name, tensor in tensors.items():
        if tensor.is_floating_point():
            found[name] = statistics(tensor)
        else:
            found.setdefault(name.rpartition(" ")[2], []).append(int(tensor))
    return found


def statistics(tensor: Tensor) -> list[float]:
    """Return the sum and the sum of magnitudes of what is finite, and three elements; or one number."""
    values = tensor.double().flatten()
    num_digits = 15 if tensor.dtype == torch.float64 else 7
    if len(values) <= 1:
        return _rounded(values, num_digits)
    places = [(2 * i + 1) * len(values) // (2 * NUM_SAMPLES) for i in range(NUM_SAMPLES)]
    finite = values[values.isfinite()]
    return _rounded(torch.stack([finite.sum(), finite.abs().sum(), *values[places]]), num_digits)


def agrees(tensor: Tensor, recorded: list[float]) -> bool:
    """Tell whether ``tensor`` has the recorded statistics, within the tolerance of its dtype."""
    found = statistics(tensor)
    if len(found) != len(recorded):
        return False
    tolerance = TOLERANCES[tensor.dtype]
    magnitude = recorded[1] if len(recorded) > 1 else 0.0
    mean = magnitude / max(tensor.numel(), 1)
    # Sums are held to the sum of magnitudes, elements to the mean one: both may cancel to near zero.
    scales = [magnitude, magnitude, *[mean] * NUM_SAMPLES] if len(recorded) > 1 else [0.0]
    return all(
        _is_close(a, b, tolerance=tolerance, scale=scale)
        for a, b, scale in zip(found, recorded, scales, strict=False)
    )


def _is_close(a: float, b: float, *, tolerance: float, scale: float) -> bool:
    if not (math.isfinite(a) and math.isfinite(b)):
        return a == b or (math.isnan(a) and math.isnan(b))
    return abs(a - b) <= tolerance * (abs(b) + scale)


def _rounded(values: Tensor, num_digits: int) -> list[float]:
    rounded = [float(f"{value:.{num_digits}g}") for value in values.tolist()]
    return [int(value) if value.is_integer() else value for value in rounded]

"""What a parameter probably is, where nothing is known but its name, its shape and its first values.

A guess that is wrong about neurons destroys weights; one that takes neurons for single elements only turns
them less well. So in doubt every element stands alone.
"""

from torch import Tensor

from nero.core.neurons import BIAS, GAIN, OTHER, Layout, is_broadcast, neurons
from nero.core.sharding import is_sharded


def guess_layout(
    param: Tensor, name: str, cls: str, *, is_transposed: bool = False
) -> tuple[Layout, str]:
    """Guess the layout of a parameter in a module of class ``cls``, and say why.

    Example:
        >>> from nero.layout.guess import guess_layout
        >>> guess_layout(torch.zeros(1, 8, 1, 1), "gamma", "Scale")[0].role
        'other'
        >>> guess_layout(torch.randn(8, 4), "kernel", "Dense")
        (Layout(role='neuron', neuron_dims=(0,), num_groups=1), 'taken as (out, in, ...)')
    """
    words = name.lower().split("_")
    if "bias" in words or "biases" in words:
        return BIAS, "by its name, a bias"
    if "log" in (words[0], words[-1]) and len(words) > 1:
        return OTHER, "by its name, a logarithm"
    if is_broadcast(param.shape):
        return _without_fan_in(param, cls)
    if constant_value(param):
        return OTHER, "all its elements are equal, as those of a factor"
    if param.ndim == 3:
        if is_transposed:
            return neurons(0, 2), "marked is_transposed: a stack of (in, out) matrices"
        what = "n tokens or positions" if param.shape[0] == 1 else "a stack of (out, in) matrices"
        return neurons(0, 1), f"taken as {what}"
    return neurons(0), "taken as (out, in, ...)"


def _without_fan_in(param: Tensor, cls: str) -> tuple[Layout, str]:
    if "Norm" not in cls:
        return OTHER, "one dim at most, so no fan-in"
    if constant_value(param) == 0:
        return OTHER, "a norm that starts at 0, so it scales by 1 + weight"
    return GAIN, "by its class, a norm layer's gain"


def constant_value(param: Tensor) -> float | None:
    """Return the value of all elements, if it is one value and known to be.

    Of a sharded parameter it is not known: every rank would have to be asked.

    Example:
        >>> from nero.layout.guess import constant_value
        >>> constant_value(torch.ones(3, 4)), constant_value(torch.randn(3, 4))
        (1.0, None)
    """
    if is_sharded(param) or param.is_meta or not param.numel() or not param.is_floating_point():
        return None
    flat = param.detach().flatten()
    first = flat[0]
    if first != flat[-1]:  # so for most, and quickly told
        return None
    return float(first) if bool((flat == first).all()) else None

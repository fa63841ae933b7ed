"""Directions of a whole layer, by name: ``"polar"``, and those that users register."""

import math
from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from nero.core.neurons import Neurons
from nero.core.polar import newton_schulz
from nero.core.precision import working_dtype

MatrixFunction: TypeAlias = Callable[[Tensor], Tensor]

_FUNCTIONS: dict[str, MatrixFunction] = {}


def register_direction(name: str, function: MatrixFunction) -> None:
    """Add a direction for neurons to turn against: ``Nero(model, direction=name)``.

    The polar direction is registered like this, too. Layers follow the function, output layers included;
    embeddings, biases and gains still follow the gradient. A sharded layer is put together before the
    function is called, so sharded runs are bit-identical to a single process if the function treats each
    matrix separately. A checkpoint holds the name, so register the function before you load one.

    Args:
        name: the value for ``direction``.
        function: gets the gradients of layers, or their momentum buffers, as finite matrices of shape
            (number of matrices, neurons, fan-in), and returns as many directions, which point uphill like
            gradients. They are divided by the running norm of their own lengths, so a constant factor has
            no effect. A neuron whose returned row is zero does not move; one whose row is not finite is
            skipped, and counts in `num_skipped`.

    Example:
        >>> def signs(matrices):
        ...     return matrices.sign()
        >>> nero.register_direction("signs", signs)
        >>> optimizer = nero.Nero(nn.Linear(4, 3), direction="signs")
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"a direction needs a name, not {name!r}")
    if not callable(function):
        raise TypeError(f"direction {name!r} must be a function of matrices, not {function!r}")
    if name in ("gradient", "polar"):
        raise ValueError(f"direction {name!r} is built in; choose another name")
    _FUNCTIONS[name] = function


def direction_name(option: str, value: str) -> str:
    """Read the name of a direction."""
    names = ("gradient", *_FUNCTIONS)
    if not isinstance(value, str) or value not in names:
        raise ValueError(
            f"{option} must be one of {names}, not {value!r}; nero.register_direction adds others"
        )
    return value


def layer_direction(name: str, gradient: Tensor, neurons: Neurons) -> Tensor:
    """Return the direction of every neuron of a parameter, in the parameter's shape and working dtype.

    A neuron whose gradient is not finite has a row of NaN, and takes no part in the others' rows.

    Args:
        name: of a registered direction.
        gradient: the gradient or the momentum buffer, viewed so that ``neurons.fan_in_dims`` applies.
        neurons: rows of the matrices; the last dim that indexes neurons runs over them, the ones before it
            over matrices, such as those of experts.

    Example:
        >>> from nero.core.directions import layer_direction
        >>> from nero.layout import neurons
        >>> polar = layer_direction("polar", torch.tensor([[3.0, 0.0], [0.0, 0.1]]), neurons(0).at((2, 2)))
        >>> bool(((polar.diagonal() > 0.6) & (polar.diagonal() < 1.3)).all())
        True
    """
    row_dims = [d for d in range(gradient.ndim) if d not in neurons.fan_in_dims]
    order = (*row_dims, *neurons.fan_in_dims)
    turned = gradient.to(working_dtype(gradient.dtype)).permute(order)
    shape = turned.shape
    matrices = turned.reshape(
        math.prod(shape[: len(row_dims) - 1]),
        shape[len(row_dims) - 1],
        math.prod(shape[len(row_dims) :]),
    )
    is_finite = torch.isfinite(matrices).all(dim=-1, keepdim=True)
    matrices = torch.where(is_finite, matrices, 0.0)
    del gradient, turned  # large, if many layers are stacked
    directions = _FUNCTIONS[name](matrices)
    if not isinstance(directions, Tensor) or directions.is_complex():
        raise TypeError(f"direction {name!r} must return a real tensor, not {directions!r}")
    if directions.shape != matrices.shape:
        raise ValueError(
            f"direction {name!r} returned shape {tuple(directions.shape)} for matrices of shape "
            f"{tuple(matrices.shape)}; it must return a direction for each row"
        )
    directions = torch.where(is_finite, directions.to(matrices.dtype), math.nan)
    inverse = sorted(range(len(order)), key=order.__getitem__)
    return directions.view(shape).permute(inverse).contiguous()


_FUNCTIONS["polar"] = newton_schulz

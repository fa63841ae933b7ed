"""The five sums over a neuron's fan-in that decide its whole update.

With ``w`` the weights and ``g`` the gradient of one neuron, the new row is affine in the old one,
``w' = p*w + q*g + r``, and ``p``, ``q`` and ``r`` follow from five numbers. That is why one reading
pass is enough, and why a neuron that is sharded over many devices costs one all-reduce of five
numbers: ``torch.stack(sums)`` is the buffer to reduce, ``NeuronSums(*buffer)`` reads it back.
"""

from typing import NamedTuple

from torch import Tensor

from nero.functional.precision import sum_dtype


class NeuronSums(NamedTuple):
    """Sums over the fan-in, one entry a neuron, in keepdim shape."""

    grad_sq: Tensor
    """Sum of g^2."""
    weight_grad: Tensor
    """Sum of w*g."""
    grad: Tensor
    """Sum of g."""
    weight: Tensor
    """Sum of w."""
    weight_sq: Tensor
    """Sum of w^2."""


def neuron_sums(weight: Tensor, grad: Tensor, *, fan_in_dims: tuple[int, ...]) -> NeuronSums:
    """Compute the five sums of every neuron.

    Args:
        weight: weights, of any dtype and memory format.
        grad: gradient, in the shape of ``weight``.
        fan_in_dims: the dims of ``weight`` that belong to one neuron; at least one.

    Example:
        >>> w, g = torch.ones(2, 3), torch.full((2, 3), 2.0)
        >>> sums = neuron_sums(w, g, fan_in_dims=(1,))
        >>> sums.weight_grad.flatten().tolist(), sums.grad_sq.shape
        ([6.0, 6.0], torch.Size([2, 1]))
    """
    w, g = weight.to(sum_dtype(weight)), grad.to(sum_dtype(weight))

    def total(x: Tensor) -> Tensor:
        return x.sum(dim=fan_in_dims, keepdim=True)

    return NeuronSums(total(g * g), total(w * g), total(g), total(w), total(w * w))

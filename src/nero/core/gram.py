"""The inner products over a neuron's fan-in, which determine its update.

A neuron has *rows*: its weights ``w`` and the direction ``g`` of the step, which is the gradient or, with
momentum, a mixture of the gradient and the momentum buffer. The new row is an affine combination,
``w' = p*w + q*g + r``, and ``p``, ``q`` and ``r`` follow from the inner products of the rows with each
other and with a row of ones: the Gram matrix, five numbers. So one pass over the data is enough, and a
neuron whose fan-in is sharded costs one all-reduce of five numbers.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from nero.core.arguments import check_alike, check_fan_in_dims
from nero.core.precision import sum_dtype


def gram_keys(rows: str) -> tuple[str, ...]:
    """Name the products of rows named by one letter each; products with a later row come later.

    Example:
        >>> from nero.core.gram import gram_keys
        >>> gram_keys("wg")
        ('ww', 'w1', 'wg', 'gg', 'g1')
    """
    keys: list[str] = []
    for i, row in enumerate(rows):
        keys += [*(other + row for other in rows[:i]), row + row, row + "1"]
    return tuple(keys)


class Gram:
    """Inner products over the fan-in, one entry per neuron, in keepdim shape.

    ``gram["wg"]`` is the sum of ``w*g`` and ``gram["g1"]`` that of ``g``.

    Args:
        sums: all products, stacked along dim 0: the buffer to all-reduce if the fan-in is sharded.
        rows: the letters of the rows.
    """

    def __init__(self, sums: Tensor, rows: str = "wg") -> None:
        self.sums, self.rows = sums, rows
        self._index = {key: index for index, key in enumerate(gram_keys(rows))}

    def __getitem__(self, key: str) -> Tensor:
        return self.sums[self._index[key]]


def gram(rows: Mapping[str, Tensor], *, fan_in_dims: tuple[int, ...]) -> Gram:
    """Compute the Gram matrix of every neuron.

    Args:
        rows: weights, gradient, ... by letter; of any dtype and memory format, all of one shape.
        fan_in_dims: the dims that belong to one neuron; at least one.

    Example:
        >>> w, g = torch.ones(2, 3), torch.full((2, 3), 2.0)
        >>> products = gram({"w": w, "g": g}, fan_in_dims=(1,))
        >>> products["wg"].flatten().tolist(), products["gg"].shape
        ([6.0, 6.0], torch.Size([2, 1]))
    """
    if not isinstance(rows, Mapping) or not rows:
        raise TypeError("rows must be tensors by letter, such as {'w': weight, 'g': grad}")
    check_alike(**{f"row {letter}": row for letter, row in rows.items()})
    check_fan_in_dims(fan_in_dims, next(iter(rows.values())).ndim)
    exact = {letter: row.to(sum_dtype(row)) for letter, row in rows.items()}
    letters = "".join(rows)
    sums = [
        (exact[a] if b == "1" else exact[a] * exact[b]).sum(dim=fan_in_dims, keepdim=True)
        for a, b in map(tuple, gram_keys(letters))
    ]
    return Gram(torch.stack(sums), letters)

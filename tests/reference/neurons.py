"""The neurons of each kind of layer, enumerated one weight at a time from what the layer computes.

Indices are into the flattened parameter. Nothing here knows of the package.
"""

import itertools
from collections.abc import Sequence


def flat(shape: Sequence[int], index: Sequence[int]) -> int:
    position = 0
    for size, i in zip(shape, index, strict=True):
        position = position * size + i
    return position


def rows(shape: Sequence[int]) -> list[list[int]]:
    """Linear (out, in), Conv (out, in/groups, ...) and Embedding (token, features)."""
    rest = [range(n) for n in shape[1:]]
    return [[flat(shape, (o, *i)) for i in itertools.product(*rest)] for o in range(shape[0])]


def conv_transpose(shape: Sequence[int], groups: int = 1) -> list[list[int]]:
    """(in, out/groups, kernel...): output o of group k sees the inputs of group k only."""
    num_in, out_per_group, *kernel = shape
    in_per_group = num_in // groups
    return [
        [
            flat(shape, (i, o, *k))
            for i in range(group * in_per_group, (group + 1) * in_per_group)
            for k in itertools.product(*map(range, kernel))
        ]
        for group in range(groups)
        for o in range(out_per_group)
    ]


def experts(shape: Sequence[int], *, transposed: bool) -> list[list[int]]:
    """A stack (expert, out, in), or transposed (expert, in, out)."""
    num_experts, first, second = shape
    if transposed:
        return [
            [flat(shape, (e, i, o)) for i in range(first)]
            for e in range(num_experts)
            for o in range(second)
        ]
    return [
        [flat(shape, (e, o, i)) for i in range(second)]
        for e in range(num_experts)
        for o in range(first)
    ]


def columns(shape: Sequence[int]) -> list[list[int]]:
    """Hugging Face's Conv1D (in, out)."""
    num_in, num_out = shape
    return [[flat(shape, (i, o)) for i in range(num_in)] for o in range(num_out)]

"""Batches that depend on the seed, the epoch and their index alone, so that a run can resume anywhere."""

from collections.abc import Iterator

import torch
from torch import Tensor


def generator(*numbers: int) -> torch.Generator:
    """Return a generator seeded by several numbers: a seed, an epoch, an index.

    Example:
        >>> a, b = generator(0, 1), generator(1, 0)
        >>> bool(torch.rand((), generator=a) == torch.rand((), generator=b))
        False
    """
    seed = 0
    for number in numbers:  # a large odd multiplier keeps nearby tuples apart
        seed = (seed * 6364136223846793005 + number + 1442695040888963407) % 2**63
    return torch.Generator().manual_seed(seed)


def num_batches(num_items: int, batch_size: int) -> int:
    """Return the number of batches of an epoch; an incomplete last one is dropped."""
    return num_items // batch_size


def shuffled(
    num_items: int,
    batch_size: int,
    *,
    seed: int,
    epoch: int,
    start: int = 0,
    rank: int = 0,
    world_size: int = 1,
) -> Iterator[tuple[int, Tensor]]:
    """Yield the index of each batch and the items of it that belong to one rank.

    Example:
        >>> [(index, items.tolist()) for index, items in shuffled(6, 2, seed=0, epoch=0, start=1)]
        [(1, [...]), (2, [...])]
    """
    order = torch.randperm(num_items, generator=generator(seed, epoch))
    for index in range(start, num_batches(num_items, batch_size)):
        items = order[index * batch_size : (index + 1) * batch_size]
        yield index, items[rank::world_size]


def in_order(
    num_items: int, batch_size: int, *, rank: int = 0, world_size: int = 1
) -> Iterator[Tensor]:
    """Yield every item once, in order, for evaluation: this rank's share of them."""
    yield from torch.arange(rank, num_items, world_size).split(batch_size)

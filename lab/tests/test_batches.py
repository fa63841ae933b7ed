"""Batches depend on the seed, the epoch and their index alone, and ranks share them out."""

import torch

from nero_lab.engine.batching import generator, in_order, shuffled


def items(**options: int) -> list[list[int]]:
    defaults = {"seed": 0, "epoch": 0}
    return [batch.tolist() for _, batch in shuffled(20, 4, **{**defaults, **options})]


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = [items(), items(epoch=1), items(seed=1), items(seed=1, epoch=1), items(seed=2)]
    assert all(
        sorted(item for batch in order for item in batch) == list(range(20)) for order in orders
    )
    assert len({str(order) for order in orders}) == len(orders)
    assert items() == items()


def test_a_resumed_epoch_goes_on() -> None:
    assert items(start=2) == items()[2:]
    assert [index for index, _ in shuffled(20, 4, seed=0, epoch=0, start=3)] == [3, 4]


def test_ranks_share_every_batch_out() -> None:
    mine, theirs = items(rank=0, world_size=2), items(rank=1, world_size=2)
    for whole, a, b in zip(items(), mine, theirs, strict=True):
        assert sorted(a + b) == sorted(whole)
        assert len(a) == len(b) == 2


def test_every_item_is_judged_once() -> None:
    found = [batch for rank in range(3) for batch in in_order(11, 2, rank=rank, world_size=3)]
    assert sorted(torch.cat(found).tolist()) == list(range(11))


def test_generators_of_neighbouring_numbers_differ() -> None:
    tuples = [(a, b) for a in range(4) for b in range(4)]
    drawn = [torch.rand((), generator=generator(*each)).item() for each in tuples]
    assert len(set(drawn)) == len(tuples)

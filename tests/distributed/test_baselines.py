"""The baselines on sharded parameters: the bits of one process, with all norms in one all-reduce."""

import pytest

from nero.baselines import Fromage, Lamb, Lars, Madam
from tests.distributed.ranks import (
    assert_same_bits,
    finite_gradients,
    network,
    on_ranks,
    train,
    train_and_count,
)
from tests.distributed.test_same_bits import SHARDINGS

NUM_STEPS = 10


@pytest.mark.parametrize("world_size", [3, 4])
def test_one_all_reduce_for_all_norms(world_size):
    names = {3: ["FSDP 3"], 4: ["HSDP 2x2", "FSDP+TP 2x2"]}[world_size]
    on_ranks(world_size, _compare, names)


def _compare(names):
    for name in names:
        _, shard, num_groups, _ = SHARDINGS[name]
        for make, needs_norms in ((Lamb, True), (_lars, True), (Fromage, True), (Madam, False)):
            reference, model = network(), shard(network())
            steps = finite_gradients(NUM_STEPS)
            whole, sharded = make(reference), make(model)
            train(reference, whole, steps)
            wanted = [num_groups if needs_norms else 0] * 2
            assert train_and_count(model, sharded, steps) == wanted, (name, make)
            assert_same_bits(model, reference, f"{name}, {type(whole).__name__}:")


def _lars(model):
    return Lars(model, lr=0.1)

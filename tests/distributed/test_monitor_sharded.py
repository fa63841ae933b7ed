"""Every rank has the report of one process, after one all-reduce per process group and sampled step."""

import dataclasses

import pytest
import torch
import torch.distributed as dist

import nero
from nero.diagnostics import TurningMonitor, check_balance
from tests.distributed.ranks import (
    OPTIONS,
    CountingMode,
    finite_gradients,
    gradients,
    network,
    on_ranks,
    train,
)
from tests.distributed.test_same_bits import SHARDINGS

NUM_STEPS, EVERY, NUM_SAMPLED = 5, 3, 2
MAX_LAYERS = 4  # of seven, so that they take turns


class Reports(list):
    write = list.append


def _nero_initial(model):
    return nero.Nero(model, **OPTIONS, fused=False, constraint="initial")


def _balanced(model):
    groups = nero.param_groups(model, **OPTIONS)
    return nero.Balanced(torch.optim.SGD(groups, lr=0.01), constraint="initial")


def _sgd(model):
    # It knows nothing of neurons: layouts come from the model.
    return torch.optim.SGD(model.parameters(), lr=0.01)


# Starting ranks is what takes time, so those that are there do everything.
CHOSEN = {
    2: ["TP 2", "FSDP on dim 1", "DDP 2"],
    3: ["FSDP 3"],
    4: ["HSDP 2x2", "FSDP+TP 2x2"],
}


@pytest.mark.parametrize(
    "world_size", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 4))]
)
def test_every_rank_has_the_report_of_one_process(world_size):
    on_ranks(world_size, _compare_all, CHOSEN[world_size])


def _compare_all(names):
    for name in names:
        _, shard, *_ = SHARDINGS[name]
        for make in (_nero_initial, _balanced, _sgd):
            _compare(shard, make, f"{name}, {make.__name__}, rank {dist.get_rank()}")
        _compare_balance(shard, f"{name}, rank {dist.get_rank()}")
        _write_on_rank_0(shard)


def _compare(shard, make, what):
    reference, model = network(), shard(network())
    steps = gradients(reference, NUM_STEPS)
    if make is not _nero_initial:  # the others would spread NaN
        steps = finite_gradients(NUM_STEPS)
    wanted, _ = _watched(reference, make(reference), steps)
    alone = shard(network())
    optimizer = make(alone)
    with CountingMode() as comm:
        train(alone, optimizer, steps)
    reports, num_collectives = _watched(model, make(model), steps)
    added = num_collectives - comm.get_total_counts()
    groups = _num_process_groups(model)
    assert added <= groups * NUM_SAMPLED, what
    assert (added > 0) == (groups > 0), what
    assert len(reports) == len(wanted) == NUM_SAMPLED
    for mine, theirs in zip(reports, wanted, strict=True):
        _assert_equal(dataclasses.asdict(mine), dataclasses.asdict(theirs), what)


def _compare_balance(shard, what):
    reference = network()
    nero.project_(reference, **OPTIONS)
    with torch.no_grad():
        reference.tokens.weight[7] *= 2
        reference.up.weight[:, 3] += 0.1
        reference.narrow.weight[5, 2] = 0.5
        reference.experts[2, 1] *= 0.5
    model = network()
    model.load_state_dict(reference.state_dict())
    wanted = check_balance(reference, **OPTIONS)
    mine = check_balance(shard(model), **OPTIONS)
    assert sum(len(row.unbalanced) for row in wanted.rows) == 4
    for row, expected in zip(mine.rows, wanted.rows, strict=True):
        _assert_equal(vars(row), vars(expected), f"{what}, {row.name}")


def _write_on_rank_0(shard):
    model = shard(network())
    optimizer = _sgd(model)
    monitor = TurningMonitor(optimizer, sinks=[reports := Reports()])
    train(model, optimizer, gradients(network(), 1))
    assert len(reports) == (dist.get_rank() == 0)
    assert monitor.last_report.step == 1


def _watched(model, optimizer, steps):
    options = {"every": EVERY, "max_layers": MAX_LAYERS, "every_rank": True}
    with (
        TurningMonitor(optimizer, model, **options, sinks=[reports := Reports()]),
        CountingMode() as comm,
    ):
        train(model, optimizer, steps)
    return reports, comm.get_total_counts()


def _assert_equal(mine, theirs, what):
    """Counts, names and histograms are equal; of numbers, only the order of summation differs."""
    if isinstance(theirs, dict):
        for key, value in theirs.items():
            _assert_equal(mine[key], value, f"{what}, {key}")
    elif isinstance(theirs, tuple):
        assert len(mine) == len(theirs), what
        for index, pair in enumerate(zip(mine, theirs, strict=True)):
            _assert_equal(*pair, f"{what} {index}")
    elif isinstance(theirs, float):
        assert mine == pytest.approx(theirs, rel=1e-9, abs=1e-9), what
    else:
        assert mine == theirs, what


def _num_process_groups(model):
    return len(
        {
            param.device_mesh.get_group(mesh_dim).group_name
            for param in model.parameters()
            for mesh_dim, placement in enumerate(getattr(param, "placements", ()))
            if getattr(placement, "dim", None) is not None
        }
    )

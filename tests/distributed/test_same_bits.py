"""Every sharding gives the bits of one process, given the same gradients; and how much it communicates."""

from itertools import combinations

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from nero import Nero, param_groups
from nero.distributed import fan_in_mesh_dims
from nero.distributed.owners import _in_order, shardings_of
from nero.layout import neurons_from_options
from nero_tools.plan.simulate import fake_ranks
from tests.distributed.ranks import (
    OPTIONS,
    assert_same_bits,
    gradients,
    network,
    on_ranks,
    sharded_grad,
    train,
    train_and_count,
)

NUM_STEPS = 10  # gradients that are not finite at the fourth and the ninth
TP_PLAN = {"wide": ColwiseParallel(), "narrow": RowwiseParallel()}


def _fsdp(model):
    return fully_shard(model)


def _on_dim_1(param):
    return Shard(1) if param.ndim > 1 else Shard(0)


def _fsdp_by_layer(model):
    # Every call builds a mesh of its own; the sums of all still travel together. Neurons of four layers
    # are cut: those of a ConvTranspose on dim 0 already.
    for layer in (model.narrow, model.wide, model.conv):
        fully_shard(layer, shard_placement_fn=_on_dim_1)
    fully_shard(model.up)
    model = fully_shard(model)
    cut = [p for g in param_groups(model, **OPTIONS) for _, p in _cut(g)]
    assert len(cut) == 4
    assert len({id(p.device_mesh) for p in cut}) > 1
    return model


def _cut(group):
    named = group["params"]
    return [(n, p) for n, p in named if fan_in_mesh_dims(p, neurons_from_options(group, p.shape))]


def _fsdp_dim_1(model):
    return fully_shard(model, shard_placement_fn=_on_dim_1)


def _hsdp(model):
    return fully_shard(
        model, mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    )


def _tp(model):
    return parallelize_module(model, init_device_mesh("cpu", (2,)), TP_PLAN)


def _fsdp_tp(model):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("fsdp", "tp"))
    parallelize_module(model, mesh["tp"], TP_PLAN)
    return fully_shard(model, mesh=mesh["fsdp"])


def _ddp(model):
    return (
        model  # every rank holds everything; gradients are equal after the all-reduce of backward
    )


SHARDINGS = {
    # world size, how, number of all-reduces, number of process groups over which matrices are cut
    "FSDP 2": (2, _fsdp, 1, 1),
    "FSDP 3": (3, _fsdp, 1, 1),
    "FSDP 4": (4, _fsdp, 1, 1),
    "FSDP 4, by layer": (4, _fsdp_by_layer, 1, 1),
    "HSDP 2x2": (4, _hsdp, 1, 1),
    "TP 2": (2, _tp, 1, 1),
    "FSDP+TP 2x2": (4, _fsdp_tp, 2, 2),
    "FSDP on dim 1": (2, _fsdp_dim_1, 1, 1),
    "DDP 2": (2, _ddp, 0, 0),
}
VARIANTS = {
    "momentum": {"momentum": 0.9},
    "bfloat16 momentum": {"momentum": 0.9, "momentum_dtype": "bfloat16", "seed": 7},
    "initial": {"constraint": "initial"},
    "peak": {"norm": "peak", "beta": 0.95, "momentum": 0.9},
    "polar, peak": {"norm": "peak", "beta": 0.95, "momentum": 0.9, "direction": "polar"},
    "polar": {"momentum": 0.9, "direction": "polar"},
    "polar, bfloat16": {"momentum": 0.9, "momentum_dtype": "bfloat16", "direction": "polar"},
    "polar alone": {"direction": "polar"},
}


# Every option of the above, over as many steps as have gradients that are not finite, for every run.
SELECTION = {
    "initial": {"constraint": "initial", **VARIANTS["bfloat16 momentum"]},
    "peak": VARIANTS["peak"],
    "polar, bfloat16": VARIANTS["polar, bfloat16"],
}


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_every_sharding_gives_the_bits_of_one_process(world_size):
    names = [name for name, (size, *_) in SHARDINGS.items() if size == world_size]
    on_ranks(world_size, _compare, names, SELECTION, NUM_STEPS // 2)


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_every_variant_of_every_sharding(world_size, variant):
    names = [name for name, (size, *_) in SHARDINGS.items() if size == world_size]
    on_ranks(world_size, _compare, names, {variant: VARIANTS[variant]}, NUM_STEPS)


def _compare(names, variants, num_steps):
    for variant, own in variants.items():
        options = {**OPTIONS, "fused": False, **own}
        reference = network()
        steps = gradients(reference, num_steps)
        whole = Nero(reference, **options)
        train(reference, whole, steps)
        for name in names:
            _, shard, num_all_reduces, num_groups = SHARDINGS[name]
            # Two all-to-alls for every group: shards to their owners, and directions back.
            num_collectives = num_all_reduces + 2 * num_groups * variant.startswith("polar")
            model = shard(network())
            sharded = Nero(model, **options)
            assert train_and_count(model, sharded, steps) == [num_collectives] * 2, name
            assert_same_bits(model, reference, f"{name}, {own}:")
            assert sharded.num_skipped == whole.num_skipped > 0, name


# Plain and with the kernel, each for every other sharding; all of both in the full product.
@pytest.mark.parametrize("is_product", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("world_size", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_stochastic_rounding_draws_noise_by_the_place_in_the_whole(world_size, is_product):
    names = [name for name, (size, *_) in SHARDINGS.items() if size == world_size]
    on_ranks(world_size, _compare_rounded, names, is_product)


def _compare_rounded(names, is_product):
    def half():
        return network().to(torch.bfloat16)

    steps = [
        {name: grad.bfloat16() for name, grad in grads.items()} for grads in gradients(half(), 3)
    ]
    for number, (seed, fused) in enumerate(((0, False), (7, None))):
        options = {**OPTIONS, "stochastic_rounding": True, "seed": seed, "fused": fused}
        reference, nearest = half(), half()
        train(reference, Nero(reference, **options), steps)
        train(nearest, Nero(nearest, **OPTIONS, fused=fused), steps)
        assert not torch.equal(reference.wide.weight, nearest.wide.weight)
        for name in names if is_product else names[number::2]:
            _, shard, *_ = SHARDINGS[name]
            model = shard(half())
            optimizer = Nero(model, **options)
            train(model, optimizer, steps)
            if fused is False or not any(_cut(group) for group in param_groups(model, **OPTIONS)):
                assert_same_bits(model, reference, f"{name}, seed {seed}:")
            else:  # neurons that ranks share are summed in float64, by one process in float32 blocks
                assert_nearly_all_same_bits(model, reference)


def assert_nearly_all_same_bits(model, reference):
    wanted = dict(reference.named_parameters())
    for name, param in model.named_parameters():
        mine = param.full_tensor() if hasattr(param, "full_tensor") else param
        assert (mine != wanted[name]).float().mean() < 0.05, name


# Linear, Conv and Embedding have their neurons in dim 0, where FSDP cuts: without a ConvTranspose there is
# nothing to communicate, and the CPU kernel gives the same bits as well.
@pytest.mark.parametrize("world_size", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_dim_0_needs_no_communication_and_keeps_the_kernel(world_size):
    on_ranks(world_size, _compare_local)


def _compare_local():
    half = {"preset": "rows", "momentum_dtype": "bfloat16"}
    for own in ({"preset": "paper"}, {"preset": "rows"}, half):
        options = {**OPTIONS, **own}
        reference, model = network(), network()
        reference.up = model.up = torch.nn.Identity()
        model = fully_shard(model)
        steps = gradients(reference, NUM_STEPS)
        whole, sharded = Nero(reference, **options), Nero(model, **options)
        train(reference, whole, steps)
        assert train_and_count(model, sharded, steps) == [0, 0]
        assert_same_bits(model, reference)
        assert sharded.rule._backends["cpu"].plan is not None


def test_what_was_cut_last_is_put_together_first():
    """Also where a cut of another dim lies between, as of experts under FSDP, EP and TP."""
    with fake_ranks(8):
        mesh = init_device_mesh("cpu", (2, 2, 2))
        for placements in ([Shard(0), Shard(1), Shard(0)], [Shard(1), Shard(1), Shard(0)]):
            param = distribute_tensor(torch.zeros(8, 8), mesh, placements)
            order = [sharding.mesh_dim for sharding in _in_order([shardings_of(param)])]
            assert sorted(order) == [0, 1, 2]
            for outer, inner in combinations(range(3), 2):
                if placements[outer] == placements[inner]:
                    assert order.index(inner) < order.index(outer)


def test_polar_where_some_ranks_of_a_grid_have_no_gradient():
    on_ranks(4, _on_a_grid)


def _on_a_grid():
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (2, 2))
    weight, grad = torch.randn(4, 6), torch.randn(4, 6)
    whole = nn.Parameter(weight.clone())
    cut = nn.Parameter(distribute_tensor(weight, mesh, [Shard(0), Shard(1)]))
    options = {"direction": "polar", "momentum": 0.9, "fused": False}
    reference, optimizer = Nero([whole], **options), Nero([cut], **options)
    for _ in range(3):
        whole.grad = grad.clone()
        whole.grad[2:] = 0
        cut.grad = sharded_grad(grad, cut) if mesh.get_local_rank(0) == 0 else None
        reference.step()
        optimizer.step()
    assert torch.equal(cut.full_tensor(), whole)
    assert optimizer.state[cut]["step"] == 3
    average = optimizer.state[cut]["exp_avg"].full_tensor()
    assert torch.equal(average, reference.state[whole]["exp_avg"])

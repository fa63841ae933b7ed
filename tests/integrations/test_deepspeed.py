"""The real DeepSpeed: ZeRO is bit-identical to the plain step, every weight at every step."""

import copy
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor.debug import CommDebugMode

from nero import Nero, annotate
from tests.distributed.flat_network import (
    Recorder,
    assert_same_bits,
    batch,
    gathered,
    local_values,
    loss_of,
    network,
    ranges_of,
)
from tests.distributed.ranks import on_ranks
from tests.integrations.zero_engines import dtype_of, prepared, started

BFLOAT16 = {"bf16": {"enabled": True}}
FLOAT32_GRADS = BFLOAT16 | {"data_types": {"grad_accum_dtype": "fp32"}}
OFFLOAD = {"offload_optimizer": {"device": "cpu"}}
MOMENTUM = {"lr": 0.02, "momentum": 0.9}
ZERO, ZERO_3 = "DeepSpeedZeroOptimizer", "DeepSpeedZeroOptimizer_Stage3"
INITIAL = {"preset": "rows", "constraint": "initial"}
PEAK = {**MOMENTUM, "momentum_dtype": "bfloat16", "norm": "peak"}
TWICE = {"gradient_accumulation_steps": 2}
# (wrapper, stage, config, config of ZeRO, options of Nero); on CPUs, DeepSpeed refuses float16
CASES = {
    "ZeRO-1": (ZERO, 1, {}, {}, {"lr": 0.02}),
    "ZeRO-2": (ZERO, 2, {}, {}, {"lr": 0.02}),
    "ZeRO-3": (ZERO_3, 3, {}, {}, {"lr": 0.02}),
    "ZeRO-2, momentum, norm": (ZERO, 2, {}, {}, {**MOMENTUM, "constraint": "norm"}),
    "ZeRO-3, momentum, sub-groups": (ZERO_3, 3, {}, {"sub_group_size": 1500}, MOMENTUM),
    "ZeRO-2, rows": (ZERO, 2, {}, {}, {"preset": "rows"}),
    "ZeRO-3, rows, initial": (ZERO_3, 3, {}, {}, INITIAL),
    "ZeRO-1, bfloat16 momentum, peak": (ZERO, 1, {}, {}, PEAK),
    "ZeRO-2, bfloat16": (ZERO, 2, BFLOAT16, {}, {"lr": 0.02}),
    "ZeRO-3, bfloat16": (ZERO_3, 3, BFLOAT16, {}, {"lr": 0.02}),
    "BF16_Optimizer": ("BF16_Optimizer", 1, FLOAT32_GRADS, {}, {"lr": 0.02}),
    "ZeRO-2, clipping": (ZERO, 2, {"gradient_clipping": 0.1}, {}, {"lr": 0.02}),
    "ZeRO-2, accumulation": (ZERO, 2, TWICE, {}, {"lr": 0.02}),
    "ZeRO-3, accumulation": (ZERO_3, 3, TWICE, {}, {"lr": 0.02}),
    "ZeRO-2, offload": (ZERO, 2, {}, OFFLOAD, {"lr": 0.02}),
    "ZeRO-3, offload": (ZERO_3, 3, {}, OFFLOAD, {"lr": 0.02}),
}


def both(stage, config, zero, options, arrival=Nero):
    """An engine with its optimizer, and the same model and optimizer without DeepSpeed."""
    model = network()
    reference = copy.deepcopy(model)
    optimizer = arrival(model, fused=False, **options)
    plain = Nero(reference, fused=False, **options)
    dtype = dtype_of(config)
    if dtype is not None:  # masters start from the rounded weights
        model.to(dtype)
        with torch.no_grad():
            for param in reference.parameters():
                param.copy_(param.to(dtype).float())
    engine, wrapper = started(model, optimizer, stage, config, zero)
    return engine, wrapper, optimizer, reference, plain


def train(engine, optimizer, reference, plain, steps):
    recorder = Recorder(optimizer)
    num_micro = engine.gradient_accumulation_steps()
    for step in steps:
        for micro in range(num_micro):
            engine.backward(loss_of(engine, *batch(step * num_micro + micro)))
            engine.step()
        grads = recorder.whole()
        for name, param in reference.named_parameters():
            param.grad = grads[name].view_as(param)
        plain.step()
        assert_same_bits(optimizer, reference, f"step {step}")
    optimizer.rule.step = recorder.before
    return recorder.num_calls


def same_bits_on_rank(cases, num_steps):
    for case in cases:
        name, stage, config, zero, options = CASES[case]
        engine, wrapper, optimizer, reference, plain = both(stage, config, zero, options)
        assert type(wrapper).__name__ == name
        num_calls = train(engine, optimizer, reference, plain, range(num_steps))
        if dist.get_rank() == 0:
            ranges = [held for held, _ in ranges_of(optimizer)]
            num_bytes = 40 * sum(held.plan.num_slots for held in ranges)
            print(
                f"{case}, {dist.get_world_size()} ranks: {num_steps} of {num_steps} steps bit-identical; "
                f"{num_calls / num_steps:g} calls and {num_bytes} bytes per step"
            )


def test_same_bits():
    """DeepSpeed takes ten seconds to import what it needs, so one pair of ranks runs several engines."""
    on_ranks(2, same_bits_on_rank, ["ZeRO-1", "ZeRO-3, momentum, sub-groups", "BF16_Optimizer"], 20)


@pytest.mark.slow
@pytest.mark.parametrize("num_ranks", [2, 3])
def test_same_bits_in_every_case(num_ranks):
    on_ranks(num_ranks, same_bits_on_rank, [*CASES], 20)


def test_details(tmp_path):
    """What needs two ranks and few steps, on one pair of them."""
    on_ranks(2, details_on_rank, str(tmp_path))


def details_on_rank(folder):
    a_step_sends_at_most_one_all_reduce()
    a_list_of_annotated_parameters_works_too()
    all_ranks_raise_or_none()
    for stage in (1, 2, 3):
        a_checkpoint_resumes_exactly(stage, f"{folder}/{stage}")
    wrong_uses_say_what_to_do()


def a_step_sends_at_most_one_all_reduce():
    for stage in (2, 3):
        engine, _, optimizer, *_ = both(stage, {}, {}, {"lr": 0.02})
        counts, before = [], optimizer.rule.step

        def counted(updates, groups, counts=counts, before=before):
            with CommDebugMode() as comm:
                before(updates, groups)
            counts.append(comm.get_total_counts())

        for step in range(2):
            optimizer.rule.step = counted if step else before
            engine.backward(loss_of(engine, *batch(step)))
            engine.step()
        has_cuts = [bool(held.plan.slots) for held, _ in ranges_of(optimizer)]
        assert sorted(counts) == sorted(map(int, has_cuts))


def a_list_of_annotated_parameters_works_too():
    def arrival(model, **options):
        return Nero([*annotate(model).named_parameters()], **options)

    engine, _, optimizer, reference, plain = both(2, {}, {}, MOMENTUM, arrival)
    train(engine, optimizer, reference, plain, range(2))


def all_ranks_raise_or_none():
    engine, _, optimizer, *_ = both(2, {}, {}, {"nonfinite": "raise"})
    engine.backward(loss_of(engine, *batch(0)))
    engine.step()
    before = gathered(local_values(optimizer, lambda flat: flat.detach()))
    inner = optimizer.rule.step

    def poisoned(updates, groups):
        if dist.get_rank() == 1:
            updates[0].grad[-3] = float("nan")
        inner(updates, groups)

    optimizer.rule.step = poisoned
    engine.backward(loss_of(engine, *batch(1)))
    with pytest.raises(FloatingPointError, match="is not finite on some rank"):
        engine.step()
    after = gathered(local_values(optimizer, lambda flat: flat.detach()))
    assert all(torch.equal(value, before[name]) for name, value in after.items())


def a_checkpoint_resumes_exactly(stage, folder):
    options = {"preset": "rows", "constraint": "initial"}
    engine, _, optimizer, reference, plain = both(stage, {}, {}, options)
    train(engine, optimizer, reference, plain, range(3))
    engine.save_checkpoint(folder, tag="three")
    train(engine, optimizer, reference, plain, range(3, 6))
    again, _, resumed, *_ = both(stage, {}, {}, options)
    again.load_checkpoint(folder, tag="three")
    for step in range(3, 6):
        again.backward(loss_of(again, *batch(step)))
        again.step()
    assert_same_bits(resumed, reference, f"ZeRO-{stage}, resumed")


def one_step(engine):
    engine.backward(loss_of(engine, *batch(0)))
    engine.step()


def wrong_uses_say_what_to_do():
    engine, *_ = both(2, {}, {"round_robin_gradients": True}, {})
    with pytest.raises(RuntimeError, match="Set round_robin_gradients to false"):
        one_step(engine)
    model = network()
    optimizer = Nero(model, fused=False)
    started(model, optimizer, 2)
    with pytest.raises(KeyError):  # DeepSpeed's own: its map has no names for its buffers
        started(model, optimizer, 2)
    assert "neuron" in repr(optimizer)
    for stage in (1, 2, 3):
        steps_beside_the_engine_say_so(stage)
    for stage in (2, 3):
        model = network()
        hidden = {"out.weight": {"role": "neuron"}}
        engine, _ = started(
            model, Nero(model, preset="polar", fused=False, overrides=hidden), stage
        )
        with pytest.raises(RuntimeError, match=r'^`.*` has direction=.polar.*preset="rows"'):
            one_step(engine)
    model, forced = network(), {"zero_force_ds_cpu_optimizer": True}
    with pytest.raises(Exception, match="zero_force_ds_cpu_optimizer"):  # DeepSpeed's own
        started(model, Nero(model, fused=False), 2, forced, OFFLOAD)


def steps_beside_the_engine_say_so(stage):
    """DeepSpeed has taken the gradients, so the step of a second optimizer would change nothing."""
    model = network()
    optimizer = Nero(model, fused=False)
    second = Nero(model, fused=False)
    engine, _ = started(model, optimizer, stage)
    one_step(engine)
    engine.backward(loss_of(engine, *batch(1)))
    if stage < 3:  # ZeRO-3 has emptied the groups
        with pytest.raises(RuntimeError, match=r"`emb.weight` .* call engine.step\(\) rather"):
            optimizer.step()
    with pytest.raises(RuntimeError, match=r"`emb.weight` .* to deepspeed.initialize"):
        second.step()
    engine.step()


def test_weights_that_zero_init_has_partitioned():
    on_ranks(2, zero_init_on_rank)


def zero_init_on_rank():
    deepspeed = prepared()
    zero = {"stage": 3}
    config = {"train_micro_batch_size_per_gpu": 8, "zero_optimization": zero}
    torch.manual_seed(0)
    with deepspeed.zero.Init(config_dict_or_path=config):
        model = network()
    with deepspeed.zero.GatheredParameters([*model.parameters()]):
        reference = network()
        for param, own in zip(reference.parameters(), model.parameters(), strict=True):
            param.data.copy_(own)
    with pytest.raises(
        RuntimeError, match=r"`emb.weight` was partitioned .* pass the model itself"
    ):
        Nero([*model.named_parameters()])
    plain = Nero(reference, fused=False, lr=0.02)
    optimizer = Nero(model, fused=False, lr=0.02)
    engine, _ = started(model, optimizer, 3)
    train(engine, optimizer, reference, plain, range(3))


@pytest.mark.slow
def test_another_number_of_ranks_is_refused(tmp_path):
    on_ranks(2, save_on_rank, str(tmp_path))
    on_ranks(3, load_on_rank, str(tmp_path))
    # DeepSpeed's converter, for checkpoints of any number of ranks, reads only what Adam keeps.
    convert = [sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal"]
    options = ["--inject_missing_state", "--input_folder", tmp_path / "one"]
    options += ["--output_folder", tmp_path / "universal"]
    converted = subprocess.run([*convert, *options], capture_output=True, text=True)
    assert converted.returncode
    assert "KeyError: 'exp_avg'" in converted.stderr


def save_on_rank(folder):
    engine, *_ = both(2, {}, {}, {"lr": 0.02})
    one_step(engine)
    engine.save_checkpoint(folder, tag="one")


def load_on_rank(folder):
    engine, *_ = both(2, {}, {}, {"lr": 0.02})
    with pytest.raises(Exception, match=r"world size|ranks"):
        engine.load_checkpoint(folder, tag="one")


@pytest.mark.parametrize("config", [{}, BFLOAT16], ids=["float32", "bfloat16"])
def test_without_zero_it_trains(config):
    on_ranks(2, train_on_rank, config)


ARRIVALS = (Nero, lambda model: Nero([*annotate(model).parameters()]))


def train_on_rank(config):
    """In bfloat16, parameters in float32 are swapped in, each in the shape of its own."""
    for arrival in ARRIVALS:
        model = network()
        optimizer = arrival(model)
        engine, wrapper = started(model.to(dtype_of(config)), optimizer, 0, config)
        before = copy.deepcopy(model.state_dict())
        for _ in range(3):
            one_step(engine)
        assert all(not torch.equal(v, before[n]) for n, v in model.state_dict().items())
        client = getattr(wrapper, "optimizer", wrapper)
        for group in client.param_groups:
            if group["role"] == "neuron" and group["neuron_dims"] == (0,):
                for weight in group["params"]:
                    norms = weight.flatten(1).norm(dim=1)
                    torch.testing.assert_close(norms, torch.ones(len(weight)))

"""Does every optimizer do the work that it is timed for?"""

import pytest
import torch
from torch import nn

from nero_tools.bench.bare import Bare, slices
from nero_tools.bench.competitors import COMPETITORS, Competitor
from nero_tools.bench.run import Options, measure_model
from nero_tools.bench.workload import Workload
from nero_tools.models import MODELS
from nero_tools.optimizers import muon, num_bytes, state_bytes, step_all

QUICK = Options(rounds=2, settle_seconds=0, evict_bytes=2**16)


def test_the_workload_moves_gradients_and_notices_changes():
    workload = Workload(nn.Linear(40, 30), dtype=torch.bfloat16, device="cpu")
    weight = workload.model.weight
    first = weight.grad.data_ptr()
    workload.move_gradients_()
    assert weight.grad.data_ptr() == first + 64
    workload.move_gradients_()
    assert weight.grad.data_ptr() == first
    before = workload.sampled()
    assert workload.share_changed(before) == 0
    with torch.no_grad():
        weight.add_(1)  # 1,200 of 1,230
    assert workload.share_changed(before) == pytest.approx(1200 / 1230)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", COMPETITORS)
def test_every_competitor_steps_the_whole_model(name, dtype):
    competitor = COMPETITORS[name]
    if competitor.dtypes is not None and dtype not in competitor.dtypes:
        pytest.skip(f"{name} is not made for {dtype}")
    if name == "sgd-fused" and dtype == torch.bfloat16:
        pytest.skip("torch's fused SGD leaves bfloat16 weights alone (pytorch#191763)")
    workload = Workload(MODELS["gpt-tiny"](), dtype=dtype, device="cpu")
    grads = [p.grad.clone() for p in workload.params]
    optimizers = competitor.build(workload.model)
    before = workload.sampled()
    step_all(optimizers)()
    # A small part of a bfloat16 update is rounded away.
    assert workload.share_changed(before) > (0.99 if dtype == torch.float32 else 0.7)
    for param, old, grad in zip(workload.params, before, grads, strict=True):
        assert param.isfinite().all()
        assert torch.equal(param.grad, grad), "all share gradients and must not write to them"
        assert old.dtype == dtype
    # AdamW keeps two copies and Nero one number per neuron: nothing in between is misjudged for memory.
    copies = state_bytes(optimizers) / num_bytes(workload.params)
    assert copies < competitor.state_copies + 0.2


def test_an_optimizer_that_leaves_weights_alone_is_no_reference():
    idle = Competitor(lambda model: [torch.optim.SGD(model.parameters(), lr=0)])
    chosen = {"sgd-fused": idle, "adamw-fused": COMPETITORS["adamw-fused"]}
    result = measure_model("mlp-tiny", MODELS["mlp-tiny"], chosen, QUICK)
    assert not result.optimizers["sgd-fused"].does_the_work
    assert [*result.optimizers["adamw-fused"].ratios] == ["adamw-fused"]


def test_competitors_that_cannot_take_part_are_named():
    chosen = {
        "bare": COMPETITORS["bare"],
        "huge": Competitor(COMPETITORS["nero"].build, state_copies=1e12),
        "slow": Competitor(COMPETITORS["nero"].build, max_parameters=10),
    }
    options = Options(torch.bfloat16, rounds=1, settle_seconds=0, evict_bytes=2**16)
    result = measure_model("mlp-tiny", MODELS["mlp-tiny"], chosen, options)
    assert result.optimizers == {}
    assert "bfloat16" in result.left_out["bare"]
    assert "memory" in result.left_out["huge"]
    assert "too long" in result.left_out["slow"]


def test_temporary_memory_is_that_of_one_step():
    chosen = {name: COMPETITORS[name] for name in ("sgd-fused", "adamw-foreach")}
    result = measure_model("gpt-tiny", MODELS["gpt-tiny"], chosen, QUICK)
    assert result.optimizers["sgd-fused"].temporary_bytes < 0.01 * result.parameter_bytes
    # The foreach implementation holds the square roots of all second moments at once.
    assert result.optimizers["adamw-foreach"].temporary_bytes >= result.parameter_bytes


def test_measuring_leaves_the_thread_setting_alone():
    before = torch.get_num_threads()
    options = Options(threads=before + 1, rounds=1, settle_seconds=0, evict_bytes=2**16)
    seen = []

    def build(model):
        seen.append(torch.get_num_threads())
        return COMPETITORS["sgd-fused"].build(model)

    measure_model("mlp-tiny", MODELS["mlp-tiny"], {"sgd": Competitor(build)}, options)
    assert seen == [before + 1]
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_the_bare_loop_covers_every_element_once(num_threads):
    lengths = [5, 640, 0, 33, 1]
    parts = slices(lengths, num_threads)
    assert len(parts) == num_threads
    for tensor, length in enumerate(lengths):
        spans = sorted((f, f + n) for part in parts for t, f, n in part if t == tensor)
        assert [a for span in spans for a in range(*span)] == [*range(length)]
    assert max(sum(n for _, _, n in part) for part in parts) <= 679 / num_threads + 5 * 16


def test_the_bare_loop_computes_its_formula():
    workload = Workload(nn.Linear(70, 50), dtype=torch.float32, device="cpu")
    old = [p.detach().clone() for p in workload.params]
    Bare(workload.params).step()
    for param, weight in zip(workload.params, old, strict=True):
        # One multiplication may be rounded or not, depending on the machine.
        torch.testing.assert_close(param.detach(), 0.999 * weight - 0.1 * param.grad)


def test_muon_gets_the_hidden_matrices_and_adamw_the_rest():
    model = MODELS["gpt-tiny"]()
    hidden, rest = (o.param_groups[0]["params"] for o in muon(model))
    assert len(hidden) == 2 * 4
    assert {*hidden, *rest} == {*model.parameters()}
    assert len(hidden) + len(rest) == len([*model.parameters()])
    (only,) = muon(MODELS["resnet-tiny"]())
    assert isinstance(only, torch.optim.AdamW)

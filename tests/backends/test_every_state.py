"""Every declared piece of state reaches all who keep, save, count or step it."""

import copy

import pytest
import torch
from torch import nn

import nero
from nero import Nero, describe
from nero.backends import cpu, operator
from nero.backends.cpu.plan import Plan
from nero.backends.triton.table import INTEGERS, table_entry
from nero.core.spec import STATE
from nero.core.update import Update

OPTIONS = [
    *({"constraint": name} for name in ("balanced", "norm", "mean", "none", "initial")),
    {"momentum": 0.9, "momentum_dtype": "bfloat16"},
    {"constraint": "initial", "momentum": 0.9},
]
UNSAVED = {"num_skipped"}  # every rank counts for itself
needs_kernel = pytest.mark.skipif(cpu.missing() is not None, reason=str(cpu.missing()))


class EveryKind(nn.Module):
    """Neurons in rows, columns, groups and stacks, of fan-in 1, 2 and more; elements; all precisions."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 5)
        self.norm = nn.LayerNorm(5)
        self.wide = nn.Linear(5, 9)
        self.narrow = nn.Linear(1, 3)
        self.two = nn.Linear(2, 3)
        self.up = nn.ConvTranspose2d(4, 6, 3, groups=2)
        self.half = nn.Linear(5, 4).bfloat16()
        self.double = nn.Linear(5, 4).double()
        self.frozen = nn.Linear(5, 4).requires_grad_(False)
        self.slope = nn.PReLU(3)
        self.scalar = nn.Parameter(torch.tensor(0.5))
        self.experts = nn.Parameter(torch.randn(3, 4, 6))


OVERRIDES = {"experts": {"role": "neuron", "neuron_dims": (0, 2)}, "scalar": {"role": "other"}}


def built(options):
    torch.manual_seed(0)
    model = EveryKind()
    return model, Nero(model, overrides=OVERRIDES, **options)


def updates_of(optimizer) -> list[Update]:
    """Return the updates of a step, as a backend is handed them."""
    seen = []
    optimizer.rule.step = lambda updates, _: seen.extend(updates)
    for group in optimizer.param_groups:
        for param in group["params"]:
            param.grad = torch.randn_like(param)
    optimizer.step()
    return seen


def test_some_parameter_has_each():
    made = {
        key for options in OPTIONS for state in built(options)[1].state.values() for key in state
    }
    assert made == set(STATE)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
class TestReaches:
    def test_every_update(self, options):
        _, optimizer = built(options)
        for update in updates_of(optimizer):
            exists = {k for k, spec in STATE.items() if spec.exists(update.neurons, update.hyper)}
            assert set(update.state) == exists

    def test_checkpoints(self, options):
        _, optimizer = built(options)
        for state in optimizer.state.values():
            for number, tensor in enumerate(state.values(), 1):
                tensor.fill_(number)
        saved = copy.deepcopy(optimizer.state_dict())
        _, other = built(options)
        other.load_state_dict(saved)
        ours, theirs = [*optimizer.state.values()], [*other.state.values()]
        assert len(ours) == len(theirs) == len(saved["state"])
        for mine, loaded, packed in zip(ours, theirs, saved["state"].values(), strict=True):
            assert list(packed) == [key for key in mine if key not in UNSAVED]
            for key in packed:
                assert torch.equal(mine[key], loaded[key])
                assert mine[key].dtype == loaded[key].dtype

    def test_the_bytes_of_describe(self, options):
        model, optimizer = built(options)
        rows = describe(model, overrides=OVERRIDES, **options).rows
        params = dict(model.named_parameters())
        assert len(rows) == len(params)
        for row in rows:
            tensors = optimizer.state.get(params[row.name], {}).values()
            assert row.state_bytes == sum(t.numel() * t.element_size() for t in tensors), row.name

    @needs_kernel
    def test_the_operator(self, options, monkeypatch):
        _, optimizer = built(options)
        updates = [u for u in updates_of(optimizer) if u.neurons.num_groups == 1]
        read_back = []

        class Backend:
            def step_(self, updates):
                read_back.extend(updates)

        monkeypatch.setattr(operator, "_backend", {"cpu": Backend()}.get)
        operator.step_(updates, "cpu")
        assert len(read_back) == len(updates)
        for ours, theirs in zip(updates, read_back, strict=True):
            assert ours.position == theirs.position
            assert str(ours.hyper) == str(theirs.hyper)
            assert ours.neurons.fan_in_dims == theirs.neurons.fan_in_dims
            assert addresses(ours) == addresses(theirs)

    @needs_kernel
    def test_the_record_of_the_kernel(self, options):
        _, optimizer = built(options)
        updates = updates_of(optimizer)
        plan = Plan(updates)
        assert len(updates) - len(plan.others) > 10
        for table in plan.tables:
            for index, record in zip(table._indices, table._records, strict=True):
                found = {key: int(record[key]) for key in STATE}
                assert found == addresses(updates[index])

    def test_the_columns_of_triton(self, options):
        _, optimizer = built(options)
        for update in updates_of(optimizer):
            columns = dict(zip(INTEGERS, table_entry(update).integers, strict=True))
            assert {key: columns[key] for key in STATE} == addresses(update)


def addresses(update: Update) -> dict[str, int]:
    """Return where the state lies; what is absent lies at 0."""
    found = {key: tensor.data_ptr() for key, tensor in update.state.items()}
    return {**dict.fromkeys(STATE, 0), **found}


def test_what_a_step_writes_is_declared_as_written():
    _, optimizer = built(OPTIONS[-1])
    before = copy.deepcopy(list(optimizer.state.values()))
    for group in optimizer.param_groups:
        for param in group["params"]:
            param.grad = torch.randn_like(param)
            if param.ndim:
                param.grad[0] = torch.nan
    optimizer.step()
    changed = {
        key
        for old, new in zip(before, optimizer.state.values(), strict=True)
        for key in old
        if not torch.equal(old[key], new[key])
    }
    assert changed == {key for key, spec in STATE.items() if spec.is_written}


def test_package_has_no_other_list():
    assert nero.Nero.rule_type.state is STATE

"""Every optimizer against torch's own database of optimizer inputs and error inputs."""

import inspect
import re
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from optimizer_table import TABLE, Entry, each_entry, parametrize_rows, rows_with
from tiny_problem import TinyNet, loss_of
from torch import nn
from torch.optim import Optimizer
from torch.testing._internal.common_optimizers import (
    ErrorOptimizerInput,
    OptimizerErrorEnum,
    OptimizerInput,
    _get_optim_inputs_including_global_cliquey_kwargs,
    get_error_inputs_for_all_optims,
    optim_db,
)

import nero

NOT_SHARED = {
    "betas must be either both floats or both Tensors": "tensor betas are for Adam's CUDA graphs",
    "as a Tensor is not supported": "what Adam's foreach implementation lacks",
    "epsilon1 should be >= 0": "Adafactor's eps is a pair of other meaning",
}
"""Error inputs of torch whose kwargs have our names but not our meaning."""


def database_inputs(entry: Entry) -> list[OptimizerInput]:
    """Return all inputs of torch's optimizers that the constructor of ``entry`` has names for."""
    found = [i for info in optim_db for i in info.optim_inputs_func("cpu")]
    if entry.torch_info is not None:
        # differentiable=True needs parameters that are not leaves: no training loop has them.
        found += _get_optim_inputs_including_global_cliquey_kwargs(
            "cpu", torch.float32, entry.torch_info, skip=("differentiable",)
        )
    unique = {}
    for one in found:
        # A flag that is off is the default.
        kwargs = {k: v for k, v in one.kwargs.items() if v is not False}
        if entry.accepted.issuperset(kwargs):
            unique.setdefault(repr(sorted(kwargs.items(), key=str)), OptimizerInput(None, kwargs))
    return list(unique.values())


def valid_inputs(entry: Entry) -> list[OptimizerInput]:
    own = [OptimizerInput(None, kwargs) for kwargs in (*entry.inputs, *entry.variants) if kwargs]
    return [i for i in database_inputs(entry) if not entry.refusal(i.kwargs)] + own


def error_inputs(entry: Entry) -> list[ErrorOptimizerInput]:
    shared = get_error_inputs_for_all_optims("cpu", torch.float32)
    return [*shared, *_kwargs_errors(entry), *_refused(entry), *_own_errors(entry)]


def _kwargs_errors(entry: Entry) -> list[ErrorOptimizerInput]:
    infos = optim_db if entry.torch_info is None else [entry.torch_info]
    num_shared = len(get_error_inputs_for_all_optims("cpu", torch.float32))
    unique = {}
    for info in infos:
        if info.optim_error_inputs_func is None:
            continue
        for error in info.optim_error_inputs_func("cpu", torch.float32)[num_shared:]:
            kwargs = error.optimizer_error_input.kwargs
            is_ours = entry.torch_info is not None or not any(
                phrase in error.error_regex for phrase in NOT_SHARED
            )
            if is_ours and kwargs and entry.accepted.issuperset(kwargs):
                unique.setdefault(repr(kwargs), error)
    return [error for error in unique.values() if not entry.refusal(_kwargs(error))]


def _refused(entry: Entry) -> Iterator[ErrorOptimizerInput]:
    for one in database_inputs(entry):
        if refusal := entry.refusal(one.kwargs):
            yield ErrorOptimizerInput(
                one, error_type=refusal.error_type, error_regex=refusal.error_regex
            )


def _own_errors(entry: Entry) -> Iterator[ErrorOptimizerInput]:
    for kwargs, error_type, regex in entry.own_errors:
        yield ErrorOptimizerInput(
            OptimizerInput(None, kwargs), error_type=error_type, error_regex=regex
        )
    weight = nn.Parameter(torch.randn(2, 3))
    wrong_params: list[tuple[str, Any, type[BaseException], str]] = [
        ("no parameters", [], ValueError, "optimizer got an empty parameter list"),
        ("not a tensor", ["weight"], TypeError, "optimizer can only optimize Tensors"),
        ("not a leaf", [weight * 2], ValueError, "can't optimize a non-leaf Tensor"),
        ("a set", [{"params": {weight}}], TypeError, "organized in ordered collections"),
        (
            "complex parameters",
            [nn.Parameter(torch.randn(2, 3, dtype=torch.complex64))],
            TypeError,
            "only real floating-point parameters",
        ),
    ]
    for desc, params, error_type, regex in wrong_params:
        yield ErrorOptimizerInput(
            OptimizerInput(params, {}, desc), error_type=error_type, error_regex=regex
        )
    if not entry.accepts_sparse:
        yield ErrorOptimizerInput(
            OptimizerInput([_with_sparse_gradient()], {}, "sparse gradient"),
            error_on=OptimizerErrorEnum.STEP_ERROR,
            error_type=RuntimeError,
            error_regex="sparse gradient",
        )


def _with_sparse_gradient() -> nn.Parameter:
    embedding = nn.Embedding(5, 3, sparse=True)
    # not the same for all features, which centring would undo
    (embedding(torch.tensor([1, 2])) * torch.tensor([1.0, -2.0, 3.0])).sum().backward()
    return embedding.weight


def _kwargs(error: ErrorOptimizerInput) -> dict[str, Any]:
    return error.optimizer_error_input.kwargs


def test_the_table_holds_every_optimizer_of_the_package():
    def optimizers(module: types.ModuleType) -> set[type]:
        members = [getattr(module, name) for name in module.__all__]
        return {m for m in members if inspect.isclass(m) and issubclass(m, Optimizer)}

    public = optimizers(nero) | optimizers(nero.baselines)
    assert public == {e.wrapper or e.optim_cls for e in TABLE}


@parametrize_rows("entry, one", rows_with(valid_inputs))
def test_goes_in_the_right_direction(entry: Entry, one: OptimizerInput):
    # float64, because the database's smallest rates change the loss in its eighth digit only.
    model = TinyNet(dtype=torch.float64)
    optimizer = entry.construct(nero.param_groups(model), **one.kwargs)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = loss_of(model, 0)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    gain = losses[-1] - losses[0]
    assert gain > 0 if one.kwargs.get("maximize") else gain < 0, losses
    assert all(torch.isfinite(p).all() for p in model.parameters())


@each_entry
def test_every_row_is_driven_by_the_database(entry: Entry):
    # The names that make an optimizer a drop-in: if one is renamed, this says so.
    used = {name for one in database_inputs(entry) for name in one.kwargs}
    assert {"lr", "maximize"} <= used
    assert any(isinstance(one.kwargs.get("lr"), torch.Tensor) for one in database_inputs(entry))


@parametrize_rows("entry, error", rows_with(error_inputs))
def test_refuses(entry: Entry, error: ErrorOptimizerInput):
    one = error.optimizer_error_input
    params = [nn.Parameter(torch.randn(2, 3))] if one.params is None else one.params
    if issubclass(error.error_type, Warning):
        with pytest.warns(error.error_type, match=error.error_regex):
            entry.construct(params, **one.kwargs)
    elif error.error_on is OptimizerErrorEnum.CONSTRUCTION_ERROR:
        with pytest.raises(error.error_type, match=error.error_regex):
            entry.construct(params, **one.kwargs)
    else:
        optimizer = entry.construct(params, **one.kwargs)
        before = [p.detach().clone() for p in params]
        with pytest.raises(error.error_type, match=error.error_regex):
            optimizer.step()
        assert all(torch.equal(a, b) for a, b in zip(before, params, strict=True))


@pytest.mark.parametrize("entry", [e for e in TABLE if e.accepts_sparse], ids=str)
def test_sparse_gradients_work_where_the_table_says_why(entry: Entry):
    weight = _with_sparse_gradient()
    optimizer = entry.build([weight])
    before = weight.detach().clone()
    optimizer.step()
    # the rows that were looked up, and only those
    changed = (weight != before).any(dim=1)
    assert changed.tolist() == [False, True, True, False, False]


@each_entry
def test_refuses_an_unknown_keyword(entry: Entry):
    with pytest.raises(TypeError, match=re.escape("unexpected keyword argument 'no_such_option'")):
        entry.construct([nn.Parameter(torch.randn(2, 3))], no_such_option=1)

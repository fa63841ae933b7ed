"""The table: every optimizer of the package, what its constructor takes, and where it may differ.

The rows are written in the classes of torch's own optimizer database, and most inputs come from that
database: whatever kwargs of torch's optimizers ours accept too, ours are run with.
"""

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pytest
import torch
from torch.optim import Optimizer
from torch.testing._internal.common_optimizers import (
    ErrorOptimizerInput,
    OptimizerInfo,
    OptimizerInput,
    optim_db,
)

import nero
from nero.baselines import Fromage, Lamb, Lars, Madam


class Claim(Enum):
    """What every optimizer here promises beyond torch; a row that cannot says why in ``differs``.

    Tests assert the promise where it holds and its contrary where it does not, so that an exception
    cannot outlive its reason.
    """

    EAGER_STATE = "state of every trainable parameter exists from construction, in their order"
    STATE_DTYPE = "state is in working precision, and neither a load nor bf16 weights narrow it"
    LOAD_COPIES = "a loaded state shares no memory with the state dict it came from"
    LOAD_CHECKS_SHAPES = "a state dict of another model's shapes is refused"
    LOAD_KEEPS_OPTIONS = "an option that a state dict lacks keeps its present value"
    STEPS_AFTER_MOVE = "training goes on after model.to(dtype), with the state there is"
    ZERO_LR_KEEPS_STATE = "a step at lr = 0 changes no state"
    FROZEN_STAYS = "a frozen parameter with a left-over gradient is not touched"
    HOOKS_GET_SELF = "step hooks receive the optimizer that they were registered on"
    FULL_GRAPH = "step compiles into one graph"
    COMPILES_EXACTLY = "a compiled step gives the bits of the plain one"
    TENSOR_LR_IS_EXACT = "a tensor lr gives the bits of the float that it holds"


@dataclass(frozen=True)
class Refusal:
    """A value of an option that torch's optimizers take and this one must not."""

    option: str
    is_refused: Callable[[Any], bool]
    error_type: type[BaseException]
    error_regex: str


@dataclass(frozen=True, repr=False)
class Entry:
    """One row of the table."""

    name: str
    optim_cls: type[Optimizer]
    lr: float
    """A rate at which a dozen steps visibly train the tiny network. A power of two, so that a tensor
    can hold it exactly and halving it rounds nothing."""
    always: Mapping[str, Any] = field(default_factory=dict)
    wrapper: type[nero.Balanced] | None = None
    inputs: tuple[dict[str, Any], ...] = ()
    """Valid kwargs, beside the database's."""
    variants: tuple[dict[str, Any], ...] = ({},)
    """Valid kwargs that change what is stored or how a step runs: whole trajectories are compared."""
    own_errors: tuple[tuple[dict[str, Any], type[BaseException], str], ...] = ()
    refuses: tuple[Refusal, ...] = ()
    group_options: Mapping[str, Any] = field(default_factory=dict)
    """Options that a param group may set for itself, with a value that is not the default."""
    fixed_options: Mapping[str, str] = field(default_factory=dict)
    """Those of them that a change in mid-training does not reach, and why."""
    newer_options: tuple[str, ...] = ()
    """Options that a checkpoint of an older version may lack."""
    former_state: tuple[str, ...] = ()
    """Counters that checkpoints of an older version carried, and that change no trajectory."""
    broken_in_bf16: Mapping[str, str] = field(default_factory=dict)
    """Options that torch itself gets wrong for bf16 parameters, and how."""
    no_tensor_lr: Mapping[str, str] = field(default_factory=dict)
    """Options beside which a tensor lr is refused, and the message."""
    accepts_sparse: str = ""
    """Why sparse gradients are fine, where they are."""
    differs: Mapping[Claim, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return self.name

    def construct(self, params: Any, **kwargs: Any) -> Optimizer:
        """Build the optimizer with exactly these kwargs."""
        kwargs = {**self.always, **copy.deepcopy(kwargs)}
        if self.wrapper is None:
            return self.optim_cls(params, **kwargs)
        outer = {"constraint": kwargs.pop("constraint")} if "constraint" in kwargs else {}
        return self.wrapper(self.optim_cls(params, **kwargs), **outer)

    def build(self, params: Any, **kwargs: Any) -> Optimizer:
        """Build the optimizer at the row's own lr, unless one is given."""
        if isinstance(params, torch.nn.Module):
            params = nero.param_groups(params)
        return self.construct(params, **{"lr": self.lr, **kwargs})

    def holds(self, claim: Claim) -> bool:
        return claim not in self.differs

    @property
    def torch_info(self) -> OptimizerInfo | None:
        """The database's own entry, for a wrapped torch optimizer."""
        return next((info for info in optim_db if info.optim_cls is self.optim_cls), None)

    @property
    def accepted(self) -> frozenset[str]:
        names = frozenset(inspect.signature(self.optim_cls).parameters) - {"params"}
        return names | {"constraint"} if self.wrapper else names

    def refusal(self, kwargs: Mapping[str, Any]) -> Refusal | None:
        found = (r for r in self.refuses if r.option in kwargs and r.is_refused(kwargs[r.option]))
        return next(found, None)


CONSTRAINTS = ({"constraint": "initial"}, {"constraint": nero.Sphere(radius=2.0)})
"""A radius for every neuron, and another radius for all: what a resume could lose."""

_LR_ERRORS = (
    ({"lr": -0.5}, ValueError, "Invalid learning rate: -0.5"),
    ({"lr": float("nan")}, ValueError, "Invalid learning rate: nan"),
)
_WRONG_CONSTRAINTS = (
    ({"constraint": "round"}, ValueError, "constraint must be a Sphere or one of"),
    ({"constraint": 1.0}, TypeError, "constraint must be a Sphere or its name"),
)

_LAMB_ERRORS = (
    *_LR_ERRORS,
    ({"betas": (0.9, 1.5)}, ValueError, "Invalid beta parameter at index 1: 1.5"),
    ({"eps": -1e-8}, ValueError, "Invalid eps"),
    ({"weight_decay": float("inf")}, ValueError, "Invalid weight_decay"),
    ({"max_norm": 0.0}, ValueError, "Invalid max_norm"),
)
_LAMB_OPTIONS = {
    "betas": (0.5, 0.9),
    "eps": 1e-3,
    "weight_decay": 0.5,
    "max_norm": 0.5,
    "maximize": True,
}

_OF_THE_WRAPPED = "Balanced keeps hooks, groups and state in the optimizer that it wraps"
_OF_TORCH = {
    Claim.EAGER_STATE: "torch makes state when a parameter first has a gradient",
    Claim.STATE_DTYPE: "torch keeps state in the parameter's dtype and casts it there on load",
    Claim.LOAD_COPIES: "torch's load_state_dict keeps a tensor that needs no cast",
    Claim.LOAD_CHECKS_SHAPES: "torch matches state to parameters by position alone",
    Claim.LOAD_KEEPS_OPTIONS: "torch replaces each group, and restores only options that it knows",
    Claim.ZERO_LR_KEEPS_STATE: "torch's momentum, averages and counters do not look at lr",
    Claim.FROZEN_STAYS: "torch steps wherever there is a gradient",
    Claim.HOOKS_GET_SELF: _OF_THE_WRAPPED,
    Claim.FULL_GRAPH: "torch's own step asks for a graph break (optimizer._use_grad)",
}

TABLE = (
    Entry(
        "Nero",
        nero.Nero,
        lr=2**-6,
        inputs=(
            {"beta": 0.0},
            {"norm": "peak", "beta": 0.9},
            {"momentum": 0.9},
            {"momentum": 0.9, "momentum_dtype": torch.bfloat16},
            {"preset": "rows"},
            {"preset": "polar"},
            {"direction": "polar"},
            {"bias_scale": 1.0},
            {"constraint": "norm"},
            {"constraint": "mean"},
            {"nonfinite": "raise"},
            {"nonfinite": "propagate"},
            {"weight_decay": 0.0, "foreach": False, "fused": False},
        ),
        variants=(
            {},
            *CONSTRAINTS,
            {"constraint": "none"},
            {"gain_penalty": 0.5},
            {"norm": "peak", "beta": 0.95, "momentum": 0.9},
            {"momentum": 0.9},
            {"momentum": 0.9, "momentum_dtype": "bfloat16", "seed": 7},
            {"momentum": 0.9, "direction": "polar"},
            {"momentum": 0.9, "momentum_dtype": "bfloat16", "direction": "polar"},
            {"stochastic_rounding": True, "seed": 7},
        ),
        own_errors=(
            *_LR_ERRORS,
            *_WRONG_CONSTRAINTS,
            ({"beta": 1.0}, ValueError, "Invalid beta"),
            ({"beta": float("nan")}, ValueError, "Invalid beta"),
            ({"norm": "max"}, ValueError, "norm must be one of"),
            ({"norm": "peak", "beta": 0.9, "momentum": 0.9}, UserWarning, "beta=0.9 is not above"),
            ({"momentum": 1.0}, ValueError, "Invalid momentum"),
            ({"momentum_dtype": "float16"}, ValueError, "momentum_dtype must be one of"),
            ({"momentum_dtype": "bfloat16"}, UserWarning, "momentum_dtype=.*has no effect"),
            ({"preset": "muon"}, ValueError, "preset must be one of"),
            ({"direction": "down"}, ValueError, "direction must be one of"),
            ({"bias_scale": 0.0}, ValueError, "Invalid bias_scale"),
            ({"bias_scale": float("inf")}, ValueError, "Invalid bias_scale"),
            ({"gain_penalty": -0.1}, ValueError, "Invalid gain_penalty"),
            ({"nonfinite": "ignore"}, ValueError, "nonfinite must be one of"),
            ({"weight_decay": 0.1}, ValueError, "weight_decay must be 0 but is 0.1"),
            ({"foreach": True}, UserWarning, "foreach=True has no effect"),
        ),
        refuses=(
            Refusal("weight_decay", bool, ValueError, "weight_decay must be 0"),
            Refusal("foreach", bool, UserWarning, "foreach=True has no effect"),
        ),
        group_options={
            "beta": 0.5,
            "norm": "peak",
            "momentum": 0.4,
            "direction": "polar",
            "bias_scale": 1.0,
            "constraint": "norm",
            "gain_penalty": 2.0,
            "maximize": True,
        },
        fixed_options={"bias_scale": "it becomes state when the parameter is added"},
        newer_options=(
            *("bias_scale", "constraint", "gain_penalty", "nonfinite", "maximize"),
            *("norm", "momentum", "momentum_dtype", "direction", "preset"),
            *("stochastic_rounding", "seed"),
            *("weight_decay", "foreach", "fused", "role", "neuron_dims", "num_groups"),
        ),
        former_state=("num_skipped",),
    ),
    Entry(
        "Madam",
        Madam,
        lr=2**-6,
        inputs=({"beta": 0.0}, {"max_ratio": 1.0}),
        variants=({}, {"weight_bound": 1.5}),
        own_errors=(
            *_LR_ERRORS,
            ({"beta": -0.1}, ValueError, "Invalid beta"),
            ({"max_ratio": 0.0}, ValueError, "Invalid max_ratio"),
            ({"weight_bound": float("nan")}, ValueError, "Invalid weight_bound"),
        ),
        group_options={"beta": 0.5, "max_ratio": 0.5, "weight_bound": 1.0, "maximize": True},
        newer_options=("max_ratio", "weight_bound", "maximize", "role", "neuron_dims"),
    ),
    Entry(
        "Lamb",
        Lamb,
        lr=2**-6,
        inputs=({"betas": (0.0, 0.999)}, {"eps": 0.0, "weight_decay": 0.0}),
        own_errors=_LAMB_ERRORS,
        group_options=_LAMB_OPTIONS,
        newer_options=("max_norm", "maximize", "role", "neuron_dims"),
    ),
    Entry(
        "Lars",
        Lars,
        lr=2.0**4,  # times the trust coefficient of 0.001
        inputs=({"momentum": 0.0}, {"trust_coefficient": 0.002, "weight_decay": 0.0}),
        own_errors=(
            *_LR_ERRORS,
            ({"momentum": 1.0}, ValueError, "Invalid momentum"),
            ({"weight_decay": float("nan")}, ValueError, "Invalid weight_decay"),
            ({"trust_coefficient": -1.0}, ValueError, "Invalid trust_coefficient"),
        ),
        group_options={
            "momentum": 0.5,
            "weight_decay": 0.5,
            "trust_coefficient": 0.002,
            "maximize": True,
        },
        newer_options=("maximize", "role", "neuron_dims"),
    ),
    Entry(
        "Fromage",
        Fromage,
        lr=2**-6,
        own_errors=_LR_ERRORS,
        group_options={"maximize": True},
        newer_options=("maximize", "role", "neuron_dims"),
        differs={Claim.LOAD_CHECKS_SHAPES: "Fromage keeps a counter only: every model's fits"},
    ),
    Entry(
        "Balanced(SGD)",
        torch.optim.SGD,
        lr=2**-3,
        always={"momentum": 0.9},
        wrapper=nero.Balanced,
        inputs=({"constraint": "norm"}, {"constraint": "mean"}),
        variants=({}, *CONSTRAINTS, {"foreach": True}, {"fused": True}),
        own_errors=_WRONG_CONSTRAINTS,
        group_options={
            "constraint": "norm",
            "momentum": 0.5,
            "weight_decay": 0.5,
            "maximize": True,
        },
        newer_options=("maximize", "foreach", "differentiable", "fused"),
        broken_in_bf16={
            "fused": "torch 2.13's CPU kernel writes garbage into bf16 momentum buffers"
        },
        accepts_sparse="torch's SGD adds sparse gradients, and the projection reads weights only",
        differs=_OF_TORCH,
    ),
    Entry(
        "Balanced(AdamW)",
        torch.optim.AdamW,
        lr=2**-6,
        wrapper=nero.Balanced,
        inputs=({"constraint": "norm"}, {"constraint": "mean"}),
        variants=({}, *CONSTRAINTS, {"foreach": True}, {"fused": True}),
        own_errors=_WRONG_CONSTRAINTS,
        group_options={
            "constraint": "norm",
            "betas": (0.5, 0.9),
            "eps": 1e-3,
            "weight_decay": 0.5,
            "maximize": True,
        },
        newer_options=("maximize", "foreach", "capturable", "differentiable", "fused"),
        no_tensor_lr={"foreach": "lr as a Tensor is not supported"},
        differs={
            **_OF_TORCH,
            Claim.STEPS_AFTER_MOVE: "torch's AdamW cannot mix the dtypes of state and gradient",
            Claim.COMPILES_EXACTLY: "torch compiles AdamW's capturable form, which rounds otherwise",
            Claim.TENSOR_LR_IS_EXACT: "torch's AdamW divides a tensor lr in float32, a float in double",
        },
    ),
    Entry(
        "Balanced(Lamb)",
        Lamb,
        lr=2**-6,
        wrapper=nero.Balanced,
        inputs=({"constraint": "norm"}, {"betas": (0.0, 0.999)}),
        variants=({}, *CONSTRAINTS),
        own_errors=(*_LAMB_ERRORS, *_WRONG_CONSTRAINTS),
        group_options={"constraint": "norm", **_LAMB_OPTIONS},
        newer_options=("max_norm", "maximize", "role", "neuron_dims"),
        differs={Claim.HOOKS_GET_SELF: _OF_THE_WRAPPED},
    ),
)


def _ident(value: Any) -> str:
    if isinstance(value, Entry):
        return value.name
    if isinstance(value, OptimizerInput):
        return _ident(value.kwargs)
    if isinstance(value, ErrorOptimizerInput):
        inner = value.optimizer_error_input
        return _ident(inner.kwargs) if inner.kwargs else inner.desc
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, Mapping):
        return ",".join(f"{k}={v}".replace(" ", "") for k, v in value.items()) or "default"
    return str(value)


def parametrize_rows(names: str, rows: Iterable[Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(names, list(rows), ids=_ident)


def rows_with(make: Callable[[Entry], Iterable[Any]]) -> list[tuple[Entry, Any]]:
    """Return (row, item) for every item that ``make`` finds for a row."""
    return [(entry, item) for entry in TABLE for item in make(entry)]


each_entry = parametrize_rows("entry", TABLE)
"""Run a test once for every optimizer."""

each_variant = parametrize_rows("entry, kwargs", rows_with(lambda entry: entry.variants))
"""Run a test for every optimizer with each of its variants."""

each_variant_and_dtype = parametrize_rows(
    "entry, kwargs, dtype",
    [
        (entry, kwargs, dtype)
        for entry, kwargs in rows_with(lambda entry: entry.variants)
        for dtype in (torch.float32, torch.bfloat16)
        if dtype != torch.bfloat16 or entry.broken_in_bf16.keys().isdisjoint(kwargs)
    ],
)

each_group_option = parametrize_rows("entry, option", rows_with(lambda entry: entry.group_options))

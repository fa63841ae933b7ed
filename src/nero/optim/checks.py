"""What users can get wrong, and the messages that say what to do."""

import difflib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from nero.core.arguments import check_real, kind_of
from nero.core.neurons import LayoutError, LayoutWarning, Neurons, neurons_from_options
from nero.core.spec import learning_rate
from nero.core.warn import warn_user
from nero.layout import Overrides
from nero.layout.arrival import known_marks
from nero.layout.groups import override_pairs
from nero.optim.flattened import check_whole


def read_lr(lr: float | Tensor) -> float | Tensor:
    """Read a learning rate: a non-negative number, or a one-element tensor of the group's own."""
    learning_rate("lr", lr)
    # Groups that share one tensor would each multiply it when told to decay.
    return lr.clone() if isinstance(lr, Tensor) else lr


def rate_of_step(lr: Any) -> float | Tensor:
    """Read the learning rate of a group at a step: a Python number, or a tensor without dims."""
    if type(lr) is float and 0 <= lr < math.inf:  # nearly always, and at every step
        return lr
    if not torch.compiler.is_compiling():  # a compiler cannot look into a tensor
        learning_rate("lr", lr)
    return lr.reshape(()) if isinstance(lr, Tensor) else float(lr)


def check_params(params: Any) -> None:
    """Raise unless ``params`` can be parameters or param groups; torch looks at each of them."""
    if isinstance(params, type):
        raise TypeError(
            f"params is {kind_of(params)}: build an instance of it first, {params.__name__}(...)"
        )
    if isinstance(params, Optimizer):
        raise TypeError(
            f"params is an optimizer ({kind_of(params)}): pass its model, or its param_groups"
        )
    if isinstance(params, Mapping):
        raise TypeError(
            "params is a single mapping: put a param group into a list, and pass a model as it is"
        )
    if isinstance(params, str) or not isinstance(params, Iterable):
        raise TypeError(
            f"params must be a model, its parameters or param groups, not {kind_of(params)}"
        )


@contextmanager
def explain_torch_errors() -> Iterator[None]:
    """Add what to do to what torch says of parameters that it refuses."""
    try:
        yield
    except (TypeError, ValueError) as error:
        advice = next((a for said, a in _ADVICE.items() if said in str(error)), None)
        if advice is None or advice in str(error):
            raise
        raise type(error)(f"{error}: {advice}") from None


_ADVICE = {
    "empty parameter list": "pass a model that has parameters, or a list of some",
    "can only optimize Tensors": "pass a model as it is, or its model.parameters()",
    "non-leaf Tensor": "pass the parameters that it was computed from",
    "ordered collections": "put the parameters into a list",
    "should be an iterable of Tensors": "put a single parameter into a list",
    "param_group must be a dict": "give each group as {'params': [...], 'lr': ...}",
    "in more than one parameter group": "leave each parameter in one of them",
    "with/without names": "give all parameters as (name, parameter), or none",
}
"""What torch says, and what to do then."""


def check_has_params(group: Any) -> None:
    """Raise if a param group does not say of which parameters it is; torch looks at the rest."""
    if isinstance(group, Mapping) and isinstance(group.get("params"), nn.Module):
        raise TypeError(
            f"the 'params' of a group are {kind_of(group['params'])}, a module: give its parameters()"
        )
    if isinstance(group, Mapping) and group.get("params") is None:
        raise ValueError(
            f"a param group has no 'params', only {sorted(map(str, group))}: give it a list of parameters"
        )


def refuse_unknown(
    unknown: Mapping[str, Any], options: Iterable[str], hints: Mapping[str, str], optimizer: str
) -> None:
    """Raise if there are options that the optimiser does not have, and say what serves instead."""
    for name in unknown:
        near = difflib.get_close_matches(name, [*options], n=1)
        hint = hints.get(name) or (f"did you mean {near[0]}?" if near else "")
        hint = hint or f"the options are {', '.join(options)}"
        raise TypeError(f"{optimizer} got an unexpected keyword argument {name!r}: {hint}")


def warn_untrainable(groups: Sequence[Mapping[str, Any]]) -> None:
    """Warn if no parameter can be trained; some may be frozen, such as those that hold integers."""
    members = [pair for group in groups for pair in named_params(group)]
    if not any(param.requires_grad for param, _ in members):
        integers = [
            (p, name) for p, name in members if not (p.is_floating_point() or p.is_complex())
        ]
        why = "".join(f"; {name} is {p.dtype}, which has no gradient" for p, name in integers[:1])
        warn_user(
            f"no parameter requires a gradient, so steps will change nothing{why}; call requires_grad_() "
            "on what is to be trained"
        )


def warn_ignored(group: Mapping[str, Any], hints: Mapping[str, str]) -> None:
    """Warn of options in a param group that were meant for another optimiser."""
    for name in hints.keys() & group.keys():
        warn_user(f"{name} in a param group has no effect: {hints[name]}")


def raise_sparse(name: str) -> NoReturn:
    """Refuse a sparse gradient."""
    raise RuntimeError(
        f"{name} has a sparse gradient, which this optimizer does not support; build its "
        "embedding with sparse=False"
    )


def name_at(groups: Sequence[Mapping[str, Any]], index: int) -> str:
    """Return what messages call a parameter, from its position among all of them."""
    for group in groups:
        if index < len(group["params"]):
            return param_name(group, index)
        index -= len(group["params"])
    raise IndexError(index)


def named_params(group: Mapping[str, Any]) -> list[tuple[Tensor, str]]:
    """Return the parameters of a group, each with the name that messages use."""
    return [(param, param_name(group, i)) for i, param in enumerate(group["params"])]


def param_name(group: Mapping[str, Any], place: int) -> str:
    """Return what messages call the parameter at this place of a group."""
    names = group.get("param_names")
    if names is not None:
        return f"`{names[place]}`"
    return f"parameter {place} of shape {tuple(group['params'][place].shape)}"


def named_like(groups: Sequence[Mapping[str, Any]], group: Any) -> Any:
    """Return a new group with names if the others have them: torch wants all groups alike."""
    is_group = isinstance(group, Mapping) and isinstance(group["params"], list)
    if not is_group or not groups or "param_names" not in groups[0]:
        return group
    named = [
        item if isinstance(item, tuple) else (f"group {len(groups)}, parameter {place}", item)
        for place, item in enumerate(group["params"])
    ]
    return {**group, "params": named}


def warn_no_foreach(foreach: bool | None) -> None:
    """Warn a caller who asks for an implementation that does not exist."""
    if foreach:
        warn_user(
            "foreach=True has no effect: there is no foreach implementation; leave foreach=None"
        )


def warn_maybe_output(
    groups: Sequence[Mapping[str, Any]], model: nn.Module | None, preset: str
) -> None:
    """Warn of embeddings of large norm that may be the output layer too, which modules do not show."""
    members = [(param, group) for group in groups for param in group["params"]]
    large = [
        (param, name)
        for group in groups
        if group["role"] == "embedding" and group["constraint"].radius == "sqrt_dim"
        for param, name in named_params(group)
        if param.requires_grad
    ]
    if not large:
        return
    marks = known_marks(model, (param for param, _ in members))
    large = [
        (param, name) for param, name in large if param not in marks or not marks[param].is_seen
    ]
    if any(mark.is_tied for mark in marks.values()):
        return  # there is such a layer
    outputs = [
        neurons_from_options(group, param.shape)
        for param, group in members
        if param in marks and marks[param].is_output
    ]
    alone = [name for param, name in large if param in marks and marks[param].is_alone]
    if callable(getattr(model, "get_output_embeddings", None)):
        # A model of Hugging Face has modules for its logits, so one number is no value beside them.
        outputs = [output for output in outputs if output.num_neurons > 1]
    maybe = [name for param, name in large if _may_end_in(param.shape, outputs)]
    if any(_is_head_of(param.shape, output) for param, _ in large for output in outputs):
        maybe = []
    if alone and not isinstance(model, nn.Embedding | nn.EmbeddingBag):
        what = "no layer reads it: scores of rows with each other would be"
        names = alone
    elif maybe:
        what = "if the model multiplies features with all its rows, logits are"
        names = maybe
    else:
        return
    shown = " or ".join(names[:3]) + (f" or {len(names) - 3} more" if len(names) > 3 else "")
    warn_user(
        f"{shown} may be the output layer, too: {what} too large with the norm sqrt(dim) of "
        f"preset={preset!r}. Pass example=, what the model is called with, to Nero, or to nero.annotate if "
        "you pass parameters",
        LayoutWarning,
    )


def _may_end_in(table: Sequence[int], outputs: Sequence[Neurons]) -> bool:
    """Whether a model whose modules end in these layers may go on with a product with this table.

    Its last layer then has as many outputs as a row has numbers. Or its last layer comes after the product
    and reads one number per row. Or it is a value head, which reads the features and gives one number.
    """
    rows, width = table[0], table[-1]
    return any(
        (last.num_neurons == width and last.num_neurons != rows)
        or (last.fan_in == rows and rows != width)
        or (last.num_neurons == 1 and last.fan_in == width)
        for last in outputs
    )


def _is_head_of(table: Sequence[int], output: Neurons) -> bool:
    """Whether a layer gives logits of a table's rows, so that the table itself need not."""
    return output.num_neurons == table[0] and output.fan_in == table[-1]


def warn_no_storage(name: str) -> None:
    """Warn that a parameter without storage is not being trained."""
    warn_user(
        f"{name} is still on the meta device, so this step cannot train it; if the model has been "
        "materialised since (to_empty makes new parameters), build the optimizer anew"
    )


def check_param(param: Tensor, group: Mapping[str, Any], name: str) -> None:
    """Raise if ``param`` is of a kind that has no neurons, or does not fit its group's layout."""
    if param.requires_grad:
        check_real(name, param)
    check_whole(param, name)
    try:
        neurons_from_options(group, param.shape)
    except LayoutError as error:
        raise LayoutError(f"{name}: {error}") from error


def check_overrides(overrides: Overrides, options: Mapping[str, Any]) -> None:
    """Raise if an override sets an option that the optimiser does not have."""
    for pattern, chosen in override_pairs(overrides):
        unknown = sorted(set(chosen) - set(options))
        if unknown:
            raise TypeError(
                f"override {pattern!r} sets {', '.join(unknown)}, which is no option; the options are "
                f"{', '.join(sorted(options))}"
            )

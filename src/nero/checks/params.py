"""Parameters and param groups that cannot be trained."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from torch import Tensor, nn

from nero.backends import why_not_fused
from nero.checks.flattened import check_whole
from nero.checks.names import named_params
from nero.core.arguments import check_real, kind_of
from nero.core.held import Held
from nero.core.neurons import LayoutError, Neurons
from nero.core.spec import StateSpec
from nero.core.warn import warn_user
from nero.hold import hold_in


@contextmanager
def explain_torch_errors() -> Iterator[None]:
    """Add advice to torch's errors about parameters."""
    try:
        yield
    except (TypeError, ValueError) as error:
        advice = next((a for said, a in _ADVICE.items() if said in str(error)), None)
        if advice is None or advice in str(error):
            raise
        raise type(error)(f"{error}: {advice}") from None


_ADVICE = {
    "empty parameter list": "pass a model with parameters, or a non-empty list of them",
    "can only optimize Tensors": "pass the model itself, or model.parameters()",
    "non-leaf Tensor": "pass the parameters that it was computed from",
    "ordered collections": "put the parameters into a list",
    "should be an iterable of Tensors": "put a single parameter into a list",
    "param_group must be a dict": "give each group as {'params': [...], 'lr': ...}",
    "in more than one parameter group": "put each parameter into exactly one group",
    "with/without names": "pass every parameter as a (name, parameter) pair, or none of them",
}
"""A part of torch's message, and what to do about it."""


def check_has_params(group: Any) -> None:
    """Raise if a param group has no usable ``params``; torch checks everything else."""
    if isinstance(group, Mapping) and isinstance(group.get("params"), nn.Module):
        raise TypeError(
            f"a param group's 'params' is {kind_of(group['params'])}, a module: pass its parameters()"
        )
    if isinstance(group, Mapping) and group.get("params") is None:
        raise ValueError(
            f"a param group has no 'params', only {sorted(map(str, group))}: give it a list of parameters"
        )


def warn_untrainable(groups: Sequence[Mapping[str, Any]]) -> None:
    """Warn if no parameter requires a gradient."""
    members = [pair for group in groups for pair in named_params(group)]
    if not any(param.requires_grad for param, _ in members):
        integers = [
            (p, name) for p, name in members if not (p.is_floating_point() or p.is_complex())
        ]
        why = "".join(f"; {name} is {p.dtype}, which has no gradient" for p, name in integers[:1])
        warn_user(
            f"no parameter requires a gradient, so steps will change nothing{why}; call requires_grad_() "
            "on the parameters to train"
        )


def raise_sparse(name: str) -> NoReturn:
    """Refuse a sparse gradient."""
    raise RuntimeError(
        f"{name} has a sparse gradient, which this optimizer does not support; build its "
        "embedding with sparse=False"
    )


def warn_no_storage(name: str) -> None:
    """Warn that a parameter without storage is not being trained."""
    warn_user(
        f"{name} is still on the meta device, so this step cannot train it. If you have materialized "
        "the model since, build a new optimizer: to_empty creates new parameters"
    )


def check_param(
    param: Tensor,
    group: Mapping[str, Any],
    name: str,
    *,
    has_neurons: bool = False,
    fused: bool | None = None,
) -> Held:
    """Return a parameter as this rank holds it, or raise if the optimizer cannot train it.

    Raises if its shape does not fit its group's layout, or if it needs a fused kernel and none supports it.

    Args:
        param: the parameter.
        group: its param group, which has the layout.
        name: the parameter's name, for messages.
        has_neurons: whether a step needs sums per neuron, which restricts how it may be sharded.
        fused: if true, a fused kernel must support it.
    """
    if param.requires_grad:
        check_real(name, param)
    check_whole(param, name)
    try:
        held = hold_in(group, param)
    except LayoutError as error:
        raise LayoutError(f"{name}: {error}") from error
    if has_neurons:
        held.check(name)
    reason = why_not_fused(held.local) if fused and param.requires_grad else None
    if reason:
        raise ValueError(
            f"fused=True, but no fused kernel can update {name}: {reason}; leave fused=None to get "
            "the fastest available implementation"
        )
    return held


def check_state(
    state: Mapping[str, Tensor], specs: Mapping[str, StateSpec], neurons: Neurons, name: str
) -> None:
    """Raise if the layout has changed since the state was made."""
    for key, tensor in state.items():
        if specs[key].shape == "per neuron" and tuple(tensor.shape) != neurons.state_shape:
            raise LayoutError(
                f"{name}: its layout has changed since its state was created, so its {key} no longer "
                "fits its neurons; build a new optimizer"
            )

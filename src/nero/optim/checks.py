"""What users can get wrong, and the messages that say what to do."""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from torch import Tensor

from nero.core.neurons import LayoutError, neurons_from_options
from nero.layout import Overrides
from nero.layout.groups import override_pairs


def read_lr(lr: float | Tensor) -> float | Tensor:
    """Read a learning rate: a non-negative number, or a one-element tensor of the group's own."""
    if isinstance(lr, Tensor):
        if lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if lr.device.type == "cpu" and not 0 <= lr.item() < math.inf:
            raise ValueError(f"Invalid learning rate: {lr.item()}")
        # Groups that share one tensor would each multiply it when told to decay.
        return lr.clone()
    if isinstance(lr, str):
        raise TypeError(f"lr must be a number, not the text {lr!r}")
    if not 0 <= lr < math.inf:
        raise ValueError(f"Invalid learning rate: {lr}")
    return lr


def check_real(param: Tensor, name: str) -> None:
    """Raise unless ``param`` holds real floating-point numbers."""
    if param.requires_grad and not param.is_floating_point():
        raise TypeError(
            f"{name} is {param.dtype}; only real floating-point parameters can be turned"
        )


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


def warn_no_foreach(foreach: bool | None) -> None:
    """Warn a caller who asks for an implementation that does not exist."""
    if foreach:
        warnings.warn(
            "foreach=True has no effect: there is no foreach implementation; leave foreach=None",
            stacklevel=3,
        )


def warn_no_storage(name: str) -> None:
    """Warn that a parameter without storage is not being trained."""
    warnings.warn(
        f"{name} is still on the meta device, so this step cannot train it; if the model has been "
        "materialised since (to_empty makes new parameters), build the optimizer anew",
        stacklevel=5,
    )


def check_whole(param: Tensor, name: str) -> None:
    """Raise if a trainer has flattened ``param``, so that its neurons are gone."""
    if getattr(param, "_fsdp_flattened", False) or hasattr(param, "ds_id"):
        raise RuntimeError(
            f"{name} was flattened by FSDP1 or DeepSpeed ZeRO, so its neurons are cut into pieces; "
            "use FSDP2 (torch.distributed.fsdp.fully_shard), which keeps them whole"
        )


def check_param(param: Tensor, group: Mapping[str, Any], name: str) -> None:
    """Raise if ``param`` is of a kind that has no neurons, or does not fit its group's layout."""
    check_real(param, name)
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

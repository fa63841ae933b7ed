"""What users can get wrong, and the messages that say what to do."""

import warnings
from collections.abc import Mapping
from typing import Any, NoReturn

from torch import Tensor

from nero.layout import LayoutError, Overrides, layout_from_options
from nero.layout.groups import override_pairs


def check_lr(lr: float | Tensor) -> None:
    """Raise unless ``lr`` is a non-negative number or a one-element tensor."""
    if isinstance(lr, Tensor):
        if lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
    elif not 0 <= lr < float("inf"):
        raise ValueError(f"Invalid learning rate: {lr}")


def check_unit_interval(name: str, value: float) -> None:
    """Raise unless ``value`` lies in [0, 1)."""
    if not 0 <= value < 1:
        raise ValueError(f"Invalid {name} value: {value}; it must be in [0, 1)")


def check_non_negative(name: str, value: float) -> None:
    """Raise unless ``value`` is at least zero and finite."""
    if not 0 <= value < float("inf"):
        raise ValueError(f"Invalid {name} value: {value}; it must be finite and at least 0")


def check_positive(name: str, value: float) -> None:
    """Raise unless ``value`` is more than zero; it may be infinite."""
    if not value > 0:
        raise ValueError(f"Invalid {name} value: {value}; it must be positive")


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
        layout_from_options(group, param.shape).state_shape(param.shape)
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

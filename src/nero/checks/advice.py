"""Warnings about choices that are valid but probably unintended."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from nero.core.presets import CHOSEN, find_preset
from nero.core.warn import warn_user

MAX_USUAL_RAD = 1.0
"""Beyond this angle per step, a neuron forgets its direction."""


def advise_on_lr(groups: Sequence[Mapping[str, Any]], preset: str) -> None:
    """Warn about a learning rate meant for an optimizer whose learning rate is not an angle.

    Called when groups are added, not at every step: schedulers may lower the learning rate later.

    Args:
        groups: param groups; only the largest learning rate counts, as some may be slow on purpose.
        preset: the optimizer's preset.
    """
    values = find_preset(preset)
    rates = [group["lr"] for group in groups]
    if any(isinstance(lr, Tensor) and lr.device.type != "cpu" for lr in rates):
        return  # reading it would wait for the device
    fastest = max(map(float, rates), default=0.0)
    if fastest > MAX_USUAL_RAD:
        warn_user(
            f"lr={fastest:g} turns neurons by about {fastest:g} rad per step, too far to train with: "
            f"Nero's lr is an angle; use {values.lr:g}"
        )
    is_pretrained = any(group["constraint"].radius == "initial" for group in groups)
    if 0 < fastest < (find_preset("paper") if is_pretrained else values).slow_lr:
        warn_user(
            f"lr={fastest:g} turns neurons by only about {fastest:g} rad per step. It looks like an "
            f"Adam learning rate, but Nero's lr is an angle; use {values.lr:g}, or about 1e-3 and "
            'constraint="initial" to fine-tune'
        )


def advise_on_peak(groups: Sequence[Mapping[str, Any]]) -> None:
    """Warn if a peak is forgotten faster than the momentum of the gradient that caused it."""
    for group in groups:
        beta, momentum = group["beta"], group["momentum"]
        if group["norm"] == "peak" and 0 < beta <= momentum:
            warn_user(
                f"beta={beta:g} is not above momentum={momentum:g}: with norm='peak', a single gradient "
                "would then turn a neuron by lr at every later step; raise beta, to 0.99 for example"
            )
            return


def advise_on_idle_options(groups: Sequence[Mapping[str, Any]], gain_penalty: float | None) -> None:
    """Warn about options that have no effect on any parameter."""
    has_momentum = any(group["momentum"] for group in groups)
    if not has_momentum and any(group["momentum_dtype"] == "bfloat16" for group in groups):
        warn_user(
            'momentum_dtype="bfloat16" has no effect: no param group has momentum; pass momentum=0.9'
        )
    if gain_penalty and not any(group["role"] == "gain" for group in groups):
        warn_user(
            "gain_penalty has no effect: no parameter has the role gain; pass the model instead "
            "of its parameters, so that gains are found"
        )


def warn_of_new_momentum(name: str) -> None:
    """Warn that momentum was switched on after construction, which makes the state per-weight."""
    warn_user(
        f"momentum was switched on after the optimizer was built, so {name} and the rest of its group get "
        "a momentum buffer as large as their weights. OneCycleLR and CyclicLR do that: pass them "
        "cycle_momentum=False, or build the optimizer with momentum= or a preset"
    )


def warn_of_other_preset(saved: str, present: str) -> None:
    """Warn that a checkpoint's preset replaces the one the optimizer was built with."""
    warn_user(
        f"the checkpoint was saved with preset={saved!r}, whose options replace those of "
        f"preset={present!r}, which this optimizer was built with; build it with preset={saved!r}"
    )


def is_chosen(group: Mapping[str, Any], option: str) -> bool:
    """Whether the user chose this option of a group; without a record, every option counts as chosen.

    Example:
        >>> from nero.checks.advice import is_chosen
        >>> is_chosen({"lr": 0.1, "chosen": ()}, "lr"), is_chosen({"lr": 0.1}, "lr")
        (False, True)
    """
    return option in group.get(CHOSEN, group)

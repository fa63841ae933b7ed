"""Warnings about output layers that a preset could not find."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from nero.checks.names import named_params
from nero.core.neurons import LayoutWarning, Neurons, neurons_from_options
from nero.core.presets import find_preset, warn_of_no_outputs
from nero.core.warn import warn_user
from nero.layout.arrival import known_marks


def warn_without_outputs(groups: Sequence[Mapping[str, Any]], preset: str) -> None:
    """Warn if a preset has options for output layers, and no layer is known to be one."""
    of_outputs = find_preset(preset).of_outputs
    layers = [group for group in groups if group["role"] in (None, "neuron")]
    is_known = any(of_outputs.items() <= group.items() for group in layers)
    if layers and not is_known:
        warn_of_no_outputs(
            preset,
            "pass the model, call nero.annotate(model) first, or put the output layer into its own group",
        )


def warn_maybe_output(
    groups: Sequence[Mapping[str, Any]], model: nn.Module | None, preset: str
) -> None:
    """Warn about embeddings with a large norm that may also be an output layer."""
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
        # Hugging Face models compute logits in a module, so a layer with one output is not a value head.
        outputs = [output for output in outputs if output.num_neurons > 1]
    maybe = [name for param, name in large if _may_end_in(param.shape, outputs)]
    if any(_is_head_of(param.shape, output) for param, _ in large for output in outputs):
        maybe = []
    if alone and not isinstance(model, nn.Embedding | nn.EmbeddingBag):
        what = "no layer reads it, so the model may multiply its rows with each other, and the products are"
        names = alone
    elif maybe:
        what = "the model may compute logits with it, and they are"
        names = maybe
    else:
        return
    shown = " or ".join(names[:3]) + (f" or {len(names) - 3} more" if len(names) > 3 else "")
    warn_user(
        f"{shown} may also be used as an output layer: {what} too large with the norm sqrt(dim) of "
        f"preset={preset!r}. Pass example=batch to Nero, or to nero.annotate if you pass parameters",
        LayoutWarning,
    )


def _may_end_in(table: Sequence[int], outputs: Sequence[Neurons]) -> bool:
    """Whether a model that ends in these layers may also multiply by this embedding table.

    Its last layer then has as many outputs as the table has columns; or it comes after the product and has
    one input per row; or it is a value head, with the features as inputs and one output.
    """
    rows, width = table[0], table[-1]
    return any(
        (last.num_neurons == width and last.num_neurons != rows)
        or (last.fan_in == rows and rows != width)
        or (last.num_neurons == 1 and last.fan_in == width)
        for last in outputs
    )


def _is_head_of(table: Sequence[int], output: Neurons) -> bool:
    """Whether a layer computes a logit per row of the table, so the table is no output layer."""
    return output.num_neurons == table[0] and output.fan_in == table[-1]

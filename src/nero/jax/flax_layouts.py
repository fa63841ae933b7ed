"""Layouts of Flax's parameters: from their names in a tree of arrays, or from the types of nnx modules."""

from collections.abc import Container
from typing import Any, NamedTuple

from nero.core.neurons import BIAS, EMBEDDING, GAIN, OTHER, Layout, is_broadcast, neurons
from nero.layout.guess import (
    guess_biases,
    guess_tokens,
    is_named_as_tokens,
    named_with_owner,
    words_of,
)

ATTENTION = ("query", "key", "value", "out")
"""Flax's names for the projections of its attention."""


class FlaxLayout(NamedTuple):
    """A parameter's layout, and whether it is a guess."""

    layout: Layout
    is_guess: bool = False


def by_name(
    module: str,
    name: str,
    shape: tuple[int, ...],
    siblings: Container[str] = (),
    *,
    is_attention: bool = False,
) -> FlaxLayout:
    """Infer a layout from the names of the parameter, its module and its siblings."""
    ndim, owner = len(shape), module.lower().replace("_", "")
    elementwise = {"bias": BIAS, "scale": GAIN, "negative_slope": OTHER}
    if name in elementwise:
        return FlaxLayout(elementwise[name])
    if {"bias", "biases"} & {*words_of(name)}:
        return FlaxLayout(BIAS)
    if name == "embedding" and ndim == 2:
        return embedding(module, shape)
    if name == "kernel" and ndim >= 2:
        if ndim == 2:
            return FlaxLayout(neurons(1))  # (in, out)
        if is_attention and ndim == 3 and module in ATTENTION:
            # out is (heads, size, out), the others are (in, heads, size)
            return FlaxLayout(neurons(2) if module == "out" else neurons(1, 2))
        if owner.startswith(("densegeneral", "einsum")):
            return FlaxLayout(OTHER, is_guess=True)  # its fan-in dims are unknown
        if owner.startswith(("dense", "linear")):  # matrices stacked by vmap or scan
            return FlaxLayout(neurons(*range(ndim - 2), ndim - 1), is_guess=True)
        # (..., in, out), except a ConvTranspose with transpose_kernel=True
        is_conv = owner.startswith("conv") and not owner.startswith("convtranspose")
        return FlaxLayout(neurons(ndim - 1), is_guess=not is_conv)
    # In doubt, a parameter is treated elementwise: a wrong fan-in destroys weights.
    full_name = named_with_owner(name, module)
    if is_named_as_tokens(full_name, siblings):
        return FlaxLayout(guess_tokens(shape, full_name).layout, is_guess=True)
    if ndim == 3 and shape[0] == 1 and not is_broadcast(shape):
        return FlaxLayout(Layout("embedding", (0, 1)), is_guess=True)  # n tokens or positions
    is_matrix = ndim == 2 and not is_broadcast(shape)
    return FlaxLayout(neurons(1) if is_matrix else OTHER, is_guess=True)


def embedding(module: str, shape: tuple[int, ...]) -> FlaxLayout:
    """Return the layout of an embedding layer, which may hold attention biases."""
    biases = guess_biases(shape, module)
    return (
        FlaxLayout(EMBEDDING) if biases is None else FlaxLayout(biases.layout, biases.is_doubtful)
    )


def by_type(module: Any, name: str, ndim: int) -> Layout | None:
    """Return the layout given by the type of an nnx module; ``None`` if that is not Flax's own."""
    from flax import nnx

    norms = (nnx.BatchNorm, nnx.LayerNorm, nnx.RMSNorm, nnx.GroupNorm, nnx.InstanceNorm)
    layers = (nnx.Linear, nnx.LinearGeneral, nnx.Conv, nnx.ConvTranspose)
    match name:
        case "bias" if isinstance(module, (*norms, *layers)):
            return BIAS
        case "scale" if isinstance(module, norms):
            return GAIN
        case "embedding" if isinstance(module, nnx.Embed):
            return EMBEDDING
        case "lora_a" | "lora_b" if isinstance(module, nnx.LoRA):
            return neurons(1)
        case "kernel" if isinstance(module, nnx.Linear) and ndim == 2:
            return neurons(1)
        case "kernel" if isinstance(module, nnx.LinearGeneral):
            out = module.out_features
            num_out = 1 if isinstance(out, int) else len(out)
            return neurons(*range(len(module.batch_axis)), *range(ndim - num_out, ndim))
        case "kernel" if isinstance(module, nnx.ConvTranspose) and module.transpose_kernel:
            return neurons(ndim - 2)
        case "kernel" if isinstance(module, nnx.Conv | nnx.ConvTranspose):
            return neurons(ndim - 1)
    return None

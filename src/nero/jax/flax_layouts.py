"""What Flax's parameters are: by their names in a tree of arrays, or by the types of nnx modules."""

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
"""What Flax calls the projections of its attention."""


class Found(NamedTuple):
    """What a parameter is, and whether that is a guess."""

    layout: Layout
    is_guess: bool = False


def by_name(
    module: str,
    name: str,
    shape: tuple[int, ...],
    siblings: Container[str] = (),
    *,
    is_attention: bool = False,
) -> Found:
    """Read a parameter by its name, its module's and those of its siblings."""
    ndim, owner = len(shape), module.lower().replace("_", "")
    known = {"bias": BIAS, "scale": GAIN, "negative_slope": OTHER}
    if name in known:
        return Found(known[name])
    if {"bias", "biases"} & {*words_of(name)}:
        return Found(BIAS)
    if name == "embedding" and ndim == 2:
        return embedding(module, shape)
    if name == "kernel" and ndim >= 2:
        if ndim == 2:
            return Found(neurons(1))  # (in, out)
        if is_attention and ndim == 3 and module in ATTENTION:
            # out is (heads, size, out), the others are (in, heads, size)
            return Found(neurons(2) if module == "out" else neurons(1, 2))
        if owner.startswith(("densegeneral", "einsum")):
            return Found(OTHER, is_guess=True)  # nothing tells its fan-in dims
        if owner.startswith(("dense", "linear")):  # matrices that vmap or scan stacked
            return Found(neurons(*range(ndim - 2), ndim - 1), is_guess=True)
        # (..., in, out), except a ConvTranspose with transpose_kernel=True
        is_conv = owner.startswith("conv") and not owner.startswith("convtranspose")
        return Found(neurons(ndim - 1), is_guess=not is_conv)
    # In doubt every element stands alone: a wrong fan-in destroys weights.
    full_name = named_with_owner(name, module)
    if is_named_as_tokens(full_name, siblings):
        return Found(guess_tokens(shape, full_name).layout, is_guess=True)
    if ndim == 3 and shape[0] == 1 and not is_broadcast(shape):
        return Found(Layout("embedding", (0, 1)), is_guess=True)  # n tokens or positions
    is_matrix = ndim == 2 and not is_broadcast(shape)
    return Found(neurons(1) if is_matrix else OTHER, is_guess=True)


def embedding(module: str, shape: tuple[int, ...]) -> Found:
    """Read an embedding layer, which attention may look biases up in."""
    biases = guess_biases(shape, module)
    return Found(EMBEDDING) if biases is None else Found(biases.layout, biases.is_doubtful)


def by_type(module: Any, name: str, ndim: int) -> Layout | None:
    """Read a parameter by the type of its nnx module; ``None`` if that is not Flax's own."""
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

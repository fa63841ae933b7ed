"""Guess a parameter's layout from its name, its shape and its initial values.

A guess that is wrong about neurons destroys weights; treating neurons elementwise only trains them less
well. So in doubt, a parameter is treated elementwise.
"""

import re
from collections.abc import Container, Sequence
from typing import NamedTuple

from torch import Tensor

from nero.core.neurons import BIAS, GAIN, OTHER, Layout, is_broadcast, neurons
from nero.core.sharding import is_sharded

_POSITIONS = {*("pos", "position", "positions", "positional", "posemb", "posembed", "pe", "wpe")}
_TOKENS = {
    *("cls", "token", "tokens", "query", "queries", "prompt", "prompts", "register", "registers"),
    *("emb", "embed", "embeds", "embedding", "embeddings", "wte", "latent", "latents", "probe"),
}
_RELATIVE = {"rel", "relative", "relpos"}
# Words that rule out token vectors even if the rest of the name suggests them.
_NOT_TOKENS = {
    *("proj", "projection", "weight", "weights", "kernel", "matrix", "out", "head", "norm"),
    *("scale", "scales", "gain", "gamma", "alpha", "beta", "gate", "factor", "temperature", "mix"),
    *("freq", "freqs", "slope", "slopes", "decay", "logit", "logits", "log"),
}
_MAX_HEADS = 32
_IN_DOUBT = "in doubt, it is treated elementwise"
_PLAIN_NAMES = {
    *("weight", "w", "table", "param", "params", "data", "value", "values", "encoding", "tensor")
}


class Guess(NamedTuple):
    """A layout, and the reason for it."""

    layout: Layout
    reason: str
    is_doubtful: bool = False
    """Whether it is treated elementwise only because its neurons are unknown."""


def guess_layout(
    param: Tensor,
    name: str,
    cls: str,
    *,
    path: str = "",
    siblings: Container[str] = (),
    is_transposed: bool = False,
) -> Guess:
    """Guess a parameter's layout.

    Args:
        param: the parameter.
        name: its name inside its module.
        cls: its module's class name.
        path: the module's name in the model.
        siblings: the names of all parameters in this module.
        is_transposed: whether the module is marked as storing (in, out).

    Example:
        >>> from nero.layout.guess import guess_layout
        >>> guess_layout(torch.zeros(1, 8, 1, 1), "gamma", "Scale").layout.role
        'other'
        >>> guess_layout(torch.randn(8, 4), "pos_embed", "GPT").layout
        Layout(role='embedding', neuron_dims=(0,), num_groups=1)
        >>> layout, reason, _ = guess_layout(torch.randn(8, 4), "kernel", "Dense")
        >>> layout, reason
        (Layout(role='neuron', neuron_dims=(0,), num_groups=1), 'taken as (out, in, ...)')
    """
    words = words_of(name)
    if "bias" in words or "biases" in words:
        return Guess(BIAS, "by its name, a bias")
    if "log" in (words[0], words[-1]) and len(words) > 1:
        return Guess(OTHER, "by its name, a logarithm")
    full_name = _full_name(name, cls, path)
    if "Norm" not in cls and is_named_as_tokens(full_name, siblings):
        return guess_tokens(param.shape, full_name)
    if is_broadcast(param.shape):
        return _without_fan_in(param, cls)
    if constant_value(param):
        return Guess(OTHER, "all elements are equal, as in a scale factor")
    if param.ndim == 3 and is_transposed:
        return Guess(neurons(0, 2), "marked is_transposed: a stack of (in, out) matrices")
    if param.ndim == 3 and param.shape[0] == 1:
        return Guess(Layout("embedding", (0, 1)), "by its shape, n tokens or positions")
    if param.ndim == 3:
        return Guess(neurons(0, 1), "taken as a stack of (out, in) matrices")
    return Guess(neurons(0), "taken as (out, in, ...)")


def is_named_as_tokens(name: str, siblings: Container[str] = ()) -> bool:
    """Whether a parameter's name suggests token or position vectors.

    A ``query`` with a ``key`` among its siblings is a layer.

    Example:
        >>> from nero.layout.guess import is_named_as_tokens
        >>> [is_named_as_tokens(name) for name in ("pos_embed", "query_proj", "mask_token")]
        [True, False, True]
        >>> is_named_as_tokens("query", siblings=("query", "key"))
        False
    """
    words = words_of(name)
    token_words = {*words} & (_POSITIONS | _TOKENS | _RELATIVE)
    is_layer = token_words == {"query"} and name.replace("query", "key") in siblings
    return bool(token_words) and not {*words} & _NOT_TOKENS and not is_layer


def guess_tokens(shape: Sequence[int], name: str) -> Guess:
    """Guess the layout of tokens or positions: the last dim is one vector.

    Example:
        >>> from nero.layout.guess import guess_tokens
        >>> guess_tokens((1, 5, 8), "pos_embed").layout
        Layout(role='embedding', neuron_dims=(0, 1), num_groups=1)
    """
    if {*words_of(name)} & _RELATIVE:
        if is_broadcast(shape):
            return Guess(OTHER, "one dim at most, so no fan-in")
        reason = f"by its name, vectors or biases of relative positions; {_IN_DOUBT}"
        return Guess(OTHER, reason, True)
    if len(shape) > 3:
        reason = f"by its name, positions, but the feature dim is unknown; {_IN_DOUBT}"
        return Guess(OTHER, reason, True)
    layout = Layout("embedding", tuple(range(len(shape) - 1)))
    return Guess(layout, "by its name, one vector per token or position")


def guess_biases(shape: Sequence[int], owner: str) -> Guess | None:
    """Guess whether an embedding layer with this name holds attention biases.

    T5 and similar models call it relative_attention_bias, WavLM rel_attn_embed.

    Example:
        >>> from nero.layout.guess import guess_biases
        >>> guess_biases((32, 8), "relative_attention_bias").layout.role, guess_biases((32, 8), "tokens")
        ('bias', None)
    """
    if "bias" in words_of(owner) or owner == "rel_attn_embed":
        return Guess(BIAS, "by its name, a table of biases")
    if {*words_of(owner)} & _RELATIVE and shape[-1] <= _MAX_HEADS:
        reason = f"by its name and width, perhaps attention biases; {_IN_DOUBT}"
        return Guess(OTHER, reason, True)
    return None


def words_of(name: str) -> list[str]:
    """Split a name into lowercase words.

    Example:
        >>> from nero.layout.guess import words_of
        >>> words_of("pos_embed2"), words_of("LearnedPositionalEncoding")
        (['pos', 'embed'], ['learned', 'positional', 'encoding'])
    """
    return [word.lower() for word in re.findall("[A-Z]?[a-z]+|[A-Z]+", name)] or [name]


def _full_name(name: str, cls: str, path: str) -> str:
    """Return the most informative name of a parameter."""
    last = path.rpartition(".")[2]
    if cls in ("ParameterList", "ParameterDict"):
        return f"{last}_{name}"
    return named_with_owner(name, f"{last}_{cls}")


def named_with_owner(name: str, owner: str) -> str:
    """Return the most informative name: the module's if the parameter's is as plain as ``weight``.

    Example:
        >>> from nero.layout.guess import named_with_owner
        >>> named_with_owner("weight", "pos_embed"), named_with_owner("weight", "patch_embed")
        ('pos', 'weight')
    """
    informative = _POSITIONS | _RELATIVE | {"prompts", "registers", "wte"}
    words = [word for word in words_of(owner) if word in informative]
    return "_".join(words) if words and name in _PLAIN_NAMES else name


def _without_fan_in(param: Tensor, cls: str) -> Guess:
    if "Norm" not in cls:
        return Guess(OTHER, "one dim at most, so no fan-in")
    if constant_value(param) == 0:
        return Guess(OTHER, "a norm that starts at 0, so it scales by 1 + weight")
    return Guess(GAIN, "by its class, a norm layer's gain")


def constant_value(param: Tensor) -> float | None:
    """Return the value that all elements share, or ``None`` if they differ.

    Returns ``None`` for a sharded parameter too, since checking it would need communication.
    """
    if is_sharded(param) or param.is_meta or not param.numel() or not param.is_floating_point():
        return None
    flat = param.detach().flatten()
    first = flat[0]
    if first != flat[-1]:  # a fast exit for most parameters
        return None
    return float(first) if bool((flat == first).all()) else None

"""Guess a parameter's layout from its name, its shape and its initial values.

A guess that is wrong about neurons destroys weights; one that takes neurons for single elements only turns
them less well. So in doubt every element stands alone.
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
# Words that rule out vectors of tokens, although the rest of the name suggests them.
_OF_TOKENS = {
    *("proj", "projection", "weight", "weights", "kernel", "matrix", "out", "head", "norm"),
    *("scale", "scales", "gain", "gamma", "alpha", "beta", "gate", "factor", "temperature", "mix"),
    *("freq", "freqs", "slope", "slopes", "decay", "logit", "logits", "log"),
}
_MOST_HEADS = 32
_ALONE = "in doubt every element stands alone"
_PLAIN = {
    *("weight", "w", "table", "param", "params", "data", "value", "values", "encoding", "tensor")
}


class Guess(NamedTuple):
    """A layout, and the reason for it."""

    layout: Layout
    reason: str
    is_doubtful: bool = False
    """Whether elements stand alone only because the neurons are not known."""


def guess_layout(
    param: Tensor,
    name: str,
    cls: str,
    *,
    path: str = "",
    siblings: Container[str] = (),
    is_transposed: bool = False,
) -> Guess:
    """Guess a parameter's layout, with the reason.

    Args:
        param: the parameter.
        name: its name inside its module.
        cls: the name of its module's class.
        path: the module's name in the model.
        siblings: the names of all parameters in this module.
        is_transposed: whether the module is marked to store (in, out).

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
        return Guess(OTHER, "all its elements are equal, as those of a factor")
    if param.ndim == 3 and is_transposed:
        return Guess(neurons(0, 2), "marked is_transposed: a stack of (in, out) matrices")
    if param.ndim == 3 and param.shape[0] == 1:
        return Guess(Layout("embedding", (0, 1)), "by its shape, n tokens or positions")
    if param.ndim == 3:
        return Guess(neurons(0, 1), "taken as a stack of (out, in) matrices")
    return Guess(neurons(0), "taken as (out, in, ...)")


def is_named_as_tokens(name: str, siblings: Container[str] = ()) -> bool:
    """Whether a parameter's name suggests vectors of tokens or positions.

    A ``query`` with a ``key`` among its siblings is a layer.

    Example:
        >>> from nero.layout.guess import is_named_as_tokens
        >>> [is_named_as_tokens(name) for name in ("pos_embed", "query_proj", "mask_token")]
        [True, False, True]
        >>> is_named_as_tokens("query", siblings=("query", "key"))
        False
    """
    words = words_of(name)
    named = {*words} & (_POSITIONS | _TOKENS | _RELATIVE)
    is_layer = named == {"query"} and name.replace("query", "key") in siblings
    return bool(named) and not {*words} & _OF_TOKENS and not is_layer


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
        return Guess(OTHER, f"by its name, vectors or biases of relative positions; {_ALONE}", True)
    if len(shape) > 3:
        return Guess(
            OTHER, f"by its name, positions; nothing tells the features' dim; {_ALONE}", True
        )
    layout = Layout("embedding", tuple(range(len(shape) - 1)))
    return Guess(layout, "by its name, one vector per token or position")


def guess_biases(shape: Sequence[int], owner: str) -> Guess | None:
    """Guess whether an embedding layer of this name holds biases that attention looks up.

    T5 and similar models call it relative_attention_bias, WavLM rel_attn_embed.

    Example:
        >>> from nero.layout.guess import guess_biases
        >>> guess_biases((32, 8), "relative_attention_bias").layout.role, guess_biases((32, 8), "tokens")
        ('bias', None)
    """
    if "bias" in words_of(owner) or owner == "rel_attn_embed":
        return Guess(BIAS, "by its name, a table of biases")
    if {*words_of(owner)} & _RELATIVE and shape[-1] <= _MOST_HEADS:
        why = "by its name and width, perhaps biases of attention"
        return Guess(OTHER, f"{why}; {_ALONE}", True)
    return None


def words_of(name: str) -> list[str]:
    """Return the words of a name.

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
    """Return the most informative name: the module's if its own is as plain as ``weight``.

    Example:
        >>> from nero.layout.guess import named_with_owner
        >>> named_with_owner("weight", "pos_embed"), named_with_owner("weight", "patch_embed")
        ('pos', 'weight')
    """
    telling = _POSITIONS | _RELATIVE | {"prompts", "registers", "wte"}
    around = [word for word in words_of(owner) if word in telling]
    return "_".join(around) if around and name in _PLAIN else name


def _without_fan_in(param: Tensor, cls: str) -> Guess:
    if "Norm" not in cls:
        return Guess(OTHER, "one dim at most, so no fan-in")
    if constant_value(param) == 0:
        return Guess(OTHER, "a norm that starts at 0, so it scales by 1 + weight")
    return Guess(GAIN, "by its class, a norm layer's gain")


def constant_value(param: Tensor) -> float | None:
    """Return the value of all elements if it is a single one.

    Returns ``None`` for a sharded parameter, since every rank would have to be asked.

    Example:
        >>> from nero.layout.guess import constant_value
        >>> constant_value(torch.ones(3, 4)), constant_value(torch.randn(3, 4))
        (1.0, None)
    """
    if is_sharded(param) or param.is_meta or not param.numel() or not param.is_floating_point():
        return None
    flat = param.detach().flatten()
    first = flat[0]
    if first != flat[-1]:  # the quick answer for most parameters
        return None
    return float(first) if bool((flat == first).all()) else None

"""Layouts for the leaves of a parameter tree: which dims index neurons.

Layouts are those of `nero.layout`, by the leaf's path: ``{"Dense_0/kernel": neurons(1)}``. Flax stores its
kernels as (in, out) and (..., in, out), so neurons are along the last dim, not the first as in torch.

A tree of arrays has no modules, so `find_layouts` reads Flax's parameter names; for an nnx module, the
types of its submodules decide. Everything else is guessed, with one warning.
"""

import sys
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.tree_util import GetAttrKey, tree_flatten_with_path

from nero.core.neurons import EMBEDDING, Layout, LayoutError, LayoutWarning, Neurons
from nero.core.warn import listed, warn_user
from nero.jax.flax_layouts import ATTENTION, FlaxLayout, by_name, by_type, embedding

Layouts: TypeAlias = Any
"""A tree of `Layout` in the structure of the parameters, a mapping by path, or an nnx module."""


def find_layouts(params: Any) -> dict[str, Layout]:
    """Find every parameter's layout, by path, from names and shapes or from an nnx module.

    Parameters that are not Flax's own are guessed, with one warning that names them. Change an entry to
    correct it.

    Args:
        params: Flax's tree of arrays, or an nnx module.

    Example:
        >>> import jax.numpy as jnp
        >>> from nero.jax import find_layouts
        >>> params = {"Dense_0": {"kernel": jnp.ones((4, 3)), "bias": jnp.zeros(3)}}
        >>> {path: (layout.role, layout.neuron_dims) for path, layout in find_layouts(params).items()}
        {'Dense_0/bias': ('bias', None), 'Dense_0/kernel': ('neuron', (1,))}
    """
    layouts = dict(_walk_nnx(params) if is_nnx(params) else _walk_names(params))
    _warn_of_guesses({path: layout for path, (layout, is_guess) in layouts.items() if is_guess})
    return {path: layout for path, (layout, _) in layouts.items()}


def named_leaves(params: Any) -> dict[str, Any]:
    """Return the leaves of a tree by path, in order.

    Example:
        >>> from nero.jax.layouts import named_leaves
        >>> named_leaves({"layers": [{"kernel": 1}, {"kernel": 2}]})
        {'layers/0/kernel': 1, 'layers/1/kernel': 2}
    """
    flat, _ = tree_flatten_with_path(params)
    leaves = {_path(keys): leaf for keys, leaf in flat}
    if len(leaves) < len(flat):
        raise ValueError(f"{len(flat)} leaves of params share paths, rename them: {listed(leaves)}")
    return leaves


def resolve(params: Any, layouts: Layouts | None) -> dict[str, Neurons]:
    """Apply layouts to the leaves of a tree; raise if a leaf has no layout or a layout matches no leaf."""
    leaves = _arrays(params)
    if layouts is None:
        return {path: layout.at(leaves[path].shape) for path, (layout, _) in _walk_names(params)}
    flat, _ = tree_flatten_with_path(layouts, is_leaf=lambda x: isinstance(x, Layout))
    given = {_path(keys): layout for keys, layout in flat}
    for path, layout in given.items():
        if not isinstance(layout, Layout):
            raise TypeError(
                f"layouts has {layout!r} at `{path}`, which is not a Layout such as nero.layout.BIAS"
            )
        if path not in leaves and not _is_masked(params, path):
            raise LayoutError(
                f"layouts has `{path}`, but params has no such leaf: {listed(leaves)}"
            )
    result = {}
    for path, leaf in leaves.items():
        if path not in given:
            raise LayoutError(
                f"layouts has no entry for `{path}`; find_layouts(params) returns all of them"
            )
        try:
            result[path] = given[path].at(leaf.shape)
        except LayoutError as error:
            raise LayoutError(f"layouts at `{path}`: {error}") from None
    return result


def is_nnx(tree: Any) -> bool:
    """Whether this is an nnx module; does not import Flax."""
    nnx = sys.modules.get("flax.nnx")
    return nnx is not None and isinstance(tree, nnx.Module)


def _warn_of_guesses(guesses: Mapping[str, Layout]) -> None:
    if not guesses:
        return
    (path, layout), *others = guesses.items()
    more = f"; so were {listed(dict(others))}" if others else ""
    kind, condition, instead, or_else = _REMEDIES.get(layout.role, _REMEDIES["other"])
    dims = "" if layout.neuron_dims is None else f" along dims {layout.neuron_dims}"
    warn_user(
        f"`{path}` was guessed to be {kind}{dims}, from its name and shape{more}. If {condition}, pass "
        f"layouts={{**find_layouts(params), {path!r}: {instead}}}; {or_else}",
        LayoutWarning,
    )


# By the guessed role: its name in the message, and what it may be instead.
_REMEDIES = {
    "neuron": (
        "neurons",
        "its rows are tokens or positions",
        "EMBEDDING",
        "if it stores (out, in), neurons(0); without fan-in, OTHER",
    ),
    "embedding": (
        "embeddings",
        "it is a layer of (in, out)",
        "neurons(1)",
        "if it has no fan-in, such as attention biases, OTHER",
    ),
    "other": (
        "single elements",
        "its rows are tokens or positions",
        "EMBEDDING",
        "if it is a layer of (in, out), neurons(1)",
    ),
}


def _arrays(params: Any) -> dict[str, Array]:
    if isinstance(params, Mapping) and "batch_stats" in params:
        raise ValueError("params has batch_stats, which are not trained: pass variables['params']")
    leaves = named_leaves(params)
    for path, leaf in leaves.items():
        dtype = getattr(leaf, "dtype", None)
        if dtype is None or not jnp.issubdtype(dtype, jnp.floating):
            kind = type(leaf).__name__ if dtype is None else dtype
            raise TypeError(f"`{path}` is {kind}; only arrays of real numbers are supported")
    return leaves


def _is_masked(params: Any, path: str) -> bool:
    # optax.masked and multi_transform leave a MaskedNode for parameters of other transformations.
    nodes, _ = tree_flatten_with_path(params, is_leaf=lambda x: isinstance(x, optax.MaskedNode))
    masked = [_path(keys) for keys, node in nodes if isinstance(node, optax.MaskedNode)]
    return any(path == above or path.startswith(f"{above}/") for above in masked)


def _path(keys: tuple[Any, ...]) -> str:
    if keys and isinstance(keys[-1], GetAttrKey) and keys[-1].name == "value":
        keys = keys[:-1]  # a box around the array: nnx.Param, nn.Partitioned
    return jax.tree_util.keystr(keys, simple=True, separator="/") or "params"


def _walk_names(params: Any) -> Iterator[tuple[str, FlaxLayout]]:
    leaves = _arrays(params)
    names: dict[str, set[str]] = {}
    for path in leaves:
        names.setdefault(path.rpartition("/")[0], set()).add(path.rpartition("/")[2])
    for path, leaf in leaves.items():
        *parents, module, name = ["", *path.split("/")]
        prefix = "/".join([*parents[1:], ""]) if module else ""
        is_attention = all(f"{prefix}{part}/kernel" in leaves for part in ATTENTION)
        siblings = names[path.rpartition("/")[0]]
        yield path, by_name(module, name, leaf.shape, siblings, is_attention=is_attention)


def _walk_nnx(model: Any) -> Iterator[tuple[str, FlaxLayout]]:
    from flax import nnx

    modules = {tuple(map(str, keys)): module for keys, module in nnx.iter_modules(model)}
    for path, leaf in named_leaves(nnx.state(model, nnx.Param)).items():
        *parents, name = path.split("/")
        module = modules.get(tuple(parents))
        layout = None if module is None else by_type(module, name, leaf.ndim)
        if layout == EMBEDDING and parents:
            yield path, embedding(parents[-1], leaf.shape)
        elif layout is not None:
            yield path, FlaxLayout(layout)
        else:
            siblings = () if module is None else vars(module)
            guess = by_name(type(module).__name__, name, leaf.shape, siblings)
            yield path, guess._replace(is_guess=True)

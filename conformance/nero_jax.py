"""The adapter of `nero.jax`: one array is the whole tree of parameters."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

import nero.jax
from nero import Sphere
from nero.layout import Layout


def run(case: dict[str, Any], dtype: str = "float64") -> list[dict[str, Any]]:
    """Run a case through [`nero.jax.nero`][nero.jax.nero] and report what it holds after each step."""
    with jax.enable_x64(dtype == "float64"):
        return _run(case, jnp.dtype(dtype))


def _run(case: dict[str, Any], dtype: Any) -> list[dict[str, Any]]:
    options = dict(case["options"])
    constraint = Sphere(options.pop("radius"), options.pop("centre"))
    dims = case["neuron_dims"]
    layout = Layout(case["role"], None if dims is None else tuple(dims), case["num_groups"])
    params = jnp.array(case["weight"], dtype).reshape(case["shape"])
    params = nero.jax.project(params, layout, constraint=constraint)
    tx = optax.inject_hyperparams(nero.jax.nero, static_args=("beta", "momentum", *options))(
        lr=0.0, layouts=layout, constraint=constraint, **options
    )
    state = tx.init(params)
    seen = [_snapshot(params, state.inner_state)]
    for grad, lr in zip(case["gradients"], case["lr"], strict=True):
        if grad is not None:
            state.hyperparams["lr"] = jnp.array(lr, dtype)
            grads = jnp.array(grad, dtype).reshape(params.shape)
            updates, state = tx.update(grads, state, params)
            params = optax.apply_updates(params, updates)
        seen.append(_snapshot(params, state.inner_state))
    return seen


def _snapshot(params: Any, state: nero.jax.NeroState) -> dict[str, Any]:
    kept = state.params["params"]
    return {
        "weight": params.ravel().tolist(),
        "average": jnp.abs(kept["exp_avg_norm"]).ravel().tolist(),  # its sign marks missed steps
        "step": int(state.step),
        "num_skipped": int(kept["num_skipped"].sum()),
    }

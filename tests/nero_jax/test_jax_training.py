"""A small network learns in linen and in nnx, and its neurons stay balanced."""

import pytest

pytest.importorskip("optax", reason="nero.jax needs the extra nero-optim[jax]")
pytest.importorskip("flax", reason="Flax is not installed")

import jax
import jax.numpy as jnp
import optax
from flax import linen, nnx

import nero.jax
from nero.core.sphere import BALANCED
from nero.jax.rule import is_balanced
from nero.layout import neurons

NUM_STEPS = 60
RATE = optax.linear_schedule(0.03, 0.0, NUM_STEPS)  # at a constant angle no loss settles
INPUTS = jax.random.normal(jax.random.key(0), (64, 8))
TARGETS = jnp.sin(INPUTS @ jax.random.normal(jax.random.key(1), (8, 1)))


def assert_learned(losses, kernels):
    assert losses[-1] < losses[0] / 3
    for kernel in kernels:
        found = neurons(1).at(kernel.shape)
        assert is_balanced(kernel, neurons=found, constraint=BALANCED, radius=1.0).all()


def test_linen_learns():
    model = linen.Sequential([linen.Dense(32), linen.tanh, linen.LayerNorm(), linen.Dense(1)])
    params = nero.jax.project(model.init(jax.random.key(2), INPUTS))
    tx = nero.jax.nero(RATE)
    state = tx.init(params)

    @jax.jit
    def step(params, state):
        loss, grads = jax.value_and_grad(
            lambda p: jnp.mean((model.apply(p, INPUTS) - TARGETS) ** 2)
        )(params)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    losses = []
    for _ in range(NUM_STEPS):
        params, state, loss = step(params, state)
        losses.append(float(loss))
    layers = params["params"].values()
    assert_learned(losses, [layer["kernel"] for layer in layers if "kernel" in layer])


def test_nnx_learns():
    rngs = nnx.Rngs(0)
    model = nnx.Sequential(
        nnx.Linear(8, 32, rngs=rngs),
        jnp.tanh,
        nnx.LayerNorm(32, rngs=rngs),
        nnx.Linear(32, 1, rngs=rngs),
    )
    layouts = nero.jax.find_layouts(model)
    nnx.update(model, nero.jax.project(nnx.state(model, nnx.Param), layouts))
    optimizer = nnx.Optimizer(model, nero.jax.nero(RATE, layouts=layouts), wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer):
        loss, grads = nnx.value_and_grad(lambda m: jnp.mean((m(INPUTS) - TARGETS) ** 2))(model)
        optimizer.update(model, grads)
        return loss

    losses = [float(step(model, optimizer)) for _ in range(NUM_STEPS)]
    kernels = [layer.kernel[...] for layer in model.layers if isinstance(layer, nnx.Linear)]
    assert_learned(losses, kernels)

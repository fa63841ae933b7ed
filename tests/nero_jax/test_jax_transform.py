"""Nero among optax's own: compiled once, injected, masked, saved, in every dtype."""

import numpy as np
import pytest

pytest.importorskip("optax", reason="nero.jax needs the extra nero-optim[jax]")

import jax
import jax.numpy as jnp
import optax

import nero.jax
from nero import Sphere
from nero.core.sphere import BALANCED
from nero.jax.rule import is_balanced
from nero.layout import Layout, neurons


def network(dtype=jnp.float32, sizes=(16, 32, 8)):
    keys = jax.random.split(jax.random.key(0), len(sizes) - 1)
    return nero.jax.project({
        f"Dense_{i}": {
            "kernel": jax.random.normal(key, (n, m), dtype),
            "bias": jnp.zeros(m, dtype),
        }
        for i, (key, n, m) in enumerate(zip(keys, sizes[:-1], sizes[1:], strict=True))
    })  # fmt: skip


def random_grads(params, seed):
    leaves, structure = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(seed), len(leaves))
    return jax.tree.unflatten(
        structure,
        [jax.random.normal(key, x.shape, x.dtype) for key, x in zip(keys, leaves, strict=True)],
    )


def train(tx, params, num_steps, state=None, first=0):
    state = tx.init(params) if state is None else state
    for seed in range(first, first + num_steps):
        updates, state = tx.update(random_grads(params, seed), state, params)
        params = optax.apply_updates(params, updates)
    return params, state


def assert_same(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def assert_balanced(params):
    for layer in params.values():
        kernel = layer["kernel"]
        found = neurons(1).at(kernel.shape)
        assert is_balanced(kernel, neurons=found, constraint=BALANCED, radius=1.0).all()


@pytest.mark.parametrize(
    "lr", [0.01, optax.linear_schedule(0.0, 0.1, 50)], ids=["number", "schedule"]
)
def test_compiles_once_in_100_steps(lr):
    tx, params = nero.jax.nero(lr, momentum=0.9), network()
    num_traces = 0

    @jax.jit
    def step(params, state, grads):
        nonlocal num_traces
        num_traces += 1
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    state = tx.init(params)
    for seed in range(100):
        params, state = step(params, state, random_grads(params, seed))
    assert (num_traces, step._cache_size()) == (1, 1)
    assert int(state.num_calls) == 100


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_adding_the_updates_leaves_neurons_balanced(dtype):
    tx, params = nero.jax.nero(lr=0.3), network(jnp.dtype(dtype))
    state = tx.init(params)
    for _ in range(10):
        params, state = train(tx, params, 1, state)
        assert_balanced(params)
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype(dtype)}
    floats = [x for x in jax.tree.leaves(state.params) if x.dtype != jnp.int32]
    assert {x.dtype for x in floats} == {jnp.dtype("float32")}


def test_neurons_of_a_million_weights_are_balanced_in_float32():
    params = {"Dense_0": {"kernel": jax.random.normal(jax.random.key(0), (1_000_000, 2)) + 1}}
    params = nero.jax.project(params)
    assert_balanced(params)
    assert_balanced(train(nero.jax.nero(), params, 2)[0])


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e20, 1e35])
def test_the_scale_of_gradients_does_not_matter(scale):
    def turned(factor):
        tx, params = nero.jax.nero(), network()
        grads = jax.tree.map(lambda g: g * jnp.float32(factor), random_grads(params, 0))
        updates, state = tx.update(grads, tx.init(params), params)
        assert not any(kept["num_skipped"].any() for kept in state.params.values())
        return updates

    # Gradients are rounded after they are scaled, and weights of up to one in the end.
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1.2e-7), turned(scale), turned(1.0)
    )


def test_a_schedule_that_starts_at_zero_goes_on():
    """Nothing changes at a rate of zero, not even the step of the bias correction."""
    tx, params = nero.jax.nero(lambda count: 0.01 * count), network()
    once, state = train(tx, params, 1)
    assert_same(once, params)
    assert (int(state.num_calls), int(state.step)) == (1, 0)
    twice, state = train(tx, params, 1, state)
    assert int(state.step) == 1
    assert_same(twice, train(nero.jax.nero(0.01), params, 1)[0])


def test_a_neuron_with_nan_is_skipped_alone():
    tx, params = nero.jax.nero(momentum=0.9), network()
    params, state = train(tx, params, 1)
    grads = random_grads(params, 1)
    grads["Dense_0"]["kernel"] = grads["Dense_0"]["kernel"].at[3, 5].set(jnp.nan)
    updates, new = tx.update(grads, state, params)
    still = jnp.all(updates["Dense_0"]["kernel"] == 0, axis=0)
    assert jnp.flatnonzero(still).tolist() == [5]
    before, after = (s.params["Dense_0/kernel"] for s in (state, new))
    assert jnp.flatnonzero(after["num_skipped"]).tolist() == [5]
    assert_same(after["exp_avg"][:, 5], before["exp_avg"][:, 5])
    growth = ((1 - 0.999**2) / (1 - 0.999)) ** 0.5  # as that of the correction; its sign is a mark
    average = -growth * before["exp_avg_norm"][:, 5]
    assert jnp.allclose(after["exp_avg_norm"][:, 5], average, rtol=1e-6, atol=0)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_neuron_that_has_missed_steps_turns_by_lr(momentum):
    layout = Layout("neuron", (1,))
    tx = nero.jax.nero(0.01, layouts=layout, momentum=momentum)
    draws = iter(jax.random.split(jax.random.key(0), 102))
    params = nero.jax.project(jax.random.normal(next(draws), (64, 4)), layout)
    state = tx.init(params)
    for i in range(101):
        grads = jax.random.normal(next(draws), (64, 4))
        grads = grads.at[:, 0].set(jnp.nan) if i < 100 else grads
        updates, state = tx.update(grads, state, params)
        old, params = params, optax.apply_updates(params, updates)
    turn = jnp.arccos(jnp.clip(jnp.sum(old[:, 0] * params[:, 0]), -1, 1)) / 0.01
    assert 0.9 < turn < 1.01
    assert int(state.params["params"]["num_skipped"][0, 0]) == 100


def test_the_scale_is_that_of_finite_entries():
    tx, logits = nero.jax.nero(0.01, layouts=Layout("bias")), jnp.array([0.5, -jnp.inf, 1.0])
    state = tx.init(logits)
    assert float(state.params["params"]["scale"]) == 0.75
    updates, state = tx.update(jnp.array([1.0, 0.0, -1.0]), state, logits)
    moved = optax.apply_updates(logits, updates)
    assert jnp.allclose(moved[::2], jnp.array([0.4925, 1.0075]))
    assert moved[1] == -jnp.inf


def test_the_radius_is_that_of_finite_weights():
    weight = jnp.array([[3.0, 3.0], [4.0, 4.0], [0.0, -jnp.inf]])
    tx = nero.jax.nero(
        0.01, layouts=Layout("neuron", (1,)), constraint=Sphere("initial", centre=False)
    )
    assert tx.init(weight).params["params"]["radius"].ravel().tolist() == [5.0, 5.0]


def test_injected_hyperparams_change_without_compiling():
    tx = optax.inject_hyperparams(nero.jax.nero)(
        lr=optax.constant_schedule(0.02), constraint="norm"
    )
    params = network()
    state = tx.init(params)
    assert "exp_avg" not in state.inner_state.params["Dense_0/kernel"]
    update = jax.jit(tx.update)
    for seed in range(3):
        _, state = update(random_grads(params, seed), state, params)
    assert update._cache_size() == 1
    plain = nero.jax.nero(lr=0.02, constraint="norm")
    expected, _ = plain.update(random_grads(params, 0), plain.init(params), params)
    got, _ = tx.update(random_grads(params, 0), tx.init(params), params)
    # beta is a float32 array here, so its root and logarithm are rounded; weights are up to one.
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1.2e-7), got, expected)


def test_injected_momentum_has_state():
    tx = optax.inject_hyperparams(nero.jax.nero)(momentum=0.9)
    assert "exp_avg" in tx.init(network()).inner_state.params["Dense_0/kernel"]


@pytest.mark.parametrize("gives_layouts", [True, False])
def test_multi_transform_leaves_the_rest_to_others(gives_layouts):
    params = network()
    layouts = nero.jax.find_layouts(params) if gives_layouts else None
    labels = {"Dense_0": {"kernel": "nero", "bias": "sgd"}, "Dense_1": "nero"}
    tx = optax.multi_transform(
        {"nero": nero.jax.nero(layouts=layouts), "sgd": optax.sgd(1.0)}, labels
    )
    grads = random_grads(params, 0)
    updates, _ = tx.update(grads, tx.init(params), params)
    alone, _ = nero.jax.nero().update(grads, nero.jax.nero().init(params), params)
    assert_same(updates["Dense_0"]["bias"], -grads["Dense_0"]["bias"])
    assert_same(updates["Dense_0"]["kernel"], alone["Dense_0"]["kernel"])
    assert_same(updates["Dense_1"], alone["Dense_1"])


def test_accumulated_gradients_move_once():
    tx, params = optax.MultiSteps(nero.jax.nero(), every_k_schedule=2), network(jnp.bfloat16)
    once, state = train(tx, params, 1)
    assert_same(once, params)
    twice, _ = train(tx, once, 1, state)
    assert not jnp.array_equal(twice["Dense_0"]["kernel"], params["Dense_0"]["kernel"])
    assert_balanced(twice)


def test_the_preset_rows_gives_embeddings_their_norm():
    params = {"Embed_0": {"embedding": jax.random.normal(jax.random.key(0), (5, 16))}}
    params = nero.jax.project(params, preset="rows")
    moved, state = train(nero.jax.nero(preset="rows"), params, 3)
    norms = jnp.linalg.norm(moved["Embed_0"]["embedding"], axis=1)
    np.testing.assert_allclose(norms, 4.0, rtol=1e-6)
    assert "exp_avg" in state.params["Embed_0/embedding"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # orbax's own
def test_orbax_restores_to_the_bit(tmp_path):
    ocp = pytest.importorskip("orbax.checkpoint", reason="orbax is not installed")
    tx = nero.jax.nero(preset="rows", constraint="initial", outputs=[])
    params, state = train(tx, network(jnp.bfloat16), 3)
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "saved", (params, state))
        checkpointer.wait_until_finished()
        blank = jax.tree.map(jnp.zeros_like, (params, state))
        restored = checkpointer.restore(tmp_path / "saved", blank)
    assert_same(restored, (params, state))
    unbroken, _ = train(tx, params, 3, state, first=3)
    resumed, _ = train(tx, restored[0], 3, restored[1], first=3)
    assert_same(resumed, unbroken)

"""Neurons are found in Flax's trees and modules; guesses are said, and wrong uses named."""

import pytest

pytest.importorskip("optax", reason="nero.jax needs the extra nero-optim[jax]")

import jax
import jax.numpy as jnp

import nero.jax
from nero.layout import BIAS, EMBEDDING, GAIN, OTHER, Layout, neurons

# Guesses are looked at here; elsewhere the suite ignores them.
pytestmark = pytest.mark.filterwarnings("error::nero.LayoutWarning")
LINEAR, CONV = neurons(1), neurons(3)


def tree_of(shapes):
    return {path: jnp.ones(shape) for path, shape in shapes.items()}


def test_linen_is_found_by_names():
    nn = pytest.importorskip("flax.linen", reason="Flax is not installed")

    class Network(nn.Module):
        @nn.compact
        def __call__(self, tokens):
            x = nn.LayerNorm()(nn.Embed(11, 8)(tokens))
            x = nn.MultiHeadDotProductAttention(num_heads=2)(x)
            x = nn.Conv(6, (3, 3))(x[..., None])
            x = nn.BatchNorm(use_running_average=True)(x)
            return nn.Dense(5, name="head")(x)

    params = Network().init(jax.random.key(0), jnp.zeros((2, 4), int))["params"]
    found = nero.jax.find_layouts(params)
    attention = "MultiHeadDotProductAttention_0"
    expected = {
        "Embed_0/embedding": EMBEDDING,
        "LayerNorm_0/scale": GAIN,
        "LayerNorm_0/bias": BIAS,
        **{f"{attention}/{name}/kernel": neurons(1, 2) for name in ("query", "key", "value")},
        **{f"{attention}/{name}/bias": BIAS for name in ("query", "key", "value", "out")},
        f"{attention}/out/kernel": neurons(2),
        "Conv_0/kernel": CONV,
        "Conv_0/bias": BIAS,
        "BatchNorm_0/scale": GAIN,
        "BatchNorm_0/bias": BIAS,
        "head/kernel": LINEAR,
        "head/bias": BIAS,
    }
    assert found == expected


def test_nnx_is_found_by_types():
    nnx = pytest.importorskip("flax.nnx", reason="Flax is not installed")

    class Network(nnx.Module):
        def __init__(self, rngs):
            self.table = nnx.Embed(11, 8, rngs=rngs)
            self.mix = nnx.MultiHeadAttention(2, 8, rngs=rngs, decode=False)
            self.up = nnx.ConvTranspose(8, 4, (3,), transpose_kernel=True, rngs=rngs)
            self.layers = nnx.List([nnx.Linear(8, 8, rngs=rngs), nnx.BatchNorm(8, rngs=rngs)])

    layouts = nero.jax.find_layouts(Network(nnx.Rngs(0)))
    found = {path: layout for path, layout in layouts.items() if not path.endswith("bias")}
    assert {layouts[path] for path in layouts if path not in found} == {BIAS}
    assert found == {
        "table/embedding": EMBEDDING,
        **{f"mix/{name}/kernel": neurons(1, 2) for name in ("query", "key", "value")},
        "mix/out/kernel": neurons(2),
        "up/kernel": neurons(1),
        "layers/0/kernel": LINEAR,
        "layers/1/scale": GAIN,
    }


@pytest.mark.parametrize(
    ("path", "shape", "layout"),
    [
        ("w", (4, 3), LINEAR),
        ("stem/kernel", (3, 3, 4, 8), CONV),
        ("ConvTranspose_0/kernel", (3, 3, 4, 8), CONV),
        ("Dense_0/kernel", (2, 4, 3), neurons(0, 2)),
        ("DenseGeneral_0/kernel", (4, 2, 3), OTHER),
        ("cls", (1, 1, 8), Layout("embedding", (0, 1))),
        ("gamma", (1, 1, 8), OTHER),
        ("out/kernel", (2, 4, 8), neurons(2)),
    ],
)
def test_a_guess_is_said_with_its_path(path, shape, layout):
    with pytest.warns(nero.LayoutWarning, match=f"`{path}` was guessed"):
        assert nero.jax.find_layouts(tree_of({path: shape})) == {path: layout}


def test_guesses_are_one_warning_at_init_and_none_at_update():
    params = tree_of({"w": (4, 3), "v": (4, 3), "u": (4, 3)})
    tx = nero.jax.nero()
    with pytest.warns(nero.LayoutWarning) as heard:
        state = tx.init(params)
    assert len(heard) == 1
    assert "`v`, `w`" in str(heard[0].message)
    tx.update(params, state, params)


def test_groups_cut_dim_0():
    layout = neurons(1, num_groups=2)
    weight = jax.random.normal(jax.random.key(0), (6, 4, 3))
    projected = nero.jax.project(weight, layout).reshape(2, 3, 4, 3)
    assert jnp.allclose(jnp.sum(projected**2, axis=(1, 3)), 1)
    assert jnp.allclose(jnp.sum(projected, axis=(1, 3)), 0, atol=1e-6)


def names():
    kernel = nero.jax.project({"Dense_0": {"kernel": jnp.eye(4, 3)}})
    return {
        "nero": nero, "jnp": jnp, "neurons": neurons, "BIAS": BIAS, "params": kernel,
        "state": nero.jax.nero().init(kernel),
    }  # fmt: skip


LAYOUT = "layouts={'Dense_0/kernel': neurons(1)}"
WRONG_USES = [
    ("nero.jax.nero(-0.1)", "learning rate: -0.1"),
    ("nero.jax.nero('0.1')", "lr must be a number, not '0.1'"),
    ("nero.jax.nero(jnp.ones(2))", r"lr must be one number, but has the shape \(2,\)"),
    ("nero.jax.nero(beta=1.0)", "beta value: 1.0"),
    ("nero.jax.nero(momentum=1.5)", "momentum value: 1.5"),
    ("nero.jax.nero(bias_scale=0)", "bias_scale value: 0"),
    ("nero.jax.nero(gain_penalty=-1)", "gain_penalty value: -1"),
    ("nero.jax.nero(gain_penalty=0.1).init(params)", "gain_penalty has no effect"),
    ("nero.jax.nero(maximize='no')", "maximize must be True or False"),
    ("nero.jax.nero(constraint='sphere')", "constraint must be .* not 'sphere'"),
    ("nero.jax.nero(preset='adam')", "preset must be one of .* not 'adam'"),
    ("nero.jax.nero(preset='polar')", "polar directions, which nero.jax does not support yet"),
    ("nero.jax.nero(learning_rate=0.1)", "learning_rate"),
    ("nero.jax.nero(preset='rows').init(params)",
     r"no output layer is known.*beta=0.95.*outputs=\['Dense_0/kernel'\]"),
    ("nero.jax.nero(outputs=['Dense_1']).init(params)", r"outputs has `Dense_1`, but .*'Dense_0/kernel'"),
    ("nero.jax.nero().update(params, state)", "params is missing: call update"),
    ("nero.jax.nero().update({}, state, params)", "grads has no `Dense_0/kernel`"),
    ("nero.jax.nero().update({'Dense_0': {'kernel': jnp.ones(2)}}, state, params)",
     r"gradient of `Dense_0/kernel` has the shape \(2,\), not \(4, 3\)"),
    ("nero.jax.nero(momentum=0.9).update(params, state, params)",
     "state of `Dense_0/kernel` has no exp_avg"),
    ("nero.jax.nero(constraint='initial').update(params, state, params)",
     "state of `Dense_0/kernel` has no radius"),
    ("nero.jax.nero().update(params['Dense_0'], state, params['Dense_0'])", "state has no `kernel`"),
    ("nero.jax.nero().init({'Dense_0': {'kernel': jnp.ones((4, 3), int)}})", "`Dense_0/kernel` is int32"),
    ("nero.jax.nero().init({'Dense_0': {'kernel': 'text'}})", "`Dense_0/kernel` is str"),
    ("nero.jax.nero().init({'Dense_0': {'kernel': 3 * jnp.eye(4, 3)}})",
     r"`Dense_0/kernel` has neurons that do not obey .*call params = nero.jax.project\(params, preset="),
    ("nero.jax.nero().init({'params': {}, 'batch_stats': {}})", r"pass variables\['params'\]"),
    ("nero.jax.nero(layouts={'Dense_0': 1}).init(params)", "layouts has 1 at `Dense_0`"),
    (f"nero.jax.nero({LAYOUT}).init({{'other': jnp.ones((4, 3))}})", "layouts has `Dense_0/kernel`"),
    (f"nero.jax.nero({LAYOUT}).init({{**params, 'b': jnp.ones(3)}})", "no entry for `b`"),
    ("nero.jax.nero(layouts={'Dense_0/kernel': neurons(2)}).init(params)",
     r"layouts at `Dense_0/kernel`: neuron_dims \(2,\) do not fit"),
    ("nero.jax.project(params, {'Dense_0/kernel': BIAS, 'x': BIAS})", "layouts has `x`"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "named"), WRONG_USES, ids=[code for code, _ in WRONG_USES])
def test_wrong_uses_are_named(code, named):
    given = names()
    with pytest.raises((ValueError, TypeError, UserWarning), match=named):
        eval(code, given)  # warnings are errors

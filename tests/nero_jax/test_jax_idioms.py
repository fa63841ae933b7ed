"""The idioms of tests/layout/idioms.py in JAX: names decide, or a warning is heard."""

import re
import warnings

import pytest

pytest.importorskip("optax", reason="nero.jax needs the extra nero-optim[jax]")

import jax
import jax.numpy as jnp

import nero.jax
from nero.layout import BIAS, EMBEDDING, GAIN, OTHER, Layout, neurons

D = 16
TOKENS = Layout("embedding", (0, 1))  # (1, n, d)
VECTOR = Layout("embedding", ())
LINEAR = neurons(1)


def found_and_heard(params):
    """Return layouts, and the paths that warnings name."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        found = nero.jax.find_layouts(params)
    text = " ".join(str(each.message) for each in heard)
    assert "..." not in text, "so that every path is in the message"
    return found, {path for path in re.findall("`(.*?)`", text) if path in found}


# A tree of arrays by path: its shape, what it is, and whether it is right without a word.
PLAIN = {
    "GPT": {
        "wte": ((50, D), EMBEDDING, False),
        "wpe": ((30, D), EMBEDDING, False),
        "head/kernel": ((D, 50), LINEAR, True),
    },
    "positions below a module": {
        "wte/weight": ((50, D), EMBEDDING, False),
        "pos_embed/w": ((30, D), EMBEDDING, False),
        "patch_embed/w": ((12, D), LINEAR, False),
    },
    "positions (1, T, d)": {"pos_embed": ((1, 30, D), TOKENS, False)},
    "positions by their shape": {"offsets": ((1, 30, D), TOKENS, False)},
    "positions of an image": {"pos_embed": ((1, 4, 5, D), OTHER, False)},
    "class and register tokens": {
        "cls_token": ((1, 1, D), TOKENS, False),
        "cls": ((D,), VECTOR, False),
        "register_tokens": ((4, D), EMBEDDING, False),
        "mask_token": ((1, D), EMBEDDING, False),
    },
    "learned queries": {"decoder/queries": ((7, D), EMBEDDING, False)},
    "a query beside a key": {
        "query": ((D, D), LINEAR, False),
        "key": ((D, D), LINEAR, False),
    },
    "attention pooling": {"probe": ((1, 1, D), TOKENS, False)},
    "prompt tuning": {"prompt": ((6, D), EMBEDDING, False), "deep": ((2, 6, D), OTHER, False)},
    "deep prompts": {"deep_prompts": ((2, 6, D), TOKENS, False)},
    "relative biases of T5": {"relative_attention_bias/embedding": ((32, 4), BIAS, True)},
    "relative biases of T5X": {"rel_embedding": ((4, 32), OTHER, False)},
    "relative biases in an Embed": {"rel_pos/embedding": ((32, 4), OTHER, False)},
    "relative vectors in an Embed": {"rel_pos/embedding": ((32, 64), EMBEDDING, True)},
    "relative biases of Swin": {"relative_position_bias_table": ((25, 4), BIAS, True)},
    "ALiBi": {"slopes": ((4, 1, 1), OTHER, False)},
    "layer scale": {"gamma": ((D,), OTHER, False)},
    "fused qkv": {"qkv/kernel": ((D, 3 * D), LINEAR, True), "w_qkv": ((D, 3 * D), LINEAR, False)},
    "stacked experts": {"w1": ((3, D, 40), OTHER, False)},
    "gated MLP": {"gate/kernel": ((D, 40), LINEAR, True), "up/kernel": ((D, 40), LINEAR, True)},
    "depthwise": {"Conv_0/kernel": ((3, 3, 1, D), neurons(3), True)},
    "time steps": {"freqs": ((8,), OTHER, False), "Embed_0/embedding": ((99, D), EMBEDDING, True)},
}


@pytest.mark.parametrize("name", PLAIN)
def test_plain_trees(name):
    wanted = PLAIN[name]
    params = {path: jnp.ones(shape) for path, (shape, _, _) in wanted.items()}
    found, heard = found_and_heard(params)
    assert found == {path: layout for path, (_, layout, _) in wanted.items()}
    assert heard == {path for path, (_, _, is_known) in wanted.items() if not is_known}


def test_linen():
    nn = pytest.importorskip("flax.linen", reason="Flax is not installed")
    normal = nn.initializers.normal(0.02)

    class Vision(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.Dense(D, name="patches")(x)
            cls = self.param("cls", nn.initializers.zeros, (1, 1, D))
            x = jnp.concatenate([jnp.tile(cls, (len(x), 1, 1)), x], axis=1)
            x = x + self.param("pos_embedding", normal, (1, x.shape[1], D))
            bias = nn.Embed(11, 4, name="relative_attention_bias")(jnp.zeros((10, 10), int))
            x = nn.MultiHeadDotProductAttention(num_heads=4)(nn.LayerNorm()(x)) + bias.mean()
            queries = self.param("queries", normal, (7, D))
            return nn.Dense(5, name="head")(jnp.einsum("qd,btd->bqt", queries, x))

    params = Vision().init(jax.random.key(0), jnp.zeros((2, 9, 12)))["params"]
    found, heard = found_and_heard(params)
    assert found["cls"] == found["pos_embedding"] == TOKENS
    assert found["queries"] == EMBEDDING
    assert found["relative_attention_bias/embedding"] == BIAS
    assert found["MultiHeadDotProductAttention_0/query/kernel"] == neurons(1, 2)
    assert heard == {"cls", "pos_embedding", "queries"}


def test_nnx():
    nnx = pytest.importorskip("flax.nnx", reason="Flax is not installed")

    class Vision(nnx.Module):
        def __init__(self, rngs):
            self.cls_token = nnx.Param(jnp.zeros((1, 1, D)))
            self.pos = nnx.Param(0.02 * jax.random.normal(rngs.params(), (10, D)))
            self.relative_attention_bias = nnx.Embed(11, 4, rngs=rngs)
            self.tokens = nnx.Embed(50, D, rngs=rngs)
            self.norm = nnx.LayerNorm(D, rngs=rngs)
            self.head = nnx.Linear(D, 5, rngs=rngs)

    found, heard = found_and_heard(Vision(nnx.Rngs(0)))
    assert found == {
        "cls_token": TOKENS,
        "pos": EMBEDDING,
        "relative_attention_bias/embedding": BIAS,
        "tokens/embedding": EMBEDDING,
        "norm/scale": GAIN,
        "norm/bias": BIAS,
        "head/kernel": LINEAR,
        "head/bias": BIAS,
    }
    assert heard == {"cls_token", "pos"}


@pytest.mark.parametrize(
    ("path", "shape", "guess", "remedy"),
    [
        (
            "w",
            (4, 3),
            r"neurons along dims \(1,\)",
            "rows are tokens or positions, pass .*'w': EMBEDDING",
        ),
        (
            "pos",
            (4, 3),
            r"embeddings along dims \(0,\)",
            r"layer of \(in, out\), pass .*'pos': neurons\(1\)",
        ),
        ("experts", (2, 4, 3), "single elements", "rows are tokens .*'experts': EMBEDDING"),
    ],
)
def test_the_remedy_is_not_the_guess(path, shape, guess, remedy):
    with pytest.warns(
        nero.LayoutWarning, match=f"`{path}` was guessed to be {guess}.*{remedy}"
    ) as heard:
        nero.jax.find_layouts({path: jnp.ones(shape)})
    assert len(str(heard[0].message)) <= 300


@pytest.mark.filterwarnings("error")
def test_project_with_the_preset_leaves_nothing_to_say():
    params = {"Embed_0": {"embedding": jax.random.normal(jax.random.key(0), (5, D))}}
    tx = nero.jax.nero(preset="rows")
    with pytest.raises(UserWarning, match=r"norm 4.*project\(params, preset=.*the same preset"):
        tx.init(nero.jax.project(params))
    tx.init(nero.jax.project(params, preset="rows"))


def test_rows_of_positions_are_projected():
    params = {"pos": jax.random.normal(jax.random.key(0), (7, D))}
    projected = nero.jax.project(params, preset="rows")["pos"]
    assert jnp.allclose(jnp.linalg.norm(projected, axis=1), 4.0)

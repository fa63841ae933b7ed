"""`nero.jax` passes the conformance vectors, and follows the torch optimizer."""

import numpy as np
import pytest
import torch

pytest.importorskip("optax", reason="nero.jax needs the extra nero-optim[jax]")

import jax
import jax.numpy as jnp
import optax

import nero
import nero.jax
from conformance.check import check_case, load_cases
from conformance.nero_jax import run
from nero.core.presets import PRESETS

# Polar directions are torch's alone so far.
KNOWN = [case for case in load_cases() if "direction" not in case["options"]]
CASES = pytest.mark.parametrize("case", KNOWN, ids=lambda case: case["name"])
# One case asks for a penalty of gains where there are none.
pytestmark = pytest.mark.filterwarnings("ignore:gain_penalty has no effect")


@CASES
def test_passes_in_float64(case):
    assert check_case(case, run(case)) is None


@CASES
def test_passes_in_float32(case):
    # Six steps, each of which rounds weights of about one to 6e-8; without float64 sums.
    assert check_case(case, run(case, "float32"), tolerance=1e-6) is None


@pytest.mark.parametrize("options", [{}, {"preset": "rows"}, {"constraint": "initial"}], ids=str)
def test_follows_torch(options):
    """Kernels (in, out) here, weights (out, in) there: thirty steps on one convex problem."""
    rng = np.random.default_rng(0)
    start = {
        "kernel": rng.normal(size=(9, 5)),
        "scale": np.ones(5),
        "embedding": rng.normal(size=(7, 9)),
    }
    goal = {name: rng.normal(size=value.shape) for name, value in start.items()}

    with jax.enable_x64(True):
        params = jax.tree.map(jnp.asarray, start)
        if options.get("constraint") != "initial":
            params = nero.jax.project(params, **options)
        tx = nero.jax.nero(**options, outputs=["kernel"])
        state = tx.init(params)
        for _ in range(30):
            grads = jax.tree.map(lambda p, q: 2 * (p - q), params, goal)
            updates, state = tx.update(grads, state, params)
            params = optax.apply_updates(params, updates)

    roles = {"kernel": "neuron", "scale": "gain", "embedding": "embedding"}
    theirs = {name: torch.nn.Parameter(torch.tensor(value.T if name == "kernel" else value))
              for name, value in start.items()}  # fmt: skip
    own = {"kernel": PRESETS[options.get("preset", "paper")].of_outputs}
    optimizer = nero.Nero(
        [{"params": [theirs[name]], "role": roles[name], **own.get(name, {})} for name in start],
        **options,
    )
    for _ in range(30):
        for name, param in theirs.items():
            other = goal[name].T if name == "kernel" else goal[name]
            param.grad = 2 * (param.detach() - torch.tensor(other))
        optimizer.step()
    for name, param in theirs.items():
        ours = np.asarray(params[name]).T if name == "kernel" else np.asarray(params[name])
        # Thirty steps in float64, whose roundings grow with the curvature.
        np.testing.assert_allclose(ours, param.detach().numpy(), atol=1e-12)

"""Nero against the float64 loop, over up to 1,000 steps."""

import random

import pytest
import torch
from torch import nn

from nero import Nero, Sphere
from reference import neurons
from reference.algorithm1 import Parameter

STEPS = 1000
FEWER_STEPS = 60  # of other layers and constraints: the errors that they could make do not wait
# Both sides compute in float64. Random gradients do not amplify errors, so after 1,000 steps they differ
# by the rounding of about as many additions: 1,000 * 1e-16, and some room.
TOLERANCE_FLOAT64 = 1e-12
# A float32 weight near 0.5 is stored to 3e-8; 1,000 such roundings of either sign add up like their root.
TOLERANCE_FLOAT32 = 5e-6

LAYERS = {
    "linear": (lambda: nn.Linear(7, 4, bias=False), neurons.rows),
    "bilinear": (lambda: nn.Bilinear(3, 2, 4, bias=False), neurons.rows),
    "conv1d": (lambda: nn.Conv1d(3, 4, 3, bias=False), neurons.rows),
    "conv2d": (lambda: nn.Conv2d(2, 3, 3, bias=False), neurons.rows),
    "conv3d": (lambda: nn.Conv3d(1, 3, 2, bias=False), neurons.rows),
    "conv2d grouped": (lambda: nn.Conv2d(4, 6, 3, groups=2, bias=False), neurons.rows),
    "conv2d depthwise": (lambda: nn.Conv2d(4, 4, 3, groups=4, bias=False), neurons.rows),
    "conv_transpose1d": (lambda: nn.ConvTranspose1d(3, 2, 3, bias=False), neurons.conv_transpose),
    "conv_transpose2d": (lambda: nn.ConvTranspose2d(3, 2, 2, bias=False), neurons.conv_transpose),
    "conv_transpose2d grouped": (
        lambda: nn.ConvTranspose2d(4, 6, 2, groups=2, bias=False),
        lambda shape: neurons.conv_transpose(shape, groups=2),
    ),
    "conv_transpose2d depthwise": (
        lambda: nn.ConvTranspose2d(3, 3, 3, groups=3, bias=False),
        lambda shape: neurons.conv_transpose(shape, groups=3),
    ),
    "embedding": (lambda: nn.Embedding(5, 6), neurons.rows),
    "norm": (lambda: nn.LayerNorm(8, bias=False), lambda shape: []),
}
CONSTRAINTS = {
    "balanced": Sphere(),
    "norm only": Sphere(centre=False),
    "mean only": Sphere(radius=None),
    "none": Sphere(radius=None, centre=False),
    "initial radius": Sphere(radius="initial", centre=False),
    "balanced, initial radius": Sphere(radius="initial"),
    "balanced, radius 3": Sphere(radius=3.0),
    "balanced, radius sqrt(dim)": Sphere(radius="sqrt_dim"),
}


def gradients(size: int, steps: int = STEPS):
    """Gradients whose scale drifts over twelve orders of magnitude, with some exact zeros."""
    draw = random.Random(0)
    for t in range(steps):
        scale = 10 ** draw.uniform(-6, 6) if t % 10 == 0 else 1.0
        yield [0.0 if draw.random() < 0.01 else scale * draw.gauss(0.3, 1) for _ in range(size)]


def compare(
    module, find_neurons, constraint, *, dtype, tolerance, steps=STEPS, num_matrices=1, **options
):
    (param,) = module.to(dtype).parameters()
    reference = Parameter(
        param.detach().double().flatten().tolist(),
        find_neurons(param.shape),
        centre=constraint.centre,
        radius=constraint.radius,
        num_matrices=num_matrices,
        **options,
    )
    optimizer = Nero(module, constraint=constraint, **options)
    for grad in gradients(param.numel(), steps):
        grad = torch.tensor(grad, dtype=dtype)
        param.grad = grad.reshape(param.shape)
        optimizer.step()
        reference.update(grad.tolist())
    expected = torch.tensor(reference.weight, dtype=torch.float64).reshape(param.shape)
    torch.testing.assert_close(param.detach().double(), expected, rtol=tolerance, atol=tolerance)
    average = optimizer.state[param]["exp_avg_norm"].flatten().double()
    expected = torch.tensor(reference.average_sq, dtype=torch.float64).sqrt()
    torch.testing.assert_close(average, expected, rtol=tolerance, atol=0)
    assert optimizer.state[param]["step"] == reference.step == steps


def num_steps(layer: str, constraint: str = "balanced") -> int:
    is_long = layer in ("linear", "norm") and constraint == "balanced"
    return STEPS if is_long else FEWER_STEPS


@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize("layer", LAYERS)
def test_nero_follows_algorithm_1(layer, constraint):
    torch.manual_seed(0)
    make, find_neurons = LAYERS[layer]
    compare(
        make(), find_neurons, CONSTRAINTS[constraint], steps=num_steps(layer, constraint),
        dtype=torch.float64, tolerance=TOLERANCE_FLOAT64,
    )  # fmt: skip


@pytest.mark.parametrize("layer", LAYERS)
def test_nero_follows_algorithm_1_in_float32(layer):
    torch.manual_seed(0)
    make, find_neurons = LAYERS[layer]
    compare(
        make(), find_neurons, Sphere(), steps=num_steps(layer),
        dtype=torch.float32, tolerance=TOLERANCE_FLOAT32,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float64, TOLERANCE_FLOAT64), (torch.float32, TOLERANCE_FLOAT32)],
    ids=["float64", "float32"],
)
@pytest.mark.parametrize("layer", LAYERS)
def test_momentum_follows_the_loop(layer, dtype, tolerance):
    torch.manual_seed(0)
    make, find_neurons = LAYERS[layer]
    compare(
        make(), find_neurons, Sphere(), dtype=dtype, tolerance=tolerance, steps=FEWER_STEPS,
        momentum=0.9,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float64, TOLERANCE_FLOAT64), (torch.float32, TOLERANCE_FLOAT32)],
    ids=["float64", "float32"],
)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("layer", LAYERS)
def test_the_peak_norm_follows_the_loop(layer, momentum, dtype, tolerance):
    torch.manual_seed(0)
    make, find_neurons = LAYERS[layer]
    compare(
        make(), find_neurons, Sphere(), dtype=dtype, tolerance=tolerance, steps=FEWER_STEPS,
        norm="peak", beta=0.95, momentum=momentum,
    )  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [
        {"norm": "peak", "beta": 0.99, "momentum": 0.9, "lr": 0.1},
        {"norm": "peak", "beta": 0.0},
        {"lr": 0.1, "momentum": 0.95},
        {"maximize": True, "momentum": 0.5},
        {"lr": 0.1},
        {"beta": 0.0},
        {"beta": 0.9},
        {"maximize": True},
        {"lr": 1e-4, "beta": 0.99},
    ],
    ids=str,
)
def test_options_follow_algorithm_1(options):
    torch.manual_seed(0)
    compare(
        nn.Linear(7, 4, bias=False), neurons.rows, Sphere(),
        dtype=torch.float64, tolerance=TOLERANCE_FLOAT64, **options,
    )  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [{"gain_penalty": 0.1}, {"bias_scale": 1.0}, {"gain_penalty": 0.1, "momentum": 0.9}],
    ids=str,
)
def test_gains_follow_algorithm_1(options):
    compare(
        nn.LayerNorm(8, bias=False), lambda shape: [], Sphere(),
        dtype=torch.float64, tolerance=TOLERANCE_FLOAT64, **options,
    )  # fmt: skip


# Five Newton-Schulz steps multiply the smallest singular values, and errors along them, by up to 3.4445^5.
POLAR_TOLERANCES = {torch.float64: 1e-11, torch.float32: 5e-4}


@pytest.mark.parametrize("dtype", POLAR_TOLERANCES, ids=str)
@pytest.mark.parametrize(
    "options",
    [{"momentum": 0.0}, {"momentum": 0.9}, {"momentum": 0.9, "norm": "peak", "beta": 0.95}],
    ids=str,
)
@pytest.mark.parametrize(
    "layer", ["linear", "conv2d", "conv_transpose1d", "conv_transpose2d grouped"]
)
def test_polar_directions_follow_the_loop(layer, options, dtype):
    torch.manual_seed(0)
    make, find_neurons = LAYERS[layer]
    compare(
        make(), find_neurons, Sphere(), dtype=dtype, tolerance=POLAR_TOLERANCES[dtype], steps=60,
        direction="polar", num_matrices=2 if "grouped" in layer else 1, **options,
    )  # fmt: skip


@pytest.mark.parametrize("transposed", [False, True])
def test_stacked_experts_follow_algorithm_1(transposed):
    class Experts(nn.Module):
        is_transposed = transposed

        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3, 4, 5))

    torch.manual_seed(0)
    compare(
        Experts(), lambda shape: neurons.experts(shape, transposed=transposed), Sphere(),
        dtype=torch.float64, tolerance=TOLERANCE_FLOAT64,
    )  # fmt: skip
    compare(
        Experts(), lambda shape: neurons.experts(shape, transposed=transposed), Sphere(),
        dtype=torch.float64, tolerance=POLAR_TOLERANCES[torch.float64], steps=60,
        direction="polar", momentum=0.5, num_matrices=3,
    )  # fmt: skip


def test_hugging_face_conv1d_follows_algorithm_1():
    from transformers.pytorch_utils import Conv1D

    torch.manual_seed(0)
    module = Conv1D(4, 6)
    module.bias = None
    compare(
        module, neurons.columns, Sphere(), dtype=torch.float64, tolerance=TOLERANCE_FLOAT64
    )  # fmt: skip

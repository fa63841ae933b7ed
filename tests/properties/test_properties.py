"""Laws that hold for every shape, layout, dtype and scale that hypothesis can think of."""

import math

import hypothesis.strategies as st
import torch
from hypothesis import assume, given, settings
from torch import nn

from nero import BALANCED, INITIAL_SPHERE, MEAN_ONLY, NORM_ONLY, UNCONSTRAINED, Nero, Sphere
from nero.functional import balance_tolerance, is_balanced, neuron_norm, project

settings.register_profile("nero", deadline=None, max_examples=100, derandomize=True)
settings.load_profile("nero")

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
CONSTRAINTS = [
    BALANCED,
    NORM_ONLY,
    MEAN_ONLY,
    UNCONSTRAINED,
    Sphere(radius=7.0),
    Sphere(0.1, False),
]
seeds = st.integers(0, 2**31)


@st.composite
def weights(draw, dtypes=DTYPES, min_fan_in=3):
    """Weights of any shape, scale, offset, dtype and memory format, and their fan-in dims."""
    shape = draw(st.lists(st.integers(1, 6), min_size=2, max_size=4))
    neuron_dims = draw(st.sets(st.integers(0, len(shape) - 1), min_size=0, max_size=len(shape) - 1))
    dims = tuple(d for d in range(len(shape)) if d not in neuron_dims)
    assume(math.prod(shape[d] for d in dims) >= min_fan_in)
    dtype = draw(st.sampled_from(dtypes))
    limit = 2 if dtype == torch.float16 else 15  # float16 ends at 65,504
    scale = 10.0 ** draw(st.integers(-limit, limit))
    generator = torch.Generator().manual_seed(draw(seeds))
    x = torch.randn(shape, generator=generator) + draw(st.sampled_from([0.0, 1.0, -10.0]))
    x = (x * scale).to(dtype)
    order = draw(st.permutations(range(len(shape))))
    strided = x.permute(order).contiguous().permute([order.index(d) for d in range(len(shape))])
    return strided, dims


@given(weights(), st.sampled_from(CONSTRAINTS))
def test_a_projected_neuron_obeys_its_constraint(case, constraint):
    weight, dims = case
    fan_in = math.prod(weight.shape[d] for d in dims)
    new = project(weight, fan_in_dims=dims, constraint=constraint)
    assert new.dtype == weight.dtype
    # A row of few bfloat16 or float16 numbers far from zero can be constant: it has no direction.
    moved = ~_constant(weight, dims)
    norm = neuron_norm(new, fan_in_dims=dims)
    tolerance = balance_tolerance(weight.dtype)
    if constraint.radius is not None:
        assert ((norm / constraint.radius - 1).abs() <= tolerance)[moved].all()
    if constraint.centre:
        drift = new.double().sum(dims, keepdim=True).abs() / math.sqrt(fan_in)
        assert (drift <= tolerance * norm)[moved].all()
    if constraint.is_free:
        assert torch.equal(new, weight)


@given(weights(), st.sampled_from(CONSTRAINTS))
def test_projecting_twice_changes_no_bit(case, constraint):
    weight, dims = case
    once = project(weight, fan_in_dims=dims, constraint=constraint)
    assert torch.equal(project(once, fan_in_dims=dims, constraint=constraint), once)


@given(weights(), st.sampled_from(CONSTRAINTS))
def test_projection_keeps_the_direction(case, constraint):
    weight, dims = case
    new = project(weight, fan_in_dims=dims, constraint=constraint).double()
    old = weight.double()
    if constraint.centre:
        old = old - old.mean(dims, keepdim=True)
        new = new - new.mean(dims, keepdim=True)
    cosine = (new * old).sum(dims) / (new.square().sum(dims) * old.square().sum(dims)).sqrt()
    moved = ~_constant(weight, dims).squeeze(dims)
    # Rounding to eps turns a row by at most about eps, and a cosine by its square.
    slack = 4 * torch.finfo(weight.dtype).eps
    if constraint.centre and weight.dtype in (torch.bfloat16, torch.float16):
        return  # centring 10 + noise leaves few significant bits of the noise
    assert (cosine[moved] >= 1 - slack).all()


@given(
    weights(dtypes=[torch.float32, torch.float64]),
    st.floats(-15, 15),
    st.sampled_from([BALANCED, NORM_ONLY, MEAN_ONLY, UNCONSTRAINED, INITIAL_SPHERE]),
    seeds,
)
def test_rescaling_all_gradients_changes_nothing(case, exponent, constraint, seed):
    weight, dims = case
    weight = project(weight, fan_in_dims=dims)
    generator = torch.Generator().manual_seed(seed)
    grads = torch.randn(5, *weight.shape, generator=generator, dtype=torch.float64)
    factor = 10.0**exponent

    def run(grads):
        param = nn.Parameter(weight.clone())
        neuron_dims = tuple(d for d in range(weight.ndim) if d not in dims)
        optimizer = Nero([{"params": param, "neuron_dims": neuron_dims}], constraint=constraint)
        for grad in grads:
            param.grad = grad.to(weight.dtype)
            optimizer.step()
        return param.detach()

    # Five steps of lr 0.01, each with a gradient and an average rounded once more.
    tolerance = 5 * 0.01 * 8 * torch.finfo(weight.dtype).eps + 4 * torch.finfo(weight.dtype).eps
    torch.testing.assert_close(run(grads * factor), run(grads), rtol=tolerance, atol=tolerance)


@given(weights(dtypes=[torch.float64]), st.floats(1e-4, 0.99), st.floats(0, 0.9999), seeds)
def test_the_first_step_obeys_definition_5(case, lr, beta, seed):
    """||dw|| <= eta*||w|| before projection, so the neuron turns by at most asin(eta)."""
    weight, dims = case
    weight = project(weight, fan_in_dims=dims)
    neuron_dims = tuple(d for d in range(weight.ndim) if d not in dims)
    grad = torch.randn(
        weight.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    for constraint in (UNCONSTRAINED, BALANCED):
        param = nn.Parameter(weight.clone())
        optimizer = Nero(
            [{"params": param, "neuron_dims": neuron_dims}], lr=lr, beta=beta, constraint=constraint
        )
        param.grad = grad
        optimizer.step()
        moved = neuron_norm(param.detach() - weight, fan_in_dims=dims)
        chord = 2 * math.sin(math.asin(lr) / 2)
        bound = lr if constraint == UNCONSTRAINED else chord
        has_direction = ~_constant(weight, dims)
        assert (moved <= bound * (1 + 1e-9))[has_direction].all()


@given(
    st.integers(1, 8),
    st.sampled_from(DTYPES),
    st.lists(
        st.lists(
            st.one_of(
                st.floats(allow_nan=True, allow_infinity=True, width=32),
                st.sampled_from([math.nan, math.inf, -math.inf, 0.0, 1e-45, 3e38, -3e38, 1e-38]),
            ),
            min_size=24,
            max_size=24,
        ),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([0.0, 1e-3, 1.0]),
    st.sampled_from([BALANCED, NORM_ONLY, MEAN_ONLY, UNCONSTRAINED, INITIAL_SPHERE]),
    st.booleans(),
)
def test_no_input_leaves_a_nan_where_its_own_gradient_was_finite(
    num_rows, dtype, steps, weight_scale, constraint, elementwise
):
    torch.manual_seed(num_rows)
    start = torch.randn(num_rows, 24 // num_rows) * weight_scale
    param = nn.Parameter(start.to(dtype))
    optimizer = Nero(
        [{"params": param, "role": "other" if elementwise else None}], constraint=constraint
    )
    for values in steps:
        grad = torch.tensor(values)[: param.numel()].reshape(param.shape).to(dtype)
        param.grad = grad
        optimizer.step()
        assert torch.isfinite(param).all()
        assert torch.isfinite(optimizer.state[param]["exp_avg_norm"]).all()


@given(weights(min_fan_in=1), seeds)
def test_training_keeps_neurons_balanced(case, seed):
    weight, dims = case
    neuron_dims = tuple(d for d in range(weight.ndim) if d not in dims)
    fan_in = math.prod(weight.shape[d] for d in dims)
    assume(fan_in >= 2)
    param = nn.Parameter(weight)
    optimizer = Nero([{"params": param, "neuron_dims": neuron_dims}])
    generator = torch.Generator().manual_seed(seed)
    for _ in range(5):
        param.grad = torch.randn(weight.shape, generator=generator).to(weight.dtype)
        optimizer.step()
    constraint = BALANCED.for_fan_in(fan_in)
    assert is_balanced(param, fan_in_dims=dims, constraint=constraint).all()


def _constant(weight, dims):
    w = weight.double()
    spread = w.amax(dims, keepdim=True) - w.amin(dims, keepdim=True)
    return spread <= 1e-6 * w.abs().amax(dims, keepdim=True)

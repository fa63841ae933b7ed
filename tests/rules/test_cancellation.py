"""A step that nearly undoes the weight: what is left is a direction only if enough digits of it are."""

import pytest
import torch
from torch import nn

from nero import Nero
from nero.functional import project

REST = 1e-4  # its square is 2.5e-9 of the terms that cancel: between the two thresholds of the rule


def after_a_step(constraint):
    torch.manual_seed(0)
    weight, rest = torch.linalg.qr(torch.randn(64, 2, dtype=torch.float64))[0].T
    grad = weight + REST * rest
    param = nn.Parameter(weight.float()[None].clone())
    optimizer = Nero(
        [{"params": [param], "role": "neuron"}], lr=1.0, beta=0.0, constraint=constraint
    )
    param.grad = grad.float()[None]
    optimizer.step()
    return param.detach()[0].double(), grad / grad.norm(), rest


def test_a_free_norm_takes_what_is_left():
    new, _, rest = after_a_step("none")
    # float32 weights leave about three digits of it
    torch.testing.assert_close(new, -REST * rest, rtol=0, atol=REST * 1e-3)


def test_a_norm_is_not_set_from_what_is_left():
    new, direction, _ = after_a_step("norm")
    torch.testing.assert_close(new, -direction, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_rounding_leaves_of_a_constant_row_is_no_direction(dtype):
    rows = torch.tensor([0.1, 1 / 3, 1e-6, 123.4], dtype=dtype)[:, None].repeat(1, 7)
    rows[:, 3] = torch.nextafter(rows[:, 3], torch.tensor(torch.inf, dtype=dtype))
    assert torch.equal(project(rows, fan_in_dims=(1,)), rows)

"""The tests of this folder run against every backend: this one sees to it."""

import torch
from torch import nn

from nero import Nero


def test_the_backend_that_a_test_names_is_the_one_that_steps(backend):
    layer = nn.Linear(5, 3)
    optimizer = Nero(layer)
    layer.weight.grad = torch.randn(3, 5)
    optimizer.step()
    assert (optimizer.rule._backends["cpu"].plan is not None) == (backend == "cpu kernel")

"""Which memory the kernels walk, and which they leave to the plain backend."""

import pytest
import torch

from nero.backends.geometry import Geometry, geometry, update_geometry
from nero.core.spec import Hyper
from nero.core.update import Update
from nero.layout import Layout


def update(weight, grad, fan_in_dims=(1,)):
    neuron_dims = tuple(d for d in range(weight.ndim) if d not in fan_in_dims)
    neurons = Layout("neuron", neuron_dims).at(weight.shape)
    state = {"exp_avg_norm": torch.zeros(neurons.state_shape)}
    return Update(weight, grad, state, neurons, Hyper(), 0.01, 0)


def test_rows_are_walked():
    found = update_geometry(update(torch.zeros(3, 4), torch.zeros(3, 4)))
    assert found == Geometry(3, 1, 1, 4, 4, 0, 0)


def test_a_gradient_of_another_dtype_is_not():
    assert update_geometry(update(torch.zeros(3, 4), torch.zeros(3, 4).bfloat16())) is None


def test_a_gradient_in_another_order_is_not():
    assert update_geometry(update(torch.zeros(3, 4), torch.zeros(4, 3).t())) is None


def test_strides_of_size_one_say_nothing():
    weight = torch.zeros(1, 4)
    grad = torch.zeros(4).as_strided((1, 4), (99, 1))
    assert update_geometry(update(weight, grad)) is not None


def test_neurons_in_another_order_than_their_state_are_not():
    # neurons (a, b) stored as (b, a, fan-in)
    stored = torch.zeros(3, 2, 4).transpose(0, 1)
    assert update_geometry(update(stored, stored.clone(), fan_in_dims=(2,))) is None


def test_expanded_elements_share_a_place():
    assert geometry((3, 4), (0, 1), (1,)) is None


@pytest.mark.parametrize("strides", [(8, 2), (2, 8)])
def test_every_second_weight_is_not(strides):
    assert geometry((3, 4), strides, (1,)) is None

"""What holds for every layout and every option, whatever the model."""

import math

import pytest
import torch

from nero import Sphere
from nero.core.spec import COLUMNS, Hyper
from nero.layout import BIAS, EMBEDDING, GAIN, OTHER, Layout, LayoutError, neurons


def test_dims_may_be_counted_from_the_end():
    assert neurons(-1).at((3, 4)) == neurons(1).at((3, 4))
    assert neurons(-3, 1).at((2, 3, 4)) == neurons(0, 1).at((2, 3, 4))


@pytest.mark.parametrize("dims", [(2,), (-3,), (0, -3)])
def test_dims_that_do_not_exist_are_refused(dims):
    with pytest.raises(LayoutError, match="do not fit shape"):
        neurons(*dims).at((3, 4))


def test_groups_must_divide_dim_0():
    with pytest.raises(LayoutError, match="3 groups do not divide"):
        neurons(1, num_groups=3).at((4, 6))
    assert neurons(1, num_groups=3).at((6, 4)).num_neurons == 12


@pytest.mark.parametrize("num_groups", [1, 2, 3])
def test_a_view_has_the_fan_in_where_it_is_said_to_be(num_groups):
    shape = (6, 4, 3)
    mine = neurons(1, num_groups=num_groups).at(shape)
    view = mine.view(torch.zeros(shape))
    assert math.prod(view.shape[d] for d in mine.fan_in_dims) == mine.fan_in
    summed = view.sum(mine.fan_in_dims, keepdim=True)
    assert summed.shape == mine.view(torch.zeros(mine.state_shape)).shape
    assert mine.fan_in * mine.num_neurons == math.prod(shape)


def test_only_neurons_have_the_dims_of_others():
    assert EMBEDDING.has_dims_of(neurons(0))
    assert not neurons(0).has_dims_of(neurons(0, 1))
    assert not neurons(1).has_dims_of(neurons(1, num_groups=2))
    for one, other in ((GAIN, BIAS), (BIAS, OTHER), (OTHER, GAIN)):
        assert one.has_dims_of(one)
        assert not one.has_dims_of(other)


@pytest.mark.parametrize("layout", [GAIN, BIAS, OTHER, Layout("neuron", (0, 1))])
def test_what_has_no_fan_in_has_no_constraint(layout):
    assert Hyper().for_neurons(layout.at((3, 4))).constraint.is_free


@pytest.mark.parametrize(
    "hyper",
    [
        Hyper(),
        Hyper(beta=0.5, bias_scale=2.0, gain_penalty=0.1, maximize=True, seed=-3),
        Hyper(constraint=Sphere(radius=None), nonfinite="raise", stochastic_rounding=True),
        Hyper(constraint=Sphere(radius="initial", centre=False), nonfinite="propagate"),
        Hyper(constraint=Sphere(radius=3.0)),
    ],
    ids=str,
)
def test_what_is_encoded_can_be_read_back(hyper):
    encoded = hyper.encode()
    assert {name: type(value) for name, value in encoded.items()} == COLUMNS
    assert Hyper.decode(encoded) == hyper


@pytest.mark.parametrize("name", ["bias_scale", "gain_penalty"])
def test_infinite_options_are_refused(name):
    with pytest.raises(ValueError, match=name):
        Hyper.read({**Hyper()._asdict(), name: math.inf})

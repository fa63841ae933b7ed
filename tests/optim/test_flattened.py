"""Vectors that an engine swaps in for parameters are refused; other swaps are not."""

import copy

import pytest
import torch
from torch import nn

from nero import Balanced, Nero, annotate, param_groups
from nero.baselines import Lamb


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 3))


OPTIMIZERS = {
    "model": Nero,
    "list": lambda model: Nero([*annotate(model).parameters()]),
    "one group": lambda model: Nero([*model.parameters()]),
    "Lamb": Lamb,
    "Balanced": lambda model: Balanced(torch.optim.SGD(param_groups(model), lr=0.1)),
    "Balanced Lamb": lambda model: Balanced(Lamb(param_groups(model))),
}


@pytest.fixture(params=OPTIMIZERS)
def optimizer(request):
    return OPTIMIZERS[request.param](network())


def flatten(group):
    """As ZeRO does: the first half of all parameters of the group, in float32, as one leaf."""
    flat = torch.cat([param.detach().flatten() for param in group["params"]])
    group["params"] = [nn.Parameter(flat[: -(-len(flat) // 2)].clone())]
    group["params"][0].grad = torch.ones_like(group["params"][0])


def flatten_all(optimizer):
    for group in optimizer.param_groups:
        flatten(group)


REFUSED = pytest.raises(RuntimeError, match=r"DeepSpeed ZeRO or FSDP1 has replaced .* FSDP2")


@pytest.mark.filterwarnings("ignore::nero.LayoutWarning")
class TestAFlatVectorIsRefused:
    def test_at_every_step(self, optimizer):
        flatten_all(optimizer)
        for _ in range(2):
            with REFUSED:
                optimizer.step()

    def test_where_groups_step_one_at_a_time(self, optimizer):
        flatten_all(optimizer)
        groups = optimizer.param_groups
        is_matrix = [group.get("role") in (None, "neuron") for group in groups]
        optimizer.param_groups = [groups[is_matrix.index(True)]]
        with REFUSED:
            optimizer.step()

    def test_where_groups_are_empty_between_steps(self, optimizer):
        whole = [[*group["params"]] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["params"] = []
        for group, params in zip(optimizer.param_groups, whole, strict=True):
            group["params"] = params
            flatten(group)
            with REFUSED:
                optimizer.step()
            group["params"] = []

    def test_when_a_checkpoint_is_saved_or_loaded(self, optimizer):
        saved = copy.deepcopy(optimizer.state_dict())
        flatten_all(optimizer)
        with REFUSED:
            optimizer.state_dict()
        with REFUSED:
            optimizer.load_state_dict(saved)

    def test_after_a_checkpoint_was_loaded(self, optimizer):
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        flatten_all(optimizer)
        with REFUSED:
            optimizer.step()

    def test_of_a_copy(self, optimizer):
        other = copy.deepcopy(optimizer)
        flatten_all(other)
        with REFUSED:
            other.step()
        optimizer.step()

    def test_of_an_added_group(self, optimizer):
        optimizer.add_param_group(
            {"params": [nn.Parameter(torch.randn(4, 5))], "role": "neuron", "neuron_dims": (0,)}
            | ({"param_names": ["added"]} if "param_names" in optimizer.param_groups[0] else {})
        )
        flatten(optimizer.param_groups[-1])
        with REFUSED:
            optimizer.step()


def test_nothing_is_trained_before_it_is_refused():
    model = network()
    optimizer = Nero(model)
    flatten(optimizer.param_groups[0])
    for param in model.parameters():
        param.grad = torch.ones_like(param)
    before = copy.deepcopy(model.state_dict())
    with REFUSED:
        optimizer.step()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_several_biases_as_one_vector_are_refused():
    optimizer = Nero([("a", nn.Parameter(torch.zeros(4))), ("b", nn.Parameter(torch.zeros(4)))])
    flatten(optimizer.param_groups[0])
    with pytest.raises(RuntimeError, match="has replaced `a` and 1 more"):
        optimizer.step()


class TestOtherSwapsAreNot:
    """Each gets new parameters in the groups; warnings are errors."""

    def step(self, optimizer):
        for group in optimizer.param_groups:
            for param in group["params"]:
                param.grad = torch.ones_like(param)
        optimizer.step()
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        optimizer.step()

    @pytest.mark.parametrize("name", ["model", "list", "Lamb", "Balanced"])
    def test_parameters_of_the_same_shapes(self, name):
        optimizer = OPTIMIZERS[name](network())
        for group in optimizer.param_groups:
            group["params"] = [nn.Parameter(p.detach().clone()) for p in group["params"]]
        self.step(optimizer)

    def test_rows_that_were_pruned(self):
        optimizer = Nero(network())
        for group in optimizer.param_groups:
            group["params"] = [nn.Parameter(p.detach()[:2].clone()) for p in group["params"]]
        self.step(optimizer)

    def test_a_matrix_in_the_place_of_a_vector(self):
        weight = nn.Parameter(torch.zeros(12))
        optimizer = Nero([("gain", weight)])
        optimizer.param_groups[0]["params"] = [nn.Parameter(torch.randn(3, 4))]
        self.step(optimizer)

    def test_a_vector_at_the_end_of_a_group(self):
        optimizer = Nero([nn.Parameter(torch.randn(3, 4))])
        optimizer.param_groups[0]["params"].append(nn.Parameter(torch.zeros(3)))
        self.step(optimizer)

    def test_a_group_that_lost_all_but_its_bias(self):
        weight, bias = nn.Parameter(torch.randn(3, 4)), nn.Parameter(torch.zeros(3))
        optimizer = Nero([weight, bias])
        optimizer.param_groups[0]["params"] = [bias]
        self.step(optimizer)

    def test_a_frozen_vector(self):
        optimizer = Nero([nn.Parameter(torch.randn(3, 4)), nn.Parameter(torch.randn(3, 4))])
        frozen = nn.Parameter(torch.zeros(3), requires_grad=False)
        optimizer.param_groups[0]["params"][0] = frozen
        self.step(optimizer)

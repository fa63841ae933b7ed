"""What annotate leaves on parameters must not get in the way of anything else."""

import copy
import io

import pytest
import torch
from torch import nn

import nero
from nero.layout.marks import mark_of

BATCH = torch.randn(3, 4)


def model():
    return nero.annotate(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)), example=BATCH)


def saved_and_loaded(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize(
    "saved",
    [
        lambda net: net.state_dict(),
        lambda net: net.state_dict(keep_vars=True),
        lambda net: dict(net.named_parameters()),
    ],
    ids=["state dict", "keep_vars", "parameters"],
)
def test_marked_parameters_are_saved_and_loaded(saved):
    net = model()
    loaded = saved_and_loaded(saved(net))
    for name, param in net.named_parameters():
        assert torch.equal(loaded[name], param)
        if isinstance(loaded[name], nn.Parameter):
            assert mark_of(loaded[name]) == mark_of(param)


def test_a_copy_has_none():
    net = model()
    copied = copy.deepcopy(net)
    assert all(mark_of(param) is None for param in copied.parameters())
    assert all(mark_of(param) is not None for param in net.parameters())


def test_moved_parameters_keep_theirs():
    net = model()
    before = [mark_of(param) for param in net.parameters()]
    net.to(torch.float64)
    assert [mark_of(param) for param in net.parameters()] == before


def test_torch_can_swap_marked_parameters():
    net = model()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        net.to(torch.float64)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    assert net[0].weight.dtype == torch.float64


def test_marks_of_another_version_do_not_count():
    net = model()
    net[0].weight._nero_mark = {"layout": "rows"}
    assert mark_of(net[0].weight) is None
    with pytest.warns(nero.LayoutWarning, match="1 parameter.s. came without their model"):
        nero.Nero([*net.parameters()])

"""The real create_optimizer_v2, by name: the model's neurons through the groups that timm makes."""

import warnings

import pytest
import timm
import torch
from timm.optim import create_optimizer_v2, list_optimizers

import nero
from nero.integrations.timm import register
from tests.integrations.tiny import assert_same_bits, described, neurons


@pytest.fixture(autouse=True)
def _registered():
    register()


def vit():
    torch.manual_seed(0)
    return timm.create_model(
        "vit_tiny_patch16_224", img_size=32, embed_dim=16, depth=2, num_heads=2, num_classes=3
    )


@pytest.mark.parametrize("grouping", [{}, {"layer_decay": 0.5}], ids=["by decay", "by layer"])
def test_neurons_are_those_of_the_model(grouping):
    model = nero.annotate(vit())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer = create_optimizer_v2(model, "nero", **grouping)
    assert type(optimizer) is nero.Nero
    assert neurons(optimizer, model) == described(model)
    assert optimizer.param_groups[0]["lr"] == 0.01
    scales = {group.get("lr_scale", 1.0) for group in optimizer.param_groups}
    assert len(scales) == (4 if grouping else 1)


def test_without_annotations_it_warns_once():
    with pytest.warns(nero.LayoutWarning, match="nero.annotate") as caught:
        create_optimizer_v2(vit(), "nero")
    assert len(caught) == 1


def test_trains_resumes_to_the_bit_and_equals_the_bare_loop():
    models = [nero.annotate(vit()) for _ in range(2)]
    optimizers = [create_optimizer_v2(model, "nero", lr=0.02) for model in models]
    bare = vit()
    with pytest.warns(nero.LayoutWarning):  # of positions, which are right
        bare_optimizer = nero.Nero(bare, lr=0.02)
    for step in range(4):
        if step == 2:
            models[1].load_state_dict(models[0].state_dict())
            optimizers[1].load_state_dict(optimizers[0].state_dict())
        train_step(models[0], optimizers[0], step)
        train_step(bare, bare_optimizer, step)
        if step >= 2:
            train_step(models[1], optimizers[1], step)
    assert_same_bits(models[1], models[0], optimizers[1], optimizers[0])
    assert_same_bits(bare, models[0])


def train_step(model, optimizer, step):
    images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(step))
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(images), torch.arange(4) % 3).backward()
    optimizer.step()


def test_options_go_through_and_weight_decay_is_refused():
    model = nero.annotate(vit())
    optimizer = create_optimizer_v2(model, "nero", preset="rows", betas=(0.9, 0.99), eps=1e-8)
    assert optimizer.param_groups[0]["momentum"] == 0.9
    with pytest.raises(ValueError, match=r"weight_decay must be 0 but is 0\.05"):
        create_optimizer_v2(model, "nero", weight_decay=0.05)


def test_registering_twice_is_once(caplog):
    register()
    assert [name for name in list_optimizers() if name == "nero"] == ["nero"]
    assert not caplog.records

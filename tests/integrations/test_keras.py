"""Keras 3 on torch: kernels are stored as (in, out), and an example shows it."""

import keras
import pytest
import torch

from nero import Nero
from tests.integrations.tiny import assert_same_bits

# Keras reads its variables in a way that numpy is about to give up.
pytestmark = pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")


def build():
    keras.utils.clear_session()  # so that layers have the names that they have in a new process
    keras.utils.set_random_seed(0)
    layers = keras.layers
    return keras.Sequential([
        keras.Input((6, 6, 3)), layers.Conv2D(4, 3), layers.LayerNormalization(), layers.Flatten(),
        layers.Dense(5, activation="relu"), layers.Dense(2),
    ])  # fmt: skip


def images(seed=0):
    return torch.randn(4, 6, 6, 3, generator=torch.Generator().manual_seed(seed))


def train_step(model, optimizer, seed):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(images(seed)), torch.arange(4) % 2).backward()
    optimizer.step()


def test_an_example_shows_the_neurons_of_kernels():
    model = build()
    optimizer = Nero(model, example=images())
    roles = {
        name.rpartition("sequential")[2].partition("/")[2]: (group["role"], group["neuron_dims"])
        for group in optimizer.param_groups
        for name in group["param_names"]
    }
    found = {name: layout for name, layout in roles.items() if layout[0] == "neuron"}
    assert set(found.values()) == {("neuron", (3,)), ("neuron", (1,))}
    assert (
        sorted(layout[0] for layout in roles.values()) == ["bias"] * 4 + ["gain"] + ["neuron"] * 3
    )
    for param in model.parameters():
        if param.ndim > 1:
            norms = param.detach().flatten(0, -2).norm(dim=0)
            torch.testing.assert_close(norms, torch.ones_like(norms))


def test_resumes_to_the_bit():
    models = [build() for _ in range(2)]
    optimizers = [Nero(model, example=images()) for model in models]
    for step in range(4):
        if step == 2:
            models[1].set_weights(models[0].get_weights())
            optimizers[1].load_state_dict(optimizers[0].state_dict())
        for model, optimizer in [*zip(models, optimizers, strict=True)][: 1 + step // 2]:
            train_step(model, optimizer, step)
    assert_same_bits(*models, *optimizers)

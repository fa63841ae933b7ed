"""The real torchtitan: a container that builds Nero from its model parts."""

import pytest
import torch
from torch import nn

from nero import Nero, annotate
from tests.integrations.tiny import (
    assert_same_bits,
    bare_run,
    described,
    examples,
    network,
    neurons,
)

components = pytest.importorskip(
    "torchtitan.components.optimizer", reason="torchtitan is not part of the extra `integrations`"
)
from torchtitan.components.optimizer.optimizer import ParamGroupConfig  # noqa: E402


class NeroContainer(components.OptimizersContainer):
    def __init__(self, config, *, model_parts):
        for part in model_parts:
            annotate(part)
        super().__init__(config, model_parts=model_parts)

    @staticmethod
    def _resolve_optimizer_factory(name):
        return Nero if name == "Nero" else super()._resolve_optimizer_factory(name)


def container(model):
    groups = [ParamGroupConfig(pattern=".*", optimizer_name="Nero", optimizer_kwargs={"lr": 0.02})]
    config = NeroContainer.Config(param_groups=groups, implementation="for-loop")
    return NeroContainer(config, model_parts=[model])


def train(model, optimizers, num_epochs):
    losses = []
    for _ in range(num_epochs):
        for inputs, labels in zip(*(each.split(8) for each in examples()), strict=True):
            loss = nn.functional.cross_entropy(model(inputs), labels)
            optimizers.zero_grad()
            loss.backward()
            optimizers.step()
            losses.append(loss.item())
    return losses


def test_trains_resumes_to_the_bit_and_equals_the_bare_loop():
    model = network()
    optimizers = container(model)
    (optimizer,) = optimizers.optimizers
    assert type(optimizer) is Nero
    assert neurons(optimizer, model) == described(model)
    losses = train(model, optimizers, 1)
    saved = {
        key: torch.clone(v) if torch.is_tensor(v) else v
        for key, v in optimizers.state_dict().items()
    }

    other = network()
    other.load_state_dict(model.state_dict())
    resumed = container(other)
    resumed.load_state_dict(saved)
    losses += train(model, optimizers, 1)
    assert train(other, resumed, 1) == losses[len(losses) // 2 :]
    assert_same_bits(other, model, resumed.optimizers[0], optimizer)
    # The plain path, where the bare loop may have a kernel with other last bits.
    assert losses == pytest.approx(bare_run(2, 8)[1])

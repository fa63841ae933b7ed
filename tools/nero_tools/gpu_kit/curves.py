"""Short trainings on the device and on the CPU, from the same weights and batches, in float32."""

from typing import Any

import torch
from torch.nn import functional as F

from nero import Nero
from nero_tools.models import MODELS

_BATCH, _LENGTH, _VOCABULARY = 8, 16, 64


def curves(
    device: str, presets: tuple[str, ...], model: str, num_steps: int
) -> list[dict[str, Any]]:
    """Return the losses of each preset on the device and on the CPU."""
    return [
        {
            "preset": preset,
            "model": model,
            "device": losses(device, preset, model, num_steps),
            "cpu": losses("cpu", preset, model, num_steps),
        }
        for preset in presets
    ]


def losses(device: str, preset: Any, model: str, num_steps: int) -> list[float]:
    """Train to predict sums of the two tokens before, modulo the vocabulary."""
    torch.manual_seed(0)
    network = MODELS[model]().to(device)
    optimizer = Nero(network, preset=preset)
    batches = torch.Generator().manual_seed(1)
    found = []
    for _ in range(num_steps):
        tokens = torch.randint(_VOCABULARY, (_BATCH, _LENGTH), generator=batches)
        for place in range(2, _LENGTH):
            tokens[:, place] = (tokens[:, place - 1] + tokens[:, place - 2]) % _VOCABULARY
        tokens = tokens.to(device)
        logits = network(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found

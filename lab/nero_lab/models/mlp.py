"""The multilayer perceptrons of Figure 3: as wide as an MNIST image, with a scaled ReLU."""

import itertools
import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

NUM_PIXELS, NUM_CLASSES = 28 * 28, 10
"""The inputs and outputs of a network for MNIST."""


class MLP(nn.Module):
    """A perceptron without normalization or skip connections.

    Args:
        num_layers: linear layers, the output layer included.
        width: of every hidden layer.
        init: how plain weights start: "he" or "torch" (see the note).
        biases: whether layers have them.
        sigma: if given, the weights of each layer are ``normalize(raw)`` (Equation "cwn" of the
            paper) of raw weights drawn from N(0, sigma^2); if None, they are plain weights.

    Note:
        "he" draws weights from N(0, 1/fan_in) and sets biases to zero. With the factor sqrt(2) in the
        nonlinearity this is He initialization: a signal keeps its size through any number of layers,
        whichever optimizer follows. "torch" leaves what ``nn.Linear`` draws, whose variance is a
        third of that, so that a signal shrinks by 3^(-1/2) a layer and is gone after a hundred. Raw
        weights of different ``sigma`` are the same draws times ``sigma``, with biases of zero.
    """

    def __init__(
        self,
        *,
        num_layers: int,
        width: int = 784,
        init: Literal["he", "torch"] = "he",
        biases: bool = True,
        sigma: float | None = None,
    ) -> None:
        super().__init__()
        if init not in ("he", "torch"):
            raise ValueError(f"init must be 'he' or 'torch', not {init!r}")
        sizes = [NUM_PIXELS] + [width] * (num_layers - 1) + [NUM_CLASSES]
        self.layers = nn.ModuleList(
            nn.Linear(fan_in, fan_out, bias=biases) for fan_in, fan_out in itertools.pairwise(sizes)
        )
        if init == "torch" and sigma is None:
            return
        for layer in self.layers:
            assert isinstance(layer, nn.Linear)
            nn.init.normal_(layer.weight)
            if biases:
                nn.init.zeros_(layer.bias)
            scale = 1 / math.sqrt(layer.in_features) if sigma is None else sigma
            with torch.no_grad():
                layer.weight.mul_(scale)
            if sigma is not None:
                parametrize.register_parametrization(layer, "weight", Normalize())

    @property
    def outer_layers(self) -> tuple[str, ...]:
        """The first and last layers: those that optimizers for hidden matrices leave to another."""
        return "layers.0", f"layers.{len(self.layers) - 1}"

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of a batch of images of any shape."""
        *hidden, output = self.layers
        signal = images.flatten(1)
        for layer in hidden:
            signal = scaled_relu(layer(signal))
        logits: Tensor = output(signal)
        return logits


class Normalize(nn.Module):
    """Centre each row and scale it to norm one: Equation "cwn" of the paper."""

    def forward(self, raw: Tensor) -> Tensor:
        """Return balanced weights from raw ones."""
        centred = raw - raw.mean(1, keepdim=True)
        norm: Tensor = torch.linalg.vector_norm(centred, dim=1, keepdim=True)
        return centred / norm


def scaled_relu(signal: Tensor) -> Tensor:
    """Return sqrt(2) * max(0, x), which keeps the mean square of a symmetric signal.

    Example:
        >>> scaled_relu(torch.tensor([-1.0, 1.0]))
        tensor([0.0000, 1.4142])
    """
    return math.sqrt(2) * signal.relu()

"""VGG-11 for CIFAR: eight convolutions and a head, without batch norm."""

from typing import Literal

from torch import Tensor, nn

_STAGES = ((64,), (128,), (256, 256), (512, 512), (512, 512))


class VGG11(nn.Module):
    """The vanilla, convolutional network of Figures 1, 2 and 6.

    Five stages of 3x3 convolutions with ReLU, each halved by max-pooling, take 32x32 pixels to a
    vector of 512 that the head classifies.

    Args:
        width: factor on the number of channels; 1 is the paper's network.
        init: how the weights of convolutions start: "he" keeps the size of a signal from layer to
            layer, "he-fan-out" that of a gradient; "torch" leaves what ``nn.Conv2d`` draws, which is
            6^(1/2) times smaller.
        biases: whether convolutions have them. They start as torch draws them, and so never at zero,
            which a multiplicative optimizer could not move.
        head: "linear" for one layer; "perceptron" for VGG's own of three, the hidden ones of 4096 times
            the width, with dropout.
    """

    def __init__(
        self,
        *,
        width: float = 1.0,
        init: Literal["he", "he-fan-out", "torch"] = "he",
        biases: bool = True,
        head: Literal["linear", "perceptron"] = "linear",
    ) -> None:
        super().__init__()
        if init not in ("he", "he-fan-out", "torch"):
            raise ValueError(f"init must be 'he', 'he-fan-out' or 'torch', not {init!r}")
        if head not in ("linear", "perceptron"):
            raise ValueError(f"head must be 'linear' or 'perceptron', not {head!r}")
        layers: list[nn.Module] = []
        num_inputs = 3
        for stage in _STAGES:
            for channels in stage:
                num_outputs = round(channels * width)
                conv = nn.Conv2d(num_inputs, num_outputs, 3, padding=1, bias=biases)
                if init != "torch":
                    mode: Literal["fan_in", "fan_out"] = "fan_in" if init == "he" else "fan_out"
                    nn.init.kaiming_normal_(conv.weight, mode=mode, nonlinearity="relu")
                layers += [conv, nn.ReLU()]
                num_inputs = num_outputs
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(num_inputs, 10) if head == "linear" else _head(num_inputs, width)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of images of 32x32 pixels."""
        logits: Tensor = self.head(self.features(images).flatten(1))
        return logits


def _head(num_inputs: int, width: float) -> nn.Sequential:
    hidden = round(4096 * width)
    return nn.Sequential(
        *(nn.Linear(num_inputs, hidden), nn.ReLU(), nn.Dropout()),
        *(nn.Linear(hidden, hidden), nn.ReLU(), nn.Dropout()),
        nn.Linear(hidden, 10),
    )

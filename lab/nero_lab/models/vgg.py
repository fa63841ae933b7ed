"""VGG-11 for CIFAR: eight convolutions and one linear head, without batch norm."""

from typing import Literal

from torch import Tensor, nn

_STAGES = ((64,), (128,), (256, 256), (512, 512), (512, 512))


class VGG11(nn.Module):
    """The vanilla, convolutional network of Figures 1, 2 and 6.

    Five stages of 3x3 convolutions with ReLU, each halved by max-pooling, take 32x32 pixels to a
    vector of 512 that one linear layer classifies.

    Args:
        width: factor on the number of channels; 1 is the paper's network.
        init: how the weights of convolutions start: "he" keeps the size of a signal from layer to
            layer; "torch" leaves what ``nn.Conv2d`` draws, which is 6^(1/2) times smaller.

    Note:
        Biases start as torch draws them, and so never at zero, which a multiplicative optimiser
        could not move.
    """

    def __init__(self, *, width: float = 1.0, init: Literal["he", "torch"] = "he") -> None:
        super().__init__()
        if init not in ("he", "torch"):
            raise ValueError(f"init must be 'he' or 'torch', not {init!r}")
        layers: list[nn.Module] = []
        num_inputs = 3
        for stage in _STAGES:
            for channels in stage:
                num_outputs = round(channels * width)
                conv = nn.Conv2d(num_inputs, num_outputs, 3, padding=1)
                if init == "he":
                    nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
                layers += [conv, nn.ReLU()]
                num_inputs = num_outputs
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(num_inputs, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of images of 32x32 pixels."""
        logits: Tensor = self.head(self.features(images).flatten(1))
        return logits

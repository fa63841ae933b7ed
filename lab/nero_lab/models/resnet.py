"""Residual networks with batch norm: ResNet-18 for CIFAR and ResNet-50 for ImageNet."""

from collections.abc import Callable, Sequence

from torch import Tensor, nn

Block = Callable[[int, int, int], nn.Module]
"""Makes a block from the number of inputs, the width of its stage and its stride."""


class ResNet(nn.Module):
    """A stem, four stages of residual blocks, and a linear head on the mean over pixels.

    Args:
        stem: takes an image to ``width`` channels.
        block: what the stages are made of.
        expansion: outputs of a block for each channel of its stage.
        num_blocks: blocks of each stage; every stage but the first halves the image.
        width: channels of the first stage; each further stage has twice as many.
        num_classes: outputs.
    """

    def __init__(
        self,
        stem: nn.Module,
        block: Block,
        *,
        expansion: int,
        num_blocks: Sequence[int],
        width: int,
        num_classes: int,
    ) -> None:
        super().__init__()
        self.stem = stem
        blocks: list[nn.Module] = []
        num_inputs = width
        for stage, count in enumerate(num_blocks):
            channels = width * 2**stage
            for position in range(count):
                stride = 2 if stage > 0 and position == 0 else 1
                blocks.append(block(num_inputs, channels, stride))
                num_inputs = channels * expansion
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(num_inputs, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of a batch of images."""
        logits: Tensor = self.head(self.blocks(self.stem(images)).mean((2, 3)))
        return logits


class Residual(nn.Module):
    """A branch that is added to a shortcut, then a ReLU."""

    def __init__(self, branch: nn.Module, num_inputs: int, num_outputs: int, stride: int) -> None:
        super().__init__()
        self.branch = branch
        same = stride == 1 and num_inputs == num_outputs
        self.shortcut = nn.Identity() if same else _conv(num_inputs, num_outputs, 1, stride)
        self.relu = nn.ReLU()

    def forward(self, signal: Tensor) -> Tensor:
        """Return the activations after the block."""
        after: Tensor = self.relu(self.branch(signal) + self.shortcut(signal))
        return after


def basic_block(num_inputs: int, channels: int, stride: int) -> Residual:
    """Return a block of two 3x3 convolutions."""
    branch = nn.Sequential(
        _conv(num_inputs, channels, 3, stride), nn.ReLU(), _conv(channels, channels, 3)
    )
    return Residual(branch, num_inputs, channels, stride)


def bottleneck(num_inputs: int, channels: int, stride: int) -> Residual:
    """Return a block that narrows, convolves 3x3 (with the stride), and widens fourfold."""
    branch = nn.Sequential(
        _conv(num_inputs, channels, 1),
        nn.ReLU(),
        _conv(channels, channels, 3, stride),
        nn.ReLU(),
        _conv(channels, 4 * channels, 1),
    )
    return Residual(branch, num_inputs, 4 * channels, stride)


def resnet18(*, width: int = 64) -> ResNet:
    """Return the ResNet-18 of CIFAR: a 3x3 stem without pooling, for images of 32x32 pixels."""
    stem = nn.Sequential(_conv(3, width, 3), nn.ReLU())
    return ResNet(
        stem,
        basic_block,
        expansion=1,
        num_blocks=(2, 2, 2, 2),
        width=width,
        num_classes=10,
    )


def resnet50(*, width: int = 64, num_classes: int = 1000) -> ResNet:
    """Return the ResNet-50 of ImageNet, its convolutions drawn as by He et al. (2015)."""
    stem = nn.Sequential(_conv(3, width, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1))
    model = ResNet(
        stem,
        bottleneck,
        expansion=4,
        num_blocks=(3, 4, 6, 3),
        width=width,
        num_classes=num_classes,
    )
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model


def _conv(num_inputs: int, num_outputs: int, size: int, stride: int = 1) -> nn.Sequential:
    """Return a convolution without bias and its batch norm."""
    conv = nn.Conv2d(num_inputs, num_outputs, size, stride, padding=size // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(num_outputs))

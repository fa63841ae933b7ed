"""A class-conditional GAN for images of 32 x 32, after BigGAN (Brock et al., 2018).

The paper wants it heterogeneous: convolutions, embeddings, fully connected layers, attention,
conditional batch norm and spectral norm are all in it. The *condition* of a generator block is the
shared embedding of the class beside that block's own slice of the noise; it sets the gains and biases
of the block's batch norms. The discriminator adds, to a linear score, the inner product of its
features with an embedding of the class (projection), and has spectral norm on every weight.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm

NUM_CLASSES = 10
NUM_UPS = 3  # from 4 x 4 to 32 x 32

Wrap = Callable[[nn.Module], nn.Module]


class Generator(nn.Module):
    """Noise and classes to images.

    Args:
        width: channels of every block.
        noise_size: numbers of noise an image; a multiple of four, since the first linear layer and
            each of the three blocks get a slice of their own.
        embedding_size: of the shared class embedding.
    """

    def __init__(self, width: int, *, noise_size: int = 128, embedding_size: int = 128) -> None:
        super().__init__()
        slice_size, rest = divmod(noise_size, NUM_UPS + 1)
        if rest:
            raise ValueError(f"noise_size must be a multiple of {NUM_UPS + 1}, not {noise_size}")
        self.width = width
        self.noise_size = noise_size
        self.embedding = _started(nn.Embedding(NUM_CLASSES, embedding_size))
        self.first = _started(nn.Linear(slice_size, 4 * 4 * width))
        condition_size = embedding_size + slice_size
        self.blocks = nn.ModuleList(UpBlock(width, condition_size) for _ in range(NUM_UPS))
        self.attention = SelfAttention(width, wrap=_plain)
        self.norm = nn.BatchNorm2d(width)
        self.last = _started(nn.Conv2d(width, 3, 3, padding=1))

    def forward(self, noise: Tensor, classes: Tensor) -> Tensor:
        """Return images in (-1, 1), of shape (images, 3, 32, 32)."""
        first, *slices = noise.chunk(NUM_UPS + 1, dim=1)
        embedded = self.embedding(classes)
        # Channels last from the start, so that no convolution has to rearrange its input.
        signal = self.first(first).view(-1, 4, 4, self.width).permute(0, 3, 1, 2)
        for index, (block, part) in enumerate(zip(self.blocks, slices, strict=True)):
            signal = block(signal, torch.cat([embedded, part], dim=1))
            if index == 1:
                signal = self.attention(signal)  # at 16 x 16
        return torch.tanh(self.last(F.relu(self.norm(signal))).float())


class Discriminator(nn.Module):
    """Images and classes to scores, high for real ones.

    Args:
        width: channels of every block.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(
            DownBlock(3, width, is_first=True, down=True),
            SelfAttention(width, wrap=spectral_norm),  # at 16 x 16
            DownBlock(width, width, down=True),
            DownBlock(width, width),
            DownBlock(width, width),
        )
        self.score = spectral_norm(_started(nn.Linear(width, 1)))
        self.embedding = spectral_norm(_started(nn.Embedding(NUM_CLASSES, width)))

    def forward(self, images: Tensor, classes: Tensor) -> Tensor:
        """Return the score of each image as one of its class, in float32."""
        features = F.relu(self.blocks(images)).float().sum((2, 3))
        projection = (self.embedding(classes).float() * features).sum(1)
        scores: Tensor = self.score(features).squeeze(1).float() + projection
        return scores


class UpBlock(nn.Module):
    """A residual block that doubles the resolution."""

    def __init__(self, width: int, condition_size: int) -> None:
        super().__init__()
        self.norm1 = ConditionalBatchNorm(width, condition_size)
        self.conv1 = _started(nn.Conv2d(width, width, 3, padding=1, bias=False))  # a norm follows
        self.norm2 = ConditionalBatchNorm(width, condition_size)
        self.conv2 = _started(nn.Conv2d(width, width, 3, padding=1))
        self.skip = _started(nn.Conv2d(width, width, 1))

    def forward(self, signal: Tensor, condition: Tensor) -> Tensor:
        """Return a signal of twice the height and width."""
        changed = _doubled(F.relu(self.norm1(signal, condition)))
        changed = self.conv2(F.relu(self.norm2(self.conv1(changed), condition)))
        # A 1 x 1 convolution commutes with repeating pixels, and costs a quarter before it.
        output: Tensor = changed + _doubled(self.skip(signal))
        return output


class DownBlock(nn.Module):
    """A residual block with spectral norm that may halve the resolution.

    The first block sees pixels, so it neither begins with a ReLU nor convolves its skip at full
    resolution.
    """

    def __init__(
        self, num_in: int, width: int, *, is_first: bool = False, down: bool = False
    ) -> None:
        super().__init__()
        self.is_first = is_first
        self.down = down
        self.conv1 = spectral_norm(_started(nn.Conv2d(num_in, width, 3, padding=1)))
        self.conv2 = spectral_norm(_started(nn.Conv2d(width, width, 3, padding=1)))
        has_skip = down or num_in != width
        self.skip = spectral_norm(_started(nn.Conv2d(num_in, width, 1))) if has_skip else None

    def forward(self, signal: Tensor) -> Tensor:
        """Return the block's output, of half the height and width if it is a halving one."""
        changed = self.conv2(F.relu(self.conv1(signal if self.is_first else F.relu(signal))))
        if self.down:  # a 1 x 1 convolution commutes with averaging too
            changed, signal = F.avg_pool2d(changed, 2), F.avg_pool2d(signal, 2)
        output: Tensor = changed + (signal if self.skip is None else self.skip(signal))
        return output


class ConditionalBatchNorm(nn.Module):
    """Batch norm whose gains and biases are linear in a condition."""

    def __init__(self, width: int, condition_size: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(width, affine=False)
        self.gain = _started(nn.Linear(condition_size, width, bias=False))
        self.shift = _started(nn.Linear(condition_size, width, bias=False))

    def forward(self, signal: Tensor, condition: Tensor) -> Tensor:
        """Return ``norm(signal) * (1 + gain(condition)) + shift(condition)``."""
        gain = 1 + self.gain(condition)[:, :, None, None]
        return torch.addcmul(self.shift(condition)[:, :, None, None], self.norm(signal), gain)


class SelfAttention(nn.Module):
    """Attention of every position to a pooled map of positions (Zhang et al., 2018).

    The output is added with a learned gain that starts at zero, so the block begins as the identity.
    """

    def __init__(self, width: int, *, wrap: Wrap) -> None:
        super().__init__()
        self.query = wrap(_started(nn.Conv2d(width, max(width // 8, 1), 1, bias=False)))
        self.key = wrap(_started(nn.Conv2d(width, max(width // 8, 1), 1, bias=False)))
        self.value = wrap(_started(nn.Conv2d(width, width // 2, 1, bias=False)))
        self.out = wrap(_started(nn.Conv2d(width // 2, width, 1, bias=False)))
        self.gain = nn.Parameter(torch.zeros(()))

    def forward(self, signal: Tensor) -> Tensor:
        """Return the signal with what each position found elsewhere added to it."""
        query = self.query(signal).flatten(2)  # (images, channels, positions)
        key = F.max_pool2d(self.key(signal), 2).flatten(2)
        value = F.max_pool2d(self.value(signal), 2).flatten(2)
        attention = torch.softmax(query.transpose(1, 2) @ key, dim=2)
        found = (value @ attention.transpose(1, 2)).unflatten(2, signal.shape[2:])
        output: Tensor = signal + self.gain * self.out(found)
        return output


def _started(layer: nn.Module) -> nn.Module:
    """Start a layer as BigGAN does: orthogonal weights and biases of zero."""
    assert isinstance(layer, nn.Linear | nn.Conv2d | nn.Embedding)
    nn.init.orthogonal_(layer.weight)
    bias = getattr(layer, "bias", None)
    if bias is not None:
        nn.init.zeros_(bias)
    return layer


def _plain(layer: nn.Module) -> nn.Module:
    return layer


def _doubled(signal: Tensor) -> Tensor:
    return F.interpolate(signal, scale_factor=2, mode="nearest")

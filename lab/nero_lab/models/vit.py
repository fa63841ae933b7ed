"""A small vision transformer: the blocks of the GPT on patches, each of which sees all others."""

from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from nero_lab.models.block import Block, init_blocks_


class ViT(nn.Module):
    """A pre-LayerNorm transformer over the patches of an image; the mean over patches is classified.

    Args:
        size: pixels of a side of the images.
        patch: pixels of a side of a patch.
        num_layers: number of blocks.
        width: features of the stream.
        num_heads: of attention in each block.
        num_classes: number of logits.

    Raises:
        ValueError: if the patches do not tile the image.
    """

    outer_layers: ClassVar[tuple[str, ...]] = ("patches", "position", "head")
    """The first and last layers: those that optimizers for hidden matrices leave to another."""

    def __init__(
        self,
        *,
        num_layers: int,
        width: int,
        num_heads: int,
        size: int = 32,
        patch: int = 4,
        num_classes: int = 10,
    ) -> None:
        super().__init__()
        if size % patch:
            raise ValueError(f"patches of {patch} pixels do not tile an image of {size}")
        self.patches = nn.Conv2d(3, width, patch, stride=patch, bias=False)
        self.position = nn.Embedding((size // patch) ** 2, width)
        self.blocks = nn.Sequential(
            *(Block(width, num_heads, is_causal=False) for _ in range(num_layers))
        )
        self.norm = nn.LayerNorm(width, bias=False)
        self.head = nn.Linear(width, num_classes, bias=False)
        init_blocks_(self, num_layers=num_layers)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of the classes of images (batch, 3, size, size)."""
        patches = self.patches(images).flatten(2).transpose(1, 2)  # (batch, patch, width)
        stream = patches + self.position(torch.arange(patches.shape[1], device=images.device))
        return cast(Tensor, self.head(self.norm(self.blocks(stream)).mean(dim=1)))

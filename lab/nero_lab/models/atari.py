"""The network that plays Atari: what its actor and its critic share."""

import torch
from gymnasium import spaces
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn


class Features(BaseFeaturesExtractor):
    """Three convolutions and a dense layer: what the actor and the critic share.

    Only these run in bfloat16, if at all. The heads are tiny, and the probabilities that PPO divides
    by one another need float32.
    """

    def __init__(self, observation_space: spaces.Box, is_bfloat16: bool = False) -> None:
        super().__init__(observation_space, features_dim=512)
        self.is_bfloat16 = is_bfloat16
        self.layers = nn.Sequential(
            *(nn.Conv2d(observation_space.shape[0], 32, kernel_size=8, stride=4), nn.ReLU()),
            *(nn.Conv2d(32, 64, kernel_size=4, stride=2), nn.ReLU()),
            *(nn.Conv2d(64, 32, kernel_size=3), nn.ReLU(), nn.Flatten()),
            *(nn.Linear(32 * 7 * 7, 512), nn.ReLU()),
        )

    def forward(self, frames: Tensor) -> Tensor:
        """Return the features of stacked frames, whose values are 0 to 255."""
        # Bytes are moved before they become two or four times as long; 0 to 255 is exact in bfloat16.
        frames = frames.contiguous(memory_format=torch.channels_last)
        pixels = frames.to(torch.bfloat16 if self.is_bfloat16 else torch.float32) / 255
        # No cache of cast weights: it lives until the outermost autocast region ends, which is the
        # training loop's, and by then the weights have been updated many times.
        with torch.autocast(
            frames.device.type, torch.bfloat16, enabled=self.is_bfloat16, cache_enabled=False
        ):
            features: Tensor = self.layers(pixels)
        return features.float()

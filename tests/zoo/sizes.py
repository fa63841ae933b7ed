"""The sizes that a config names, under whatever name."""

import math
from typing import Any

from transformers import PreTrainedConfig

from tests.zoo.builder import sub_configs


class Sizes:
    """What a config says of texts, images and sounds."""

    def __init__(self, config: PreTrainedConfig, signature: Any, variant: str) -> None:
        self.config, self.signature, self.variant = config, signature, variant
        self.text = first(config, "text_config", "text_encoder", "thinker_config", "llm_config")
        self.vision = first(config, "vision_config", "backbone_config", "vision_encoder_config")
        self.audio = first(config, "audio_config", "audio_encoder", "speech_config", "encoder")

    def hidden_size(self, config: PreTrainedConfig) -> int:
        return number(config, "hidden_size", "d_model", "n_embd", "dim", "embed_dim", default=768)

    def image_size(self) -> tuple[int, int]:
        size = value(self.vision, "image_size", "img_size", default=None)
        size = size or value(self.config, "image_size", "img_size", default=224)
        if isinstance(size, dict):
            size = [size.get("height", 224), size.get("width", 224)]
        height, width = (size, size) if isinstance(size, int) else list(size)[-2:]
        return height, width

    def channels(self) -> int:
        names = ("num_channels", "in_channels", "in_chans", "num_image_channels", "in_channel")
        return number(self.vision, *names, default=number(self.config, *names, default=3))

    def patch_size(self) -> int:
        size = value(self.vision, "patch_size", "spatial_patch_size", default=None)
        size = size or value(self.config, "patch_size", default=14)
        return size if isinstance(size, int) else size[-1]


def value(config: PreTrainedConfig, *names: str, default: Any) -> Any:
    """Return the first attribute of one of these names in a config or the configs inside it."""
    for each in (config, *sub_configs(config)):
        for name in names:
            found = getattr(each, name, None)
            if found is not None and not isinstance(found, PreTrainedConfig):
                return found
    return default


def number(config: PreTrainedConfig, *names: str, default: int) -> int:
    found = value(config, *names, default=default)
    return found if isinstance(found, int) else math.prod(found[:1])


def first(config: PreTrainedConfig, *names: str) -> PreTrainedConfig:
    """Return the first config of one of these names inside a config, or the config itself."""
    for name in names:
        found = getattr(config, name, None)
        if isinstance(found, PreTrainedConfig):
            return found
    return config

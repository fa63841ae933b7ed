"""Models on the meta device, of their default config with fewer layers."""

import copy
from collections.abc import Iterator
from typing import Any

import torch
import transformers
from torch import nn
from transformers import CONFIG_MAPPING, PreTrainedConfig

from tests.zoo.settings import DEEP
from tests.zoo.settings import options_of as _options

NUM_LAYERS = 2
REAL = (
    *("mimi", "mimi_encoder", "mimi_decoder", "encodec", "kyutai_speech_to_text"),
    *("pocket_tts_audio_tokenizer", "pocket_tts_audio_tokenizer_encoder"),
    "pocket_tts_audio_tokenizer_decoder",
)
"""Models whose buffers hold sizes, which the meta device forgets."""
_COUNTS = (
    *("num_hidden_layers", "num_layers", "n_layer", "n_layers", "num_encoder_layers"),
    *("num_decoder_layers", "encoder_layers", "decoder_layers", "depth", "num_blocks"),
    *("encoder_num_hidden_layers", "decoder_num_hidden_layers", "num_transformer_layers"),
    *("num_encoder_blocks_per_stage", "l_layers", "r_layers", "x_layers", "vision_layers"),
    *("num_resnet_blocks", "speech_decoder_layers", "text_layers", "dec_layers"),
)
_LISTS = ("depths", "layer_depths", "num_stage_blocks", "blocks_per_stage")


def build(model_type: str, cls: str) -> tuple[nn.Module, str]:
    """Return a model on the meta device, and how its config was made."""
    failures = []
    for how, config in _configs(model_type, getattr(transformers, cls)):
        try:
            with torch.device("cpu" if model_type in REAL else "meta"):
                return getattr(transformers, cls)(config).eval(), how
        except Exception as failure:
            failures.append(failure)
    raise failures[0]


def _configs(model_type: str, cls: Any) -> Iterator[tuple[str, PreTrainedConfig]]:
    default = _of_class(CONFIG_MAPPING[model_type](**_options(model_type)), cls)
    if getattr(default, "pad_token_id", None) is None:
        default.pad_token_id = 0  # heads that classify sequences ask for it
    if model_type in DEEP:
        yield "default", default
    for how, is_deep, is_filled in (
        ("two layers", True, False),
        ("two layers, gaps filled", True, True),
        ("two layers on top", False, False),
        ("default, gaps filled", None, True),
    ):
        config = copy.deepcopy(default)
        try:
            if is_filled:
                _fill(config)
            if is_deep is not None:
                _reduce(config, is_deep=is_deep)
        except Exception:
            continue
        yield how, config
    yield "default", default


def _of_class(config: PreTrainedConfig, cls: Any) -> PreTrainedConfig:
    """Return the part of a config that the class takes, such as that of the text."""
    if cls.config_class is None or isinstance(config, cls.config_class):
        return config
    return next((c for c in sub_configs(config) if isinstance(c, cls.config_class)), config)


def _fill(config: PreTrainedConfig) -> None:
    """Give a config what its class has no default for."""
    heads = getattr(config, "num_attention_heads", None)
    size = getattr(config, "hidden_size", None)
    numbers = {"num_key_value_heads": heads, "vocab_size": 1000, "pad_token_id": 0}
    numbers |= {"dropout_rate": 0.0}
    numbers |= {"rope_theta": 10000.0, "attention_dropout": 0.0}
    if heads and size:
        numbers["head_dim"] = size // heads
    for name, filled in numbers.items():
        if filled is not None and getattr(config, name, None) is None:
            setattr(config, name, filled)
    for each in sub_configs(config):
        _fill(each)


def sub_configs(config: PreTrainedConfig) -> list[PreTrainedConfig]:
    """Return the configs inside a config."""
    return [each for each in vars(config).values() if isinstance(each, PreTrainedConfig)]


def _reduce(config: PreTrainedConfig, *, is_deep: bool) -> None:
    counts = {}
    for name in _COUNTS:
        if config.attribute_map.get(name) == "num_stages":
            continue  # each stage has widths of its own
        count = getattr(config, name, None)
        if isinstance(count, int) and not isinstance(count, bool) and count > NUM_LAYERS:
            counts[name] = count
    # A list with one entry per layer is cut with the layers.
    for name, value in list(vars(config).items()):
        if isinstance(value, list | tuple) and len(value) in counts.values() and len(value) > 4:
            setattr(config, name, _shortened(value))
    for name in counts:
        setattr(config, name, NUM_LAYERS)
    for name in _LISTS:
        depths = getattr(config, name, None)
        if isinstance(depths, list | tuple) and all(isinstance(n, int) for n in depths):
            setattr(config, name, type(depths)(min(n, NUM_LAYERS) for n in depths))
    if is_deep:
        for each in sub_configs(config):
            _reduce(each, is_deep=True)


def _shortened(per_layer: Any) -> Any:
    """Keep as many entries as there are layers, of different kinds if there are any."""
    kinds = [per_layer[0]]
    other = next((each for each in per_layer if each != per_layer[0]), per_layer[0])
    return type(per_layer)([*kinds, other][:NUM_LAYERS])

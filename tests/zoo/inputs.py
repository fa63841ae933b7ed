"""Dummy inputs, from the signature of a model's forward pass and from its config.

Only shapes and dtypes matter, but for a few integers that say how many patches or frames there are.
"""

import inspect
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig

from tests.zoo.builder import sub_configs
from tests.zoo.rarities import BATCH, FRAMES, FRAMES_FIRST, GRID, OWN, TOKENS, data, ids

TEXT = (
    *("input_ids", "decoder_input_ids", "token_type_ids", "bbox", "inputs_embeds", "entity_ids"),
    *("entity_position_ids", "xpath_tags_seq", "xpath_subs_seq", "input_shape_ids"),
    *("input_pronunciation_ids", "qformer_input_ids", "langs", "protein_input_ids"),
)
IMAGE = (
    *("pixel_values", "image_grid_thw", "grid_thw", "image_sizes", "pixel_attention_mask", "image"),
    *("image_pixel_values", "spatial_shapes", "pixel_position_ids", "image_position_ids"),
    *(
        "aspect_ratio_ids",
        "aspect_ratio_mask",
        "target_sizes",
        "flattened_patches",
        "image_patches",
    ),
    *("high_res_pixel_values", "pixel_values_local", "num_local_patches", "visual_embeds"),
)
VIDEO = ("pixel_values_videos", "video_grid_thw", "video_position_ids", "image_sizes_videos")
AUDIO = (
    *(
        "input_features",
        "input_values",
        "input_features_mask",
        "audio_mel",
        "audio_mel_mask",
        "is_longer",
    ),
    *("audio_input_features", "feature_attention_mask", "audio_codes", "audio_input_ids"),
)
MODALITIES = {"text": TEXT, "image": IMAGE, "video": VIDEO, "audio": AUDIO}


def variants(model: nn.Module) -> list[dict[str, Any]]:
    """Return all inputs that a model takes, in the forms that they may have, likeliest first."""
    signature = inspect.signature(model.forward).parameters
    forms = {}
    for variant in _variants(model, signature):
        inputs = _Maker(model.config, signature, variant).inputs()
        forms.setdefault(str({n: getattr(v, "shape", v) for n, v in inputs.items()}), inputs)
    return list(forms.values())


def parts(inputs: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what is left of the inputs if there is only text, only images, and so on."""
    present = [m for m, names in MODALITIES.items() if any(n in inputs for n in names)]
    for modality in present if len(present) > 1 else []:
        others = {n for m in present if m != modality for n in MODALITIES[m]}
        yield modality, {n: v for n, v in inputs.items() if n not in others}
        if "text" not in (modality, *present[-1:]) and len(present) > 2:
            others -= {*TEXT}
            yield f"text, {modality}", {n: v for n, v in inputs.items() if n not in others}


def _variants(model: nn.Module, signature: Any) -> list[str]:
    """Return the forms that images may take, likeliest first."""
    name = type(model).__name__.lower()
    if any(n in signature for n in ("image_grid_thw", "grid_thw")):
        return ["patches"]
    if (
        getattr(model.config, "model_type", "") in FRAMES_FIRST
        or "video" in name
        or "vjepa" in name
        or "vivit" in name
        or "timesformer" in name
    ):
        return ["frames", "image", "patches"]
    return ["image", "frames", "patches", "sequence"]


class _Maker:
    """Makes what one model takes."""

    def __init__(self, config: PreTrainedConfig, signature: Any, variant: str) -> None:
        self.config, self.signature, self.variant = config, signature, variant
        self.text = _first(config, "text_config", "text_encoder", "thinker_config", "llm_config")
        self.vision = _first(config, "vision_config", "backbone_config", "vision_encoder_config")
        self.audio = _first(config, "audio_config", "audio_encoder", "speech_config", "encoder")

    def inputs(self) -> dict[str, Any]:
        made = {}
        for name, parameter in self.signature.items():
            is_required = parameter.default is inspect.Parameter.empty
            if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
                continue
            make = getattr(self, f"make_{name}", None)
            if make is not None and (is_required or name in _WANTED):
                made[name] = make()
        model_type = getattr(self.config, "model_type", "")
        if model_type in OWN:
            made |= OWN[model_type](self.config)
        features = made.get("input_features")
        wants_mask = "input_features_mask" in self.signature
        if features is not None and wants_mask and "input_features_mask" not in made:
            is_first = self.variant == "image" and model_type not in OWN
            frames = features.shape[-1] if is_first else features.shape[1]
            made["input_features_mask"] = torch.ones(BATCH, frames, dtype=torch.bool)
        if "use_cache" in self.signature:
            made["use_cache"] = False
        return {name: value for name, value in made.items() if value is not None}

    # text

    def make_input_ids(self) -> Tensor:
        return ids(BATCH, TOKENS)

    make_decoder_input_ids = make_token_type_ids = make_qformer_input_ids = make_input_ids
    make_input_shape_ids = make_input_pronunciation_ids = make_input_ids
    make_protein_input_ids = make_classes_input_ids = make_tasks_input_ids = make_input_ids
    make_task_inputs = make_input_ids

    def make_attention_mask(self) -> Tensor:
        return torch.ones(BATCH, TOKENS, dtype=torch.long)

    make_classes_attention_mask = make_tasks_attention_mask = make_attention_mask

    def make_bbox(self) -> Tensor:
        return ids(BATCH, TOKENS, 4)

    def make_inputs_embeds(self) -> Tensor:
        return data(BATCH, TOKENS, self.hidden_size(self.text))

    make_query_embeds = make_noise_embeds = make_inputs_embeds

    def hidden_size(self, config: PreTrainedConfig) -> int:
        return number(config, "hidden_size", "d_model", "n_embd", "dim", "embed_dim", default=768)

    # images

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

    def make_pixel_values(self) -> Tensor:
        height, width = self.image_size()
        if self.variant == "image":
            return data(BATCH, self.channels(), height, width)
        if self.variant == "frames":
            frames = number(self.vision, "num_frames", "frames_per_clip", default=FRAMES)
            return data(BATCH, frames, self.channels(), height, width)
        if self.variant == "patches":
            return self.make_hidden_states()
        patch = self.channels() * self.patch_size() ** 2
        return data(BATCH, GRID * GRID, patch)

    make_image_pixel_values = make_pixel_values
    make_prompt_pixel_values = make_prompt_masks = make_pixel_values

    def make_image(self) -> Tensor:
        return data(BATCH, 3, 224, 224)

    def make_hidden_states(self) -> Tensor:
        times = number(self.vision, "temporal_patch_size", default=1)
        return data(GRID * GRID, self.channels() * times * self.patch_size() ** 2)

    def make_grid_thw(self) -> Tensor:
        return torch.tensor([[1, GRID, GRID]])

    make_image_grid_thw = make_video_grid_thw = make_grid_thw

    def make_pixel_values_videos(self) -> Tensor:
        if "video_grid_thw" in self.signature:
            return self.make_hidden_states()
        frames = number(self.vision, "num_frames", "frames_per_clip", default=FRAMES)
        return data(BATCH, frames, self.channels(), *self.image_size())

    def make_image_sizes(self) -> Tensor:
        return torch.tensor([self.image_size()] * BATCH)

    make_target_sizes = make_image_sizes

    def make_mm_token_type_ids(self) -> Tensor:
        return torch.zeros(BATCH, TOKENS, dtype=torch.long)

    def make_bool_masked_pos(self) -> None:
        return None

    # sound

    def make_input_features(self) -> Tensor:
        bins = number(
            self.audio,
            *("num_mel_bins", "input_feat_per_channel", "n_mels", "feature_size", "input_size"),
            *("mel_bins", "input_dim", "num_mel_filters"),
            default=number(self.config, "num_mel_bins", "feature_size", default=80),
        )
        frames = 2 * number(self.audio, "max_source_positions", default=0) or 256
        if self.variant == "image":
            return data(BATCH, bins, min(frames, 3000))
        return data(BATCH, min(frames, 3000), bins)

    make_audio_mel = make_audio_input_features = make_input_features

    def make_input_values(self) -> Tensor:
        channels = number(self.config, "audio_channels", default=0)
        if self.variant in ("frames", "sequence") or channels:
            return data(BATCH, channels or 1, 16000)
        return data(BATCH, 16000)

    def make_audio_mel_mask(self) -> Tensor:
        return torch.zeros(BATCH, self.make_audio_mel().shape[1], dtype=torch.bool)

    def make_latents(self) -> Tensor:
        return data(BATCH, self.hidden_size(self.config), TOKENS)

    def make_audio_codes(self) -> Tensor:
        return ids(BATCH, number(self.config, "num_quantizers", "num_codebooks", default=8), TOKENS)

    # time series

    def make_past_values(self) -> Tensor:
        length = number(self.config, "context_length", "horizon_length", default=64)
        lags = value(self.config, "lags_sequence", default=None)
        if lags:
            length = number(self.config, "context_length", "prediction_length", default=24)
            return data(BATCH, length + max(lags))
        channels = number(self.config, "num_input_channels", default=1)
        return data(BATCH, length, channels)

    def make_past_time_features(self) -> Tensor:
        features = number(self.config, "num_time_features", default=0)
        return data(BATCH, self.make_past_values().shape[1], features)

    def make_past_observed_mask(self) -> Tensor:
        return torch.ones_like(self.make_past_values())

    def make_future_values(self) -> Tensor | None:
        length = number(self.config, "prediction_length", default=24)
        return data(BATCH, length) if value(self.config, "lags_sequence", default=None) else None

    def make_future_time_features(self) -> Tensor:
        length = number(self.config, "prediction_length", default=24)
        return data(BATCH, length, number(self.config, "num_time_features", default=0))

    # what few models take

    def make_inputs(self) -> Tensor:
        return data(BATCH, TOKENS, self.config.d_model)

    def make_spatial_shapes(self) -> Tensor:
        return torch.tensor([[GRID, GRID]] * BATCH)

    def make_pixel_attention_mask(self) -> Tensor:
        return torch.ones(BATCH, GRID * GRID, dtype=torch.long)

    def make_encoder_hidden_states(self) -> Tensor:
        return data(BATCH, TOKENS, number(self.config, "encoder_hidden_size", default=768))

    def make_classes_structure(self) -> Tensor:
        return torch.tensor([1] * BATCH)

    def make_merge_sizes(self) -> Tensor:
        return torch.tensor([1])

    make_image_merge_sizes = make_video_merge_sizes = make_merge_sizes

    def make_freq(self) -> list[int]:
        return [0] * BATCH

    def make_past_values_padding(self) -> Tensor:
        return torch.zeros(BATCH, self.make_past_values().shape[1])

    def make_visual_feats(self) -> Tensor:
        return data(BATCH, TOKENS, self.config.visual_feat_dim)

    def make_visual_pos(self) -> Tensor:
        return data(BATCH, TOKENS, self.config.visual_pos_dim)

    def make_visual_embeds(self) -> Tensor:
        return data(BATCH, TOKENS, self.config.visual_embedding_dim)

    def make_states(self) -> Tensor:
        return data(BATCH, TOKENS, self.config.state_dim)

    def make_actions(self) -> Tensor:
        return data(BATCH, TOKENS, self.config.act_dim)

    def make_rewards(self) -> Tensor:
        return data(BATCH, TOKENS, 1)

    make_returns_to_go = make_rewards

    def make_timesteps(self) -> Tensor:
        return ids(BATCH, TOKENS)

    def make_entity_ids(self) -> Tensor:
        return ids(BATCH, 3)

    def make_entity_position_ids(self) -> Tensor:
        return ids(BATCH, 3, 5)

    def make_xpath_tags_seq(self) -> Tensor:
        return ids(BATCH, TOKENS, self.config.max_depth)

    make_xpath_subs_seq = make_xpath_tags_seq

    def make_high_res_pixel_values(self) -> Tensor:
        return data(BATCH, 3, 1024, 1024)

    def make_action_embeds(self) -> Tensor:
        return data(BATCH, TOKENS, number(self.config, "max_action_dim", default=32))

    def make_context_hidden_states(self) -> Tensor:
        return data(BATCH, TOKENS, self.hidden_size(self.config))

    def make_structure_feats(self) -> None:
        return None

    def make_input_boxes(self) -> Tensor:
        return data(BATCH, 1, 4)

    def make_input_points(self) -> Tensor:
        return data(BATCH, 1, 1, 2)

    def make_input_labels(self) -> Tensor:
        return torch.ones(BATCH, 1, 1, dtype=torch.long)


_WANTED = {
    *("input_ids", "decoder_input_ids", "bbox", "pixel_values", "image_grid_thw", "image"),
    *(
        "pixel_values_videos",
        "video_grid_thw",
        "mm_token_type_ids",
        "input_features",
        "input_values",
    ),
    *("image_pixel_values", "future_values", "future_time_features", "audio_input_features"),
    *("spatial_shapes", "visual_feats", "visual_pos", "visual_embeds", "states", "actions"),
    *("rewards", "returns_to_go", "timesteps", "entity_ids", "entity_position_ids"),
    *("xpath_tags_seq", "xpath_subs_seq", "high_res_pixel_values", "input_points", "input_labels"),
    *("image_merge_sizes", "video_merge_sizes"),
}
"""Optional arguments that are given wherever there are any."""


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


def _first(config: PreTrainedConfig, *names: str) -> PreTrainedConfig:
    """Return the first config of one of these names inside a config, or the config itself."""
    for name in names:
        found = getattr(config, name, None)
        if isinstance(found, PreTrainedConfig):
            return found
    return config

"""Dummy inputs, from the signature of a model's forward pass and from its config.

Only shapes and dtypes matter, but for a few integers that say how many patches or frames there are.
"""

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from tests.zoo.rare_arguments import RareArguments
from tests.zoo.rarities import BATCH, FRAMES_FIRST, OWN

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


class _Maker(RareArguments):
    """Makes what one model takes."""

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

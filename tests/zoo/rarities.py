"""Inputs of models that take something of their own, by type."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

BATCH, TOKENS, FRAMES, GRID = 2, 16, 4, 8
FRAMES_FIRST = ("efficientloftr", "superglue", "lightglue", "idefics2", "idefics3", "smolvlm")


def data(*shape: int) -> Tensor:
    """Return numbers without values."""
    return torch.empty(shape, device="meta")


def ids(*shape: int) -> Tensor:
    """Return tokens, all of them the same."""
    return torch.ones(shape, dtype=torch.long)


def _codes(config: Any, books: int) -> dict[str, Any]:
    return {"input_ids": ids(BATCH, TOKENS, books), "input_values": None}


def _spectrogram(frames: int, bins: int) -> Callable[[Any], dict[str, Any]]:
    return lambda config: {"input_values": data(BATCH, frames, bins)}


def _longformer(config: Any) -> dict[str, Any]:
    window = config.attention_window
    window = window if isinstance(window, int) else max(window)
    return {
        "input_ids": ids(BATCH, 2 * window),
        "attention_mask": ids(BATCH, 2 * window),
        "global_attention_mask": (torch.arange(2 * window) < 2).long().repeat(BATCH, 1),
    }


def _musicgen(config: Any) -> dict[str, Any]:
    books = getattr(config, "decoder", config).num_codebooks
    return {"input_ids": ids(BATCH * books, TOKENS)}


OWN: dict[str, Callable[[Any], dict[str, Any]]] = {
    "csm": lambda c: _codes(c, c.num_codebooks),
    "moshi": lambda c: {"input_ids": ids(BATCH, TOKENS)},
    "kyutai_speech_to_text": lambda c: _codes(c, c.num_codebooks + 1),
    "dia": lambda c: {
        "decoder_input_ids": ids(BATCH, TOKENS, c.decoder_config.num_channels),
    },
    "audio-spectrogram-transformer": _spectrogram(1024, 128),
    "clap": lambda c: {
        "input_features": data(BATCH, 1, 1001, 64),
        "is_longer": torch.zeros(BATCH, 1, dtype=torch.bool),
        "attention_mask": ids(BATCH, TOKENS),
    },
    "clap_audio_model": lambda c: {
        "input_features": data(BATCH, 1, 1001, 64),
        "is_longer": torch.zeros(BATCH, 1, dtype=torch.bool),
    },
    "longformer": _longformer,
    "led": _longformer,
    "musicgen": _musicgen,
    "musicgen_decoder": _musicgen,
    "musicgen_melody": _musicgen,
    "musicgen_melody_decoder": _musicgen,
    "depth_pro": lambda c: {"pixel_values": data(BATCH, 3, 1536, 1536)},
    "seggpt": lambda c: {
        name: data(BATCH, 3, 448, 448)
        for name in ("pixel_values", "prompt_pixel_values", "prompt_masks")
    },
    "siglip2": lambda c: {
        "pixel_values": data(BATCH, GRID * GRID, 768),
        "pixel_attention_mask": ids(BATCH, GRID * GRID),
    },
    "siglip2_vision_model": lambda c: {"pixel_values": data(BATCH, GRID * GRID, 768)},
    "lfm2_vl": lambda c: {
        "pixel_values": data(BATCH, GRID * GRID, 768),
        "pixel_attention_mask": ids(BATCH, GRID * GRID),
    },
    "timesfm2_5": lambda c: {
        "past_values": data(BATCH, 512),
        "past_values_padding": torch.zeros(BATCH, 512).long(),
    },
    "timesfm": lambda c: {
        "past_values": data(BATCH, 512),
        "past_values_padding": torch.zeros(BATCH, 512).long(),
        "freq": torch.zeros(BATCH, 1).long(),
    },
    "wav2vec2-bert": lambda c: {"input_features": data(BATCH, 64, 160)},
    "speecht5": lambda c: {
        "input_values": data(BATCH, TOKENS, c.hidden_size),
        "decoder_input_values": data(BATCH, TOKENS, c.hidden_size),
    },
    **dict.fromkeys(
        ("granite_speech5_ctc", "granite_speech5_encoder"),
        lambda c: {"input_features": data(BATCH, 64, 320)},
    ),
    "granite_speech": lambda c: {"input_features": data(BATCH, 64, 160)},
    **dict.fromkeys(
        ("kimi_k25", "kimi_k25_vision"),
        lambda c: {"pixel_values": data(GRID * GRID, 3, 14, 14)},
    ),
    **dict.fromkeys(
        ("muse_spark_vision", "muse_glimmer_vision"),
        lambda c: {"pixel_values": data(GRID * GRID, 1176)},
    ),
    **dict.fromkeys(
        ("muse_spark", "muse_glimmer"),
        lambda c: {
            "pixel_values": data(GRID * GRID, 1176),
            "pixel_values_videos": data(GRID * GRID, 1176),
        },
    ),
    **dict.fromkeys(
        ("llava_next", "llava_next_video", "granite4_vision"),
        lambda c: {
            "pixel_values": data(BATCH, 5, 3, *[c.vision_config.image_size] * 2),
            "image_sizes": torch.tensor([[c.vision_config.image_size] * 2] * BATCH),
        },
    ),
    "llava_onevision": lambda c: {
        "pixel_values": data(BATCH, 5, 3, *[c.vision_config.image_size] * 2),
        "image_sizes": torch.tensor([[c.vision_config.image_size] * 2] * BATCH),
        "batch_num_images": torch.ones(BATCH).long(),
    },
    "mllama": lambda c: {
        "pixel_values": data(BATCH, 1, 4, 3, *[c.vision_config.image_size] * 2),
        "aspect_ratio_ids": ids(BATCH, 1),
        "aspect_ratio_mask": ids(BATCH, 1, 4),
        "cross_attention_mask": ids(BATCH, TOKENS, 1, 4),
    },
    "mllama_vision_model": lambda c: {
        "pixel_values": data(BATCH, 1, 4, 3, c.image_size, c.image_size),
        "aspect_ratio_ids": ids(BATCH, 1),
        "aspect_ratio_mask": ids(BATCH, 1, 4),
    },
    **dict.fromkeys(
        ("lightglue", "superglue"), lambda c: {"pixel_values": data(BATCH, 2, 3, 480, 640)}
    ),
    "tvp": lambda c: {
        "pixel_values": data(1, c.num_frames, 3, 448, 448),
        "input_ids": ids(1, TOKENS),
        "attention_mask": ids(1, TOKENS),
    },
    "qwen2_audio": lambda c: {
        "attention_mask": ids(BATCH, TOKENS),
        "feature_attention_mask": ids(BATCH, 3000),
    },
    **dict.fromkeys(
        ("qwen2_5_omni_thinker", "qwen3_omni_moe_thinker"),
        lambda c: {
            "feature_attention_mask": ids(BATCH, 256),
            "input_features": data(BATCH, 128, 256),
        },
    ),
    "oneformer": lambda c: {"task_inputs": data(BATCH, 77)},
    **dict.fromkeys(
        ("qwen3_asr", "qwen3_asr_encoder"),
        lambda c: {
            "input_features": data(BATCH, 128, 200),
            "input_features_mask": torch.ones(BATCH, 200, dtype=torch.bool),
        },
    ),
    "gemma4_vision": lambda c: {
        "pixel_values": data(BATCH, 36, 3 * c.patch_size**2),
        "pixel_position_ids": ids(BATCH, 36, 2),
    },
    **dict.fromkeys(
        ("minicpm_ocr_vision", "minicpmv4_6_vision", "minicpmv4_7_vision"),
        lambda c: {
            "pixel_values": data(1, 3, 16, GRID * GRID * 16),
            "target_sizes": torch.tensor([[GRID, GRID]]),
        },
    ),
    "muse_glimmer_assistant": lambda c: {
        "noise_embeds": data(BATCH, TOKENS, c.hidden_size),
        "context_hidden_states": data(BATCH, TOKENS, 2 * c.hidden_size),
    },
    "vibevoice_acoustic_tokenizer_encoder": lambda c: {"hidden_states": data(BATCH, 1, 16000)},
    "vibevoice_acoustic_tokenizer_decoder": lambda c: {
        "hidden_states": data(BATCH, c.hidden_size, TOKENS)
    },
    "gemma4_audio": lambda c: {"input_features": data(BATCH, 64, 128)},
    "voxtral_realtime": lambda c: {"input_ids": ids(BATCH, 2 * TOKENS)},
    **dict.fromkeys(
        ("neucodec", "xcodec2"),
        lambda c: {
            "input_values": data(BATCH, 1, 16000),
            "input_features": data(BATCH, 50, 160),
        },
    ),
    "aria": lambda c: {"pixel_values": data(BATCH, 3, 490, 490)},
    "blt": lambda c: {"input_ids": ids(1, TOKENS)},
    "instructblipvideo": lambda c: {"pixel_values": data(BATCH, FRAMES, 3, 224, 224)},
    "fun_asr_nano": lambda c: {"input_features": data(BATCH, 64, 560)},
    "fun_asr_nano_encoder": lambda c: {"input_features": data(BATCH, 64, 560)},
    "seamless_m4t": lambda c: {"input_features": data(BATCH, 64, 160)},
    "seamless_m4t_v2": lambda c: {"input_features": data(BATCH, 64, 160)},
    "kosmos-2": lambda c: {"image_embeds_position_mask": torch.zeros(BATCH, TOKENS).long()},
    "idefics": lambda c: {
        "pixel_values": data(BATCH, 1, 3, 224, 224),
        "image_attention_mask": ids(BATCH, TOKENS, 1),
    },
    "mistral3": lambda c: {"image_sizes": torch.tensor([[112, 112]] * BATCH)},
    "pixtral": lambda c: {"image_sizes": torch.tensor([[112, 112]] * BATCH)},
    "blip_2_qformer": lambda c: {"encoder_hidden_states": data(BATCH, TOKENS, 1408)},
    "paddleocr_vl": lambda c: {"pixel_values": data(GRID * GRID, 3, 14, 14)},
    "inkling_mm_model": lambda c: {"pixel_values": None},
    "rf_detr": lambda c: {"pixel_values": data(BATCH, 3, 512, 512)},
    "muse_spark_audio": lambda c: {"input_values": data(BATCH, 48 * 480)},
    "efficientloftr": lambda c: {"pixel_values": data(BATCH, 2, 3, 480, 640)},
    "gemma3n_audio": lambda c: {
        "audio_mel": data(BATCH, 64, 128),
        "audio_mel_mask": torch.zeros(BATCH, 64, dtype=torch.bool),
    },
    "emu3": lambda c: {"image_sizes": torch.tensor([[512, 512]] * BATCH)},
    "uvdoc": lambda c: {"pixel_values": data(BATCH, 3, 712, 488)},
    "omdet-turbo": lambda c: {
        "pixel_values": data(1, 3, 640, 640),
        "classes_input_ids": ids(1, TOKENS),
        "classes_attention_mask": ids(1, TOKENS),
        "tasks_input_ids": ids(1, TOKENS),
        "tasks_attention_mask": ids(1, TOKENS),
        "classes_structure": torch.tensor([1]),
    },
}
"""From a model's type to inputs that replace what is made from its signature."""

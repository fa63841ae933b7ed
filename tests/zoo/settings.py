"""What configs refuse to be built without, and backbones that need no package beyond torch."""

from typing import Any

from transformers import CONFIG_MAPPING

DEEP = (
    "lw_detr",
    "rf_detr",
    "depth_pro",
    "hrm_text",
    "uvdoc",
    "gemma3n_audio",
    "deepseek_vl_hybrid",
    "zamba",
    "zamba2",
    "vipllava",
    "sam2_hiera_det_model",
    "sam2_vision_model",
    "sam2",
)
"""Types whose config names layers by number, so that fewer would not do."""
_SERIES = {"prediction_length": 24, "num_time_features": 2, "distribution_output": "student_t"}
_INDEXER = {
    "indexer_budget": 8,
    "indexer_compress_ratio": 4,
    "indexer_head_dim": 256,
    "indexer_n_heads": 4,
    "indexer_kv_heads": 1,
}
_MROPE = {
    "rope_type": "default",
    "rope_theta": 10000.0,
    "partial_rotary_factor": 0.5,
    "mrope_section": [8, 12, 12],
}
_XDROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [16, 16, 16, 16]}
_GLM_TEXT = ("glm4v_text", "glm4v_moe_text", "glm_image_text", "glm_ocr_text")
_GLM = ("glm4v", "glm4v_moe", "glm46v", "glm_image", "glmga", "glm_ocr")
_SHUFFLED = ("idefics3", "smolvlm", "modernvbert", "ultravbert")
_ROPE = {
    name: {"rope_type": "default", "rope_theta": 10000.0}
    for name in ("full_attention", "sliding_attention")
}
_OPTIONS: dict[str, dict[str, Any]] = {
    "autoformer": _SERIES,
    "informer": _SERIES,
    "time_series_transformer": _SERIES,
    "reformer": {"is_decoder": True},
    "aya_vision": {"vision_config": {"model_type": "siglip_vision_model"}},
    "chameleon": {"vocabulary_map": {"<image>": 4} | {f"IMGIMG{i}": 5 + i for i in range(4)}},
    "emu3": {
        "vocabulary_map": {"<image>": 4, "<|extra_200|>": 5}
        | {f"<|visual token {i:06d}|>": 6 + i for i in range(4)}
    },
    **{name: {"rope_parameters": _MROPE, "head_dim": 128} for name in _GLM_TEXT},
    **{name: {"text_config": {"rope_parameters": _MROPE, "head_dim": 128}} for name in _GLM},
    **{name: {"vision_config": {"image_size": 256}} for name in _SHUFFLED},
    **{name: {"image_token_index": 5} for name in ("blip-2", "instructblip")},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"] * 16},
    "hunyuan_vl_text": {"rope_parameters": _XDROPE, "head_dim": 128},
    "hunyuan_vl": {"text_config": {"rope_parameters": _XDROPE, "head_dim": 128}},
    "dbrx": {"attn_config": {"clip_qkv": 8.0}},
    "step3p7": {"text_config": {"sliding_window": 64}},
    "zamba2": {
        "num_hidden_layers": 12,
        "layers_block_type": [*["mamba"] * 5, "hybrid", *["mamba"] * 5, "hybrid"],
    },
    **{name: {"vision_config": {"image_size": 896}} for name in ("gemma3", "aria")},
    "deepseek_v2": {"num_experts_per_tok": 2},
    "instructblipvideo": {"video_token_index": 5},
    "xmod": {"default_language": "en_XX"},
    "zamba": {"num_hidden_layers": 12},
    "dots1": {"n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 16},
    "granite4_vision": {
        "deepstack_layer_map": [(-1, 0), (-2, 1)],
        "downsample_rate": "4/8",
    },
    "cohere_compass_text": {"rope_parameters": _ROPE},
    "cohere_compass": {"text_config": {"rope_parameters": _ROPE}},
    "qwen4_exp_text": _INDEXER,
    "qwen4_exp": {"text_config": _INDEXER},
    "diffusion_gemma": {
        "text_config": {"num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 64}
    },
    "deepseek_ocr2": {
        "text_config": {"mlp_layer_types": ["dense", "sparse"] * 6, "num_experts_per_tok": 2}
    },
    "gemma4_assistant": {
        "text_config": {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0}
    },
    **{name: {"vision_config": {"model_type": "clip_vision_model"}} for name in ("fast_vlm",)},
}
_RESNET = ("conditional_detr", "dab-detr", "deformable_detr", "detr", "table-transformer")


def options_of(model_type: str) -> dict[str, Any]:
    """Return the options that a config of this type is made with."""
    if model_type in _RESNET:
        return _without_timm("resnet")
    if model_type == "omdet-turbo":
        return _without_timm("swin")
    return _OPTIONS.get(model_type, {})


def _without_timm(backbone: str) -> dict[str, Any]:
    out = {"out_features": ["stage2", "stage3", "stage4"]} if backbone == "swin" else {}
    return {
        "backbone": None,
        "use_timm_backbone": False,
        "backbone_config": CONFIG_MAPPING[backbone](**out),
    }

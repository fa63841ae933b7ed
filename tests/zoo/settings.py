"""What configs refuse to be built without, and backbones that need no package beyond torch."""

from typing import Any

from transformers import CONFIG_MAPPING

_SERIES = {"prediction_length": 24, "num_time_features": 2}
_RESNET = ("conditional_detr", "dab-detr", "deformable_detr", "detr", "table-transformer")


def options_of(model_type: str) -> dict[str, Any]:
    """Return the options that a config of this type is made with."""
    if model_type in ("autoformer", "informer", "time_series_transformer"):
        return _SERIES
    if model_type in _RESNET:
        return _without_timm("resnet")
    if model_type == "omdet-turbo":
        return _without_timm("swin")
    if model_type == "reformer":
        return {"is_decoder": True}
    return {}


def _without_timm(backbone: str) -> dict[str, Any]:
    out = {"out_features": ["stage2", "stage3", "stage4"]} if backbone == "swin" else {}
    return {
        "backbone": None,
        "use_timm_backbone": False,
        "backbone_config": CONFIG_MAPPING[backbone](**out),
    }

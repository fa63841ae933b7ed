"""Layouts of transformers modules that hold parameters of their own.

`nero.layout.observation` infers the same layouts from an example.
"""

from torch import nn

from nero.core.neurons import BIAS, GAIN, OTHER, Layout, neurons
from nero.layout.modules import ModuleKey, Rules


def _experts_in_rows(module: nn.Module) -> Layout:
    return neurons(1, num_groups=module.moe_num_experts)  # type: ignore[arg-type]


_EMBEDDING_4D = Layout("embedding", (0, 1, 2))  # (1, height, width, features)
_POSITIONS: Rules = {"pos_embed": _EMBEDDING_4D}
_COORDINATES: Rules = {"positional_embedding": neurons(1)}  # (coordinate, features), a linear layer

_MODELS: dict[str, Rules] = {
    "llama4.modeling_llama4.Llama4TextExperts": {"*_proj": neurons(0, 2)},  # (expert, in, out)
    "recurrent_gemma.modeling_recurrent_gemma.RecurrentGemmaRglru": {  # (head, in, out)
        "*_gate_weight": neurons(0, 2),
        "*_gate_bias": BIAS,
        "recurrent_param": OTHER,
    },
    "csm.modeling_csm.CsmCodebooksHead": {"weight": neurons(0, 2)},  # (codebook, in, out)
    # (in, out)
    "gemma3.modeling_gemma3.Gemma3MultiModalProjector": {"mm_input_projection_weight": neurons(1)},
    # (in, head, out), except o: (out, head, in)
    "xlnet.modeling_xlnet.XLNetRelativeAttention": {
        "[qkvr]": neurons(1, 2),
        "o": neurons(0),
        "r_?_bias": BIAS,
        "seg_embed": neurons(0, 1),
    },
    "funnel.modeling_funnel.FunnelRelMultiheadAttention": {  # (in, head, out)
        "r_kernel": neurons(1, 2),
        "r_?_bias": BIAS,
        "seg_embed": neurons(0, 1),
    },
    "swiftformer.modeling_swiftformer.SwiftFormerEfficientAdditiveAttention": {
        "w_g": neurons(1)  # (in, 1)
    },
    "inkling.modeling_inkling.InklingRelativeLogits": {"proj": neurons(1)},  # (in, distance)
    "sam.modeling_sam.SamVisionEncoder": _POSITIONS,
    "sam_hq.modeling_sam_hq.SamHQVisionEncoder": _POSITIONS,
    "got_ocr2.modeling_got_ocr2.GotOcr2VisionEncoder": _POSITIONS,
    "deepseek_ocr2.modeling_deepseek_ocr2.DeepseekOcr2SamVisionEncoder": _POSITIONS,
    "unlimited_ocr.modeling_unlimited_ocr.UnlimitedOcrSamVisionEncoder": _POSITIONS,
    "sam.modeling_sam.SamPositionalEmbedding": _COORDINATES,
    "sam_hq.modeling_sam_hq.SamHQPositionalEmbedding": _COORDINATES,
    "yolos.modeling_yolos.InterpolateMidPositionEmbeddings": {
        "mid_position_embeddings": _EMBEDDING_4D  # (layer, 1, position, features)
    },
    "x_clip.modeling_x_clip.XCLIPModel": {"prompts_visual_projection": neurons(1)},  # (in, out)
    # A term of logits
    "glm5_next.modeling_glm5_next.Glm5NextTextIndexer": {"index_kpool_compress_ape": BIAS},
    # (1, features, height, width)
    "sam2.modeling_sam2.Sam2HieraDetModel": {"pos_embed*": Layout("embedding", (0, 2, 3))},
    # (1, frame, channel, height, width): pixels around each frame
    "tvp.modeling_tvp.TvpFramePadPrompter": {"pad_*": Layout("embedding", (0, 1))},
    "zamba.modeling_zamba.ZambaMambaMixer": {"D": GAIN, "A_log": OTHER},  # (head, features)
    # (expert * in, out) for w2, (expert * out, in) for the others
    "dbrx.modeling_dbrx.DbrxExpertGLU": {
        "w2": _experts_in_rows,
        "w1": neurons(0),
        "v1": neurons(0),
    },
}

# Norms that scale by 1 + weight: they are neutral at 0, so gain_penalty does not apply.
_RMS_NORMS = (
    "gemma.modeling_gemma.Gemma",
    "gemma2.modeling_gemma2.Gemma2",
    "gemma3.modeling_gemma3.Gemma3",
    "recurrent_gemma.modeling_recurrent_gemma.RecurrentGemma",
    "t5gemma.modeling_t5gemma.T5Gemma",
    "t5gemma2.modeling_t5gemma2.T5Gemma2",
    "vaultgemma.modeling_vaultgemma.VaultGemma",
    "qwen3_next.modeling_qwen3_next.Qwen3Next",
    "qwen3_5.modeling_qwen3_5.Qwen3_5",
    "qwen3_5_moe.modeling_qwen3_5_moe.Qwen3_5Moe",
)
_LAYER_NORMS = (
    "nemotron.modeling_nemotron.NemotronLayerNorm1P",
    "videoprism.modeling_videoprism.VideoPrismLayerNorm",
)
_MODELS |= {f"{name}RMSNorm": {"weight": OTHER} for name in _RMS_NORMS}
_MODELS |= {name: {"weight": OTHER, "bias": BIAS} for name in _LAYER_NORMS}

HUGGING_FACE: dict[ModuleKey, Rules] = {
    # A Linear that stores (in, out), as in GPT-2
    "transformers.pytorch_utils.Conv1D": {"weight": neurons(1), "bias": BIAS},
    **{f"transformers.models.{name}": rules for name, rules in _MODELS.items()},
}

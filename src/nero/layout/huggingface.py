"""The layouts of modules in Hugging Face's transformers that hold parameters of their own.

Each is what a forward pass shows; `nero.layout.observation` finds them too, given an example.
"""

from torch import nn

from nero.core.neurons import BIAS, GAIN, OTHER, Layout, neurons
from nero.layout.registry import register_layout

_MODELS = "transformers.models"
_EMBEDDING_4D = Layout("embedding", (0, 1, 2))  # (1, height, width, features)

# A Linear that stores (in, out), as GPT-2 has it.
register_layout("transformers.pytorch_utils.Conv1D", {"weight": neurons(1), "bias": BIAS})

register_layout(  # (expert, in, out)
    f"{_MODELS}.llama4.modeling_llama4.Llama4TextExperts", {"*_proj": neurons(0, 2)}
)
register_layout(  # (head, in, out)
    f"{_MODELS}.recurrent_gemma.modeling_recurrent_gemma.RecurrentGemmaRglru",
    {"*_gate_weight": neurons(0, 2), "*_gate_bias": BIAS, "recurrent_param": OTHER},
)
register_layout(  # (codebook, in, out)
    f"{_MODELS}.csm.modeling_csm.CsmCodebooksHead", {"weight": neurons(0, 2)}
)
register_layout(  # (in, out)
    f"{_MODELS}.gemma3.modeling_gemma3.Gemma3MultiModalProjector",
    {"mm_input_projection_weight": neurons(1)},
)
register_layout(  # (in, head, out), but for o: (out, head, in)
    f"{_MODELS}.xlnet.modeling_xlnet.XLNetRelativeAttention",
    {"[qkvr]": neurons(1, 2), "o": neurons(0), "r_?_bias": BIAS, "seg_embed": neurons(0, 1)},
)
register_layout(  # (in, head, out)
    f"{_MODELS}.funnel.modeling_funnel.FunnelRelMultiheadAttention",
    {"r_kernel": neurons(1, 2), "r_?_bias": BIAS, "seg_embed": neurons(0, 1)},
)
register_layout(  # (in, 1)
    f"{_MODELS}.swiftformer.modeling_swiftformer.SwiftFormerEfficientAdditiveAttention",
    {"w_g": neurons(1)},
)
register_layout(  # (in, distance)
    f"{_MODELS}.inkling.modeling_inkling.InklingRelativeLogits", {"proj": neurons(1)}
)
for _vision in (
    "sam.modeling_sam.Sam",
    "sam_hq.modeling_sam_hq.SamHQ",
    "got_ocr2.modeling_got_ocr2.GotOcr2",
    "deepseek_ocr2.modeling_deepseek_ocr2.DeepseekOcr2Sam",
    "unlimited_ocr.modeling_unlimited_ocr.UnlimitedOcrSam",
):
    register_layout(f"{_MODELS}.{_vision}VisionEncoder", {"pos_embed": _EMBEDDING_4D})
for _prompt in ("sam.modeling_sam.Sam", "sam_hq.modeling_sam_hq.SamHQ"):
    register_layout(  # (coordinate, features), by which coordinates are multiplied
        f"{_MODELS}.{_prompt}PositionalEmbedding", {"positional_embedding": neurons(1)}
    )
register_layout(  # (layer, 1, position, features)
    f"{_MODELS}.yolos.modeling_yolos.InterpolateMidPositionEmbeddings",
    {"mid_position_embeddings": _EMBEDDING_4D},
)
register_layout(  # (in, out)
    f"{_MODELS}.x_clip.modeling_x_clip.XCLIPModel", {"prompts_visual_projection": neurons(1)}
)
register_layout(  # a term of logits
    f"{_MODELS}.glm5_next.modeling_glm5_next.Glm5NextTextIndexer",
    {"index_kpool_compress_ape": BIAS},
)
register_layout(  # (1, features, height, width)
    f"{_MODELS}.sam2.modeling_sam2.Sam2HieraDetModel",
    {"pos_embed*": Layout("embedding", (0, 2, 3))},
)
register_layout(  # (1, frame, channel, height, width), pixels around each frame
    f"{_MODELS}.tvp.modeling_tvp.TvpFramePadPrompter", {"pad_*": Layout("embedding", (0, 1))}
)
register_layout(  # (head, features)
    f"{_MODELS}.zamba.modeling_zamba.ZambaMambaMixer", {"D": GAIN, "A_log": OTHER}
)


def _experts_in_rows(module: nn.Module) -> Layout:
    return neurons(1, num_groups=module.moe_num_experts)  # type: ignore[arg-type]


register_layout(  # (expert * in, out) for w2, the others (expert * out, in)
    f"{_MODELS}.dbrx.modeling_dbrx.DbrxExpertGLU",
    {"w2": _experts_in_rows, "w1": neurons(0), "v1": neurons(0)},
)

# Norms that scale by 1 + weight: their neutral value is 0, so gain_penalty leaves them alone.
for _norm in (
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
):
    register_layout(f"{_MODELS}.{_norm}RMSNorm", {"weight": OTHER})
for _norm in (
    "nemotron.modeling_nemotron.NemotronLayerNorm1P",
    "videoprism.modeling_videoprism.VideoPrismLayerNorm",
):
    register_layout(f"{_MODELS}.{_norm}", {"weight": OTHER, "bias": BIAS})

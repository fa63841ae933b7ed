"""Where registry and observation differ, and neither is wrong or the registry is preferable: reviewed."""

from typing import NamedTuple


class Excepted(NamedTuple):
    """Parameters that may differ."""

    owner: str
    """The class of the module that holds them; ``*`` matches."""
    name: str
    """Their names in the model, which end so."""
    reason: str


_TABLE = "a row of biases per expert or head: only its name tells it from a table of vectors"
_ONE_ROW = "an Embedding of one row that is added to all tokens: as a term it looks like a bias"
_ANCHORS = (
    "anchor boxes in an Embedding, four numbers each: rows by its class, single numbers by use"
)

EXCEPTIONS = (
    Excepted("GptOssExperts", "_proj_bias", _TABLE),
    Excepted("ZambaMambaMixer", "dt_proj_bias", _TABLE),
    Excepted(
        "DbrxExpertGLU", ".w2", "rows of all experts in one dim: a pass sees one expert at a time"
    ),
    Excepted(
        "DiffusionGemmaRMSNorm",
        "weight",
        "a gain of constant zeros in this pass, which looks like a vector that is multiplied",
    ),
    Excepted("Embedding", ".point_embed.?.weight", _ONE_ROW),
    Excepted("Embedding", "no_mask_embed.weight", _ONE_ROW),
    Excepted("Embedding", "reference_point*.weight", _ANCHORS),
    Excepted("Embedding", "query_refpoint_embeddings.weight", _ANCHORS),
    Excepted(
        "Linear",
        "predictions.dense.weight",
        "MobileBERT multiplies by this weight untransposed; with an example a warning says so",
    ),
    Excepted(
        "Linear",
        "embedding_projection.weight",
        "used both ways, before the layers and transposed behind them",
    ),
    Excepted(
        "Linear",
        "rel_pos*_bias.weight",
        "a Linear used as a table of biases; with an example it is taken as one",
    ),
    Excepted(
        "Ovis2VisualEmbeddingTable",
        "weight",
        "a soft look-up: rows are mixed, not summed over by neurons",
    ),
    Excepted("VitsAttention", "emb_rel_v", "a soft look-up of vectors by attention weights"),
    Excepted(
        "RoFormerSinusoidalPositionalEmbedding",
        "weight",
        "sines in an Embedding, never trained, by which queries and keys are rotated",
    ),
)

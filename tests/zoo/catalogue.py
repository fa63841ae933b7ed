"""Which models there are: kinds, types and classes of the installed transformers, in two halves."""

from typing import NamedTuple

from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import model_type_to_module_name

KINDS = {
    "base": "MODEL_MAPPING_NAMES",
    "causal": "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "masked": "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "seq2seq": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "sequence": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
    "image": "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    "detection": "MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES",
    "segmentation": "MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING_NAMES",
    "speech": "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
    "ctc": "MODEL_FOR_CTC_MAPPING_NAMES",
}
"""For every kind of head the mapping of transformers that lists its classes."""
HALVES = ("first", "second")


class Entry(NamedTuple):
    """One model of the zoo."""

    kind: str
    type: str
    cls: str

    @property
    def half(self) -> str:
        """The half that its family is in; observation was tuned on the first alone."""
        return HALVES[_FAMILIES.index(model_type_to_module_name(self.type)) % 2]


def entries(kind: str) -> list[Entry]:
    """Return all models of a kind, by type."""
    names = getattr(modeling_auto, KINDS[kind])
    first = {t: cls if isinstance(cls, str) else cls[0] for t, cls in names.items()}
    return [Entry(kind, t, cls) for t, cls in sorted(first.items())]


_FAMILIES = sorted({model_type_to_module_name(t) for t in modeling_auto.MODEL_MAPPING_NAMES})
_FAMILIES += sorted(
    {model_type_to_module_name(e.type) for kind in KINDS for e in entries(kind)} - {*_FAMILIES}
)

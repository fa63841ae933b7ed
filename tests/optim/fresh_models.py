"""Fresh models: networks of torch's layers under many initializations, and tiny Hugging Face models."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(500, 64, padding_idx=0)
        self.cells = kind(64, 96, num_layers=2)
        self.head = nn.Linear(96, 500)


def mlp() -> nn.Module:
    return nn.Sequential(*[nn.Linear(n, m) for n, m in [(784, 300), (300, 300), (300, 10)]])


def deep_mlp() -> nn.Module:
    return nn.Sequential(*[nn.Linear(100, 100) for _ in range(100)])


def cnn() -> nn.Module:
    widths = [3, 32, 64, 128, 128]
    blocks = [
        nn.Sequential(nn.Conv2d(n, m, 3), nn.BatchNorm2d(m), nn.ReLU())
        for n, m in itertools.pairwise(widths)
    ]
    return nn.Sequential(*blocks, nn.Flatten(), nn.Linear(512, 10))


def generator() -> nn.Module:
    """Transposed convolutions, one with groups, and a depthwise one."""
    layers = [nn.ConvTranspose2d(64, 64, 4), nn.ConvTranspose2d(64, 64, 4, groups=2)]
    return nn.Sequential(nn.Linear(100, 1024), *layers, nn.Conv2d(64, 64, 5, groups=64))


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True)
    return nn.ModuleDict(
        {"tokens": nn.Embedding(1000, 128), "body": nn.TransformerEncoder(layer, 3)}
    )


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "mlp": mlp,
    "deep mlp": deep_mlp,
    "cnn": cnn,
    "generator": generator,
    "transformer encoder": encoder,
    "transformer": lambda: nn.Transformer(64, 4, 2, 2, 256, batch_first=True),
    "lstm": lambda: Recurrent(nn.LSTM),
    "gru": lambda: Recurrent(nn.GRU),
}


def scaled_by_depth_(weight: Tensor) -> Tensor:
    return nn.init.normal_(weight, std=0.02 / weight.shape[0] ** 0.25)


INITS: dict[str, Callable[[Tensor], Any]] = {
    "xavier normal": nn.init.xavier_normal_,
    "xavier uniform": nn.init.xavier_uniform_,
    "kaiming normal": nn.init.kaiming_normal_,
    "kaiming uniform": nn.init.kaiming_uniform_,
    "kaiming normal, fan out": lambda w: nn.init.kaiming_normal_(w, mode="fan_out"),
    "orthogonal": nn.init.orthogonal_,
    "truncated normal 0.02": lambda w: nn.init.trunc_normal_(w, std=0.02),
    "truncated normal 1": nn.init.trunc_normal_,
    "normal 0.02": lambda w: nn.init.normal_(w, std=0.02),
    "normal 1": nn.init.normal_,
    "uniform 0.1": lambda w: nn.init.uniform_(w, -0.1, 0.1),
    "normal, by depth": scaled_by_depth_,
}

ODD_INITS: dict[str, Callable[[Tensor], Any]] = {
    "uniform from 0 to 1": nn.init.uniform_,
    "constant": lambda w: nn.init.constant_(w, 0.1),
    "signs": lambda w: w.bernoulli_().mul_(2).sub_(1),
    "Laplace": lambda w: w.copy_(torch.distributions.Laplace(0.0, 0.1).sample(w.shape)),
    "sparse": lambda w: w.normal_().mul_(torch.rand_like(w) < 0.1),
    "one in a hundred": lambda w: w.normal_().mul_(torch.rand_like(w) < 0.01),
    "identity": lambda w: w.zero_().flatten(1).fill_diagonal_(1.0),
    "identity and noise": lambda w: w.normal_(std=0.01).flatten(1).fill_diagonal_(1.0),
}


def initialized(network: str, init: Callable[[Tensor], Any] | None, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = NETWORKS[network]()
    with torch.no_grad():
        for param in model.parameters():
            if param.ndim > 1 and init is not None:
                init(param)
    return model


SMALL = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embed_dim", "hidden_dim"), 128),
    **dict.fromkeys(
        ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "encoder_layers"), 3
    ),
    **dict.fromkeys(("decoder_layers", "num_decoder_layers", "num_encoder_layers"), 3),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    "num_key_value_heads": 4,
    **dict.fromkeys(("intermediate_size", "d_ff", "encoder_ffn_dim", "decoder_ffn_dim"), 256),
    **dict.fromkeys(("n_inner", "ffn_dim", "word_embed_proj_dim", "embedding_size"), 128),
    **dict.fromkeys(("d_kv", "head_dim"), 32),
    "vocab_size": 2000,
    **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"), 0),
}
"""What makes a Hugging Face model tiny, wherever its config has an option of that name."""


def hugging_face(model_type: str, *, kept: tuple[str, ...] = (), seed: int = 0) -> nn.Module:
    """Build a tiny model of this type; options in ``kept`` stay at their defaults."""
    from transformers import AutoConfig, AutoModel

    defaults = AutoConfig.for_model(model_type).to_dict()
    small = {k: v for k, v in SMALL.items() if defaults.get(k) is not None and k not in kept}
    torch.manual_seed(seed)
    model: nn.Module = AutoModel.from_config(AutoConfig.for_model(model_type, **small))
    return model


QUICK_TYPES = ("bert", "gpt2", "llama", "t5", "vit", "whisper", "mamba", "opt")


def quick() -> Iterator[tuple[str, Callable[[], nn.Module]]]:
    """Yield the names and builders of a sample: every network, every initialization once, some types."""
    for network in NETWORKS:
        yield network, lambda network=network: initialized(network, None, seed=0)
    for index, (name, init) in enumerate(INITS.items()):
        network = [*NETWORKS][index % len(NETWORKS)]
        yield f"{network}, {name}", lambda n=network, i=init: initialized(n, i, seed=1)
    for model_type in QUICK_TYPES:
        yield model_type, lambda model_type=model_type: hugging_face(model_type)

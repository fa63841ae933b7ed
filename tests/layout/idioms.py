"""The ways in which people write networks: a small model of each, and what its parameters are.

Widths are 16, so that rows of norm sqrt(dim) have norm 4; all other sizes differ, so that counts tell dims.
"""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations

WIDTH, HEADS, LENGTH, BATCH = 16, 4, 9, 3


class Want(NamedTuple):
    """What a parameter is under ``preset="rows"``."""

    role: str
    num_neurons: int
    constraint: str


def layer(num_neurons: int) -> Want:
    return Want("neuron", num_neurons, "mean 0, norm 1")


def table(num_neurons: int, width: int = WIDTH) -> Want:
    return Want("embedding", num_neurons, f"mean 0, norm {math.sqrt(width):g}")


def alone(role: str, numel: int) -> Want:
    return Want(role, numel, "none")


class Idiom(NamedTuple):
    """A model, what it is called with, and what its parameters are."""

    model: Callable[[], nn.Module]
    example: Any
    wanted: Mapping[str, Want]
    guessed: tuple[str, ...] = ()
    """What a warning names if there is no example."""
    without: Mapping[str, Want] = MappingProxyType({})
    """What is taken for something else if there is no example."""


def param(*shape: int, std: float = 0.02) -> nn.Parameter:
    return nn.Parameter(torch.randn(shape) * std)


def features(*shape: int) -> Tensor:
    return torch.randn(shape)


X = features(BATCH, LENGTH, WIDTH)
IDS = torch.randint(0, 50, (BATCH, LENGTH))


class Named(nn.Module):
    """A model whose parts are given by name, and whose pass is one function."""

    def __init__(self, forward: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.function = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


def encoder(*, norm_first: bool) -> nn.Module:
    return nn.TransformerEncoderLayer(
        WIDTH, HEADS, 40, batch_first=True, norm_first=norm_first, dropout=0.1
    )


def decoder(*, norm_first: bool) -> nn.Module:
    return nn.TransformerDecoderLayer(WIDTH, HEADS, 40, batch_first=True, norm_first=norm_first)


def attend(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | float = 0.0) -> Tensor:
    """Attention by hand, with a bias of logits."""
    query, key, value = (x.unflatten(-1, (HEADS, -1)).transpose(1, 2) for x in (query, key, value))
    logits = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1]) + bias
    return (logits.softmax(-1) @ value).transpose(1, 2).flatten(2)


class Block(nn.Module):
    """A pre-norm block, as GPT has it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.out(attend(*self.qkv(self.norm(x)).chunk(3, dim=-1)))


def vision(*, norm_first: bool) -> nn.Module:
    """A class token and positions, before a layer of torch's own."""

    def forward(m: Any, x: Tensor) -> Tensor:
        x = torch.cat([m.cls_token.expand(len(x), -1, -1), x], dim=1) + m.pos_embed
        return m.head(m.encoder(x)[:, 0])

    return Named(
        forward,
        cls_token=nn.Parameter(torch.zeros(1, 1, WIDTH)),
        pos_embed=param(1, LENGTH + 1, WIDTH),
        encoder=encoder(norm_first=norm_first),
        head=nn.Linear(WIDTH, 5),
    )


VISION = {
    "cls_token": table(1),
    "pos_embed": table(LENGTH + 1),
    "encoder.self_attn.in_proj_weight": layer(48),
    "encoder.linear1.weight": layer(40),
    "head.weight": layer(5),
}


def attention_before_all(**parts: Any) -> nn.Module:
    """Positions that meet nn.MultiheadAttention without a norm."""

    def forward(m: Any, x: Tensor) -> Tensor:
        positions = m.pos_embed[:, : x.shape[1]] if m.pos_embed.ndim == 3 else m.pos_embed
        x = x + positions[..., : x.shape[1], :]
        return m.head(x + m.attention(x, x, x)[0])

    attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
    return Named(forward, attention=attention, head=nn.Linear(WIDTH, 5), **parts)


def gpt() -> nn.Module:
    def forward(m: Any, ids: Tensor) -> Tensor:
        return m.head(m.norm(m.block(m.tokens(ids) + m.pos[: ids.shape[1]])))

    return Named(
        forward,
        tokens=nn.Embedding(50, WIDTH),
        pos=param(30, WIDTH),
        block=Block(),
        norm=nn.LayerNorm(WIDTH),
        head=nn.Linear(WIDTH, 50, bias=False),
    )


def sequence_first() -> nn.Module:
    """(time, batch, features), as torch's own layers have it by default."""

    def forward(m: Any, x: Tensor) -> Tensor:
        return m.head(m.encoder(x.transpose(0, 1) + m.pos[: x.shape[1], None]))

    return Named(
        forward,
        pos=param(30, WIDTH),
        encoder=nn.TransformerEncoderLayer(WIDTH, HEADS, 40),
        head=nn.Linear(WIDTH, 5),
    )


def registers() -> nn.Module:
    def forward(m: Any, x: Tensor) -> Tensor:
        start = [m.cls_token[None, None], m.register_tokens[None]]
        x = torch.cat([*(t.expand(len(x), -1, -1) for t in start), x + m.pos_embed], dim=1)
        return m.head(m.encoder(x)[:, 0])

    return Named(
        forward,
        cls_token=param(WIDTH),
        register_tokens=param(4, WIDTH),
        pos_embed=param(1, LENGTH, WIDTH),
        encoder=encoder(norm_first=False),
        head=nn.Linear(WIDTH, 5),
    )


def masked(*, by_factor: bool) -> nn.Module:
    def forward(m: Any, x: Tensor, mask: Tensor) -> Tensor:
        if by_factor:
            switch = mask.unsqueeze(-1).type_as(x)
            x = x * (1 - switch) + m.mask_token.expand(*x.shape[:2], -1) * switch
        else:
            x = torch.where(mask[..., None], m.mask_token, x)
        return m.head(m.encoder(x))

    return Named(
        forward,
        mask_token=param(1, 1, WIDTH),
        encoder=encoder(norm_first=False),
        head=nn.Linear(WIDTH, 5),
    )


MASK = torch.ones(BATCH, LENGTH, dtype=torch.bool)


def detr(*, norm_first: bool) -> nn.Module:
    def forward(m: Any, x: Tensor) -> Tensor:
        return m.head(m.decoder(m.queries.expand(len(x), -1, -1), x))

    return Named(
        forward,
        queries=param(7, WIDTH),
        decoder=decoder(norm_first=norm_first),
        head=nn.Linear(WIDTH, 5),
    )


def query_positions() -> nn.Module:
    """Queries that are added to zeros, in an Embedding nobody looks up, as DETR has them."""

    def forward(m: Any, x: Tensor) -> Tensor:
        at = m.query_embed.weight.unsqueeze(0).repeat(len(x), 1, 1)
        target = torch.zeros_like(at)
        target = target + m.attention(target + at, target + at, target)[0]
        return m.head(m.cross(target + at, x, x)[0])

    return Named(
        forward,
        query_embed=nn.Embedding(7, WIDTH),
        attention=nn.MultiheadAttention(WIDTH, HEADS, batch_first=True),
        cross=nn.MultiheadAttention(WIDTH, HEADS, batch_first=True),
        head=nn.Linear(WIDTH, 5),
    )


def pooled() -> nn.Module:
    def forward(m: Any, x: Tensor) -> Tensor:
        return m.head(m.attention(m.probe.repeat(len(x), 1, 1), x, x)[0])

    attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
    return Named(forward, probe=param(1, 1, WIDTH), attention=attention, head=nn.Linear(WIDTH, 5))


def prompted() -> nn.Module:
    def forward(m: Any, ids: Tensor) -> Tensor:
        x = torch.cat([m.prompt.expand(len(ids), -1, -1), m.tokens(ids)], dim=1)
        x = m.block(x)
        x = torch.cat([m.deep_prompts[0].expand(len(ids), -1, -1), x[:, 6:]], dim=1)
        return m.head(m.block(x))

    return Named(
        forward,
        prompt=param(6, WIDTH),
        deep_prompts=nn.ParameterList([torch.randn(6, WIDTH)]),
        tokens=nn.Embedding(50, WIDTH),
        block=Block(),
        head=nn.Linear(WIDTH, 50),
    )


def t5(name: str) -> nn.Module:
    def forward(m: Any, x: Tensor) -> Tensor:
        place = torch.arange(x.shape[1])
        buckets = (place[:, None] - place[None, :]).clamp(-5, 5) + 5
        bias = getattr(m, name)(buckets).permute(2, 0, 1)[None]
        return m.head(attend(*m.qkv(x).chunk(3, dim=-1), bias=bias))

    parts = {name: nn.Embedding(11, HEADS)}
    return Named(forward, qkv=nn.Linear(WIDTH, 3 * WIDTH), head=nn.Linear(WIDTH, 5), **parts)


def swin(name: str) -> nn.Module:
    """Nine positions in a window of 3 x 3."""
    where = torch.stack(torch.meshgrid(torch.arange(3), torch.arange(3), indexing="ij")).flatten(1)
    offset = (where[:, :, None] - where[:, None, :]) + 2

    def forward(m: Any, x: Tensor) -> Tensor:
        bias = getattr(m, name)[m.index.view(-1)].view(LENGTH, LENGTH, -1).permute(2, 0, 1)
        return m.head(attend(*m.qkv(x).chunk(3, dim=-1), bias=bias[None]))

    model = Named(
        forward,
        qkv=nn.Linear(WIDTH, 3 * WIDTH),
        head=nn.Linear(WIDTH, 5),
        **{name: param(25, HEADS)},
    )
    model.register_buffer("index", offset[0] * 5 + offset[1])
    return model


def relative_vectors() -> nn.Module:
    """Vectors of relative positions that queries are multiplied with."""

    def forward(m: Any, x: Tensor) -> Tensor:
        query, key, value = m.qkv(x).chunk(3, dim=-1)
        place = torch.arange(x.shape[1])
        vectors = m.rel_pos[(place[:, None] - place[None, :]).clamp(-5, 5) + 5]
        bias = torch.einsum("bqd,qkd->bqk", query, vectors)[:, None]
        return m.head(attend(query, key, value, bias=bias))

    return Named(
        forward,
        qkv=nn.Linear(WIDTH, 3 * WIDTH),
        rel_pos=param(11, WIDTH),
        head=nn.Linear(WIDTH, 5),
    )


def grid() -> nn.Module:
    """Positions of an image, (1, features, height, width), and some whose name says nothing."""

    def forward(m: Any, x: Tensor) -> Tensor:
        x = (m.stem(x) + m.pos_embed).flatten(2).transpose(1, 2)
        return m.head(m.encoder(x + m.offsets).mean(1))

    return Named(
        forward,
        stem=nn.Conv2d(3, WIDTH, 2, stride=2),
        pos_embed=param(1, WIDTH, 4, 5),
        offsets=param(20, WIDTH),
        encoder=encoder(norm_first=False),
        head=nn.Linear(WIDTH, 5),
    )


def alibi() -> nn.Module:
    def forward(m: Any, x: Tensor) -> Tensor:
        place = torch.arange(x.shape[1])
        distance = (place[:, None] - place[None, :]).abs()
        return m.head(attend(*m.qkv(x).chunk(3, dim=-1), bias=-m.slopes * distance))

    return Named(
        forward,
        qkv=nn.Linear(WIDTH, 3 * WIDTH),
        slopes=nn.Parameter(0.5 ** torch.arange(1.0, HEADS + 1)[:, None, None]),
        head=nn.Linear(WIDTH, 5),
    )


def layer_scale() -> nn.Module:
    def forward(m: Any, x: Tensor) -> Tensor:
        return m.head(x + m.gamma * m.mlp(m.norm(x)))

    return Named(
        forward,
        gamma=nn.Parameter(1e-4 * torch.ones(WIDTH)),
        norm=nn.LayerNorm(WIDTH),
        mlp=nn.Linear(WIDTH, WIDTH),
        head=nn.Linear(WIDTH, 5),
    )


def fused_qkv() -> nn.Module:
    def forward(m: Any, x: Tensor) -> Tensor:
        return m.head(attend(*(x @ m.w_qkv).chunk(3, dim=-1)))

    return Named(forward, w_qkv=param(WIDTH, 3 * WIDTH), head=nn.Linear(WIDTH, 5))


def experts() -> nn.Module:
    """Every expert sees every token; those that are not chosen are multiplied by zero."""

    def forward(m: Any, x: Tensor) -> Tensor:
        gates = m.router(x).softmax(-1)
        hidden = torch.einsum("btd,edh->bteh", x, m.w1).relu()
        return m.head(torch.einsum("bteh,ehd,bte->btd", hidden, m.w2, gates))

    return Named(
        forward,
        router=nn.Linear(WIDTH, 3),
        w1=param(3, WIDTH, 40),
        w2=param(3, 40, WIDTH),
        head=nn.Linear(WIDTH, 5),
    )


def parametrised() -> nn.Module:
    return nn.Sequential(
        parametrizations.weight_norm(nn.Linear(WIDTH, 12)),
        nn.Tanh(),
        parametrizations.orthogonal(nn.Linear(12, 12)),
        nn.Tanh(),
        parametrizations.spectral_norm(nn.Linear(12, 5)),
    )


def adaptive_softmax() -> nn.Module:
    def forward(m: Any, ids: Tensor) -> Tensor:
        return m.loss(m.block(m.tokens(ids)).flatten(0, 1), ids.flatten()).loss

    return Named(
        forward,
        tokens=nn.Embedding(50, WIDTH),
        block=Block(),
        loss=nn.AdaptiveLogSoftmaxWithLoss(WIDTH, 50, cutoffs=[10, 30], div_value=2.0),
    )


def diffusion() -> nn.Module:
    def forward(m: Any, x: Tensor, step: Tensor, label: Tensor) -> Tensor:
        phase = step[:, None] * m.freqs
        at = m.mlp(torch.cat([phase.sin(), phase.cos()], dim=-1)) + m.label_embed(label)
        shift, scale = m.modulation(F.silu(at + m.step_embed(step.long()))).chunk(2, dim=-1)
        return m.head(m.norm(x) * (1 + scale[:, None]) + shift[:, None])

    return Named(
        forward,
        freqs=param(4, std=1.0),
        mlp=nn.Sequential(nn.Linear(8, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH)),
        label_embed=nn.Embedding(10, WIDTH),
        step_embed=nn.Embedding(100, WIDTH),
        modulation=nn.Linear(WIDTH, 2 * WIDTH),
        norm=nn.LayerNorm(WIDTH, elementwise_affine=False),
        head=nn.Linear(WIDTH, 5),
    )


def gated() -> nn.Module:
    """A gated MLP of Linears, and one whose two halves are one parameter of (in, out)."""

    def forward(m: Any, x: Tensor) -> Tensor:
        x = m.down(F.silu(m.gate(x)) * m.up(x))
        gate, up = (x @ m.w12).chunk(2, dim=-1)
        return F.silu(gate) * up @ m.w3

    return Named(
        forward,
        gate=nn.Linear(WIDTH, 40),
        up=nn.Linear(WIDTH, 40),
        down=nn.Linear(40, WIDTH),
        w12=param(WIDTH, 80),
        w3=param(40, 5),
    )


def depthwise() -> nn.Module:
    def forward(m: Any, x: Tensor) -> Tensor:
        x = F.conv2d(m.depthwise(m.stem(x)), m.kernel, padding=1, groups=WIDTH)
        return m.head(x.mean((2, 3)))

    return Named(
        forward,
        stem=nn.Conv2d(3, WIDTH, 3, padding=1),
        depthwise=nn.Conv2d(WIDTH, WIDTH, 3, padding=1, groups=WIDTH),
        kernel=param(WIDTH, 1, 3, 3),
        head=nn.Linear(WIDTH, 5),
    )


IDIOMS = {
    "pre-norm encoder": Idiom(
        lambda: vision(norm_first=True), X, VISION, ("cls_token", "pos_embed")
    ),
    "post-norm encoder": Idiom(
        lambda: vision(norm_first=False), X, VISION, ("cls_token", "pos_embed")
    ),
    "positions (1, T, d), sliced": Idiom(
        lambda: attention_before_all(pos_embed=param(1, 30, WIDTH)),
        X,
        {"pos_embed": table(30), "head.weight": layer(5)},
        ("pos_embed",),
    ),
    "positions (T, d) before attention": Idiom(
        lambda: attention_before_all(pos_embed=param(LENGTH, WIDTH)),
        X,
        {"pos_embed": table(LENGTH)},
        ("pos_embed",),
    ),
    "GPT": Idiom(
        gpt,
        IDS,
        {
            "tokens.weight": table(50),
            "pos": table(30),
            "block.qkv.weight": layer(48),
            "head.weight": layer(50),
        },
        ("pos",),
    ),
    "sequence first": Idiom(sequence_first, X, {"pos": table(30)}, ("pos",)),
    "register tokens": Idiom(
        registers,
        X,
        {"cls_token": table(1), "register_tokens": table(4), "pos_embed": table(LENGTH)},
        ("cls_token", "register_tokens", "pos_embed"),
    ),
    "mask token, by a factor": Idiom(
        lambda: masked(by_factor=True), (X, MASK), {"mask_token": table(1)}, ("mask_token",)
    ),
    "mask token, where": Idiom(
        lambda: masked(by_factor=False), (X, MASK), {"mask_token": table(1)}, ("mask_token",)
    ),
    "learned queries, post-norm": Idiom(
        lambda: detr(norm_first=False), X, {"queries": table(7)}, ("queries",)
    ),
    "learned queries, pre-norm": Idiom(
        lambda: detr(norm_first=True), X, {"queries": table(7)}, ("queries",)
    ),
    "positions of queries": Idiom(query_positions, X, {"query_embed.weight": table(7)}),
    "attention pooling": Idiom(pooled, X, {"probe": table(1)}, ("probe",)),
    "prompt tuning": Idiom(
        prompted,
        IDS,
        {"prompt": table(6), "deep_prompts.0": table(6), "tokens.weight": table(50)},
        ("prompt", "deep_prompts.0"),
    ),
    "relative biases of T5": Idiom(
        lambda: t5("relative_attention_bias"),
        X,
        {"relative_attention_bias.weight": alone("bias", 44), "qkv.weight": layer(48)},
    ),
    "relative biases of T5 by another name": Idiom(
        lambda: t5("rel_pos"),
        X,
        {"rel_pos.weight": alone("bias", 44)},
        ("rel_pos.weight",),
        {"rel_pos.weight": alone("other", 44)},
    ),
    "relative biases of Swin": Idiom(
        lambda: swin("relative_position_bias_table"),
        X,
        {"relative_position_bias_table": alone("bias", 100), "qkv.weight": layer(48)},
    ),
    "relative biases of Swin by another name": Idiom(
        lambda: swin("rel_pos_table"),
        X,
        {"rel_pos_table": alone("bias", 100)},
        ("rel_pos_table",),
        {"rel_pos_table": alone("other", 100)},
    ),
    "relative vectors": Idiom(
        relative_vectors,
        X,
        {"rel_pos": table(11)},
        ("rel_pos",),
        {"rel_pos": alone("other", 11 * WIDTH)},
    ),
    "positions of an image": Idiom(
        grid,
        features(BATCH, 3, 8, 10),
        {"pos_embed": table(20), "offsets": table(20)},
        ("pos_embed", "offsets"),
        {"pos_embed": alone("other", 20 * WIDTH), "offsets": layer(20)},
    ),
    "ALiBi": Idiom(
        alibi, X, {"slopes": alone("bias", HEADS)}, (), {"slopes": alone("other", HEADS)}
    ),
    "layer scale": Idiom(
        layer_scale, X, {"gamma": alone("gain", WIDTH)}, (), {"gamma": alone("other", WIDTH)}
    ),
    "fused qkv, (in, out)": Idiom(
        fused_qkv, X, {"w_qkv": layer(48)}, ("w_qkv",), {"w_qkv": layer(WIDTH)}
    ),
    "stacked experts": Idiom(
        experts,
        X,
        {"router.weight": layer(3), "w1": layer(3 * 40), "w2": layer(3 * WIDTH)},
        ("w1", "w2"),
        {"w1": layer(3 * WIDTH), "w2": layer(3 * 40)},
    ),
    "parametrizations": Idiom(
        parametrised,
        X,
        {
            "0.parametrizations.weight.original0": alone("gain", 12),
            "0.parametrizations.weight.original1": layer(12),
            "2.parametrizations.weight.original": alone("other", 144),
            "4.parametrizations.weight.original": layer(5),
        },
    ),
    "adaptive softmax": Idiom(
        adaptive_softmax,
        IDS,
        {
            "tokens.weight": table(50),
            "loss.head.weight": layer(12),
            "loss.tail.0.0.weight": layer(8),
            "loss.tail.0.1.weight": layer(20),
            "loss.tail.1.1.weight": layer(20),
        },
    ),
    "time steps": Idiom(
        diffusion,
        (X, torch.rand(BATCH), torch.arange(BATCH)),
        {
            "freqs": alone("gain", 4),
            "mlp.0.weight": layer(WIDTH),
            "label_embed.weight": table(10),
            "step_embed.weight": table(100),
            "modulation.weight": layer(2 * WIDTH),
        },
        (),
        {"freqs": alone("other", 4)},
    ),
    "gated MLPs": Idiom(
        gated,
        X,
        {"gate.weight": layer(40), "down.weight": layer(WIDTH), "w12": layer(80), "w3": layer(5)},
        ("w12", "w3"),
        {"w12": layer(WIDTH), "w3": layer(40)},
    ),
    "depthwise convolutions": Idiom(
        depthwise,
        features(BATCH, 3, 8, 8),
        {
            "stem.weight": layer(WIDTH),
            "depthwise.weight": layer(WIDTH),
            "kernel": layer(WIDTH),
        },
        ("kernel",),
    ),
}


# Tables whose rows are multiplied with what the model computes: they end it, whatever else they do.


def tied(*, value_head_last: bool) -> nn.Module:
    def forward(m: Any, ids: Tensor) -> tuple[Tensor, Tensor]:
        x = m.block(m.tokens(ids))
        if value_head_last:
            return F.linear(x, m.tokens.weight), m.value(x)
        value = m.value(x)
        return F.linear(x, m.tokens.weight), value

    return Named(forward, tokens=nn.Embedding(50, WIDTH), block=Block(), value=nn.Linear(WIDTH, 1))


def factorization() -> nn.Module:
    def forward(m: Any, user: Tensor, item: Tensor) -> Tensor:
        return (m.users(user) * m.items(item)).sum(-1)

    return Named(forward, users=nn.Embedding(40, WIDTH), items=nn.Embedding(50, WIDTH))


def two_towers() -> nn.Module:
    def forward(m: Any, user: Tensor, item: Tensor) -> Tensor:
        return m.tower(m.users(user)) @ m.items(item).T

    return Named(
        forward,
        users=nn.Embedding(40, WIDTH),
        tower=nn.Sequential(nn.Linear(WIDTH, 40), nn.ReLU(), nn.Linear(40, WIDTH)),
        items=nn.Embedding(50, WIDTH),
    )


def word2vec() -> nn.Module:
    def forward(m: Any, centre: Tensor, context: Tensor) -> Tensor:
        return torch.einsum("bd,bkd->bk", m.inputs(centre), m.outputs(context))

    return Named(forward, inputs=nn.Embedding(50, WIDTH), outputs=nn.Embedding(50, WIDTH))


def recommender() -> nn.Module:
    """Rows and features, stacked and multiplied with each other, as in DLRM."""

    def forward(m: Any, user: Tensor, item: Tensor) -> Tensor:
        rows = torch.stack([m.users(user), m.items(item)], 1)
        stacked = torch.cat([m.bottom(torch.ones(BATCH, 1, 3)), rows], 1)
        return m.top((stacked @ stacked.mT).flatten(1))

    return Named(
        forward,
        users=nn.Embedding(40, WIDTH),
        items=nn.Embedding(50, WIDTH),
        bottom=nn.Linear(3, WIDTH),
        top=nn.Linear(9, 1),
    )


class Scored(NamedTuple):
    """A model, what it is called with, and the tables of which one at least has rows of norm 1."""

    model: Callable[[], nn.Module]
    example: Any
    tables: tuple[str, ...]


PAIR = (torch.arange(BATCH), torch.arange(BATCH))
SCORED = {
    "functional tie, value head first": Scored(
        lambda: tied(value_head_last=False), IDS, ("tokens.weight",)
    ),
    "functional tie, value head last": Scored(
        lambda: tied(value_head_last=True), IDS, ("tokens.weight",)
    ),
    "factorization": Scored(factorization, PAIR, ("users.weight", "items.weight")),
    "two towers": Scored(two_towers, PAIR, ("items.weight",)),
    "recommender": Scored(recommender, PAIR, ("users.weight", "items.weight")),
    "word2vec": Scored(
        word2vec,
        (PAIR[0], torch.zeros(BATCH, 6, dtype=torch.long)),
        ("inputs.weight", "outputs.weight"),
    ),
}

"""What observation says of one small module after another, operation by operation."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

from nero.layout import BIAS, GAIN, OTHER, Layout, neurons
from nero.layout.observation import observe
from nero.layout.observation.sightings import same_neurons


class Fn(nn.Module):
    """A forward pass written in one line, with parameters of these shapes."""

    def __init__(self, forward, **shapes):
        super().__init__()
        self.function = forward
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.randn(shape)))

    def forward(self, *args):
        return self.function(self, *args)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids):
        return self.head(normed(self.table(ids)))


def normed(x):
    return F.layer_norm(x, x.shape[-1:])


def data(*shape):
    return torch.randn(shape)


def ids(*shape):
    return torch.zeros(shape, dtype=torch.long)


def standardised(w):
    dims = (1, 2, 3)
    return (w - w.mean(dims, keepdim=True)) / (w.std(dims, keepdim=True) + 1e-5)


def relative_logits(m, x):
    bias = F.embedding(ids(5, 5), m.table).permute(2, 0, 1)[None]
    return torch.softmax(x @ x.transpose(-1, -2) + bias, -1) @ x


def window_logits(m, x):
    bias = m.table[ids(25)].view(5, 5, 2).permute(2, 0, 1)[None].expand(3, -1, -1, -1)
    return F.scaled_dot_product_attention(x, x, x, attn_mask=bias)


def per_head_vectors(m, x):
    return (x + m.u[:, None]) @ x.transpose(-1, -2)


def rows(*dims, role="embedding"):
    return Layout(role, dims)


POINTWISE = {
    "a gain per channel": (
        Fn(lambda m, x: x * m.g + m.b, g=(1, 4, 1, 1), b=(1, 4, 1, 1)),
        data(2, 4, 5, 5),
        {"g": GAIN, "b": BIAS},
    ),
    "global response norm": (
        Fn(
            lambda m, x: m.g * (x * x.norm(dim=(1, 2), keepdim=True)) + m.b + x,
            g=(1, 1, 1, 4),
            b=(1, 1, 1, 4),
        ),
        data(2, 5, 5, 4),
        {"g": GAIN, "b": BIAS},
    ),
    "layer scale": (
        Fn(lambda m, x: x + m.g * F.linear(x, m.w), g=(4,), w=(4, 4)),
        data(2, 5, 4),
        {"g": GAIN, "w": neurons(0)},
    ),
    "a norm by 1 + weight": (
        Fn(lambda m, x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True)) * (1.0 + m.w), w=(4,)),
        data(2, 5, 4),
        {"w": OTHER},
    ),
    "state space": (
        Fn(lambda m, x: torch.exp(-torch.exp(m.a) * x[..., None]), a=(4, 6)),
        data(2, 4),
        {"a": OTHER},
    ),
    "time mix": (
        Fn(lambda m, x: x * m.t + x.roll(1, 1) * (1 - m.t), t=(1, 1, 4)),
        data(2, 5, 4),
        {"t": GAIN},
    ),
    "temperature": (Fn(lambda m, x: x * m.t.exp(), t=(1,)), data(2, 5), {"t": OTHER}),
    "slope": (nn.PReLU(4), data(2, 4), {"weight": OTHER}),
    "divided by": (Fn(lambda m, x: x / m.s, s=(4,)), data(2, 4), {"s": OTHER}),
    "lerp": (Fn(lambda m, x: torch.lerp(x, x.roll(1), m.t), t=(4,)), data(2, 4), {"t": GAIN}),
}

CONTRACTIONS = {
    "linear": (nn.Linear(4, 3), data(2, 5, 4), {"weight": neurons(0), "bias": BIAS}),
    "conv": (nn.Conv2d(4, 6, 3, groups=2), data(2, 4, 8, 8), {"weight": neurons(0), "bias": BIAS}),
    "conv 1-D": (nn.Conv1d(4, 6, 3), data(2, 4, 8), {"weight": neurons(0)}),
    "conv 3-D": (nn.Conv3d(4, 6, 3), data(2, 4, 8, 8, 8), {"weight": neurons(0)}),
    "depthwise": (nn.Conv2d(4, 4, 3, groups=4), data(2, 4, 8, 8), {"weight": neurons(0)}),
    "transposed": (
        nn.ConvTranspose2d(4, 6, 3),
        data(2, 4, 8, 8),
        {"weight": neurons(1), "bias": BIAS},
    ),
    "transposed, grouped": (
        nn.ConvTranspose2d(4, 6, 3, groups=2),
        data(2, 4, 8, 8),
        {"weight": neurons(1, num_groups=2)},
    ),
    "bilinear": (
        nn.Bilinear(4, 5, 3),
        (data(2, 4), data(2, 5)),
        {"weight": neurons(0), "bias": BIAS},
    ),
    "lstm": (
        nn.LSTM(4, 3, 2, bidirectional=True),
        data(5, 2, 4),
        {"weight_ih_l0": neurons(0), "weight_hh_l1_reverse": neurons(0), "bias_hh_l0": BIAS},
    ),
    "gru": (nn.GRU(4, 3), data(5, 2, 4), {"weight_ih_l0": neurons(0), "bias_ih_l0": BIAS}),
    "gru cell": (nn.GRUCell(4, 3), data(2, 4), {"weight_ih": neurons(0), "weight_hh": neurons(0)}),
    "attention": (
        nn.MultiheadAttention(8, 2, batch_first=True, add_bias_kv=True),
        (data(2, 5, 8),) * 3,
        {
            "in_proj_weight": neurons(0),
            "in_proj_bias": BIAS,
            "out_proj.weight": neurons(0),
            "bias_k": rows(0, 1),
            "bias_v": rows(0, 1),
        },
    ),
    "attention of other sizes": (
        nn.MultiheadAttention(8, 2, kdim=6, vdim=4, batch_first=True),
        (data(2, 5, 8), data(2, 5, 6), data(2, 5, 4)),
        {"q_proj_weight": neurons(0), "k_proj_weight": neurons(0), "v_proj_weight": neurons(0)},
    ),
    "(in, out)": (Fn(lambda m, x: x @ m.w, w=(4, 3)), data(2, 5, 4), {"w": neurons(1)}),
    "einsum to heads": (
        Fn(lambda m, x: torch.einsum("bnd,dhk->bnhk", x, m.w), w=(4, 2, 3)),
        data(2, 5, 4),
        {"w": neurons(1, 2)},
    ),
    "einsum from heads": (
        Fn(lambda m, x: torch.einsum("bnhk,hkd->bnd", x, m.w), w=(2, 3, 4)),
        data(2, 5, 2, 3),
        {"w": neurons(2)},
    ),
    "einsum of blocks": (
        Fn(lambda m, x: torch.einsum("bhi,hio->bho", x, m.w), w=(2, 3, 4)),
        data(5, 2, 3),
        {"w": neurons(0, 2)},
    ),
    "experts (expert, out, in)": (
        Fn(lambda m, x: sum(F.linear(x, m.w[i]) for i in range(3)), w=(3, 6, 4)),
        data(5, 4),
        {"w": neurons(0, 1)},
    ),
    "experts (expert, in, out)": (
        Fn(lambda m, x: sum(x @ m.w[i] for i in range(3)), w=(3, 4, 6)),
        data(5, 4),
        {"w": neurons(0, 2)},
    ),
    "experts at once": (
        Fn(lambda m, x: torch.bmm(x.view(3, -1, 4), m.w), w=(3, 4, 6)),
        data(15, 4),
        {"w": neurons(0, 2)},
    ),
    "experts in groups": (
        Fn(lambda m, x, ends: torch._grouped_mm(x, m.w, offs=ends), w=(3, 8, 16)),
        (data(6, 8), torch.tensor([2, 4, 6], dtype=torch.int32)),
        {"w": neurons(0, 2)},
    ),
    "experts by token": (
        Fn(lambda m, x: torch.bmm(x.unsqueeze(1), m.w[ids(5)]), w=(3, 4, 6)),
        data(5, 4),
        {"w": neurons(0, 2)},
    ),
    "packed": (
        Fn(lambda m, x: sum(F.linear(x, w) for w in m.w.chunk(3)), w=(12, 4)),
        data(5, 4),
        {"w": neurons(0)},
    ),
    "blocks in a view": (
        Fn(
            lambda m, x: torch.einsum("bgi,goi->bgo", x.view(-1, 2, 4), m.w.view(2, 3, 4)), w=(6, 4)
        ),
        data(5, 8),
        {"w": neurons(0)},
    ),
    "dim 0 partly summed": (
        Fn(
            lambda m, x: torch.einsum("bgi,gio->bgo", x.view(-1, 2, 3), m.w.view(2, 3, 4)), w=(6, 4)
        ),
        data(5, 6),
        {"w": neurons(1, num_groups=2)},
    ),
    "mul and sum": (
        Fn(lambda m, x: (x[:, None, :] * m.w).sum(-1), w=(3, 4)),
        data(5, 4),
        {"w": neurons(0)},
    ),
}

REPARAMETRISED = {
    "weight norm": (
        parametrizations.weight_norm(nn.Linear(4, 3)),
        data(2, 4),
        {
            "parametrizations.weight.original0": GAIN,
            "parametrizations.weight.original1": neurons(0),
        },
    ),
    "weight norm of a conv": (
        parametrizations.weight_norm(nn.Conv2d(4, 3, 3)),
        data(2, 4, 8, 8),
        {
            "parametrizations.weight.original0": GAIN,
            "parametrizations.weight.original1": neurons(0),
        },
    ),
    "spectral norm": (
        parametrizations.spectral_norm(nn.Linear(4, 3)),
        data(2, 4),
        {"parametrizations.weight.original": neurons(0)},
    ),
    "standardised": (
        Fn(lambda m, x: F.conv2d(x, standardised(m.w)), w=(6, 4, 3, 3)),
        data(2, 4, 8, 8),
        {"w": neurons(0)},
    ),
    "symmetric": (
        Fn(lambda m, x: F.linear(x, m.w.triu() + m.w.triu(1).t()), w=(4, 4)),
        data(2, 4),
        {"w": OTHER},
    ),
    "positive definite": (Fn(lambda m, x: x @ (m.w @ m.w.t()), w=(4, 3)), data(2, 4), {"w": OTHER}),
    "rows kept apart by a penalty": (
        Fn(lambda m, x: (F.linear(x, m.w), (m.w @ m.w.t()).square().sum()), w=(3, 4)),
        data(2, 4),
        {"w": neurons(0)},
    ),
    "low rank": (
        Fn(lambda m, x: F.linear(x, 0.5 * (m.b @ m.a)), a=(2, 4), b=(3, 2)),
        data(2, 4),
        {"b": neurons(0)},
    ),
    "low rank, of a conv": (
        Fn(lambda m, x: F.conv2d(x, (m.b @ m.a).view(3, 4, 3, 3)), a=(2, 36), b=(3, 2)),
        data(2, 4, 8, 8),
        {"b": neurons(0)},
    ),
    "layer norm of the weight": (
        Fn(lambda m, x: F.linear(x, normed(m.w)), w=(3, 4)),
        data(2, 4),
        {"w": neurons(0)},
    ),
}

NORMS = {
    "layer norm": (nn.LayerNorm(4), data(2, 4), {"weight": GAIN, "bias": BIAS}),
    "rms norm": (nn.RMSNorm(4), data(2, 4), {"weight": GAIN}),
    "group norm": (nn.GroupNorm(2, 4), data(2, 4, 5), {"weight": GAIN, "bias": BIAS}),
    "batch norm": (nn.BatchNorm2d(4), data(2, 4, 5, 5), {"weight": GAIN, "bias": BIAS}),
    "batch norm, evaluated": (
        nn.BatchNorm2d(4).eval(),
        data(2, 4, 5, 5),
        {"weight": GAIN, "bias": BIAS},
    ),
    "instance norm": (
        nn.InstanceNorm2d(4, affine=True),
        data(2, 4, 5, 5),
        {"weight": GAIN, "bias": BIAS},
    ),
}

TABLES = {
    "embedding": (
        nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 3)),
        ids(2, 5),
        {"0.weight": rows(0)},
    ),
    "embedding alone": (nn.Embedding(10, 4), ids(2, 5), {"weight": rows(0)}),
    "embedding bag": (
        nn.Sequential(nn.EmbeddingBag(10, 4), nn.Linear(4, 3)),
        ids(2, 5),
        {"0.weight": rows(0)},
    ),
    "with dropout": (
        nn.Sequential(nn.Embedding(10, 4), nn.Dropout(), nn.Linear(4, 3)),
        ids(2, 5),
        {"0.weight": rows(0)},
    ),
    "tied": (Tied(), ids(2, 5), {"table.weight": rows(0)}),
    "positions (1, H, W, D)": (
        Fn(lambda m, x: normed(x + m.p), p=(1, 5, 6, 4)),
        data(2, 5, 6, 4),
        {"p": rows(0, 1, 2)},
    ),
    "positions (1, N, D)": (
        Fn(lambda m, x: F.linear(x + m.p, m.w), p=(1, 5, 4), w=(3, 4)),
        data(2, 5, 4),
        {"p": rows(0, 1)},
    ),
    "class token": (
        Fn(lambda m, x: normed(torch.cat([m.c.expand(2, -1, -1), x], 1)), c=(1, 1, 4)),
        data(2, 5, 4),
        {"c": rows(0, 1)},
    ),
    "level embedding": (
        Fn(lambda m, x: normed(torch.cat([x + m.l[i] for i in range(3)], 1)), l=(3, 4)),
        data(2, 5, 4),
        {"l": rows(0)},
    ),
    "scale per row": (
        Fn(lambda m, x: F.linear(x, m.g * m.w), g=(6, 1), w=(6, 4)),
        data(5, 4),
        {"g": GAIN, "w": neurons(0)},
    ),
    "product of two parameters of one shape": (
        Fn(lambda m, x: F.linear(x, m.u * m.v), u=(6, 4), v=(6, 4)),
        data(5, 4),
        {"u": neurons(0), "v": neurons(0)},
    ),
    "learned mask": (
        Fn(lambda m, x: x @ (m.w * m.mask.sigmoid()), w=(4, 6), mask=(4, 6)),
        data(5, 4),
        {"w": neurons(1)},
    ),
    "codebook": (
        Fn(lambda m, x: (x @ m.c.t(), F.mse_loss(x, F.embedding(ids(2, 5), m.c))), c=(7, 4)),
        data(2, 5, 4),
        {"c": neurons(0)},
    ),
    "reference points": (
        Fn(lambda m, x: F.linear(m.p.sigmoid()[:, :1] * x, m.w).sin(), p=(7, 2), w=(3, 4)),
        data(1, 4),
        {"p": OTHER},
    ),
    "token that is added too": (
        Fn(
            lambda m, x: F.linear(m.t, m.w) @ x.transpose(-1, -2) + (x + m.t).sum(),
            t=(1, 4),
            w=(4, 4),
        ),
        data(2, 5, 4),
        {"t": rows(0)},
    ),
    "latents": (
        Fn(lambda m, x: F.linear(m.l, m.w) @ x.transpose(-1, -2), l=(7, 4), w=(3, 4)),
        data(2, 5, 3),
        {"l": rows(0), "w": neurons(0)},
    ),
    "latents behind a norm": (
        Fn(lambda m, x: F.linear(normed(m.l), m.w) @ x.transpose(-1, -2), l=(7, 4), w=(3, 4)),
        data(2, 5, 3),
        {"l": rows(0), "w": neurons(0)},
    ),
    "queries of every image": (
        Fn(
            lambda m, x: F.scaled_dot_product_attention(
                (m.q.expand(2, -1, -1) @ m.w)[:, None], x[:, None], x[:, None]
            ),
            q=(7, 4),
            w=(4, 3),
        ),
        data(2, 5, 3),
        {"q": rows(0), "w": neurons(1)},
    ),
    "memory of keys": (
        Fn(
            lambda m, x: (x @ F.linear(m.k.expand(2, -1, -1), m.w).mT).softmax(-1) @ x,
            k=(5, 4),
            w=(3, 4),
        ),
        data(2, 5, 3),
        {"k": rows(0)},
    ),
    "positions before batched products": (
        Fn(lambda m, x: (x + m.p).transpose(0, 1) @ m.w, p=(1, 5, 4), w=(4, 3)),
        data(2, 5, 4),
        {"p": rows(0, 1), "w": neurons(1)},
    ),
    "mask token": (
        Fn(
            lambda m, x, mask: normed(x * (1 - mask) + m.t.expand(2, 5, -1) * mask),
            t=(1, 1, 4),
        ),
        (data(2, 5, 4), data(2, 5, 1)),
        {"t": rows(0, 1)},
    ),
    "mask token in its place": (
        Fn(lambda m, x, mask: normed(torch.where(mask, m.t, x)), t=(4,)),
        (data(2, 5, 4), torch.ones(2, 5, 1, dtype=torch.bool)),
        {"t": rows()},
    ),
    "a layer of one input": (
        Fn(lambda m, x: F.linear(x[..., None] * m.w + m.b, m.v), w=(4,), b=(4,), v=(3, 4)),
        data(2, 5),
        {"w": GAIN, "b": BIAS},
    ),
    "relative bias": (Fn(relative_logits, table=(32, 2)), data(3, 2, 5, 4), {"table": BIAS}),
    "window bias": (Fn(window_logits, table=(81, 2)), data(3, 2, 5, 4), {"table": BIAS}),
    "one vector per head": (Fn(per_head_vectors, u=(2, 4)), data(3, 2, 5, 4), {"u": BIAS}),
}

CASES = {**POINTWISE, **CONTRACTIONS, **REPARAMETRISED, **NORMS, **TABLES}


# Their indices were made outside of the model, and are on the CPU.
INDICES_ON_CPU = ("codebook", "relative bias")


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("case", CASES)
def test_operations_show_layouts(case, device):
    if device == "meta" and case in INDICES_ON_CPU and torch.__version__ < "2.13":
        pytest.skip("torch 2.10 looks up nothing on meta by an index on the CPU")
    model, example, expected = CASES[case]
    observation = observe(model.to(device) if device == "cpu" else on_meta(model), example)
    assert not observation.error
    shapes = {name: param.shape for name, param in model.named_parameters()}
    for name, layout in expected.items():
        (seen,) = observation.seen[name].layouts
        assert same_neurons(seen, layout, shapes[name]), (seen, layout)
        assert seen.role == layout.role


def on_meta(model):
    import copy

    return copy.deepcopy(model).to("meta")


def test_queries_without_a_layer():
    # On the meta device torch multiplies by them, as by the weight of a layer.
    attention = Fn(
        lambda m, x: F.scaled_dot_product_attention(m.q.expand(2, 1, -1, -1), x, x), q=(7, 4)
    )
    assert observe(attention, data(2, 1, 5, 4)).seen["q"].layouts == (rows(0),)


def test_contradictory_uses_are_both_told():
    autoencoder = Fn(lambda m, x: (x @ m.w) @ m.w.t(), w=(4, 3))
    seen = observe(autoencoder, data(2, 4)).seen["w"]
    assert seen.layouts == (neurons(1), neurons(0))


def test_what_cannot_be_followed_is_named():
    seen = observe(Fn(lambda m, x: x + torch.linalg.det(m.w), w=(3, 3)), data(2)).seen["w"]
    assert seen.layouts == (OTHER,)
    assert "not followed" in seen.how


def test_what_is_not_used_is_not_seen():
    assert "w" not in observe(Fn(lambda m, x: x + m.b, w=(3, 3), b=(2,)), data(2)).seen

"""Each baseline against its paper's pseudocode, written as a float64 loop over lists."""

import math

import pytest
import torch
from torch import nn

from nero.baselines import Fromage, Lamb, Lars, Madam

STEPS = 200
# float64 on both sides; 200 steps of a few roundings each.
TOLERANCE = 1e-12


def norm(x):
    return math.sqrt(math.fsum(v * v for v in x))


def madam(w, grads, lr=0.01, beta=0.999, max_ratio=8.0, weight_bound=3.0):
    v = [0.0] * len(w)
    bound = weight_bound * norm(w) / math.sqrt(len(w))
    for t, g in enumerate(grads, 1):
        for i in range(len(w)):
            v[i] = beta * v[i] + (1 - beta) * g[i] ** 2
            ratio = g[i] / math.sqrt(v[i] / (1 - beta**t)) if v[i] else 0.0
            ratio = min(max(ratio, -max_ratio), max_ratio)
            sign = (w[i] > 0) - (w[i] < 0)
            w[i] = min(max(w[i] * math.exp(-lr * sign * ratio), -bound), bound)
    return w


def lamb(w, grads, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01, max_norm=math.inf):
    m, v = [0.0] * len(w), [0.0] * len(w)
    for t, g in enumerate(grads, 1):
        u = []
        for i in range(len(w)):
            m[i] = betas[0] * m[i] + (1 - betas[0]) * g[i]
            v[i] = betas[1] * v[i] + (1 - betas[1]) * g[i] ** 2
            m_hat, v_hat = m[i] / (1 - betas[0] ** t), v[i] / (1 - betas[1] ** t)
            u.append(m_hat / (math.sqrt(v_hat) + eps) + weight_decay * w[i])
        trust = min(norm(w), max_norm) / norm(u) if norm(w) and norm(u) else 1.0
        w = [x - lr * trust * y for x, y in zip(w, u, strict=True)]
    return w


def lars(w, grads, lr=1.0, momentum=0.9, weight_decay=0.0005, trust_coefficient=0.001):
    m = [0.0] * len(w)
    for g in grads:
        denominator = norm(g) + weight_decay * norm(w)
        local = trust_coefficient * norm(w) / denominator if norm(w) and denominator else 1.0
        m = [
            momentum * a + lr * local * (b + weight_decay * c)
            for a, b, c in zip(m, g, w, strict=True)
        ]
        w = [a - b for a, b in zip(w, m, strict=True)]
    return w


def fromage(w, grads, lr=0.01):
    for g in grads:
        if norm(g) == 0:
            continue
        ratio = norm(w) / norm(g) if norm(w) else 1.0
        w = [(x - lr * ratio * y) / math.sqrt(1 + lr**2) for x, y in zip(w, g, strict=True)]
    return w


BASELINES = {
    "Madam": (
        Madam,
        madam,
        [{}, {"lr": 0.1, "beta": 0.9}, {"max_ratio": 1.0, "weight_bound": 1.0}],
    ),
    "Lamb": (
        Lamb,
        lamb,
        [
            {},
            {"lr": 0.1, "betas": (0.0, 0.999)},
            {"weight_decay": 0.0, "eps": 0.1},
            {"lr": 0.1, "max_norm": 1.0},
        ],
    ),
    "Lars": (Lars, lars, [{}, {"lr": 10.0, "momentum": 0.0}, {"weight_decay": 0.0}]),
    "Fromage": (Fromage, fromage, [{}, {"lr": 0.3}]),
}
CASES = [(name, options) for name, (_, _, choices) in BASELINES.items() for options in choices]


@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
@pytest.mark.parametrize("start", ["random", "zero"])
def test_follows_its_paper(name, options, start):
    cls, reference, _ = BASELINES[name]
    torch.manual_seed(0)
    begin = torch.randn(3, 4, dtype=torch.float64) * (start == "random")
    grads = torch.randn(STEPS, 3, 4, dtype=torch.float64)
    grads[5] = 0
    param = nn.Parameter(begin.clone())
    optimizer = cls([param], **options)
    for grad in grads:
        param.grad = grad
        optimizer.step()
    expected = reference(begin.flatten().tolist(), grads.flatten(1).tolist(), **options)
    torch.testing.assert_close(
        param.detach().flatten(), torch.tensor(expected, dtype=torch.float64),
        rtol=TOLERANCE, atol=TOLERANCE,
    )  # fmt: skip

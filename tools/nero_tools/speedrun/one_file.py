"""Nero for matrices and vectors, in one file that needs only torch.

The track's rules forbid importing an optimizer, so `nero_tools.speedrun.entry` copies what is below the
imports into the entry. It is `nero.Nero` with the options of the presets ``rows`` and ``polar``, without
what this network doesn't need: other shapes, sharding, kernels, checks, skipped gradients. Tests check
that it is bit-identical to `nero.Nero(..., fused=False)`.
"""

import math
from typing import Any

import torch
from torch import Tensor


def or_one(x: Tensor) -> Tensor:
    """Replace zeros with ones, in denominators of numerators that are zero."""
    return torch.where(x != 0, x, 1.0)


def newton_schulz(x: Tensor) -> Tensor:
    """Return matrices with the same singular vectors, and singular values near one, as in Muon."""
    is_tall = x.shape[-2] > x.shape[-1]
    x = x.mT if is_tall else x
    x = x / or_one(x.abs().amax(dim=(-2, -1), keepdim=True))
    x = x / or_one(torch.linalg.matrix_norm(x, keepdim=True))
    if x.is_cuda and x.dtype == torch.float32:
        x = x.bfloat16()
    a, b, c = 3.4445, -4.7750, 2.0315
    for _ in range(5):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if is_tall else x


def balanced(weight: Tensor, radius: float) -> Tensor:
    """Return rows of mean zero and norm ``radius``."""
    w = weight.double()
    for _ in range(2):  # the second pass removes the rounding error of the first
        w = w - w.sum(1, keepdim=True) / w.shape[1]
    return (w * (radius / w.square().sum(1, keepdim=True).sqrt())).to(weight.dtype)


def hashed_noise(like: Tensor, *, stream: int, step: int) -> Tensor:
    """Return numbers in [0, 1) that depend on the arguments alone, so all ranks draw the same."""

    def shift(x: Tensor, bits: int) -> Tensor:
        return (x >> bits) & ((1 << (64 - bits)) - 1)

    def mix(x: Tensor) -> Tensor:  # splitmix64
        x = x - 0x61C8864680B583EB
        for bits, multiplier in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):
            x = (x ^ shift(x, bits)) * multiplier
        return x ^ shift(x, 31)

    start = mix(mix(mix(torch.tensor(0, device=like.device)) + stream) + step)
    position = torch.arange(like.numel(), device=like.device).view(like.shape)
    return shift(mix(start + position), 40) * 2.0**-24


def round_at_random(x: Tensor, dtype: torch.dtype, noise: Tensor) -> Tensor:
    """Round up or down, right on average: rounding bfloat16 to nearest would lose small updates."""
    info = torch.finfo(dtype)
    exponent = (torch.frexp(x).exponent - 1).clamp(min=round(math.log2(info.smallest_normal)))
    spacing = torch.ldexp(torch.full_like(x, info.eps), exponent)
    below = torch.floor(x / spacing)
    return ((below + (noise < x / spacing - below)) * spacing).to(dtype)


class Nero(torch.optim.Optimizer):
    """Turn each row by an angle of at most ``lr``, and keep its mean at zero and its norm at ``radius``.

    Groups with ``radius=None`` hold gains and biases. Each of their elements moves by at most ``lr`` times
    the mean size of the initial elements, or times 0.01 if all are zero.

    Args:
        groups: param groups with ``radius``; ``polar=True`` turns rows against the matrix's polar factor.
        lr: the largest angle in radians.
        momentum: decay of the averaged gradient.
        beta: decay of each row's largest gradient norm so far.
    """

    def __init__(
        self, groups: list[dict[str, Any]], lr: float, momentum: float, beta: float
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "beta": beta, "radius": None, "polar": False}
        super().__init__(groups, defaults)
        for group in self.param_groups:
            for p in group["params"]:
                is_matrix = group["radius"] is not None
                if is_matrix:
                    p.data.copy_(balanced(p.data, group["radius"]))
                self.state[p] = {
                    "step": 0,
                    "average": torch.zeros_like(p, dtype=torch.float32),
                    "peak": torch.zeros_like(p[:, :1] if is_matrix else p, dtype=torch.float32),
                    "scale": torch.where(p.any(), p.data.double().abs().mean(), 0.01).float(),
                }

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Turn every row once."""
        stream = 0
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._turn(p, p.grad.float(), self.state[p], group, stream)
                stream += 1

    def _turn(
        self, p: Tensor, grad: Tensor, state: dict[str, Any], group: dict[str, Any], stream: int
    ) -> None:
        lr, mu, beta, radius = (group[key] for key in ("lr", "momentum", "beta", "radius"))
        state["step"] += 1
        # Nesterov: g <- mu^2 * m + (1 - mu^2) * grad ;  m <- mu * m + (1 - mu) * grad
        m = state["average"]
        g = torch.add((1 - mu * mu) * grad, m, alpha=mu * mu)
        m.copy_(torch.add((1 - mu) * grad, m, alpha=mu))
        m.masked_fill_(m.abs() < torch.finfo(m.dtype).tiny, 0.0)
        if group["polar"]:
            g = newton_schulz(g[None])[0]

        # u <- max(beta * u, ||g||)        with sums in float64, as everything between sums and rows
        w64, g64 = p.double(), g.double()
        gg = g64 * g64 if radius is None else (g64 * g64).sum(1, keepdim=True)
        squared = torch.maximum(beta * beta * state["peak"].double().square(), gg)
        state["peak"].copy_(squared.sqrt())
        if radius is None:
            # w <- w - lr * scale * g / u
            k = lr * state["scale"] * (1.0 / or_one(squared)).sqrt()
            factor, shift = torch.ones_like(k), torch.zeros_like(k)
        else:
            # k = lr * ||w|| / u ;  w <- w - k * g ;  w <- w - mean(w) ;  w <- radius * w / ||w||
            ww, w1, wg, g1 = (x.sum(1, keepdim=True) for x in (w64 * w64, w64, w64 * g64, g64))
            k = lr * (ww / or_one(squared)).sqrt()
            mean = (w1 - k * g1) / p.shape[1]
            norm_sq = ww - 2 * (k * wg) + k * k * gg - p.shape[1] * mean * mean
            factor = radius / norm_sq.sqrt()
            k, shift = k * factor, -mean * factor
        new = torch.addcmul(shift.float(), factor.float(), p.float())
        new = torch.addcmul(new, -k.float(), g)
        if p.dtype != torch.float32:
            new = round_at_random(new, p.dtype, hashed_noise(p, stream=stream, step=state["step"]))
        p.copy_(torch.where(gg != 0, new, p))

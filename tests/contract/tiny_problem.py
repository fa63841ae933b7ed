"""A network of every kind of layer, its batches, and the trajectories that the tests compare.

Two runs of one code path on one machine give the same bits, so trajectories are compared bit for bit
unless a test says why it cannot.
"""

import copy
import io
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

Trajectory: TypeAlias = list[list[Tensor]]


class TinyNet(nn.Module):
    """Embedding, LayerNorm, Linear, Conv2d and a grouped ConvTranspose2d: all layouts in 243 numbers."""

    def __init__(self, seed: int = 0, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.embed = nn.Embedding(8, 6)
            self.norm = nn.LayerNorm(6)
            self.mix = nn.Linear(6, 8)
            self.conv = nn.Conv2d(2, 4, 3, padding=1)
            self.up = nn.ConvTranspose2d(4, 4, 2, stride=2, groups=2)
            self.head = nn.Linear(4, 3)
        self.to(dtype)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = torch.tanh(self.mix(self.norm(self.embed(tokens))))
        image = torch.tanh(self.conv(hidden.view(-1, 2, 4, 4)))
        return self.head(torch.tanh(self.up(image)).mean((2, 3)))


def loss_of(model: nn.Module, step: int) -> Tensor:
    """Return the loss on the batch of this step; the same step always has the same batch."""
    generator = torch.Generator().manual_seed(step)
    tokens = torch.randint(8, (16, 4), generator=generator)
    targets = tokens.sum(1) % 3
    return nn.functional.cross_entropy(model(tokens), targets)


def train(model: nn.Module, optimizer: Optimizer, steps: Iterable[int]) -> Trajectory:
    """Train on the batches of ``steps`` and return the parameters after each."""
    trajectory = []
    for step in steps:
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()
        trajectory.append(weights(model.parameters()))
    return trajectory


def weights(params: Iterable[Tensor]) -> list[Tensor]:
    return [p.detach().clone() for p in params]


def give_gradients(params: Iterable[Tensor], seed: int) -> None:
    """Give every parameter a random gradient in its own strides: for tests that need no network."""
    generator = torch.Generator().manual_seed(seed)
    for param in params:
        grad = torch.randn(param.shape, generator=generator, dtype=torch.float64)
        param.grad = torch.empty_like(param, requires_grad=False).copy_(grad)


def frozen_copy(optimizer: Optimizer) -> dict[str, Any]:
    """Return the state dict as it is now; ``state_dict()`` itself refers to live tensors."""
    return copy.deepcopy(optimizer.state_dict())


def through_disk(value: Any, *, weights_only: bool = True) -> Any:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=weights_only)


def has_same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether shape, dtype and every bit agree: tells -0.0 from 0.0, and NaN equals itself."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.equal(_bytes(a), _bytes(b))


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def assert_same(expected: Any, actual: Any, where: str = "") -> None:
    """Compare nested containers: the order of keys, the bits of tensors, everything else by ``==``."""
    assert type(expected) is type(actual), f"{where}: {type(expected)} became {type(actual)}"
    if isinstance(expected, Tensor):
        if not has_same_bits(expected, actual):
            raise AssertionError(f"{where}: {expected} became {actual}")
    elif isinstance(expected, Mapping):
        assert [*expected] == [*actual], f"{where}: keys {[*expected]} became {[*actual]}"
        for key in expected:
            assert_same(expected[key], actual[key], f"{where}[{key!r}]")
    elif isinstance(expected, list | tuple):
        assert len(expected) == len(actual), f"{where}: {len(expected)} items became {len(actual)}"
        for index, (left, right) in enumerate(zip(expected, actual, strict=True)):
            assert_same(left, right, f"{where}[{index}]")
    else:
        assert expected == actual, f"{where}: {expected!r} became {actual!r}"


def assert_moves(trajectory: Trajectory) -> None:
    """Guard against tests that pass because nothing happens."""
    first, last = trajectory[0], trajectory[-1]
    moved = [not torch.equal(a, b) for a, b in zip(first, last, strict=True)]
    assert sum(moved) > len(moved) // 2, f"only {sum(moved)} of {len(moved)} parameters moved"
    for param in last:
        assert torch.isfinite(param).all()

"""A network of every kind of layer in awkward sizes, and what flat ranges are compared with."""

import torch
import torch.distributed as dist
from torch import nn


class Network(nn.Module):
    """Cuts fall inside rows, kernels and groups."""

    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(53, 27)
        self.fc = nn.Linear(27, 41)
        self.norm = nn.LayerNorm(41)
        self.conv = nn.Conv1d(41, 22, 3, padding=1)
        self.up = nn.ConvTranspose1d(22, 18, 3, padding=1)
        self.upg = nn.ConvTranspose1d(18, 10, 3, padding=1, groups=2)
        self.out = nn.Linear(10, 7, bias=False)

    def forward(self, tokens):
        x = self.norm(self.fc(self.emb(tokens)))
        x = torch.relu(self.conv(x.transpose(1, 2)))
        x = torch.relu(self.up(x))
        return self.out(torch.relu(self.upg(x)).transpose(1, 2))


def network():
    """The same weights on every rank, and no bias at zero."""
    torch.manual_seed(0)
    model = Network()
    for param in model.parameters():
        if param.ndim == 1:
            nn.init.normal_(param)
    return model


def batch(step, rank=None):
    """Tokens and targets of a rank at a step."""
    rank = dist.get_rank() if rank is None else rank
    generator = torch.Generator().manual_seed(1000 * step + rank)
    tokens = torch.randint(0, 53, (8, 6), generator=generator)
    return tokens, tokens % 7


def loss_of(model, tokens, targets):
    return nn.functional.cross_entropy(model(tokens).reshape(-1, 7).float(), targets.reshape(-1))


def ranges_of(optimizer):
    """The holders of all flat ranges of an optimizer, each with its state."""
    pairs = [(getattr(key, "_nero_range", None), state) for key, state in optimizer.state.items()]
    return [(held, state) for held, state in pairs if held is not None]


def local_values(optimizer, values):
    """What this rank has of a tensor per range, as (name, start, values)."""
    return [
        (
            piece.name.strip("`"),
            piece.start,
            flat[piece.offset :][: piece.stop - piece.start].clone(),
        )
        for held, _ in ranges_of(optimizer)
        for piece in held.pieces
        for flat in [values(held.param)]
        if piece.stop > piece.start
    ]


def gathered(parts, mesh=None):
    """Whole tensors, flattened, by name, of the parts of all ranks."""
    group = None if mesh is None else mesh.get_group()
    every = [None] * dist.get_world_size(group)
    dist.all_gather_object(every, parts, group=group)
    found = {}
    for name, start, values in [part for rank in every for part in rank]:
        found.setdefault(name, []).append((start, values))
    return {
        name: torch.cat([values for _, values in sorted(each, key=lambda part: part[0])])
        for name, each in found.items()
    }


class Recorder:
    """Keeps what each step got, as the pieces of a rank."""

    def __init__(self, optimizer):
        self.optimizer, self.grads, self.num_calls = optimizer, {}, 0
        self.before = optimizer.rule.step
        optimizer.rule.step = self.step

    def step(self, updates, groups):
        self.num_calls += 1
        for update in updates:
            for piece in update.flat.pieces:
                if piece.stop > piece.start and update.has_grad:
                    grad = update.grad[piece.offset :][: piece.stop - piece.start].clone()
                    self.grads[piece.name.strip("`")] = (piece.start, grad)
        self.before(updates, groups)

    def whole(self):
        parts = [(name, *part) for name, part in self.grads.items()]
        self.grads = {}
        return gathered(parts)


def assert_same_bits(optimizer, reference, what=""):
    """Every rank compares all weights with those of a model that was never sharded."""
    mine = gathered(local_values(optimizer, lambda flat: flat.detach()))
    for name, param in reference.named_parameters():
        assert torch.equal(mine[name].view_as(param), param), (
            f"{what}: {name} differs by {(mine[name].view_as(param) - param).abs().max():.1e}"
        )

"""A mixture of experts: perceptrons of which a router chooses a few for each token."""

import torch
from torch import Tensor, nn

from nero_lab.models.block import Perceptron


class Experts(nn.Module):
    """A mixture of experts in place of an MLP: the sum of the chosen experts, weighted by their shares.

    The router gives every expert a share of every token, by softmax, and the ``num_active`` largest count.
    They are not rescaled to add up to one, so that the router learns even if it chooses a single expert.
    No expert is ever full. So a token's experts depend on that token alone, and the network stays causal.

    Args:
        width: features of the stream.
        num_experts: perceptrons to choose from.
        num_active: how many a token goes through.
    """

    imbalance: Tensor
    """How unevenly the last forward pass used the experts; it can be back-propagated.

        num_experts * sum over experts of (part of all choices) * (mean share)

    It is one if all are used equally, and ``num_experts`` if one expert has all tokens and shares. Parts
    are counts, without a gradient; shares carry it to the router (Fedus et al., 2021, equation 4).
    """

    def __init__(self, width: int, *, num_experts: int, num_active: int) -> None:
        super().__init__()
        if not 1 <= num_active <= num_experts:
            raise ValueError(
                f"a token can go through 1 to {num_experts} of {num_experts} experts, not {num_active}"
            )
        self.num_active = num_active
        self.router = nn.Linear(width, num_experts, bias=False)
        self.experts = nn.ModuleList(Perceptron(width) for _ in range(num_experts))

    def forward(self, features: Tensor) -> Tensor:
        """Return new features of the same shape, and keep the imbalance."""
        tokens = features.flatten(0, -2)
        shares = self.router(tokens).float().softmax(dim=-1)
        weights, chosen = shares.topk(self.num_active, dim=-1)
        self.imbalance = _imbalance(shares, chosen)
        mixed = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            # An expert without tokens is called too: its gradient is zero, and every rank has one.
            rows, places = (chosen == number).nonzero(as_tuple=True)
            seen = expert(tokens[rows]) * weights[rows, places, None]
            mixed = mixed.index_add(0, rows, seen.to(mixed.dtype))
        return mixed.view_as(features)


def mean_imbalance(model: nn.Module) -> Tensor:
    """Return the mean ``imbalance`` of the mixtures in a model, of its last forward pass."""
    found = [module.imbalance for module in model.modules() if isinstance(module, Experts)]
    return torch.stack(found).mean()


def _imbalance(shares: Tensor, chosen: Tensor) -> Tensor:
    num_experts = shares.shape[-1]
    parts = chosen.flatten().bincount(minlength=num_experts) / chosen.numel()
    return num_experts * (parts * shares.mean(dim=0)).sum()

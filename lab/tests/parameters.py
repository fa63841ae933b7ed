"""What the tests of several models ask about their parameters."""

from torch import nn


def num_params(model: nn.Module) -> int:
    return sum(param.numel() for param in model.parameters())


def inner_matrices(model: nn.Module) -> set[str]:
    """Return the names of the matrices outside the outer layers, all of which must be there."""
    outer = {
        param for name in model.outer_layers for param in model.get_submodule(name).parameters()
    }
    assert outer
    return {
        name for name, param in model.named_parameters() if param.ndim == 2 and param not in outer
    }

r"""Preset polar with query, key and value, or every head, orthogonalized separately.

In the folder of this file, for both functions and seeds 0, 1 and 2:

    nero-lab run shakespeare --optimizer fused_qkv:parts --lr 0.03 --seed 0

records/fused-qkv.json has the scores.
"""

from torch import Tensor, nn
from torch.optim import Optimizer

from nero import Nero, register_direction
from nero.core.polar import newton_schulz


def _register(name: str, num_blocks: int) -> None:
    def polar_of_blocks(matrices: Tensor) -> Tensor:
        blocks = matrices.unflatten(1, (num_blocks, -1)).flatten(0, 1)
        return newton_schulz(blocks).reshape(matrices.shape)

    register_direction(name, polar_of_blocks)


def _polar(model: nn.Module, lr: float, num_blocks: int) -> list[Optimizer]:
    name = f"polar-of-{num_blocks}"
    _register(name, num_blocks)
    overrides = {"*query_key_value.weight": {"direction": name}}
    return [Nero(model, lr, preset="polar", overrides=overrides)]


def parts(model: nn.Module, lr: float) -> list[Optimizer]:
    """Return preset polar with query, key and value orthogonalized separately."""
    return _polar(model, lr, 3)


def heads(model: nn.Module, lr: float) -> list[Optimizer]:
    """Return preset polar with each head's query, key and value orthogonalized separately."""
    (num_heads,) = {block.num_heads for block in model.modules() if hasattr(block, "num_heads")}
    return _polar(model, lr, 3 * num_heads)

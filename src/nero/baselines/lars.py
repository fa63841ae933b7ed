"""LARS: momentum SGD with a local rate a layer."""

from torch import Tensor

from nero.baselines.base import Baseline, zeros_for
from nero.functional import lars_update
from nero.functional.relative import LayerNorm
from nero.layout import Overrides
from nero.optim.base import Group, Params, State
from nero.optim.checks import check_non_negative, check_unit_interval


class Lars(Baseline):
    r"""Momentum SGD with a local rate a layer (You et al. 2017, Algorithm 1).

    $$
    \lambda_l = \tau\,\frac{\|w\|}{\|g\| + \lambda\|w\|} \qquad
    m \leftarrow \mu m + \eta\,\lambda_l\,(g + \lambda w) \qquad
    w \leftarrow w - m
    $$

    Args:
        params: a model, its parameters, or param groups.
        lr: global rate ``eta``. With the trust coefficient of the paper, a layer moves by
            ``0.001 * lr`` of its norm at a step.
        momentum: momentum ``mu``.
        weight_decay: decay ``lambda``.
        trust_coefficient: the paper's ``eta``, written ``tau`` above.
        maximize: maximise the objective.
        overrides: as in [`param_groups`][nero.param_groups]; needs a model.

    Note:
        Implementations differ. Ours is the paper's: the rate is inside the momentum buffer, and every
        tensor is a layer. Others keep the rate outside the buffer, use ``||g + lambda*w||`` as the
        denominator, add an epsilon, or leave biases and gains out.

    Example:
        >>> layer = nn.Linear(3, 2)
        >>> optimizer = nero.baselines.Lars(layer, lr=1.0)
        >>> layer(torch.randn(4, 3)).square().mean().backward()
        >>> optimizer.step()
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1.0,
        momentum: float = 0.9,
        weight_decay: float = 0.0005,
        trust_coefficient: float = 0.001,
        *,
        maximize: bool = False,
        overrides: Overrides = (),
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "trust_coefficient": trust_coefficient,
            "maximize": maximize,
        }
        super().__init__(params, defaults, overrides)

    def _check_group(self, group: Group) -> None:
        super()._check_group(group)
        check_unit_interval("momentum", group["momentum"])
        check_non_negative("weight_decay", group["weight_decay"])
        check_non_negative("trust_coefficient", group["trust_coefficient"])

    def _buffers(self, param: Tensor, group: Group) -> State:
        return {"momentum_buffer": zeros_for(param)}

    def _rule(
        self,
        weight: Tensor,
        grad: Tensor,
        state: State,
        group: Group,
        step: Tensor,
        layer_norm: LayerNorm,
    ) -> tuple[Tensor, State]:
        weight, momentum_buffer = lars_update(
            weight,
            grad,
            state["momentum_buffer"],
            lr=group["lr"],
            momentum=group["momentum"],
            weight_decay=group["weight_decay"],
            trust_coefficient=group["trust_coefficient"],
            layer_norm=layer_norm,
        )
        return weight, {"momentum_buffer": momentum_buffer}

"""LARS: momentum SGD with a local learning rate per layer."""

from typing import ClassVar, NoReturn

from torch import Tensor

from nero.baselines.base import COUNTER, LayerRule
from nero.core.relative import LayerNorm, lars_update
from nero.core.spec import StateSpec, flag, non_negative, unit_interval
from nero.layout import Overrides
from nero.layout.given import Params
from nero.optim.base import RelativeOptimizer
from nero.optim.rule import Group, State


class LarsRule(LayerRule):
    """Lars's options, state and step."""

    options: ClassVar = {
        "momentum": unit_interval,
        "weight_decay": non_negative,
        "trust_coefficient": non_negative,
        "maximize": flag,
    }
    state: ClassVar = {**COUNTER, "momentum_buffer": StateSpec("per element")}

    def update(
        self, weight: Tensor, grad: Tensor, state: State, options: Group, norm: LayerNorm
    ) -> tuple[Tensor, State]:
        """Step once."""
        weight, momentum_buffer = lars_update(
            weight,
            grad,
            state["momentum_buffer"],
            lr=options["lr"],
            momentum=options["momentum"],
            weight_decay=options["weight_decay"],
            trust_coefficient=options["trust_coefficient"],
            layer_norm=norm,
        )
        return weight, {"momentum_buffer": momentum_buffer}


class Lars(RelativeOptimizer):
    r"""Momentum SGD with a local learning rate per layer (You et al. 2017, Algorithm 1).

    $$
    \lambda_l = \tau\,\frac{\|w\|}{\|g\| + \lambda\|w\|} \qquad
    m \leftarrow \mu m + \eta\,\lambda_l\,(g + \lambda w) \qquad
    w \leftarrow w - m
    $$

    Args:
        params: a model, its parameters, or param groups.
        lr: global learning rate ``eta``. With the paper's trust coefficient, a step moves a layer by
            ``0.001 * lr`` of its norm.
        momentum: momentum ``mu``.
        weight_decay: decay ``lambda``.
        trust_coefficient: the paper's ``eta``, written ``tau`` above.
        maximize: maximize the objective.
        overrides: as in [`param_groups`][nero.param_groups]; needs a model.

    Note:
        Implementations differ. Ours follows the paper: the learning rate is inside the momentum buffer,
        and every tensor is a layer. Others keep the learning rate outside the buffer, use
        ``||g + lambda*w||`` as the denominator, add an epsilon, or leave biases and gains out.

    Example:
        >>> layer = nn.Linear(3, 2)
        >>> optimizer = nero.baselines.Lars(layer, lr=1.0)
        >>> layer(torch.randn(4, 3)).square().mean().backward()
        >>> optimizer.step()
    """

    rule_type = LarsRule

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
        **unknown: NoReturn,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "trust_coefficient": trust_coefficient,
            "maximize": maximize,
        }
        super().__init__(params, defaults, overrides, unknown=unknown)

"""LAMB: Adam's direction, relative per layer."""

import math
from typing import ClassVar, NoReturn

from torch import Tensor

from nero.baselines.base import COUNTER, LayerRule
from nero.core.relative import LayerNorm, lamb_update
from nero.core.spec import StateSpec, flag, non_negative, positive, unit_intervals
from nero.layout import Overrides
from nero.layout.given import Params
from nero.optim.base import RelativeOptimizer
from nero.optim.rule import Group, State


class LambRule(LayerRule):
    """Lamb's options, state and step."""

    options: ClassVar = {
        "betas": unit_intervals,
        "eps": non_negative,
        "weight_decay": non_negative,
        "max_norm": positive,
        "maximize": flag,
    }
    state: ClassVar = {
        **COUNTER,
        "exp_avg": StateSpec("per element"),
        "exp_avg_sq": StateSpec("per element"),
    }

    def update(
        self, weight: Tensor, grad: Tensor, state: State, options: Group, norm: LayerNorm
    ) -> tuple[Tensor, State]:
        """Step once."""
        weight, exp_avg, exp_avg_sq = lamb_update(
            weight,
            grad,
            state["exp_avg"],
            state["exp_avg_sq"],
            step=state["step"],
            lr=options["lr"],
            betas=options["betas"],
            eps=options["eps"],
            weight_decay=options["weight_decay"],
            max_norm=options["max_norm"],
            layer_norm=norm,
        )
        return weight, {"exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq}


class Lamb(RelativeOptimizer):
    r"""Adam's direction with the layer's norm (You et al. 2020, Algorithm 2).

    $$
    u = \hat m/(\sqrt{\hat v} + \epsilon) + \lambda w \qquad
    w \leftarrow w - \eta\,\frac{\phi(\|w\|)}{\|u\|}\,u
    $$

    Args:
        params: a model, its parameters, or param groups.
        lr: step size ``eta``. The paper tunes it per task and batch size; 0.001 is common.
        betas: decay rates of the first and second moments. The Nero paper uses (0, 0.999).
        eps: added to the root of the second moment.
        weight_decay: decay ``lambda``, inside the trust ratio.
        max_norm: upper bound of a layer's norm: ``phi(z) = min(z, max_norm)``.
        maximize: maximize the objective.
        overrides: as in [`param_groups`][nero.param_groups]; needs a model.

    Note:
        Implementations differ. Ours follows the paper: both moments are bias-corrected, and ``phi`` is the
        identity unless ``max_norm`` is given. The Nero authors' code has ``max_norm = 10``, which slows
        large layers down, and no bias correction. Many others leave biases and gains out of the trust
        ratio; here no group option does that.

    Example:
        >>> layer = nn.Linear(3, 2)
        >>> optimizer = nero.baselines.Lamb(layer, lr=0.01)
        >>> layer(torch.randn(4, 3)).square().mean().backward()
        >>> optimizer.step()
    """

    rule_type = LambRule

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        *,
        max_norm: float = math.inf,
        maximize: bool = False,
        overrides: Overrides = (),
        **unknown: NoReturn,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "max_norm": max_norm,
            "maximize": maximize,
        }
        super().__init__(params, defaults, overrides, unknown=unknown)

"""Madam: multiplicative updates, relative per synapse."""

from collections.abc import Callable
from typing import ClassVar, NoReturn

import torch
from torch import Tensor

from nero.baselines.base import COUNTER, LayerRule
from nero.core.relative import LayerNorm, madam_update, sum_of_squares
from nero.core.sharding import full_tensor
from nero.core.spec import StateSpec, flag, positive, unit_interval
from nero.layout import Overrides
from nero.layout.given import Params
from nero.optim.base import RelativeOptimizer
from nero.optim.rule import Group, State


def _root_mean_square(param: Tensor, group: Group, norms: Callable[[], Tensor]) -> Tensor:
    mean_sq = full_tensor(sum_of_squares(param)) / max(param.numel(), 1)
    return torch.sqrt(mean_sq)


class MadamRule(LayerRule):
    """Madam's options, state and step."""

    options: ClassVar = {
        "beta": unit_interval,
        "max_ratio": positive,
        "weight_bound": positive,
        "maximize": flag,
    }
    state: ClassVar = {
        **COUNTER,
        "exp_avg_sq": StateSpec("per element"),
        "scale": StateSpec("scalar", initial=_root_mean_square, is_written=False),
    }

    def update(
        self, weight: Tensor, grad: Tensor, state: State, options: Group, norm: LayerNorm
    ) -> tuple[Tensor, State]:
        """Step once."""
        weight, exp_avg_sq = madam_update(
            weight,
            grad,
            state["exp_avg_sq"],
            max_weight=options["weight_bound"] * state["scale"],
            step=state["step"],
            lr=options["lr"],
            beta=options["beta"],
            max_ratio=options["max_ratio"],
        )
        return weight, {"exp_avg_sq": exp_avg_sq}


class Madam(RelativeOptimizer):
    r"""Multiply each weight by a factor near one (Bernstein et al. 2020, Algorithm 1).

    $$
    w \leftarrow w \odot \exp\bigl(-\eta\,\mathrm{sign}(w) \odot
        \mathrm{clamp}_{\eta^*/\eta}(g/\bar g)\bigr) \qquad
    w \leftarrow \mathrm{clamp}_{\sigma^*}(w)
    $$

    Args:
        params: a model, its parameters, or param groups.
        lr: step size ``eta``.
        beta: decay rate of the mean squared gradient.
        max_ratio: largest ``|g|/g_bar``, the paper's ``eta*/eta``.
        weight_bound: largest weight in units of its tensor's initial root mean square, the paper's
            ``sigma*/sigma``.
        maximize: maximize the objective.
        overrides: as in [`param_groups`][nero.param_groups]; needs a model.

    Note:
        - Zero-initialized parameters never move, since updates are factors. Give biases a non-zero
          initialization.
        - The authors' code uses ``max_ratio = 10``. Like ours, it corrects the average's bias, which the
          paper's pseudocode does not.

    Example:
        >>> layer = nn.Linear(3, 2)
        >>> optimizer = nero.baselines.Madam(layer)
        >>> layer(torch.randn(4, 3)).square().mean().backward()
        >>> optimizer.step()
    """

    rule_type = MadamRule

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 0.01,
        beta: float = 0.999,
        *,
        max_ratio: float = 8.0,
        weight_bound: float = 3.0,
        maximize: bool = False,
        overrides: Overrides = (),
        **unknown: NoReturn,
    ) -> None:
        defaults = {
            "lr": lr,
            "beta": beta,
            "max_ratio": max_ratio,
            "weight_bound": weight_bound,
            "maximize": maximize,
        }
        super().__init__(params, defaults, overrides, unknown=unknown)

"""Fromage: a step of fixed size relative to the layer."""

from typing import ClassVar, NoReturn

from torch import Tensor

from nero.baselines.base import COUNTER, LayerRule
from nero.core.relative import LayerNorm, fromage_update
from nero.core.spec import flag
from nero.layout import Overrides
from nero.layout.given import Params
from nero.optim.base import RelativeOptimizer
from nero.optim.rule import Group, State


class FromageRule(LayerRule):
    """Fromage's options, state and step."""

    options: ClassVar = {"maximize": flag}
    state = COUNTER

    def update(
        self, weight: Tensor, grad: Tensor, state: State, options: Group, norm: LayerNorm
    ) -> tuple[Tensor, State]:
        """Step once."""
        return fromage_update(weight, grad, lr=options["lr"], layer_norm=norm), {}


class Fromage(RelativeOptimizer):
    r"""Step by a fraction of the layer's norm (Bernstein et al. 2020, Algorithm 1).

    $$
    w \leftarrow \frac{1}{\sqrt{1+\eta^2}}\Bigl(w - \eta\,\frac{\|w\|}{\|g\|}\,g\Bigr)
    $$

    Args:
        params: a model, its parameters, or param groups.
        lr: step size ``eta``, as a fraction of the layer's norm.
        maximize: maximize the objective.
        overrides: as in [`param_groups`][nero.param_groups]; needs a model.

    Note:
        The authors' code can also clip weights to a multiple of their initial norm (``p_bound``). Ours
        cannot; to bound weights use ``Balanced(Fromage(...))``.

    Example:
        >>> layer = nn.Linear(3, 2)
        >>> optimizer = nero.baselines.Fromage(layer)
        >>> layer(torch.randn(4, 3)).square().mean().backward()
        >>> optimizer.step()
    """

    rule_type = FromageRule

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 0.01,
        *,
        maximize: bool = False,
        overrides: Overrides = (),
        **unknown: NoReturn,
    ) -> None:
        super().__init__(params, {"lr": lr, "maximize": maximize}, overrides, unknown=unknown)

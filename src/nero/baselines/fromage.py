"""Fromage: a step of fixed size relative to the layer."""

from typing import ClassVar, NoReturn

from torch import Tensor

from nero.baselines.base import COUNTER, Baseline
from nero.core.relative import LayerNorm, fromage_update
from nero.core.spec import flag
from nero.layout import Overrides
from nero.optim.base import Group, Params, State


class Fromage(Baseline):
    r"""Step by a fraction of the layer's norm (Bernstein et al. 2020, Algorithm 1).

    $$
    w \leftarrow \frac{1}{\sqrt{1+\eta^2}}\Bigl(w - \eta\,\frac{\|w\|}{\|g\|}\,g\Bigr)
    $$

    Args:
        params: a model, its parameters, or param groups.
        lr: step size ``eta``, as a fraction of the layer's norm.
        maximize: maximise the objective.
        overrides: as in [`param_groups`][nero.param_groups]; needs a model.

    Note:
        The authors' code can also clip weights to a multiple of their initial norm (``p_bound``);
        ours does not: for a bounded domain use ``Balanced(Fromage(...))``.

    Example:
        >>> layer = nn.Linear(3, 2)
        >>> optimizer = nero.baselines.Fromage(layer)
        >>> layer(torch.randn(4, 3)).square().mean().backward()
        >>> optimizer.step()
    """

    readers: ClassVar = {"maximize": flag}
    state_specs = COUNTER

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

    def _rule(
        self, weight: Tensor, grad: Tensor, state: State, group: Group, norm: LayerNorm
    ) -> tuple[Tensor, State]:
        return fromage_update(weight, grad, lr=group["lr"], layer_norm=norm), {}

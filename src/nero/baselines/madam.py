"""Madam: multiplicative updates, relative per synapse."""

import torch
from torch import Tensor

from nero.baselines.base import Baseline, zeros_for
from nero.functional import madam_update, working_dtype
from nero.functional.relative import LayerNorm, sum_of_squares
from nero.functional.sharding import whole
from nero.layout import Overrides
from nero.optim.base import Group, Params, State
from nero.optim.checks import check_positive, check_unit_interval


class Madam(Baseline):
    r"""Multiply each weight by a factor near one (Bernstein et al. 2020, Algorithm 1).

    $$
    w \leftarrow w \odot \exp\bigl(-\eta\,\mathrm{sign}(w) \odot
        \mathrm{clamp}_{\eta^*/\eta}(g/\bar g)\bigr) \qquad
    w \leftarrow \mathrm{clamp}_{\sigma^*}(w)
    $$

    Args:
        params: a model, its parameters, or param groups.
        lr: step size ``eta``.
        beta: averaging constant of the squared gradient.
        max_ratio: largest ``|g|/g_bar``, the paper's ``eta*/eta``.
        weight_bound: largest weight in units of the initial root mean square of its tensor, the
            paper's ``sigma*/sigma``.
        maximize: maximise the objective.
        overrides: as in [`param_groups`][nero.param_groups]; needs a model.

    Note:
        - A factor keeps zero at zero: zero-initialised parameters never move. Give biases a non-zero
          initialisation.
        - The authors' code allows ``max_ratio = 10``. It and ours bias-correct the average; the
          paper's pseudocode does not.

    Example:
        >>> layer = nn.Linear(3, 2)
        >>> optimizer = nero.baselines.Madam(layer)
        >>> layer(torch.randn(4, 3)).square().mean().backward()
        >>> optimizer.step()
    """

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
    ) -> None:
        defaults = {
            "lr": lr,
            "beta": beta,
            "max_ratio": max_ratio,
            "weight_bound": weight_bound,
            "maximize": maximize,
        }
        super().__init__(params, defaults, overrides)

    def _check_group(self, group: Group) -> None:
        super()._check_group(group)
        check_unit_interval("beta", group["beta"])
        check_positive("max_ratio", group["max_ratio"])
        check_positive("weight_bound", group["weight_bound"])

    def _buffers(self, param: Tensor, group: Group) -> State:
        mean_sq = whole(sum_of_squares(param)) / max(param.numel(), 1)
        scale = torch.sqrt(mean_sq).to(working_dtype(param.dtype))
        return {"exp_avg_sq": zeros_for(param), "scale": scale}

    def _rule(
        self,
        weight: Tensor,
        grad: Tensor,
        state: State,
        group: Group,
        step: Tensor,
        layer_norm: LayerNorm,
    ) -> tuple[Tensor, State]:
        weight, exp_avg_sq = madam_update(
            weight,
            grad,
            state["exp_avg_sq"],
            max_weight=group["weight_bound"] * state["scale"],
            step=step,
            lr=group["lr"],
            beta=group["beta"],
            max_ratio=group["max_ratio"],
        )
        return weight, {"exp_avg_sq": exp_avg_sq}

r"""Is a step stable, and was that predictable? Both sides of Definitions 3 and 4, measured.

A step is stable (Definition 3) if in every layer the gradient changes, relatively, by less than the
cosine between the step and the negative gradient. Deep relative trust (Definition 4) is a model of
that change, which needs no second gradient: it multiplies the relative steps of all layers.
"""

import copy
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from torch import Tensor, nn
from torch.optim import LBFGS, Optimizer

from nero.core.arguments import kind_of, whole_number
from nero.core.neurons import NEURON_ROLES, ROLES
from nero.core.relative import sum_of_squares
from nero.diagnostics.neurons import neurons_of_model
from nero.functional import sum_dtype
from nero.layout import Overrides
from nero.tables import aligned
from nero_tools.theory.evaluation import (
    LossFn,
    check_model,
    check_names,
    kept_random_state,
    loss_and_gradients,
)
from nero_tools.theory.relative_step import layer_step, relative_size


@dataclass(frozen=True)
class LayerTrust:
    """One layer's part of [`relative_trust`][nero_tools.theory.relative_trust]."""

    name: str
    weight_change: float
    """The relative step of this layer: norm of dW over norm of W."""
    trust: float
    """Right side of Definition 4, the same for all layers."""
    gradient_change: float
    """Left side of Definitions 3 and 4: the relative change of the gradient after the step."""
    largest_change: float
    """The largest relative change of the gradient at any checked point of the step."""
    cosine: float
    """Right side of Definition 3; NaN where the step or the gradient is zero."""

    @property
    def obeys_trust(self) -> bool:
        """Whether the inequality of deep relative trust holds (Definition 4)."""
        return self.gradient_change <= self.trust

    @property
    def is_stable(self) -> bool:
        """Whether the step is stable here (Definition 3); a layer that does not move is."""
        return self.weight_change == 0 or self.largest_change < self.cosine


@dataclass(frozen=True)
class RelativeTrust:
    """What [`relative_trust`][nero_tools.theory.relative_trust] measured: print it, or read ``layers``."""

    layers: tuple[LayerTrust, ...]
    loss: float
    loss_after: float

    @property
    def obeys_trust(self) -> bool:
        """Whether the inequality of Definition 4 holds in every layer."""
        return all(layer.obeys_trust for layer in self.layers)

    @property
    def is_stable(self) -> bool:
        """Whether the step is stable: Definition 3 holds in every layer."""
        return all(layer.is_stable for layer in self.layers)

    def __str__(self) -> str:
        rows = [["layer", "step", "trust", "gradient change", "cosine", "trusted", "stable"]]
        for x in self.layers:
            numbers = (x.weight_change, x.trust, x.gradient_change, x.cosine)
            claims = ("yes" if claim else "no" for claim in (x.obeys_trust, x.is_stable))
            rows.append([x.name, *(f"{number:.4f}" for number in numbers), *claims])
        return f"{aligned(rows)}\n\nloss {self.loss:.6g} before the step, {self.loss_after:.6g} after it"


def relative_trust(
    model: nn.Module,
    loss_fn: LossFn,
    update: Mapping[str, Tensor],
    *,
    num_points: int = 1,
    roles: Collection[str] = NEURON_ROLES,
    overrides: Overrides = (),
) -> RelativeTrust:
    r"""Measure both sides of Definitions 3 and 4 for a step that a model might take.

    The left side, for each layer, and the right side of deep relative trust are

    $$
    \frac{\lVert \nabla_{W_l} \mathcal{L}(W + \Delta W) - \nabla_{W_l} \mathcal{L}(W) \rVert_F}
         {\lVert \nabla_{W_l} \mathcal{L}(W) \rVert_F}
    \qquad
    \prod_{k=1}^L \Bigl( 1 + \frac{\lVert \Delta W_k \rVert_F}{\lVert W_k \rVert_F} \Bigr) - 1
    $$

    The right side of stability is the cosine between the step and the negative gradient. The model
    is not changed, and neither is any ``.grad``, buffer or random state.

    Args:
        model: the model, at the weights where the step begins.
        loss_fn: from the model to its loss, on the same batch whenever it is called.
        update: the step of each parameter, by name, such as
            [`proposed_update`][nero_tools.theory.proposed_update] returns it.
        num_points: points of the step at which the gradient is compared with the first one. One is
            the end, as Definition 3 says. See the note.
        roles: which parameters are layers. Definition 4 is about weight matrices, so by default
            biases and gains stay where they are, whatever ``update`` says of them.
        overrides: as in [`param_groups`][nero.param_groups].

    Note:
        A stable step lowers the loss if the gradient obeys the inequality *all along* it.
        Definition 3 checks its end only, where the gradient may be back to what it was.
        ``num_points=8`` checks eight points: a better test, but not a proof.

        A layer of zeros has an infinite relative step, and a gradient of zero an infinite relative
        change.

    Example:
        >>> from nero_tools.theory import proposed_update, relative_trust
        >>> model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
        >>> x, optimizer = torch.randn(32, 8), nero.Nero(model)
        >>> loss_fn = lambda model: (model(x).squeeze() - x[:, 0]).square().mean()
        >>> loss_fn(model).backward()
        >>> trust = relative_trust(model, loss_fn, proposed_update(model, optimizer))
        >>> trust.is_stable, trust.loss_after < trust.loss
        (True, True)
        >>> f"{trust.layers[0].trust:.4f}"  # two layers, each stepping by less than lr=0.01
        '0.0166'
    """
    num_points = whole_number("num_points", num_points, smallest=1)
    if not callable(loss_fn):
        raise TypeError(f"loss_fn must be a function of the model, not {kind_of(loss_fn)}")
    if not isinstance(roles, Collection):
        raise TypeError(f"roles must be several of {ROLES}, not {roles!r}")
    check_names(model, update)
    layers = neurons_of_model(model, overrides=overrides)
    weights = {
        each.name: each.param.detach()
        for each in layers
        if each.name in update and each.neurons.role in roles
    }
    if not weights:
        raise ValueError(
            f"update must name a parameter whose role is one of {tuple(roles)}; describe(model) lists them"
        )
    steps = {name: update[name].detach() for name in weights}

    loss, grads = loss_and_gradients(model, loss_fn, weights)
    changes: dict[str, list[float]] = {name: [] for name in weights}
    for point in range(1, num_points + 1):
        there = {
            name: (_precise(weight) + point / num_points * _precise(steps[name])).to(weight.dtype)
            for name, weight in weights.items()
        }
        loss_after, new_grads = loss_and_gradients(model, loss_fn, there)
        for name in weights:
            changes[name].append(layer_step(grads[name], new_grads[name]))

    step_sizes = {name: relative_size(steps[name], weight) for name, weight in weights.items()}
    # prod(1 + r) - 1, without losing the digits of small r.
    trust = math.expm1(sum(math.log1p(step) for step in step_sizes.values()))
    measured = (
        LayerTrust(name, size, trust, change[-1], max(change), _cosine(steps[name], grads[name]))
        for (name, size), change in zip(step_sizes.items(), changes.values(), strict=True)
    )
    return RelativeTrust(tuple(measured), loss, loss_after)


def proposed_update(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """Return what ``optimizer.step()`` would add to each parameter, without taking the step.

    A copy of the model and the optimizer takes it. Their gradients must be there already, so optimizers
    that need a closure, such as LBFGS, propose nothing.

    Returns:
        The step of every parameter that the optimizer would change, by name, in float64.

    Example:
        >>> from nero_tools.theory import proposed_update
        >>> layer = nn.Linear(2, 1, bias=False)
        >>> layer.weight.grad = torch.tensor([[1.0, 2.0]])
        >>> proposed_update(layer, torch.optim.SGD(layer.parameters(), lr=0.5))["weight"]
        tensor([[-0.5000, -1.0000]], dtype=torch.float64)
    """
    check_model(model)
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"optimizer must be a torch.optim.Optimizer, not {kind_of(optimizer)}")
    if isinstance(optimizer, LBFGS):
        raise TypeError("optimizer must step without a closure, which LBFGS cannot: use another")
    params = dict(model.named_parameters())
    members = {*params.values()}
    if not any(param in members for group in optimizer.param_groups for param in group["params"]):
        raise ValueError(
            "the optimizer has no parameters of this model: pass the model that it was built for"
        )
    # Copied together, so that the second optimizer holds the parameters of the second model.
    other_model, other_optimizer = copy.deepcopy((model, optimizer))
    others = dict(other_model.named_parameters())
    for name, param in params.items():
        others[name].grad = None if param.grad is None else param.grad.clone()
    with kept_random_state(model):
        other_optimizer.step()
    update = {
        name: _precise(others[name].detach()) - _precise(param.detach())
        for name, param in params.items()
    }
    return {name: step for name, step in update.items() if step.any()}


def _cosine(step: Tensor, grad: Tensor) -> float:
    norms = math.sqrt(sum_of_squares(step).item()) * math.sqrt(sum_of_squares(grad).item())
    return -(_precise(step) * _precise(grad)).sum().item() / norms if norms > 0 else math.nan


def _precise(tensor: Tensor) -> Tensor:
    return tensor.to(sum_dtype(tensor))

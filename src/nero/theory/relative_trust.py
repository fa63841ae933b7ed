r"""Is a step stable, and could one have known? Both sides of Definitions 3 and 4, measured.

A step is stable (Definition 3) if in every layer the gradient changes, relatively, by less than the
cosine between the step and the negative gradient. Deep relative trust (Definition 4) is a model of
that change, which needs no second gradient: it multiplies the relative steps of all layers.
"""

import copy
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from torch import Tensor, nn
from torch.optim import Optimizer

from nero.functional import sum_dtype
from nero.core.relative import sum_of_squares
from nero.layout import Overrides
from nero.layout.groups import resolve
from nero.tables import aligned
from nero.theory.evaluation import LossFn, check_names, kept_random_state, loss_and_gradients


@dataclass(frozen=True)
class LayerTrust:
    """One layer's part of [`relative_trust`][nero.theory.relative_trust].

    Example:
        >>> from nero.theory import LayerTrust
        >>> LayerTrust("0.weight", 0.01, 0.3, 0.2, 0.2, cosine=1.0).is_stable
        True
    """

    name: str
    weight_change: float
    """The relative step of this layer: norm of dW over norm of W."""
    trust: float
    """Right side of Definition 4, the same for all layers."""
    gradient_change: float
    """Left side of Definitions 3 and 4: the relative change of the gradient after the step."""
    largest_change: float
    """The largest relative change of the gradient at any point of the step that was looked at."""
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
    """What [`relative_trust`][nero.theory.relative_trust] measured: print it, or read ``layers``.

    Example:
        >>> from nero.theory import LayerTrust, RelativeTrust
        >>> layer = LayerTrust("0.weight", 0.01, 0.3, 0.2, 0.2, cosine=1.0)
        >>> RelativeTrust((layer,), loss=1.0, loss_after=0.9).is_stable
        True
    """

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
    roles: Collection[str] = ("neuron",),
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
    is not changed, not one bit, and neither is any ``.grad``, buffer or random state.

    Args:
        model: the model, at the weights where the step begins.
        loss_fn: from the model to its loss, on the same batch whenever it is called.
        update: the step of each parameter, by name, such as
            [`proposed_update`][nero.theory.proposed_update] returns it.
        num_points: points of the step at which the gradient is compared with the first one. One is
            the end, as Definition 3 says. See the note.
        roles: which parameters are layers. Definition 4 is about weight matrices, so by default
            biases and gains stay where they are, whatever ``update`` says of them.
        overrides: as in [`param_groups`][nero.param_groups].

    Note:
        A stable step lowers the loss if the gradient obeys the inequality *all along* it.
        Definition 3 looks at its end only, where the gradient may be back to what it was.
        ``num_points=8`` looks at eight points; a step that is stable by all of them has passed a
        better test, but no proof.

        A layer of zeros has an infinite relative step, and a gradient of zero an infinite relative
        change.

    Example:
        >>> from nero.theory import proposed_update, relative_trust
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
    if num_points < 1:
        raise ValueError(f"num_points must be 1 or more, but is {num_points}")
    params = check_names(model, update)
    names = [
        found.name
        for found, _, _ in resolve(model, overrides)
        if found.name in update and found.layout.role in roles
    ]
    if not names:
        raise ValueError(f"update names no parameter whose role is one of {tuple(roles)}")
    weights = {name: params[name].detach() for name in names}
    steps = {name: update[name].detach() for name in names}

    loss, grads = loss_and_gradients(model, loss_fn, weights)
    sizes = {name: _norm(grad) for name, grad in grads.items()}
    changes: dict[str, list[float]] = {name: [] for name in names}
    for point in range(1, num_points + 1):
        there = _move(weights, steps, point / num_points)
        loss_after, new_grads = loss_and_gradients(model, loss_fn, there)
        for name in names:
            change = _norm(_precise(new_grads[name]) - _precise(grads[name]))
            changes[name].append(_ratio(change, sizes[name]))

    step_sizes = {name: _ratio(_norm(steps[name]), _norm(weights[name])) for name in names}
    # prod(1 + r) - 1, without losing the digits of small r.
    trust = math.expm1(sum(math.log1p(step) for step in step_sizes.values()))
    layers = [
        LayerTrust(
            name,
            step_sizes[name],
            trust,
            changes[name][-1],
            max(changes[name]),
            _cosine(steps[name], grads[name]),
        )
        for name in names
    ]
    return RelativeTrust(tuple(layers), loss, loss_after)


def proposed_update(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """Return what ``optimizer.step()`` would add to each parameter, without taking the step.

    A copy of the model and the optimiser takes it. Their gradients must be there already, so optimisers
    that need a closure, such as LBFGS, propose nothing.

    Returns:
        The step of every parameter that the optimiser would change, by name, in float64.

    Example:
        >>> from nero.theory import proposed_update
        >>> layer = nn.Linear(2, 1, bias=False)
        >>> layer.weight.grad = torch.tensor([[1.0, 2.0]])
        >>> proposed_update(layer, torch.optim.SGD(layer.parameters(), lr=0.5))["weight"]
        tensor([[-0.5000, -1.0000]], dtype=torch.float64)
    """
    params = check_names(model, {})
    # Copied together, so that the second optimiser holds the parameters of the second model.
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


def _move(
    weights: Mapping[str, Tensor], steps: Mapping[str, Tensor], fraction: float
) -> dict[str, Tensor]:
    return {
        name: (_precise(weight) + fraction * _precise(steps[name])).to(weight.dtype)
        for name, weight in weights.items()
    }


def _cosine(step: Tensor, grad: Tensor) -> float:
    sizes = _norm(step) * _norm(grad)
    return -(_precise(step) * _precise(grad)).sum().item() / sizes if sizes > 0 else math.nan


def _precise(tensor: Tensor) -> Tensor:
    return tensor.to(sum_dtype(tensor))


def _norm(tensor: Tensor) -> float:
    return math.sqrt(sum_of_squares(tensor).item())


def _ratio(numerator: float, denominator: float) -> float:
    if denominator == 0:
        return 0.0 if numerator == 0 else math.inf
    return numerator / denominator

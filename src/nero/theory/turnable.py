"""All neurons of a classifier, to be turned together, and the margins of its samples."""

import math
from typing import TypeAlias

import torch
from torch import Tensor, nn

from nero.diagnostics.neurons import NamedNeurons, neurons_of_model
from nero.functional import BALANCED, MEAN_ONLY, Sphere, is_balanced, sum_dtype
from nero.layout import Overrides
from nero.theory.evaluation import check_names, evaluate, loss_and_gradients
from nero.theory.rotation import Rotation

Weights: TypeAlias = dict[str, Tensor]
"""Tensors by parameter name."""


class TurnableNeurons:
    """The neurons of a model, and all its samples.

    Weights are held in summing precision, as their layout views them; `stored` returns them as the model
    has them. The model itself is only read. The arguments are those of
    [`search_robustness`][nero.theory.search_robustness].

    Raises:
        ValueError: if there is nothing to turn, or a neuron is not centred that should be.

    Example:
        >>> from nero.theory.turnable import TurnableNeurons
        >>> layer = nn.Linear(3, 2, bias=False)
        >>> _ = layer.weight.data.copy_(torch.tensor([[1.0, -1.0, 0.0], [0.0, -1.0, 1.0]]))
        >>> neurons = TurnableNeurons(layer, torch.eye(3), torch.tensor([0, 1, 1]))
        >>> neurons.margins(neurons.origin)
        tensor([1., 0., 1.])
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: Tensor,
        labels: Tensor,
        *,
        constraint: Sphere | str = BALANCED,
        overrides: Overrides = (),
    ) -> None:
        self._model, self._inputs, self._labels = model, inputs, labels
        check_names(model, dict(model.named_parameters()))
        self._params: dict[str, NamedNeurons] = {}
        self._rotations: dict[str, Rotation] = {}
        for each in neurons_of_model(model, constraint=constraint, overrides=overrides):
            if each.neurons.is_elementwise or not each.param.requires_grad:
                continue
            view, dims = each.neurons.view(each.param.detach()), each.neurons.fan_in_dims
            is_centred = is_balanced(view, fan_in_dims=dims, constraint=MEAN_ONLY)
            if each.sphere.centre and not is_centred.all():
                raise ValueError(
                    f"neurons of `{each.name}` do not have mean zero: balance them with "
                    'nero.project_, or pass constraint="norm"'
                )
            self._params[each.name] = each
            self._rotations[each.name] = Rotation(dims, each.sphere.centre)
        if not self._params:
            raise ValueError("the model has no neurons that could be turned")
        self.origin = self._views({name: p.param.detach() for name, p in self._params.items()})
        """The weights of the model."""

    def margins(self, weights: Weights) -> Tensor:
        """Return each sample's margin: the logit of its class, less the largest of the others."""
        with torch.no_grad():
            return evaluate(self._model, self._margins, self.stored(weights))

    def margin_gradient(self, weights: Weights, sample: int | None) -> tuple[float, Weights]:
        """Return the margin of a sample, or the smallest of all, and its gradient."""

        def margin(model: nn.Module) -> Tensor:
            margins = self._margins(model)
            return margins.min() if sample is None else margins[sample]

        value, grads = loss_and_gradients(self._model, margin, self.stored(weights))
        return value, self._views(grads)

    def first_order_angle(self, sample: int) -> float:
        """Return the angle at which a sample would be misclassified if its margin were linear."""
        margin, grads = self.margin_gradient(self.origin, sample)
        # Turned by alpha, a neuron can lower the margin by alpha * ||w|| * ||g across w||.
        slope = 0.0
        for name, rotation in self._rotations.items():
            across = rotation.part_across(self.origin[name], grads[name])
            slope += (rotation.norm(self.origin[name]) * rotation.norm(across)).sum().item()
        return margin / slope if slope > 0 else math.inf

    def stored(self, weights: Weights) -> Weights:
        """Return weights as the model would store them."""
        params = {name: self._params[name].param for name in weights}
        return {n: w.reshape(params[n].shape).to(params[n].dtype) for n, w in weights.items()}

    def largest_angle(self, weights: Weights) -> float:
        """Return the angle of the neuron that has turned most, as the model would store it."""
        stored = self._views(self.stored(weights))
        return max(self._angles(name, w).max().item() for name, w in stored.items())

    def turn_against(self, weights: Weights, grads: Weights, angle_rad: float) -> Weights:
        """Turn every neuron by an angle against its gradient; one without gradient stays."""
        turns = self._rotations
        return {n: turns[n].towards(w, -grads[n], angle_rad) for n, w in weights.items()}

    def turn_at_random(self, angle_rad: float, generator: torch.Generator) -> Weights:
        """Turn every neuron of the model by an angle, in a random direction."""
        turns = self._rotations
        return {n: turns[n].at_random(w, angle_rad, generator) for n, w in self.origin.items()}

    def pull_back(self, weights: Weights, max_angle_rad: float) -> Weights:
        """Turn neurons towards those of the model, until they are within an angle of them."""
        return {
            name: self._rotations[name].into_cap(w, self.origin[name], max_angle_rad)
            for name, w in weights.items()
        }

    def take_share(self, weights: Weights, share: float) -> Weights:
        """Turn neurons of the model towards ``weights``, by a share of the angle between them."""
        return {
            name: self._rotations[name].towards(self.origin[name], w, share * self._angles(name, w))
            for name, w in weights.items()
        }

    def _angles(self, name: str, weight: Tensor) -> Tensor:
        # A neuron of zeros has no direction, and does not turn.
        return self._rotations[name].angle(self.origin[name], weight).nan_to_num(0.0)

    def _views(self, weights: Weights) -> Weights:
        precise = {name: w.to(sum_dtype(w)) for name, w in weights.items()}
        return {name: self._params[name].neurons.view(w) for name, w in precise.items()}

    def _margins(self, model: nn.Module) -> Tensor:
        logits = model(self._inputs)
        right = self._labels.unsqueeze(1)
        others = logits.scatter(1, right, -torch.inf)
        margins: Tensor = logits.gather(1, right).squeeze(1) - others.max(1).values
        return margins

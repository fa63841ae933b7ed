"""All neurons of a classifier, to be turned together, and the margins of its samples."""

import math
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from nero.diagnostics import turning_angle
from nero.functional import (
    BALANCED,
    MEAN_ONLY,
    Sphere,
    as_constraint,
    is_balanced,
    neuron_norm,
    sum_dtype,
)
from nero.layout import Layout, Overrides
from nero.layout.groups import resolve
from nero.theory.evaluation import check_names, evaluate, loss_and_gradients
from nero.theory.rotation import part_across, pull_into_cap, random_turn, turn_towards

Weights: TypeAlias = dict[str, Tensor]
"""Tensors by parameter name."""


class TurnableNeurons:
    """The neurons of a model, and all its samples.

    Turned weights are in summing precision, and are rounded to the model's own wherever it is
    evaluated. The model itself is only read.

    Args:
        model: the classifier: ``model(inputs)`` are logits, a row a sample.
        inputs: samples.
        labels: their classes.
        constraint: as given to the optimiser; if it centres neurons, they are turned within the
            centred ones.
        overrides: as given to the optimiser.

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
        self._params = check_names(model, dict(model.named_parameters()))
        self._layouts: dict[str, Layout] = {}
        self._options: dict[str, dict[str, Any]] = {}  # of the functions that turn
        self.origin: Weights = {}
        """The weights of the model."""
        for found, _, options in resolve(model, overrides):
            name, shape, layout = found.name, found.param.shape, found.layout
            if layout.is_elementwise(shape) or not found.param.requires_grad:
                continue
            sphere = as_constraint(options.get("constraint", constraint))
            centre, dims = sphere.for_fan_in(layout.fan_in(shape)).centre, layout.fan_in_dims(shape)
            weight = found.param.detach()
            view = layout.view(weight)
            if centre and not is_balanced(view, fan_in_dims=dims, constraint=MEAN_ONLY).all():
                raise ValueError(
                    f"neurons of `{name}` do not have mean zero: balance them with nero.project_, "
                    'or say constraint="norm"'
                )
            self._layouts[name] = layout
            self._options[name] = {"fan_in_dims": dims, "centre": centre}
            self.origin[name] = weight.to(sum_dtype(weight))
        if not self.origin:
            raise ValueError("the model has no neurons that could be turned")

    def margins(self, weights: Weights) -> Tensor:
        """Return each sample's margin: the logit of its class, less the largest of the others."""
        with torch.no_grad():
            return evaluate(self._model, self._margins, self.stored(weights))

    def margin_gradient(self, weights: Weights, sample: int | None) -> tuple[float, Weights]:
        """Return the margin of a sample, or the smallest of all, and its gradient."""

        def margin(model: nn.Module) -> Tensor:
            margins = self._margins(model)
            return margins.min() if sample is None else margins[sample]

        return loss_and_gradients(self._model, margin, self.stored(weights))

    def first_order_angle(self, sample: int) -> float:
        """Return the angle at which a sample would be misclassified if its margin were linear."""
        margin, grads = self.margin_gradient(self.origin, sample)
        # Turned by alpha, a neuron can lower the margin by alpha * ||w|| * ||g across w||.
        slope = 0.0
        for name, weight in self.origin.items():
            w, g = self._view(name, weight), self._view(name, grads[name])
            dims = self._options[name]["fan_in_dims"]
            across = neuron_norm(part_across(w, g, **self._options[name]), fan_in_dims=dims)
            slope += (neuron_norm(w, fan_in_dims=dims) * across).sum().item()
        return margin / slope if slope > 0 else math.inf

    def stored(self, weights: Weights) -> Weights:
        """Return weights as the model would store them."""
        return {name: w.to(self._params[name].dtype) for name, w in weights.items()}

    def largest_angle(self, weights: Weights) -> float:
        """Return the angle of the neuron that has turned most, as the model would store it."""
        stored = self.stored(weights)
        return max(self._angles(name, stored[name]).max().item() for name in self.origin)

    def turn_against(self, weights: Weights, grads: Weights, angle_rad: float) -> Weights:
        """Turn every neuron by an angle against its gradient; one without gradient stays."""
        return {name: self._turned(name, w, -grads[name], angle_rad) for name, w in weights.items()}

    def turn_at_random(self, angle_rad: float, generator: torch.Generator) -> Weights:
        """Turn every neuron of the model by an angle, in a random direction."""
        return {
            name: random_turn(
                self._view(name, w), angle_rad, generator=generator, **self._options[name]
            ).reshape(w.shape)
            for name, w in self.origin.items()
        }

    def pull_back(self, weights: Weights, max_angle_rad: float) -> Weights:
        """Turn neurons towards those of the model, until they are within an angle of them."""
        return {
            name: pull_into_cap(
                self._view(name, w),
                self._view(name, self.origin[name]),
                max_angle_rad,
                **self._options[name],
            ).reshape(w.shape)
            for name, w in weights.items()
        }

    def take_share(self, weights: Weights, share: float) -> Weights:
        """Turn neurons of the model towards ``weights``, by a share of the angle between them."""
        return {
            name: self._turned(name, self.origin[name], w, share * self._angles(name, w))
            for name, w in weights.items()
        }

    def _turned(self, name: str, weight: Tensor, way: Tensor, angle: float | Tensor) -> Tensor:
        views = self._view(name, weight), self._view(name, way)
        return turn_towards(*views, angle, **self._options[name]).reshape(weight.shape)

    def _angles(self, name: str, weight: Tensor) -> Tensor:
        views = self._view(name, self.origin[name]), self._view(name, weight)
        angles = turning_angle(*views, fan_in_dims=self._options[name]["fan_in_dims"])
        return angles.nan_to_num(0.0)  # a neuron of zeros has no direction, and does not turn

    def _view(self, name: str, weight: Tensor) -> Tensor:
        return self._layouts[name].view(weight)

    def _margins(self, model: nn.Module) -> Tensor:
        logits = model(self._inputs)
        right = self._labels.unsqueeze(1)
        others = logits.scatter(1, right, -torch.inf)
        margins: Tensor = logits.gather(1, right).squeeze(1) - others.max(1).values
        return margins

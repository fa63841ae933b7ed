"""Turn neurons by an angle and keep their norms: those of one parameter, and all of a classifier."""

import math
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn

from nero.core.arguments import kind_of
from nero.diagnostics import turning_angle
from nero.diagnostics.neurons import NamedNeurons, neurons_of_model
from nero.functional import BALANCED, MEAN_ONLY, Sphere, is_balanced, neuron_norm, sum_dtype
from nero.layout import Overrides
from nero_tools.theory.evaluation import check_model, check_names, evaluate, loss_and_gradients

Weights: TypeAlias = dict[str, Tensor]
"""Tensors by parameter name."""


@dataclass(frozen=True)
class Rotation:
    """Rotations of the neurons of one parameter; what they return is in summing precision.

    Angles are measured at the origin, between a neuron before and after.
    """

    fan_in_dims: tuple[int, ...]
    centre: bool = True
    """Whether to turn among vectors whose mean is zero, so that balanced neurons stay balanced."""

    def towards(self, weight: Tensor, direction: Tensor, angle_rad: float | Tensor) -> Tensor:
        """Turn each neuron by an angle, along the shortest way towards a direction.

        A neuron stays if nothing of its direction is left across it. The angle is one for all, or one for
        each neuron in keepdim shape.
        """
        w = weight.to(sum_dtype(weight))
        way = self.part_across(w, direction)
        angle = torch.as_tensor(angle_rad, dtype=w.dtype, device=w.device)
        across = self.norm(w) * self._unit(way)
        has_way = (way != 0).any(self.fan_in_dims, keepdim=True)
        return torch.where(has_way, angle.cos() * w + angle.sin() * across, w)

    def at_random(
        self, weight: Tensor, angle_rad: float, generator: torch.Generator | None = None
    ) -> Tensor:
        """Turn each neuron by exactly an angle, in a direction of its own that is uniformly random."""
        noise = torch.randn(weight.shape, generator=generator, dtype=sum_dtype(weight))
        return self.towards(weight, noise.to(weight.device), angle_rad)

    def into_cap(self, weight: Tensor, origin: Tensor, max_angle_rad: float) -> Tensor:
        """Turn each neuron back towards its origin, until it is within an angle of it."""
        return self.towards(origin, weight, self.angle(origin, weight).clamp(max=max_angle_rad))

    def part_across(self, weight: Tensor, direction: Tensor) -> Tensor:
        """Return the part of each direction that turns a neuron: orthogonal to it, and centred."""
        unit, way = self._unit(weight), direction.to(sum_dtype(weight))
        for _ in range(2):  # the second time removes what cancellation left
            if self.centre:
                way = way - way.mean(self.fan_in_dims, keepdim=True)
            way = way - unit * (unit * way).sum(self.fan_in_dims, keepdim=True)
        # What is left of a direction along the neuron is rounding, and rounding is no direction.
        return torch.where(self.norm(way) > 1e-12 * self.norm(direction), way, 0.0)

    def angle(self, before: Tensor, after: Tensor) -> Tensor:
        """Return `turning_angle`, per neuron."""
        return turning_angle(before, after, fan_in_dims=self.fan_in_dims)

    def norm(self, weight: Tensor) -> Tensor:
        """Return `neuron_norm`, per neuron."""
        return neuron_norm(weight, fan_in_dims=self.fan_in_dims)

    def _unit(self, tensor: Tensor) -> Tensor:
        norm = self.norm(tensor)
        return tensor.to(norm.dtype) / torch.where(norm > 0, norm, 1.0)


class TurnableNeurons:
    """The neurons of a model, and all its samples.

    Weights are held in summing precision, as their layout views them; `stored` returns them as the model
    has them. The model itself is only read. The arguments are those of
    [`search_robustness`][nero_tools.theory.search_robustness].

    Raises:
        ValueError: if there is nothing to turn, or a neuron is not centred that should be.
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
        self._are_logits_checked = False
        check_model(model)
        _check_samples(inputs, labels)
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
            raise ValueError(
                "the model has no neurons that could be turned: pass one that has layers"
            )
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
        if not self._are_logits_checked:
            _check_logits(logits, self._labels)
            self._are_logits_checked = True
        right = self._labels.unsqueeze(1)
        others = logits.scatter(1, right, -torch.inf)
        margins: Tensor = logits.gather(1, right).squeeze(1) - others.max(1).values
        return margins


def _check_samples(inputs: Tensor, labels: Tensor) -> None:
    for name, tensor in (("inputs", inputs), ("labels", labels)):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} must be a tensor, not {kind_of(tensor)}")
    if labels.dtype != torch.int64 or labels.ndim != 1 or not labels.numel():
        raise ValueError(
            "labels must be classes, a vector of torch.int64, but are of the shape "
            f"{tuple(labels.shape)} and {labels.dtype}"
        )
    if len(inputs) != len(labels):
        raise ValueError(
            f"there are {len(inputs)} inputs, but {len(labels)} labels: give one label for each input"
        )


def _check_logits(logits: Tensor, labels: Tensor) -> None:
    if logits.ndim != 2 or len(logits) != len(labels):
        raise ValueError(
            f"model(inputs) must be logits, one row for each of {len(labels)} samples, but has the shape "
            f"{tuple(logits.shape)}"
        )
    num_classes = logits.shape[1]
    if not 0 <= labels.min() <= labels.max() < num_classes:
        raise ValueError(
            f"labels must be classes from 0 to {num_classes - 1}: the model has no others"
        )

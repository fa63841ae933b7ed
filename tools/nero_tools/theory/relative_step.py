r"""How large a step is, neuron by neuron and layer by layer (Definition 5 and Equation 2).

A step of size eta is per-neuron relative if no neuron changes by more than eta times its own norm.
Then no layer does either, because a layer's squared norm is the sum over its neurons.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nero.core.arguments import check_alike, check_fan_in_dims
from nero.core.relative import sum_of_squares
from nero.diagnostics.neurons import neurons_of_model
from nero.functional import neuron_norm, sum_dtype
from nero.layout import Overrides
from nero.tables import aligned
from nero_tools.theory.evaluation import check_names


def neuron_step(before: Tensor, after: Tensor, *, fan_in_dims: tuple[int, ...]) -> Tensor:
    r"""Compute the relative step of every neuron (Definition 5).

    $$
    \frac{\lVert \Delta w \rVert_2}{\lVert w \rVert_2}
    \qquad \text{or, without fan-in,} \qquad
    \frac{|\Delta b|}{|b|}
    $$

    Args:
        before: the weights, or biases, before the step.
        after: those after it.
        fan_in_dims: the dims that belong to one neuron; ``()`` where every element stands alone.

    Returns:
        One number per neuron, in keepdim shape and summing precision. A neuron of zeros has an
        infinite relative step, unless it does not move.

    Example:
        >>> from nero_tools.theory import neuron_step
        >>> before = torch.tensor([[3.0, 4.0], [1.0, 0.0]])
        >>> after = torch.tensor([[3.0, 3.5], [1.0, 0.2]])
        >>> neuron_step(before, after, fan_in_dims=(1,)).flatten()
        tensor([0.1000, 0.2000], dtype=torch.float64)
    """
    check_alike(before=before, after=after)
    if fan_in_dims != ():
        check_fan_in_dims(fan_in_dims, before.ndim)
    change = after.to(sum_dtype(after)) - before.to(sum_dtype(before))
    return _ratio(_norms(change, fan_in_dims), _norms(before, fan_in_dims))


def layer_step(before: Tensor, after: Tensor) -> float:
    r"""Compute the relative step of a whole layer (Equation 2).

    $$
    \frac{\lVert \Delta W \rVert_F}{\lVert W \rVert_F}
    = \sqrt{\frac{\sum_i \lVert \Delta w^{(i)} \rVert_2^2}{\sum_i \lVert w^{(i)} \rVert_2^2}}
    \leq \max_i \frac{\lVert \Delta w^{(i)} \rVert_2}{\lVert w^{(i)} \rVert_2}
    $$

    Example:
        >>> from nero_tools.theory import layer_step
        >>> before, after = torch.tensor([[3.0, 4.0]]), torch.tensor([[3.0, 3.5]])
        >>> layer_step(before, after)
        0.1
    """
    check_alike(before=before, after=after)
    change = after.to(sum_dtype(after)) - before.to(sum_dtype(before))
    return relative_size(change, before)


def relative_size(change: Tensor, weight: Tensor) -> float:
    """Divide one norm by another: infinity where only the second is zero, zero where both are."""
    return _ratio(sum_of_squares(change).sqrt(), sum_of_squares(weight).sqrt()).item()


@dataclass(frozen=True)
class ParameterStep:
    """One parameter's part of [`relative_steps`][nero_tools.theory.relative_steps]."""

    name: str
    role: str
    largest: float
    """Of its neurons; of its elements, where there is no fan-in."""
    median: float
    layer: float
    """The relative step of the whole tensor."""


@dataclass(frozen=True)
class RelativeSteps:
    """What [`relative_steps`][nero_tools.theory.relative_steps] measured: print it, or read it."""

    parameters: tuple[ParameterStep, ...]

    @property
    def eta(self) -> float:
        """The smallest eta for which the whole step is per-neuron relative (Definition 5)."""
        return max((p.largest for p in self.parameters), default=0.0)

    @property
    def neuron_eta(self) -> float:
        """The same of neurons' weights alone: a bias that starts at zero makes ``eta`` infinite."""
        return max((p.largest for p in self.parameters if p.role == "neuron"), default=0.0)

    def __str__(self) -> str:
        rows = [["parameter", "role", "largest", "median", "layer"]]
        for p in self.parameters:
            rows.append([p.name, p.role, *(f"{x:.4f}" for x in (p.largest, p.median, p.layer))])
        summary = f"per-neuron relative for eta = {self.eta:.4f}"
        if self.neuron_eta != self.eta:
            summary += f"; the weights alone for {self.neuron_eta:.4f}"
        return f"{aligned(rows, left=(0, 1))}\n\n{summary}"


def relative_steps(
    model: nn.Module, update: Mapping[str, Tensor], *, overrides: Overrides = ()
) -> RelativeSteps:
    """Measure a step of a whole model by Definition 5; the neurons come from the layouts.

    Args:
        model: the model, at the weights where the step begins; it is only read.
        update: the step of each parameter, by name, such as
            [`proposed_update`][nero_tools.theory.proposed_update] returns it.
        overrides: as in [`param_groups`][nero.param_groups].

    Example:
        >>> from nero_tools.theory import proposed_update, relative_steps
        >>> layers = nn.Linear(8, 16, bias=False), nn.ReLU(), nn.Linear(16, 1, bias=False)
        >>> model = nn.Sequential(*layers)
        >>> optimizer = nero.Nero(model)
        >>> model(torch.randn(32, 8)).square().mean().backward()
        >>> print(relative_steps(model, proposed_update(model, optimizer)))
        parameter  role    largest  median   layer
        0.weight   neuron   0.0100  0.0079  0.0081
        2.weight   neuron   0.0077  0.0077  0.0077
        <BLANKLINE>
        per-neuron relative for eta = 0.0100
    """
    check_names(model, update)
    found = []
    for each in neurons_of_model(model, overrides=overrides):
        if each.name not in update:
            continue
        before, neurons = each.param.detach(), each.neurons
        after = before.to(sum_dtype(before)) + update[each.name].detach()
        views = neurons.view(before), neurons.view(after)
        steps = neuron_step(*views, fan_in_dims=each.neurons.fan_in_dims)
        largest, median = steps.max().item(), steps.median().item()
        layer = layer_step(before, after)
        found.append(ParameterStep(each.name, neurons.role, largest, median, layer))
    return RelativeSteps(tuple(found))


def _norms(tensor: Tensor, fan_in_dims: tuple[int, ...]) -> Tensor:
    # A sum over no dims would be a sum over all of them.
    if not fan_in_dims:
        return tensor.to(sum_dtype(tensor)).abs()
    return neuron_norm(tensor, fan_in_dims=fan_in_dims)


def _ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    # x / 0 is infinity already, and 0 / 0 means: nothing has moved.
    return torch.where((numerator == 0) & (denominator == 0), 0.0, numerator / denominator)

"""The part that differs between optimizers: options, state and step."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from nero.core.held import Held
from nero.core.neurons import Neurons
from nero.core.spec import StateSpec
from nero.core.update import Update

Group: TypeAlias = dict[str, Any]
State: TypeAlias = dict[str, Tensor]


class Options(dict[str, Any]):
    """Options of a rule that follows gradients and draws no noise."""

    direction = "gradient"
    draws_noise = False


class New(NamedTuple):
    """A parameter that the optimizer has not seen before, with its new state."""

    held: Held
    hyper: Any
    """The options that apply to its neurons."""
    state: State


class Rule(ABC):
    """The options, state and step of an optimizer. One object serves one optimizer.

    A new optimizer declares `options` and `state` and implements `step`. The shell, `RelativeOptimizer`,
    does the rest: param groups, shards, checkpoints, devices.
    """

    options: ClassVar[Mapping[str, Callable[[str, Any], Any]]]
    """A validator for each option except ``lr``."""
    state: ClassVar[Mapping[str, StateSpec]]
    """The state of a parameter, in the order of checkpoints."""
    sums_over: ClassVar[Literal["layer", "neuron"]] = "layer"
    """The unit over which a step sums, across ranks too."""
    hints: ClassVar[Mapping[str, str]] = {}
    """Options of other optimizers, and what to use instead."""
    missing: ClassVar[Mapping[str, Any]] = {}
    """Options missing from older checkpoints, and the values that they imply."""

    def read(self, group: Mapping[str, Any]) -> Any:
        """Return a group's options as values, or raise if one is invalid."""
        if not torch.compiler.is_compiling():
            for name, reader in self.options.items():
                reader(name, group[name])
        # Values, not the group: it holds parameters, which must not live on in a cache, or be compared.
        return Options((k, v) for k, v in group.items() if k not in ("params", "param_names", "lr"))

    def at(self, options: Any, neurons: Neurons) -> Any:
        """Return the options that apply to these neurons."""
        return options

    def start(self, new: Sequence[New], groups: Sequence[Group]) -> None:  # noqa: B027, most change nothing
        """Change new parameters in place before their first step, if the rule requires it."""

    @abstractmethod
    def step(self, updates: list[Update], groups: Sequence[Group]) -> None:
        """Update all parameters of one step, in place."""

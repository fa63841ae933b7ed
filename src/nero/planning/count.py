"""Counts what a step sends, from the collectives that it really issues."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from nero.core.sharding import to_local

_NAMESPACES = {"c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor"}
_NOT_SENDING = {"wait_tensor", "_wrap_tensor_autograd"}


@dataclass
class Traffic:
    """The collectives that were issued on this rank."""

    calls: dict[str, int] = field(default_factory=dict)
    """How many of each kind."""
    num_bytes: int = 0
    """The sizes of the tensors that they add up or gather, summed."""

    @property
    def num_collectives(self) -> int:
        """How many in all."""
        return sum(self.calls.values())


class CountTraffic(TorchDispatchMode):
    """Inside this context every collective is counted in `traffic`, and still done.

    A collective counts with the larger of what goes in and what comes out: the buffer of an all-reduce, the
    result of an all-gather, the input of a reduce-scatter. What crosses a wire depends on the algorithm.
    """

    def __init__(self, on_collective: Callable[[Traffic], None] = lambda _: None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.traffic = Traffic()
        self._on_collective = on_collective

    def __torch_dispatch__(
        self,
        func: Any,
        types: Iterable[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        # A DTensor is asked first, so that the collectives that it issues come back here.
        if any(hasattr(kind, "full_tensor") for kind in types):
            return NotImplemented
        out = func(*args, **(kwargs or {}))
        if func.namespace in _NAMESPACES:
            name = func._schema.name.partition("::")[2]
            if name not in _NOT_SENDING:
                calls = self.traffic.calls
                calls[name] = calls.get(name, 0) + 1
                self.traffic.num_bytes += max(map(_num_bytes, (*args, out)))
                self._on_collective(self.traffic)
        return out


def state_bytes(optimizers: Iterable[Optimizer]) -> int:
    """Return how many bytes of state this rank holds."""
    return sum(
        _num_bytes(to_local(tensor))
        for optimizer in optimizers
        for state in optimizer.state.values()
        for tensor in state.values()
        if isinstance(tensor, Tensor)
    )


def _num_bytes(tree: Any) -> int:
    return sum(t.numel() * t.element_size() for t in tree_leaves(tree) if isinstance(t, Tensor))

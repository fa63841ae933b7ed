"""Counts what a step sends, from the collectives that it really issues."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from nero.tools.optimizers import num_bytes

_NAMESPACES = {"c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor"}
_NOT_SENDING = {"wait_tensor", "_wrap_tensor_autograd"}


class CountTraffic(TorchDispatchMode):
    """Inside this context every collective is counted, and still done.

    A collective counts with the larger of what goes in and what comes out: the buffer of an all-reduce, the
    result of an all-gather, the input of a reduce-scatter. What crosses a wire depends on the algorithm.
    """

    def __init__(self, on_collective: Callable[[int], None] = lambda _: None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: Counter[str] = Counter()
        """How many collectives of each kind."""
        self.num_bytes = 0
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
        name = func._schema.name.partition("::")[2]
        if func.namespace in _NAMESPACES and name not in _NOT_SENDING:
            self.calls[name] += 1
            self.num_bytes += max(map(num_bytes, (*args, out)))
            self._on_collective(self.calls.total())
        return out

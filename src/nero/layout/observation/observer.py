"""Pass every operation in a forward pass to the handler that follows parameters through it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from nero.layout.observation.invented import invent
from nero.layout.observation.notes import Call, Notes, tensors_in
from nero.layout.observation.operations import follow
from nero.layout.observation.values import ConcreteValues, fake_like


class Observer(TorchDispatchMode):
    """Runs operations, and follows parameters from their arguments into their results.

    Args:
        params: the tensors that stand for each parameter, by its name.
    """

    def __init__(self, params: Mapping[str, Sequence[Tensor]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.notes = Notes(params)
        self.values = ConcreteValues()
        self.invented: Counter[str] = Counter()
        """How often each operation's result had to be invented because it depends on values."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run an operation, and follow the parameters in its arguments."""
        kwargs = kwargs or {}
        if func._schema.is_mutable:
            args, kwargs = tree_map_only(Tensor, self._fake, (args, kwargs))
        name = func.overloadpacket.__name__
        name = name if name.endswith("__") else name.rstrip("_")
        value = self.values.compute(func, name, args, kwargs)
        out = invent(func, name, args, kwargs, value, self.values, self.invented)
        if out is None:
            out = func(*args, **kwargs)
        if value is not None:
            self.values.put(out, value)
        if func.namespace == "prim" or not tensors_in(out):
            return out  # a query, such as a tensor's size
        origins = [self.notes.origin(tensor) for tensor in tensors_in((args, kwargs))]
        is_data = any(origin.is_data for origin in origins)
        call = Call(func, name, args, kwargs, out, is_data)
        if any(origin.sources for origin in origins):
            follow(self.notes, call)
        elif is_data:
            self.notes.mark(out, (), is_data=True)
        self.notes.pass_ends_on(call)
        return out

    def _fake(self, tensor: Tensor) -> Tensor:
        """Return a stand-in for a user's tensor, for an operation that writes to it."""
        if isinstance(tensor, FakeTensor) or tensor.is_meta:
            return tensor
        fake = fake_like(tensor, tensor.device)
        self.notes.copy_origin(tensor, fake)
        return fake

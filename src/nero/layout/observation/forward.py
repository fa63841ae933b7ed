"""One forward pass that computes nothing: fake tensors have shapes but no values."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from nero.core.sharding import is_sharded
from nero.layout.observation.observer import Observer
from nero.layout.observation.sightings import Seen, summarize
from nero.layout.observation.values import ConcreteValues, fake_like


@dataclass(frozen=True)
class Observation:
    """How all parameters were used in one forward pass."""

    seen: Mapping[str, Seen]
    """The uses of each parameter that was reached."""
    error: str = ""
    """Why the pass stopped early; empty if it did not."""
    invented: Mapping[str, int] | None = None
    """How often results were invented, for operations whose result depends on values."""


def observe(model: nn.Module, example: Any) -> Observation:
    """Run ``model`` once on fake tensors, and return how each parameter was used.

    Allocates and computes nothing; weights, buffers, gradients and RNG states stay unchanged.

    Args:
        model: the model, before sharding.
        example: the model's input: a tensor, a tuple of arguments, a mapping of keywords, or a function
            that takes the model and calls it. Only shapes, dtypes and the values of small integer tensors
            matter. For a batch such as ``(inputs, labels)`` that does not fit the model's signature, the
            first item is used.

    Note:
        Parameters that the example does not reach are missing. If the pass fails, the result has everything
        seen before.

    Raises:
        ValueError: if the model is sharded.

    Example:
        >>> from nero.layout.observation import observe
        >>> class InOut(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.kernel = nn.Parameter(torch.randn(10, 20))
        ...     def forward(self, x):
        ...         return x @ self.kernel
        >>> seen = observe(InOut(), torch.randn(5, 10)).seen["kernel"]
        >>> seen.layouts[0].neuron_dims, seen.how
        ((1,), 'mm')
    """
    params = dict(nn.Module.named_parameters(model))  # a class may override it to leave some out
    if sharded := [name for name, param in params.items() if is_sharded(param)]:
        raise ValueError(
            f"`{sharded[0]}` is sharded, and an example needs the model as it was before: read the layouts "
            "there with nero.param_groups(model, example=...), and pass them as overrides="
        )
    tensors = {**params, **dict(nn.Module.named_buffers(model))}
    device = next(iter(tensors.values())).device if tensors else torch.device("cpu")
    fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
    with fake_mode:
        fakes = {name: fake_like(tensor, device) for name, tensor in tensors.items()}
    # Some modules also keep a parameter in a list, where it is not replaced by its stand-in.
    observer = Observer({name: [param, fakes[name]] for name, param in params.items()})
    for name in tensors.keys() - params.keys():
        observer.values.put_integers(fakes[name], tensors[name])
    with fake_mode:
        run = _runner(model, example, device, observer.values)
    hook = model.register_forward_pre_hook(
        lambda _, args, kwargs: observer.notes.mark((args, kwargs), (), is_data=True),
        with_kwargs=True,
    )
    error = ""
    try:
        with (
            _fake_attributes(model, fake_mode, device, observer.values),
            torch.no_grad(),
            _decomposed(),
            _Constants(),
            # Last the parameters, which a buffer may be too.
            _replaced(model, {id(tensors[name]): fakes[name] for name in reversed(tensors)}),
            fake_mode,
            observer,
        ):
            run()
    except Exception as failure:
        error = f"{type(failure).__name__}: {failure}".splitlines()[0]
    finally:
        hook.remove()
    seen = {
        name: summarize(sightings, params[name].shape)
        for name, sightings in observer.notes.sightings.items()
        if sightings
    }
    return Observation(seen, error, dict(observer.invented))


def _runner(
    model: nn.Module, example: Any, device: torch.device, values: ConcreteValues
) -> Callable[[], object]:
    """Return a function that runs the model on a stand-in for the example."""
    if callable(example):
        return lambda: example(model)
    example = dict(example) if isinstance(example, Mapping) else example
    fake = tree_map_only(Tensor, lambda tensor: fake_like(tensor, device), example)
    values.put_integers(fake, example)
    args, kwargs = _arguments(model, fake)
    return lambda: model(*args, **kwargs)


def _arguments(model: nn.Module, example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(example, dict):
        return (), example
    if not isinstance(example, tuple | list):
        return (example,), {}
    try:
        inspect.signature(model.forward).bind(*example)
    except TypeError:
        return _arguments(model, example[0]) if example else ((), {})
    return tuple(example), {}


@contextmanager
def _replaced(model: nn.Module, stand_ins: Mapping[int, Tensor]) -> Iterator[None]:
    """Replace parameters and buffers by their stand-ins, by identity; forget modules that the pass adds.

    Torch's own function goes by name, and restores a module that has two names to its stand-ins.
    """
    modules = list(model.modules())
    holders: list[Any] = [h for m in modules for h in (m._parameters, m._buffers, m._modules)]
    saved = [(holder, dict(holder.items())) for holder in holders]
    try:
        for holder, items in saved:
            for name, item in items.items():
                if id(item) in stand_ins:
                    holder[name] = stand_ins[id(item)]
        yield
    finally:
        for holder, items in saved:
            if isinstance(holder, dict):
                holder.clear()
                holder.update(items)
            else:  # a scripted module's, whose names are fixed
                for name, item in items.items():
                    if id(item) in stand_ins:
                        holder[name] = item


@contextmanager
def _fake_attributes(
    model: nn.Module, fake_mode: FakeTensorMode, device: torch.device, values: ConcreteValues
) -> Iterator[None]:
    """Replace tensors that are plain attributes, which fake mode would write to.

    Restores all attributes afterwards, since a module may have cached a fake tensor.
    """
    saved = [(module, dict(vars(module))) for module in model.modules()]
    try:
        for module, attributes in saved:
            for name, value in attributes.items():
                if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
                    with fake_mode:
                        vars(module)[name] = fake_like(value, device)
                    values.put_integers(vars(module)[name], value)
        yield
    finally:
        for module, attributes in saved:
            vars(module).clear()
            vars(module).update(attributes)


class _Constants(TorchFunctionMode):
    """Keep the values of ``torch.tensor`` constants.

    ``torch.tensor`` drops them on the meta device, and reads fake numbers without calling the observer.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is not torch.tensor:
            return func(*args, **kwargs)
        if args and not isinstance(args[0], Tensor):
            args = (tree_map_only(Tensor, lambda tensor: tensor.tolist(), args[0]), *args[1:])
        device = kwargs.get("device")
        if device is None or torch.device(device).type != "meta":
            return func(*args, **kwargs)
        return func(*args, **{**kwargs, "device": "cpu"}).to(device)


@contextmanager
def _decomposed() -> Iterator[None]:
    """Decompose attention and recurrent layers into simple operations."""
    fast, onednn = torch.backends.mha.get_fastpath_enabled(), torch._C._get_mkldnn_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        torch._C._set_mkldnn_enabled(onednn)

"""Everything a step needs to know about a parameter, cached until its options or shape change."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from nero.backends import backend_name
from nero.checks.params import raise_sparse
from nero.core.held import Held
from nero.core.sharding import to_local
from nero.core.update import Places, Update
from nero.optim.rule import Group, Rule, State


class Prepared(NamedTuple):
    """Everything a step needs to know about a parameter except its values; rebuilt after a change."""

    name: str
    """The parameter's name in messages."""
    held: Held
    options: Any
    """Its group's options: the same object until one of them changes."""
    tensor: tuple[Any, ...]
    """The parameter's dtype, device and shape."""
    hyper: Any
    """The options that apply to its neurons; those of the group for a flat buffer of several parameters."""
    backend: str
    reduce_over: tuple[Any, ...]
    """The mesh dims over which its sums are reduced."""
    state_keys: tuple[str, ...]
    """The state that its step needs; it may have more, from earlier options."""
    is_viewed: bool
    """Whether its step works on views: of a shard, or of a transposed convolution's groups."""
    needs_whole: bool
    """Whether it is sharded and its direction depends on all shards."""
    places: Places | None
    """Positions of a shard's elements in the full parameter, if its step draws noise."""


def prepare(rule: Rule, held: Held, group: Group, options: Any, name: str) -> Prepared:
    """Prepare a parameter for its steps.

    Args:
        rule: the optimizer's rule.
        held: a parameter of ``group``.
        group: its param group, which has the layout and ``fused``.
        options: the rule's options, then the values that they were read from.
        name: the parameter's name, for messages.
    """
    param = held.param
    hyper = options[0] if held.is_range else rule.at(options[0], held.neurons)
    members = [(neurons, rule.at(options[0], neurons)) for neurons in held.all_neurons]
    by_neuron = rule.sums_over == "neuron"
    return Prepared(
        name,
        held,
        options,
        (param.dtype, param.device, param.shape),
        hyper,
        backend=backend_name(held.local, fused=group.get("fused", False)),
        reduce_over=held.neuron_mesh_dims if by_neuron else held.layer_mesh_dims,
        state_keys=tuple(
            key
            for key, spec in rule.state.items()
            if any(spec.exists(*member) for member in members)
        ),
        is_viewed=held.mesh is not None or held.neurons.num_groups > 1,
        needs_whole=held.is_cut and hyper.direction != "gradient",
        places=held.places() if hyper.draws_noise else None,
    )


def is_current(prepared: Prepared, param: Tensor, options: Any) -> bool:
    """Whether the prepared values still hold."""
    tensor = param.dtype, param.device, param.shape
    return prepared.options is options and prepared.tensor == tensor


def takes_part(prepared: Prepared) -> bool:
    """Whether a parameter has a gradient here, or may have one on another rank."""
    param = prepared.held.param
    with_others = prepared.reduce_over or prepared.needs_whole
    return param.requires_grad and bool(param.grad is not None or with_others)


def as_update(prepared: Prepared, state: State, lr: float | Tensor, position: int) -> Update:
    """Return a parameter's update: this rank's shard, viewed so that fan-in dims apply."""
    held, view = prepared.held, prepared.held.neurons.view
    weight, grad = held.param, held.param.grad
    has_grad, flat = grad is not None, held if held.is_range else None
    if flat is not None and grad is None:
        grad = torch.zeros_like(weight)
    if grad is not None and grad.layout != torch.strided:
        raise_sparse(prepared.name)
    if prepared.is_viewed:
        weight, grad = held.local, held.local_grad(prepared.name)
        weight, grad = view(weight), view(torch.zeros_like(weight) if grad is None else grad)
        state = {key: to_local(tensor) for key, tensor in state.items()}
        if held.neurons.num_groups > 1:
            state = {key: view(tensor) if tensor.ndim else tensor for key, tensor in state.items()}
    assert grad is not None
    if not torch.compiler.is_compiling() and grad.is_neg():
        grad = grad.resolve_neg()  # its memory lacks the sign, and memory is what kernels read
    return Update(
        *(weight, grad, state, held.neurons, prepared.hyper, lr, position, prepared.backend),
        reduce_over=prepared.reduce_over,
        has_grad=has_grad,
        places=prepared.places,
        whole=held.param if prepared.needs_whole else None,
        flat=flat,
    )

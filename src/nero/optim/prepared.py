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
    """The state keys that its step needs; the state may have others, left from earlier options."""
    is_viewed: bool
    """Whether its step works on views: of a shard, or of a transposed convolution's groups."""
    is_plain: bool
    """Whether its step works on the parameter itself, as for most."""
    needs_whole: bool
    """Whether it is sharded and its direction depends on all shards."""
    steps_with_others: bool
    """Whether it takes part in a step without a gradient here, because another rank may have one."""
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
    reduce_over = held.neuron_mesh_dims if by_neuron else held.layer_mesh_dims
    needs_whole = held.is_cut and hyper.direction != "gradient"
    is_viewed = held.mesh is not None or held.neurons.num_groups > 1
    return Prepared(
        name,
        held,
        options,
        (param.dtype, param.device, param.shape),
        hyper,
        backend=backend_name(held.local, fused=group.get("fused", False)),
        reduce_over=reduce_over,
        state_keys=tuple(
            key
            for key, spec in rule.state.items()
            if any(spec.exists(*member) for member in members)
        ),
        is_viewed=is_viewed,
        is_plain=not (is_viewed or held.is_range),
        needs_whole=needs_whole,
        steps_with_others=bool(reduce_over) or needs_whole,
        places=held.places() if hyper.draws_noise else None,
    )


def takes_part(prepared: Prepared, param: Tensor, grad: Tensor | None) -> bool:
    """Whether a parameter has a gradient here, or may have one on another rank."""
    return param.requires_grad and (grad is not None or prepared.steps_with_others)


def as_update(
    prepared: Prepared,
    param: Tensor,
    grad: Tensor | None,
    state: State,
    lr: float | Tensor,
    position: int,
) -> Update:
    """Return a parameter's update: this rank's shard, viewed so that fan-in dims apply."""
    held, hyper, backend = prepared.held, prepared.hyper, prepared.backend
    neurons = held.neurons
    if grad is not None:
        if grad.layout is not torch.strided:
            raise_sparse(prepared.name)
        if prepared.is_plain:
            return Update(param, grad, state, neurons, hyper, lr, position, backend)
    weight, view, has_grad = param, neurons.view, grad is not None
    if prepared.is_viewed:
        weight, grad = held.local, held.local_grad(prepared.name)
        weight, grad = view(weight), view(torch.zeros_like(weight) if grad is None else grad)
        state = {key: to_local(tensor) for key, tensor in state.items()}
        if neurons.num_groups > 1:
            state = {key: view(tensor) if tensor.ndim else tensor for key, tensor in state.items()}
    return Update(
        weight,
        torch.zeros_like(weight) if grad is None else grad,
        *(state, neurons, hyper, lr, position, backend),
        reduce_over=prepared.reduce_over,
        has_grad=has_grad,
        places=prepared.places,
        whole=param if prepared.needs_whole else None,
        flat=held if held.is_range else None,
    )

"""Full parameter values and gradients under every engine, through public APIs.

Plain tensors are read as they are. Those of FSDP2, tensor and expert parallelism are DTensors, which torch
gathers. FSDP1 shows full parameters inside `summon_full_params`, and DeepSpeed ZeRO returns the values that
its optimizer updates from `deepspeed.utils`. All of these are collectives: every rank must ask for the same
parameters in the same order.
"""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from nero.core.sharding import is_sharded

_WRAPPER = re.compile(r"\b(?:module|_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")


class Full(NamedTuple):
    """One parameter's full value and gradient."""

    value: Tensor
    grad: Tensor | None
    peers: tuple[int, ...]
    """The ranks that hold the same value, or parts of it."""
    is_shared: bool
    """Whether the peers can split the work, because all of them have the full value."""


def clean_name(name: str) -> str:
    """Strip the prefixes that engines add to a parameter's name.

    Example:
        >>> from nero.diagnostics.full_values import clean_name
        >>> clean_name("module._orig_mod.layers.0.weight")
        'layers.0.weight'
    """
    return _WRAPPER.sub("", name)


def on_all_ranks(value: Any) -> list[Any]:
    """Gather a picklable value from every rank; without distributed training, return only this one's."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return [value]
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


@contextmanager
def full_shapes(model: nn.Module) -> Iterator[None]:
    """Give every parameter the shape of its full value for as long as the context lasts."""
    with ExitStack() as stack:
        _summon(model, stack, with_grads=False)
        for param in nn.Module.parameters(model):
            if hasattr(
                param, "ds_shape"
            ):  # ZeRO-3 frees what is not in use; a shape needs no memory
                stack.callback(setattr, param, "data", param.data)
                param.data = param.data.new_empty(1).expand(param.ds_shape)
        yield


@contextmanager
def full_values(model: nn.Module, *, with_grads: bool) -> Iterator[Iterator[tuple[str, Full]]]:
    """Yield an iterator over clean names and full values, gathered one by one where the engine can."""
    with ExitStack() as stack, torch.no_grad():
        is_fsdp1 = _summon(model, stack, with_grads=with_grads)
        params = {clean_name(name): p for name, p in nn.Module.named_parameters(model)}
        mine = {name for name, p in params.items() if with_grads and p.grad is not None}
        has_grad = set().union(*on_all_ranks(mine))
        replicas = _replicas(model)
        yield (
            (name, _full(param, with_grads, name in has_grad, is_fsdp1, replicas))
            for name, param in params.items()
        )


def _full(
    param: Any, with_grads: bool, has_grad: bool, is_fsdp1: bool, replicas: tuple[int, ...]
) -> Full:
    if hasattr(param, "ds_id") or hasattr(param, "_hp_mapping"):
        return _of_zero(param, with_grads)
    if is_sharded(param):
        return _of_dtensor(param, with_grads and has_grad)
    grad = param.grad if with_grads else None
    if grad is not None and grad.layout != torch.strided:
        grad = grad.to_dense()
    peers = _all_ranks() if is_fsdp1 else replicas
    return Full(param.detach(), grad, peers, is_shared=is_fsdp1)


def _of_dtensor(param: Any, has_grad: bool) -> Full:
    value, full_grad = param.detach().full_tensor(), None
    grad: Any
    if has_grad:  # perhaps on another rank only, which waits for this one
        grad = torch.zeros_like(param) if param.grad is None else param.grad
        full_grad = grad.full_tensor()
    return Full(value, full_grad, tuple(param.device_mesh.mesh.flatten().tolist()), is_shared=True)


def _of_zero(param: Any, with_grads: bool) -> Full:
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_grad

    shape = getattr(param, "ds_shape", param.shape)
    value = safe_get_full_fp32_param(param) if param.requires_grad else param.detach()
    grad = safe_get_full_grad(param) if with_grads and param.requires_grad else None
    full_grad = None if grad is None else grad.reshape(shape)
    is_empty = value is None or not value.numel()  # frozen, and freed by ZeRO-3
    return Full(
        param.new_zeros(shape) if is_empty else value.reshape(shape), full_grad, _all_ranks(), True
    )


def _summon(model: nn.Module, stack: ExitStack, *, with_grads: bool) -> bool:
    """Show the full parameters of FSDP1, and return whether the model uses it."""
    if not (dist.is_available() and dist.is_initialized()):
        return False
    from torch.distributed.fsdp import FullyShardedDataParallel as Fsdp1

    if not Fsdp1.fsdp_modules(model):
        return False
    stack.enter_context(Fsdp1.summon_full_params(model, writeback=False, with_grads=with_grads))
    return True


def _replicas(model: nn.Module) -> tuple[int, ...]:
    """Return the ranks on which DDP keeps plain parameters equal; without it, this rank."""
    if not (dist.is_available() and dist.is_initialized()):
        return (0,)
    if isinstance(model, nn.parallel.DistributedDataParallel):
        return tuple(dist.get_process_group_ranks(model.process_group))
    return (dist.get_rank(),)


def _all_ranks() -> tuple[int, ...]:
    return tuple(range(dist.get_world_size()))

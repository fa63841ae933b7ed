"""Runs functions on several processes, with gloo; and a network with every kind of layer."""

import os
import socket
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.debug._comm_mode import c10d_collective_ops

# Ranks are forked from one process that has imported what all of them need: 3 s of a core each otherwise.
PRELOADED = [
    "nero.baselines",
    "nero.diagnostics",
    "pytest",
    "torch._dynamo",
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
    "torch.distributed.tensor.debug",
    "torch.distributed.tensor.parallel",
]
mp.get_context("forkserver").set_forkserver_preload(PRELOADED)


def on_ranks(world_size, function, *args):
    """Run ``function(*args)`` on every rank; a rank that fails fails the test."""
    start_ranks(world_size, function, *args, join=True)


def start_ranks(world_size, function, *args, join=False):
    """The same without waiting for it: what torch returns, which has the processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return mp.start_processes(
        _rank,
        args=(world_size, port, function, args),
        nprocs=world_size,
        join=join,
        start_method="forkserver",
    )


def _rank(rank, world_size, port, function, args):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    # A rank that waits for one that has gone another way fails in minutes, not in torch's half an hour.
    dist.init_process_group(
        "gloo", rank=rank, world_size=world_size, timeout=timedelta(seconds=180)
    )
    function(*args)
    dist.barrier()
    dist.destroy_process_group()


class Network(nn.Module):
    """Sizes are such that 3 and 4 ranks get uneven and empty shards."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(11, 8)
        self.conv = nn.Conv1d(8, 6, 3, padding=1)
        self.up = nn.ConvTranspose1d(6, 8, 3, padding=1)
        self.norm = nn.LayerNorm(8)
        self.wide = nn.Linear(8, 12)
        self.narrow = nn.Linear(12, 8)
        self.experts = nn.Parameter(torch.randn(3, 8, 8))
        self.two = nn.Linear(8, 2)  # fewer rows than ranks
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        x = self.tokens(tokens)
        x = self.up(self.conv(x.transpose(1, 2))).transpose(1, 2)
        x = self.norm(x)
        x = self.narrow(self.wide(x).relu())
        x = torch.einsum("bti,eoi->bto", x, self.experts)
        return self.head(x) * self.two(x).sum(-1, keepdim=True)


def network():
    """The same weights on every rank, and no parameter at zero."""
    torch.manual_seed(0)
    model = Network()
    for param in model.parameters():
        nn.init.normal_(param)
    return model


OPTIONS = {"overrides": {"experts": {"role": "neuron", "neuron_dims": (0, 1)}}}


def gradients(model, num_steps, seed=0):
    """Gradients of the whole network by name, a list of them; with rows that are zero and not finite."""
    generator = torch.Generator().manual_seed(seed)
    steps = []
    for step in range(num_steps):
        grads = {n: torch.randn(p.shape, generator=generator) for n, p in model.named_parameters()}
        for grad in grads.values():
            grad[step % len(grad)] *= float("nan") if step % 5 == 3 else 0.0
        steps.append(grads)
    return steps


def finite_gradients(num_steps):
    """The same for our network, with zeros where they are not finite: for what would spread NaN."""
    steps = gradients(network(), num_steps)
    return [{name: grad.nan_to_num(0.0) for name, grad in grads.items()} for grads in steps]


def piece(whole: Tensor, like: Tensor) -> Tensor:
    """What this rank holds of a tensor that is sharded as ``like`` is."""
    if not hasattr(like, "placements"):
        return whole
    # Of torch's two mesh dims, the second one (tensor parallelism) cuts first.
    for mesh_dim in reversed(range(like.device_mesh.ndim)):
        dim = getattr(like.placements[mesh_dim], "dim", None)
        if dim is not None:
            size, rank = like.device_mesh.size(mesh_dim), like.device_mesh.get_local_rank(mesh_dim)
            parts = list(whole.chunk(size, dim))
            empty = whole.narrow(dim, 0, 0)
            whole = parts[rank] if rank < len(parts) else empty
    return whole


def sharded_grad(whole: Tensor, param: Tensor) -> Tensor:
    """A gradient that is placed as its parameter is."""
    if not hasattr(param, "placements"):
        return whole.clone()
    return DTensor.from_local(
        piece(whole, param).contiguous().clone(),
        param.device_mesh,
        param.placements,
        run_check=False,
        shape=param.shape,
        stride=param.stride(),
    )


def train(model, optimizer, steps):
    """Step with given gradients of the whole network."""
    for grads in steps:
        for name, param in model.named_parameters():
            param.grad = sharded_grad(grads[name], param)
        optimizer.step()


class CountingMode(CommDebugMode):
    """Counts as torch does, without its notes on every other operation, which take longer than steps."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        packet = getattr(func, "_overloadpacket", None)  # operators of a higher order have none
        if packet in self.comm_registry or packet in c10d_collective_ops:
            return super().__torch_dispatch__(func, types, args, kwargs)
        if packet is not None and DTensor in types:
            return NotImplemented  # until DTensor has made collectives of it
        return func(*args, **(kwargs or {}))


def train_and_count(model, optimizer, steps, num_counted=2):
    """Train, and return how many collectives each of the last steps has."""
    train(model, optimizer, steps[:-num_counted])
    counts = []
    for step in steps[-num_counted:]:
        with CountingMode() as comm:
            train(model, optimizer, [step])
        counts.append(comm.get_total_counts())
    return counts


def assert_same_bits(model, reference, what=""):
    """Every rank compares what it holds."""
    wanted = dict(reference.named_parameters())
    for name, param in model.named_parameters():
        mine = param.to_local() if hasattr(param, "to_local") else param
        expected = piece(wanted[name].detach(), param)
        assert torch.equal(mine.detach(), expected), f"{what} {name}: rank {dist.get_rank()}"

"""Nero on DTensors.

Under FSDP2, HSDP and DDP each rank holds whole neurons and steps them without communication. If the fan-in
is sharded, five numbers per neuron are summed over ranks, with one flat all-reduce per process group for
all parameters. Directions that depend on a whole matrix are computed by one rank, its owner.

Imported only if parameters are sharded.
"""

from nero.distributed.collectives import lowest_on_any_rank
from nero.distributed.norms import SharedNorms
from nero.distributed.owners import sharded_directions
from nero.distributed.placement import (
    check_placements,
    fan_in_mesh_dims,
    local_pair,
    per_neuron,
    sharded_mesh_dims,
    total_count,
)
from nero.distributed.shard import Shard
from nero.distributed.sharded_step import step_

__all__ = [
    "Shard",
    "SharedNorms",
    "check_placements",
    "fan_in_mesh_dims",
    "local_pair",
    "lowest_on_any_rank",
    "per_neuron",
    "sharded_directions",
    "sharded_mesh_dims",
    "step_",
    "total_count",
]

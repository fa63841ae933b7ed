"""Nero on torch's own distributed engine: what a rank can do alone, and the one sum that it cannot.

Under FSDP2, HSDP and DDP a rank holds whole neurons and steps them by itself. Where the fan-in is sharded,
five numbers per neuron are added up over the ranks that share it: one flat all-reduce per process group,
whatever the number of parameters. Directions that take a whole matrix are found by one rank, its owner.

Imported only by those who have sharded parameters.
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

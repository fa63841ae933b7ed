"""Nero on torch's own distributed engine: what a rank can do alone, and the one sum that it cannot.

Under FSDP2, HSDP and DDP a rank holds whole neurons and steps them by itself. Where the fan-in is sharded,
five numbers a neuron are added up over the ranks that share it: one flat all-reduce per process group,
whatever the number of parameters.

Imported only by those who have sharded parameters.
"""

from nero.distributed.norms import SharedNorms
from nero.distributed.shards import (
    check_param,
    fan_in_groups,
    local_work,
    neuron_norm_of,
    per_neuron,
    total_count,
)
from nero.distributed.step import Crossing, step_

__all__ = [
    "Crossing",
    "SharedNorms",
    "check_param",
    "fan_in_groups",
    "local_work",
    "neuron_norm_of",
    "per_neuron",
    "step_",
    "total_count",
]

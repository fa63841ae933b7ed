"""DeepSpeed ZeRO-3: every parameter is sharded by itself, and a sub-group's shards form one buffer."""

from collections.abc import Sequence
from typing import Any

import torch.distributed as dist
from torch import Tensor

from nero.distributed.flat.originals import Found, Original
from nero.distributed.flat.plan import Ranges
from nero.distributed.flat.values import problem_of


def zero3(flat: Tensor, originals: Sequence[Original]) -> Found | None:
    """Find the parameter pieces in a ZeRO-3 buffer."""
    members, pieces, problem, group = [], [], "", None
    for original in originals:
        param: Any = original.param
        engine = getattr(param, "_z3_optimizer", None)
        if engine is None or engine.get_param_id(param) not in engine.grad_position:
            continue
        sub_group, offset, num = engine.grad_position[engine.get_param_id(param)]
        if engine.fp32_partitioned_groups_flat[sub_group] is not flat:
            continue
        group = param.ds_process_group
        rank, numel = dist.get_rank(group), param.ds_numel
        start, stop = min(rank * num, numel), min((rank + 1) * num, numel)
        piece = original.piece(offset, start, stop)
        shard = param.ds_tensor.detach().reshape(-1)[: stop - start]
        problem = problem or problem_of(piece, flat, shard)
        members.append(original)
        pieces.append(piece)
    return Found(members, Ranges(pieces, problem), group) if members else None

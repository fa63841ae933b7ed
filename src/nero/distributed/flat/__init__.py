"""Nero on ranges of flat buffers: DeepSpeed ZeRO and FSDP1.

These engines flatten parameters, concatenate them and give every rank a contiguous range. Whole neurons in
a range are views, which take the usual step. Only neurons cut by the ends of ranges involve other ranks:
five sums each, in one all-reduce per call of ``step()``.

Imported only if an engine has flattened parameters.
"""

from nero.distributed.flat.holder import FlatRange
from nero.distributed.flat.originals import Original
from nero.distributed.flat.step import step_
from nero.distributed.flat.trace import trace

__all__ = ["FlatRange", "Original", "step_", "trace"]

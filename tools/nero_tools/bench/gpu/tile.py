"""The kernel with one kind of tile, so that its machine code can be inspected separately."""

import triton
import triton.language as tl

from nero.backends.triton.kernels import (
    NUM_FACTORS,
    NUMBERS_LENGTH,
    ROW_LENGTH,
    _elements,
    _neurons,
)
from nero.backends.triton.table import Kind

ELEMENTS = tl.constexpr(int(Kind.ELEMENTS))


@triton.jit
def tile_kernel(
    table, numbers, factors, seeds, tiles,
    KIND: tl.constexpr, NEURONS: tl.constexpr, BLOCK: tl.constexpr,
    DTYPE: tl.constexpr, STOCHASTIC: tl.constexpr, AVERAGE: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Do what `step_kernel` does with this kind of tile; without EXACT, by its usual path."""
    tile = tl.program_id(0)
    tensor = tl.load(tiles + tile).to(tl.int64)
    row, number = table + tensor * ROW_LENGTH, numbers + tensor * NUMBERS_LENGTH
    factor, seed = factors + NUM_FACTORS * tensor, tl.load(seeds + tensor)
    if KIND == ELEMENTS:
        _elements(row, number, factor, seed, tile, DTYPE, STOCHASTIC, AVERAGE)
    else:
        _neurons(
            row, number, factor, seed, tile, KIND, NEURONS, BLOCK,
            DTYPE, STOCHASTIC, AVERAGE, EXACT=EXACT,
        )  # fmt: skip

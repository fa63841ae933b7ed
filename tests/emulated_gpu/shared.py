"""Shared memory of the programs of a launch, and the races for it."""

import numpy as np

from tests.emulated_gpu.ptx import WARP, PtxError
from tests.emulated_gpu.ptx_types import UINT

_NOBODY, _SEVERAL = -2, -1


class SharedMemory:
    """Bytes of each program. Between two barriers, a byte that one warp writes is no other warp's.

    With one instruction, several warps may write the same number to one place: Triton lets all threads
    write that hold a copy.

    Args:
        num_programs: each with memory of its own.
        num_threads: of a program.
        num_bytes: of a program.
    """

    def __init__(self, num_programs: int, num_threads: int, num_bytes: int) -> None:
        self.num_threads, self.num_bytes = num_threads, num_bytes
        shape = (num_programs, max(num_bytes, 1))
        self._data = np.zeros(shape, np.uint8)
        self._is_written = np.zeros(shape, np.bool_)
        # The warps that wrote and read each byte since the last barrier.
        self._writer = np.full(shape, _NOBODY, np.int16)
        self._reader = np.full(shape, _NOBODY, np.int16)

    def part(self, which: np.ndarray) -> "SharedMemory":
        """Copy the memory of some programs."""
        found = SharedMemory(0, self.num_threads, self.num_bytes)
        for key in ("_data", "_is_written", "_writer", "_reader"):
            setattr(found, key, getattr(self, key)[which])
        return found

    def pass_barrier(self, programs: np.ndarray) -> None:
        """Let the warps of some programs see what the others have written."""
        self._writer[programs] = _NOBODY
        self._reader[programs] = _NOBODY

    def load(
        self, threads: np.ndarray, offset: np.ndarray, bits: int, num: int
    ) -> list[np.ndarray]:
        """Return ``num`` consecutive numbers of each thread."""
        where, warp = self._where(threads, offset, num * bits // 8, "load")
        if not self._is_written[where].all():
            raise PtxError("shared memory is read before it is written")
        if ((self._writer[where] != _NOBODY) & (self._writer[where] != warp)).any():
            raise PtxError("a race in shared memory: no barrier between a write and this read")
        before = self._reader[where]
        np.maximum.at(self._reader, where, np.broadcast_to(warp, before.shape))
        # Of several readers none may write: whoever differs from the largest is one of several.
        mixed = (self._reader[where] != warp) | ((before != _NOBODY) & (before != warp))
        self._reader[where[0][mixed], where[1][mixed]] = _SEVERAL
        raw, size = self._data[where], bits // 8
        parts = (raw[:, j * size : (j + 1) * size] for j in range(num))
        return [np.ascontiguousarray(part).view(UINT[bits])[:, 0] for part in parts]

    def store(
        self, threads: np.ndarray, offset: np.ndarray, values: list[np.ndarray], bits: int
    ) -> None:
        """Write consecutive numbers of each thread."""
        where, warp = self._where(threads, offset, len(values) * bits // 8, "store")
        wide = [np.ascontiguousarray(np.broadcast_to(value, len(threads))) for value in values]
        raw = np.concatenate([each.view(np.uint8).reshape(len(threads), -1) for each in wide], 1)
        for others, what in ((self._writer, "another write"), (self._reader, "a read")):
            if ((others[where] != _NOBODY) & (others[where] != warp)).any():
                raise PtxError(f"a race in shared memory: no barrier between {what} and this write")
        self._writer[where] = warp
        # The last one of several is written, and whoever else wrote finds another's warp.
        rows, places = where[0], where[1]
        several = self._writer[where] != warp
        self._writer[rows[several], places[several]] = _SEVERAL
        self._data[where] = raw
        if (self._data[where] != raw).any():
            raise PtxError("conflicting stores: threads write different numbers to one place")
        self._is_written[where] = True

    def _where(
        self, threads: np.ndarray, offset: np.ndarray, size: int, what: str
    ) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
        """Return programs and bytes, and the warp of each thread."""
        if (offset % size).any():
            raise PtxError(f"misaligned {what} of shared memory")
        if (offset < 0).any() or (offset + size > self.num_bytes).any():
            raise PtxError(f"{what} out of bounds of shared memory")
        program, warp = threads // self.num_threads, threads % self.num_threads // WARP
        places = np.broadcast_arrays(program[:, None], offset[:, None] + np.arange(size))
        return (places[0], places[1]), warp[:, None].astype(np.int16)

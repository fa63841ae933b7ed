"""Global memory: that of this process, of which kernels may touch only known tensors."""

import ctypes

import numpy as np

from tests.emulated_gpu.ptx import PtxError
from tests.emulated_gpu.ptx_types import UINT

_C_TYPE = {8: ctypes.c_uint8, 16: ctypes.c_uint16, 32: ctypes.c_uint32, 64: ctypes.c_uint64}


class Memory:
    """The tensors that kernels may read and write, at their real addresses."""

    def __init__(self) -> None:
        self._regions: dict[int, tuple[int, str]] = {}
        self._starts = self._ends = np.empty(0, np.uint64)
        self.names: list[str] = []
        """Of the regions, by address."""
        self._views: dict[int, tuple[np.uint64, np.ndarray]] = {}

    def add(self, start: int, num_bytes: int, name: str) -> None:
        """Let kernels touch some bytes."""
        if num_bytes:
            self._regions[start] = (start + num_bytes, name)
            self._views.clear()

    def clear(self) -> None:
        """Forget all regions."""
        self._regions.clear()
        self._views.clear()

    def _prepare(self) -> None:
        starts = sorted(self._regions)
        self._starts = np.array(starts, np.uint64)
        self._ends = np.array([self._regions[start][0] for start in starts], np.uint64)
        self.names = [self._regions[start][1] for start in starts]
        base = (starts[0] & ~0xFFF) if starts else 0
        for bits, type_ in _C_TYPE.items():
            count = (int(self._ends.max()) - base + 63) * 8 // bits if starts else 0
            view = (
                np.frombuffer((type_ * count).from_address(base), UINT[bits])
                if count
                else np.empty(0)
            )
            self._views[bits] = (np.uint64(base), view)

    def regions(self, addresses: np.ndarray, num_bytes: int, what: str) -> np.ndarray:
        """Return the region of every address; raise if one is in none, or is not aligned."""
        if not self._views:
            self._prepare()
        if not len(self.names):
            raise PtxError(f"{what}: no memory is known")
        if (addresses % np.uint64(num_bytes)).any():
            raise PtxError(f"misaligned {what}: an address is not a multiple of {num_bytes} bytes")
        region = np.searchsorted(self._starts, addresses, "right") - 1
        is_bad = (region < 0) | (addresses + np.uint64(num_bytes) > self._ends[region])
        if is_bad.any():
            first, near = int(addresses[is_bad][0]), int(region[is_bad][0])
            where = f"{first - int(self._ends[near])} bytes after the end of {self.names[near]}"
            raise PtxError(
                f"{what} out of bounds: {is_bad.sum()} of {len(addresses)} threads; the first is "
                + (where if near >= 0 else f"before {self.names[0]}")
            )
        return region

    def load(self, addresses: np.ndarray, bits: int, num: int) -> list[np.ndarray]:
        """Return ``num`` consecutive numbers from each address."""
        index, view = self._index(addresses, bits)
        return [view[index + np.uint64(j)] for j in range(num)]

    def store(self, addresses: np.ndarray, values: list[np.ndarray], bits: int) -> None:
        """Write consecutive numbers to each address; raise if threads write different ones to one."""
        index, view = self._index(addresses, bits)
        for j, value in enumerate(values):
            at = index + np.uint64(j)
            value = np.broadcast_to(value, at.shape)
            order = np.argsort(at, kind="stable")
            place, sorted_ = at[order], value[order]
            if ((place[1:] == place[:-1]) & (sorted_[1:] != sorted_[:-1])).any():
                raise PtxError("conflicting stores: threads write different numbers to one place")
            view[at] = value

    def add_atomically(self, addresses: np.ndarray, values: np.ndarray, bits: int) -> np.ndarray:
        """Add to each address, one thread after the other; return what was there before."""
        index, view = self._index(addresses, bits)
        old = np.empty(len(index), UINT[bits])
        for j, at in enumerate(index):
            old[j] = view[at]
            view[at] += values[j]
        return old

    def _index(self, addresses: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
        base, view = self._views[bits]
        return (addresses - base) // np.uint64(bits // 8), view

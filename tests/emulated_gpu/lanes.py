"""The threads of some programs, and their registers."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.emulated_gpu.ptx import WARP, Kernel, PtxError
from tests.emulated_gpu.ptx_types import DTYPE, UINT, bits_of
from tests.emulated_gpu.shared import SharedMemory

Which = np.ndarray | None
"""The threads that execute an instruction; ``None`` if all do."""


class Lanes:
    """Threads that go through the code together, until they part at a jump.

    A register is one array with an entry per thread, or a single entry if all threads have the same.

    Args:
        kernel: declares the registers.
        programs: the numbers of the programs.
        grid: number of programs of the launch.
        shared: the memory of these programs.
    """

    def __init__(
        self, kernel: Kernel, programs: np.ndarray, grid: int, shared: SharedMemory
    ) -> None:
        self.kernel, self.programs, self.grid, self.shared = kernel, programs, grid, shared
        self.num = len(programs) * kernel.num_threads
        self.pc = 0
        self.pcs: np.ndarray | None = None
        """Where each thread is, if they are at several places."""
        self._registers: dict[str, np.ndarray] = {}
        self._is_unwritten: dict[
            str, np.ndarray
        ] = {}  # of registers that only some threads have written

    def part(self, which: np.ndarray) -> "Lanes":
        """Copy some of the programs."""
        found = Lanes(self.kernel, self.programs[which], self.grid, self.shared.part(which))
        threads = np.repeat(which, self.kernel.num_threads)
        for key in ("_registers", "_is_unwritten"):
            each = {k: v if v.shape == (1,) else v[threads] for k, v in getattr(self, key).items()}
            setattr(found, key, each)
        found.pc = self.pc
        found.pcs = None if self.pcs is None else self.pcs[threads]
        return found

    def threads(self, which: Which) -> np.ndarray:
        """Return the numbers of the threads that execute an instruction."""
        return np.arange(self.num) if which is None else which

    def register(self, name: str, which: Which = None) -> np.ndarray:
        """Return a register's bits; raise if one of these threads has not written it."""
        if name not in self._registers:
            self.kernel.width(name)  # raises if it is not even declared
            raise PtxError(f"{name} is read before it is written")
        value = self._registers[name]
        missing = self._is_unwritten.get(name)
        if missing is not None and missing[self.threads(which)].any():
            raise PtxError(f"{name} is read before it is written, by some threads")
        return value if which is None or value.shape == (1,) else value[which]

    def get(self, operand: Any, type_: str, which: Which) -> np.ndarray:
        """Return an operand as numbers of a type; a single entry if all threads have the same."""
        bits = bits_of(type_)
        if isinstance(operand, int):
            value = np.array([operand & ((1 << 64) - 1)], np.uint64).astype(UINT[bits])
        elif isinstance(operand, np.ndarray):
            value = operand
        elif operand in SPECIAL:
            value = SPECIAL[operand](self)
            value = value if which is None or value.shape == (1,) else value[which]
        elif operand == "global_smem":
            value = np.zeros(1, np.uint32)
        elif isinstance(operand, str) and operand.startswith("%"):
            value = self.register(operand, which)
        else:
            raise PtxError(f"unknown operand: {operand}")
        if bits == 1 or value.dtype == np.bool_:
            return value
        return value.astype(UINT[bits], copy=False).view(DTYPE[type_])

    def wide(self, operand: Any, type_: str, which: Which) -> np.ndarray:
        """Return an operand with one entry for each thread."""
        return np.broadcast_to(self.get(operand, type_, which), self.threads(which).shape)

    def put(self, name: str, value: np.ndarray, which: Which) -> None:
        """Write a register of some threads."""
        if name == "_":
            return
        width = self.kernel.width(name)
        if value.dtype != np.bool_:
            value = value.view(UINT[value.dtype.itemsize * 8]).astype(UINT[width], copy=False)
        if which is None:
            self._registers[name] = value
            self._is_unwritten.pop(name, None)
            return
        missing = self._is_unwritten.get(name)
        if name not in self._registers:
            self._registers[name], missing = np.zeros(1, UINT[width]), np.ones(self.num, np.bool_)
        new = np.broadcast_to(self._registers[name], (self.num,)).copy()
        new[which] = value
        self._registers[name] = new
        if missing is not None:
            missing = missing.copy()
            missing[which] = False
            self._is_unwritten[name] = missing


SPECIAL: dict[str, Callable[[Lanes], np.ndarray]] = {
    "%tid.x": lambda m: np.tile(np.arange(m.kernel.num_threads, dtype=np.uint32), len(m.programs)),
    "%ctaid.x": lambda m: np.repeat(m.programs, m.kernel.num_threads),
    "%ntid.x": lambda m: np.array([m.kernel.num_threads], np.uint32),
    "%nctaid.x": lambda m: np.array([m.grid], np.uint32),
    "%laneid": lambda m: np.arange(m.num, dtype=np.uint32) % np.uint32(WARP),
}

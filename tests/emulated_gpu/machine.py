"""Instructions that do more than arithmetic: moves, loads and stores, exchanges within a warp, barriers."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.emulated_gpu.lanes import Lanes, Which
from tests.emulated_gpu.memory import Memory
from tests.emulated_gpu.ptx import WARP, Address, Instruction, PtxError
from tests.emulated_gpu.ptx_types import INT, UINT

_SECTOR = 32
_HINTS = ("evict_last", "evict_first", "evict_normal", "nc", "ca", "cg", "wb", "wt", "volatile")


@dataclass
class Traffic:
    """What loads or stores moved."""

    requests: int = 0
    """Instructions, once per warp."""
    sectors: int = 0
    """Pieces of 32 bytes, each counted once per request."""
    num_bytes: int = 0
    """What threads asked for."""


class Machine:
    """Implements instructions on `Lanes`.

    Args:
        memory: global memory.
    """

    OPCODES = ("mov", "cvta", "ld", "st", "atom", "red", "shfl", "vote", "redux", "bar")

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.arguments: dict[str, int] = {}
        """Of the launch that runs."""
        self.traffic: dict[tuple[str, str], Traffic] = {}
        """By region of memory, and by "load" or "store", if it is counted."""
        self.counts_traffic = False

    def implementation(self, ins: Instruction) -> Callable[[Lanes, Which], None] | None:
        """Return what executes an instruction, or ``None`` if it is arithmetic."""
        if ins.op not in self.OPCODES:
            return None
        execute = getattr(self, f"_{ins.op}")
        getattr(self, f"_check_{ins.op}", lambda ins: None)(ins)
        return lambda m, which: execute(m, ins, which)

    # ---- moves

    def _check_mov(self, ins: Instruction) -> None:
        if len(ins.mods) != 1:
            raise PtxError("unknown modifiers")

    def _mov(self, m: Lanes, ins: Instruction, which: Which) -> None:
        to, source = ins.operands
        bits = 1 if ins.mods[-1] == "pred" else int(ins.mods[-1][1:])
        if isinstance(to, list):  # a register into parts
            whole, width = m.get(source, f"b{bits}", which), bits // len(to)
            for i, name in enumerate(to):
                m.put(name, (whole >> whole.dtype.type(i * width)).astype(UINT[width]), which)
        elif isinstance(source, list):  # parts into a register
            width, type_ = bits // len(source), UINT[bits]
            parts = [_part(m, each, width, which).astype(type_) for each in source]
            whole = parts[0]
            for i, part in enumerate(parts[1:], 1):
                whole = whole | (part << type_(i * width))
            m.put(to, whole, which)
        else:
            m.put(to, m.get(source, "pred" if bits == 1 else f"b{bits}", which), which)

    def _check_cvta(self, ins: Instruction) -> None:
        if "global" not in ins.mods:
            raise PtxError("addresses of global memory only")

    def _cvta(self, m: Lanes, ins: Instruction, which: Which) -> None:
        to, source = ins.operands
        m.put(to, m.get(source, "b64", which), which)

    # ---- loads and stores

    def _check_ld(self, ins: Instruction) -> None:
        _access(ins)

    _check_st = _check_ld

    def _ld(self, m: Lanes, ins: Instruction, which: Which) -> None:
        space, num, type_ = _access(ins)
        bits = int(type_[1:])
        to, address = ins.operands
        if space == "param":
            value = self.arguments[address.base] & ((1 << bits) - 1)
            parts = [np.array([value], UINT[bits])]
        elif space == "global":
            addresses = _addresses(m, address, 64, which)
            self._touch(m, addresses, num * bits // 8, "load", which)
            parts = self.memory.load(addresses, bits, num)
        else:
            offset = _addresses(m, address, 32, which).astype(np.int64)
            parts = m.shared.load(m.threads(which), offset, bits, num)
        for name, part in zip(to if isinstance(to, list) else [to], parts, strict=True):
            width = m.kernel.width(name)
            if type_[0] == "s" and bits < width:
                part = part.view(INT[bits]).astype(INT[width])
            m.put(name, part, which)

    def _st(self, m: Lanes, ins: Instruction, which: Which) -> None:
        space, num, type_ = _access(ins)
        bits = int(type_[1:])
        address, source = ins.operands
        sources = source if isinstance(source, list) else [source]
        values = [m.get(each, f"b{bits}", which) for each in sources]
        if space == "global":
            addresses = _addresses(m, address, 64, which)
            self._touch(m, addresses, num * bits // 8, "store", which)
            self.memory.store(addresses, values, bits)
        elif space == "shared":
            offset = _addresses(m, address, 32, which).astype(np.int64)
            m.shared.store(m.threads(which), offset, values, bits)
        else:
            raise PtxError("a store to a parameter")

    def _check_atom(self, ins: Instruction) -> None:
        known = ("global", "gpu", "relaxed", "acq_rel", "add", "u32", "s32", "u64", "s64")
        if "add" not in ins.mods or {*ins.mods} - {*known}:
            raise PtxError("integer additions in global memory only")

    _check_red = _check_atom

    def _atom(self, m: Lanes, ins: Instruction, which: Which) -> None:
        to, address, source = ins.operands if ins.op == "atom" else ("_", *ins.operands)
        bits = int(ins.mods[-1][1:])
        addresses = _addresses(m, address, 64, which)
        self._touch(m, addresses, bits // 8, "atomic", which)
        values = m.wide(source, f"b{bits}", which)
        m.put(to, self.memory.add_atomically(addresses, values, bits), which)

    _red = _atom

    def _touch(
        self, m: Lanes, addresses: np.ndarray, num_bytes: int, kind: str, which: Which
    ) -> None:
        """Check addresses, and count what is moved."""
        region = self.memory.regions(addresses, num_bytes, kind)
        if not self.counts_traffic:
            return
        warp = (m.threads(which) // WARP).astype(np.uint64) + np.uint64(1)
        sector = (warp << np.uint64(43)) | (addresses // np.uint64(_SECTOR))
        for each in np.unique(region):
            here = region == each
            found = self.traffic.setdefault((self.memory.names[each], kind), Traffic())
            found.requests += len(np.unique(warp[here]))
            found.sectors += len(np.unique(sector[here]))
            found.num_bytes += int(here.sum()) * num_bytes

    # ---- exchanges within a warp, and barriers

    def _check_shfl(self, ins: Instruction) -> None:
        to, _, _, clamp, _ = ins.operands
        mode = ins.mods[1] if len(ins.mods) == 3 and ins.mods[0] == "sync" else ""
        full = {"bfly": 31, "idx": 31, "down": 31, "up": 0}
        if mode not in full or clamp != full[mode] or "|" in to:
            raise PtxError("a shuffle of 32 threads only")

    def _shfl(self, m: Lanes, ins: Instruction, which: Which) -> None:
        _whole_warps(m, which, ins.operands[4])
        to, source, by, _, _ = ins.operands
        value, by = m.wide(source, "b32", which), m.wide(by, "b32", which).astype(np.int64)
        here = np.arange(len(value))
        lane = here % WARP  # whole warps, in order
        other = {
            "bfly": lane ^ (by & 31),
            "idx": by & 31,
            "up": np.where(lane - by >= 0, lane - by, lane),
            "down": np.where(lane + by < WARP, lane + by, lane),
        }[ins.mods[1]]
        m.put(to, value[here - lane + other], which)

    def _check_vote(self, ins: Instruction) -> None:
        if ins.mods != ("sync", "ballot", "b32"):
            raise PtxError("a ballot of 32 threads only")

    def _vote(self, m: Lanes, ins: Instruction, which: Which) -> None:
        _whole_warps(m, which, ins.operands[2])
        flags = m.wide(ins.operands[1], "pred", which).reshape(-1, WARP)
        bits = flags.astype(np.uint32) << np.arange(WARP, dtype=np.uint32)
        m.put(ins.operands[0], np.repeat(bits.sum(1, dtype=np.uint32), WARP), which)

    def _check_redux(self, ins: Instruction) -> None:
        sync, how, type_ = ins.mods
        if sync != "sync" or how not in _REDUCE or type_ not in ("u32", "s32", "b32"):
            raise PtxError("an unknown reduction")

    def _redux(self, m: Lanes, ins: Instruction, which: Which) -> None:
        _whole_warps(m, which, ins.operands[2])
        value = m.wide(ins.operands[1], ins.mods[2], which).reshape(-1, WARP)
        found = _REDUCE[ins.mods[1]].reduce(value, axis=1, dtype=value.dtype)
        m.put(ins.operands[0], np.repeat(found, WARP), which)

    def _check_bar(self, ins: Instruction) -> None:
        if ins.mods not in (("sync",), ("warp", "sync")) or ins.operands not in ((0,), (-1,)):
            raise PtxError("a barrier of all threads only")

    def _bar(self, m: Lanes, ins: Instruction, which: Which) -> None:
        if ins.mods[0] == "warp":
            _whole_warps(m, which, ins.operands[0])
            return
        num_threads = m.kernel.num_threads
        counts = np.bincount(m.threads(which) // num_threads, minlength=len(m.programs))
        if ((counts > 0) & (counts < num_threads)).any():
            raise PtxError("a partial barrier: not all threads of a program reach it together")
        m.shared.pass_barrier(counts > 0)


_REDUCE = {
    "add": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
}


def _part(m: Lanes, source: Any, width: int, which: Which) -> np.ndarray:
    """Return a part of a register.

    LLVM packs a register that no instruction writes where the result's other part is all that counts, as in
    an addition of two float32 at once. It becomes NaN, or -1, so that a use of it shows.
    """
    if isinstance(source, str) and source.startswith("%r") and source not in m.kernel.written:
        m.kernel.width(source)  # raises if it is not even declared
        return np.array([~0]).astype(UINT[width])
    return m.get(source, f"b{width}", which)


def _access(ins: Instruction) -> tuple[str, int, str]:
    """Return the space, how many numbers at a time, and their type."""
    spaces = [each for each in ins.mods if each in ("param", "global", "shared", "shared_cta")]
    vectors = [each for each in ins.mods if re.fullmatch(r"v[248]", each)]
    type_ = ins.mods[-1]
    rest = {*ins.mods[:-1]} - {*spaces, *vectors, *_HINTS}
    rest -= {each for each in rest if each.startswith(("L1_", "L2_"))}
    if len(spaces) != 1 or rest or not re.fullmatch(r"[bsuf](8|16|32|64)", type_):
        raise PtxError("an unknown kind of access")
    return spaces[0].removesuffix("_cta"), int(vectors[0][1]) if vectors else 1, type_


def _addresses(m: Lanes, address: Address, bits: int, which: Which) -> np.ndarray:
    base = m.wide(address.base, f"b{bits}", which)
    return base + UINT[bits](address.offset & ((1 << bits) - 1))


def _whole_warps(m: Lanes, which: Which, mask: Any) -> None:
    if (m.get(mask, "b32", which) != np.uint32(0xFFFFFFFF)).any():
        raise PtxError("a partial warp: its mask names fewer than 32 threads")
    if which is not None and (np.bincount(which // WARP) % WARP != 0).any():
        raise PtxError("a partial warp: all 32 threads must take part")

"""Runs a kernel: all threads of some programs in lockstep, one numpy operation per instruction."""

from collections import Counter
from collections.abc import Callable

import numpy as np

from tests.emulated_gpu.approximate import Approximation, is_approximate
from tests.emulated_gpu.arithmetic import COMPUTE
from tests.emulated_gpu.lanes import Lanes, Which
from tests.emulated_gpu.machine import Machine
from tests.emulated_gpu.memory import Memory
from tests.emulated_gpu.ptx import WARP, Instruction, PtxError, read_ptx
from tests.emulated_gpu.shared import SharedMemory

JUMPS = ("bra", "brx", "ret")
_END = 1 << 30
Step = Callable[[Lanes, Which], None]


class Emulator:
    """Runs one kernel.

    Args:
        text: PTX.
        memory: what the kernel may touch.
        shared_bytes: shared memory of each program.
        error: of approximate instructions: see `Approximation`.
        max_threads: how many run at a time.
    """

    def __init__(
        self,
        text: str,
        memory: Memory | None = None,
        *,
        shared_bytes: int = 0,
        error: float | None = 0.0,
        max_threads: int = 1 << 15,
    ) -> None:
        self.kernel, self.shared_bytes = read_ptx(text), shared_bytes
        self.approximation, self._max_threads = Approximation(error), max_threads
        self.machine = Machine(memory or Memory())
        self.executed: Counter[int] = Counter()
        """How many warps have executed each instruction."""
        self._steps: dict[int, Step] = {}
        for i in range(len(self.kernel.code)):
            self.set(i, self.kernel.code[i])

    def set(self, i: int, ins: Instruction) -> None:
        """Replace an instruction; raises if the emulator does not implement it."""
        self.kernel.code[i] = ins
        if ins.op not in JUMPS:
            self._steps[i] = self._step(ins)

    def run(self, grid: int, *arguments: int) -> None:
        """Run all programs of a launch; arguments that are left out are 0."""
        names = self.kernel.params
        padded = [*arguments, *[0] * (len(names) - len(arguments))]
        self.machine.arguments = dict(zip(names, padded, strict=True))
        num_threads = self.kernel.num_threads
        at_once = max(self._max_threads // num_threads, 1)
        with np.errstate(all="ignore"):
            for first in range(0, grid, at_once):
                programs = np.arange(first, min(first + at_once, grid), dtype=np.uint32)
                shared = SharedMemory(len(programs), num_threads, self.shared_bytes)
                todo = [Lanes(self.kernel, programs, grid, shared)]
                while todo:
                    self._run(todo.pop(), todo)

    # ---- control flow

    def _run(self, m: Lanes, todo: list[Lanes]) -> None:
        """Run until the end, or until programs part: then each part is something to do."""
        code, num_warps = self.kernel.code, m.num // WARP
        while True:
            if m.pcs is not None:
                if not self._run_apart(m):
                    return
                continue
            if m.pc >= len(code):
                return
            ins = code[m.pc]
            self.executed[m.pc] += num_warps
            if ins.op not in JUMPS:
                self._steps[m.pc](m, None)
                m.pc += 1
                continue
            targets = self._targets(m, ins, m.pc, None)
            if (targets == targets[0]).all():
                m.pc = int(targets[0])
                continue
            per_program = targets.reshape(-1, self.kernel.num_threads)
            if (per_program != per_program[:, :1]).any():  # threads of one program part
                m.pcs = targets.copy()
                continue
            for target in np.unique(targets):
                part = m.part(per_program[:, 0] == target)
                part.pc = int(target)
                todo.append(part)
            return

    def _run_apart(self, m: Lanes) -> bool:
        """Run the threads that are furthest behind until they may meet others; return if any are left."""
        assert m.pcs is not None
        pc = int(m.pcs.min())
        if pc >= len(self.kernel.code):
            return False
        if (m.pcs == pc).all():
            m.pc, m.pcs = pc, None
            return True
        which = np.nonzero(m.pcs == pc)[0]
        until = int(m.pcs[m.pcs > pc].min())
        num_warps = len(np.unique(which // WARP))
        while pc < min(until, len(self.kernel.code)):
            ins = self.kernel.code[pc]
            self.executed[pc] += num_warps
            if ins.op in JUMPS:
                m.pcs[which] = self._targets(m, ins, pc, which)
                return True
            self._steps[pc](m, which)
            pc += 1
        m.pcs[which] = pc
        return True

    def _targets(self, m: Lanes, ins: Instruction, pc: int, which: Which) -> np.ndarray:
        """Return where each of these threads goes from a jump."""
        num = len(m.threads(which))
        if ins.op == "ret":
            target = np.array([_END])
        elif ins.op == "bra":
            target = np.array([self.kernel.labels[ins.operands[0]]])
        else:  # brx.idx
            index, name = ins.operands
            table = np.array([self.kernel.labels[each] for each in self.kernel.tables[name]])
            found = m.wide(index, "u32", which)
            if (found >= len(table)).any():
                raise PtxError(f"{ins.line}: {ins.text}: a jump past its table")
            target = table[found]
        if ins.guard is not None:
            target = np.where(_allowed(m, ins, which), target, pc + 1)
        return np.broadcast_to(target, (num,))

    # ---- instructions

    def _step(self, ins: Instruction) -> Step:
        try:
            execute = self.machine.implementation(ins) or self._computed(ins)
        except PtxError as raised:
            raise PtxError(f"not implemented: {ins.name} in {ins.text!r}: {raised}") from None

        def step(m: Lanes, which: Which) -> None:
            try:
                if ins.guard is not None:
                    allowed = _allowed(m, ins, which)
                    if not allowed.all():
                        which = m.threads(which)[allowed]
                        if not len(which):
                            return
                execute(m, which)
            except PtxError as raised:
                raise PtxError(f"{ins.line}: {ins.text}: {raised}") from None

        return step

    def _computed(self, ins: Instruction) -> Step:
        if ins.op not in COMPUTE:
            raise PtxError("unknown opcode")
        types, compute = COMPUTE[ins.op](ins.mods)
        to, *operands = ins.operands
        if len(operands) != len(types) or not isinstance(to, str) or "|" in to:
            raise PtxError("unknown operands")
        is_rough = is_approximate(ins)

        def execute(m: Lanes, which: Which) -> None:
            sources = [m.get(each, t, which) for each, t in zip(operands, types, strict=True)]
            found = compute(*sources)
            if is_rough and self.approximation.error != 0.0:
                moved = self.approximation(ins, *sources)
                found = np.where(np.isfinite(found), moved, found)
            m.put(to, found, which)

        return execute


def _allowed(m: Lanes, ins: Instruction, which: Which) -> np.ndarray:
    """Return which of the threads a guard lets through."""
    found = np.broadcast_to(m.register(ins.guard, which), m.threads(which).shape)
    return ~found if ins.is_negated else found

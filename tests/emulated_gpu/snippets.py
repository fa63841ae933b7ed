"""Small kernels around one instruction, to compare it with numpy."""

import numpy as np

from tests.emulated_gpu.emulator import Emulator
from tests.emulated_gpu.memory import Memory
from tests.emulated_gpu.ptx import WARP

HEAD = """
.visible .entry snippet({params}) .reqntid {num_threads}
{{
\t.reg .pred %p<16>;
\t.reg .b16 %h<16>;
\t.reg .b32 %r<16>;
\t.reg .b64 %d<32>;
"""
_PREFIX = {1: "%p", 16: "%h", 32: "%r", 64: "%d"}


def kernel(body: str, num_params: int = 1, num_threads: int = WARP) -> str:
    """Return a kernel with pointers as parameters: ``%d16``, ``%d17``, ...; ``%d15`` is 8 * tid.x."""
    params = ", ".join(f".param .u64 param_{i}" for i in range(num_params))
    loads = [f"ld.param.b64 %d{16 + i}, [param_{i}];" for i in range(num_params)]
    head = HEAD.format(params=params, num_threads=num_threads)
    thread = ["mov.u32 %r15, %tid.x;", "mul.wide.u32 %d15, %r15, 8;"]
    return head + "\n".join("\t" + line for line in (*loads, *thread, body, "ret;")) + "\n}\n"


def run(text: str, *arrays: np.ndarray, shared_bytes: int = 0, grid: int = 1) -> Emulator:
    """Launch a kernel on arrays, which it may write."""
    memory = Memory()
    for i, array in enumerate(arrays):
        memory.add(array.ctypes.data, array.nbytes, f"array {i}")
    emulator = Emulator(text, memory, shared_bytes=shared_bytes)
    emulator.run(grid, *(array.ctypes.data for array in arrays))
    return emulator


def execute(
    instruction: str, dtype: type[np.generic], *operands: np.ndarray, error: float | None = 0.0
) -> np.ndarray:
    """Return what an instruction such as ``add.s32 {0}, {1}, {2}`` computes.

    Args:
        instruction: ``{0}`` is the result, the others are the operands.
        dtype: of the result; bool for a predicate.
        operands: one entry per thread.
        error: of approximate instructions.
    """
    num = len(operands[0])
    num_threads = -(-num // WARP) * WARP
    lines, names, arrays = [], [], []
    for i, operand in enumerate(operands, 1):
        padded = np.zeros(num_threads, np.uint64)
        if operand.dtype == np.bool_:
            padded[:num] = operand
            bits = 1
        else:
            padded.view(operand.dtype)[: num * (8 // operand.itemsize) : 8 // operand.itemsize] = (
                operand
            )
            bits = 8 * operand.itemsize
        arrays.append(padded)
        lines.append(f"add.s64 %d14, %d{16 + i}, %d15;")
        names.append(f"{_PREFIX[bits]}{i}")
        if bits == 1:
            lines.append(f"ld.global.b32 %r{i}, [%d14];\n\tsetp.ne.b32 %p{i}, %r{i}, 0;")
        else:
            lines.append(f"ld.global.b{bits} {names[-1]}, [%d14];")
    bits = 1 if dtype == np.bool_ else np.dtype(dtype).itemsize * 8
    result = f"{_PREFIX[bits]}13"
    lines += [instruction.format(result, *names) + ";", "add.s64 %d14, %d16, %d15;"]
    if bits == 1:
        lines += [f"selp.b32 %r12, 1, 0, {result};", "st.global.b32 [%d14], %r12;"]
    else:
        lines.append(f"st.global.b{bits} [%d14], {result};")
    found = np.zeros(num_threads, np.uint64)
    memory = Memory()
    for array in (found, *arrays):
        memory.add(array.ctypes.data, array.nbytes, "array")
    text = kernel("\n\t".join(lines), 1 + len(arrays), num_threads)
    emulator = Emulator(text, memory, error=error)
    emulator.run(1, *(array.ctypes.data for array in (found, *arrays)))
    if dtype == np.bool_:
        return found[:num] != 0
    return found.view(dtype)[:: 8 // np.dtype(dtype).itemsize][:num].copy()

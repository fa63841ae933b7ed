"""The machine code of the Triton kernels, compiled and read without a GPU.

Triton's wheel carries ptxas, cuobjdump and nvdisasm. Kernels are compiled for an architecture and
disassembled, and their instructions counted by what they do.
"""

import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from nero.backends.triton.launch import COMPILATION
from nero.backends.triton.table import TILES, Kind, Phase

ARCHITECTURES = (80, 86, 89, 90, 100, 120)
DTYPES = ("float32", "bfloat16")
THREADS = 32 * int(COMPILATION["num_warps"])
# Of each architecture: warps and programs that one multiprocessor holds at most (CUDA programming guide).
_LIMITS = {80: (64, 32), 86: (48, 16), 89: (48, 24), 90: (64, 32), 100: (64, 32), 120: (48, 24)}
_REGISTERS = 65536  # of a multiprocessor

# What an instruction does, by its name. Those of float64 run at 1/64 of the others' rate on consumer cards.
_CLASSES = {
    "float64": r"D(ADD|MUL|FMA|SETP|MNMX)|MUFU\.\w*64|F2F\.F(64\.F32|32\.F64)|I2F\.F64|F2I\.\w*F64",
    "conversion": r"F2F|I2F|F2I|F2FP",
    "load": r"LDG",
    "wide_load": r"LDG\.\S*128",
    "store": r"STG|ATOMG|RED",
    "spill": r"STL|LDL",
    "shared": r"LDS|STS",
}
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)(.*)")
_LABEL = re.compile(r"^(\.L_x_\d+):")


@dataclass(frozen=True)
class Counts:
    """Instructions of each class, of one thread."""

    total: int
    float64: int
    conversion: int
    load: int
    wide_load: int
    store: int
    spill: int
    shared: int


@dataclass(frozen=True)
class MachineCode:
    """A compiled kernel."""

    registers: int
    stack_bytes: int
    shared_bytes: int
    counts: Counts
    loops: tuple[Counts, ...]
    """Each loop's body, in the order of the code."""

    @property
    def num_spills(self) -> int:
        """Instructions that move registers to memory and back."""
        return self.counts.spill

    def programs_per_sm(self, architecture: int) -> int:
        """How many programs run on a multiprocessor at a time."""
        warps, programs = _LIMITS[architecture]
        each = -(-self.registers // 8) * 8 * 32  # a warp's registers come in units of 256
        return min(warps // (THREADS // 32), programs, _REGISTERS // each // (THREADS // 32))

    def occupancy(self, architecture: int) -> float:
        """Return the share of a multiprocessor's warps that are in use."""
        warps, _ = _LIMITS[architecture]
        return self.programs_per_sm(architecture) * (THREADS // 32) / warps


def compiled_tile(
    kind: Kind, dtype: str, architecture: int, *, is_exact: bool = False, block: int | None = None
) -> MachineCode:
    """Compile the kernel for one kind of tile; without ``is_exact``, its usual path alone."""
    import triton.language as tl

    from nero_tools.bench.gpu.tile import tile_kernel

    neurons, usual = TILES[kind]
    constants = {
        "KIND": int(kind),
        "NEURONS": neurons,
        "BLOCK": block or usual,
        **_constants(getattr(tl, dtype)),
        "EXACT": is_exact,
    }
    return read_code(compiled_kernel(tile_kernel, constants, architecture))


def compiled_step(dtype: str, architecture: int) -> MachineCode:
    """Compile the kernel as it is launched, with all kinds of tiles."""
    import triton.language as tl

    return read_code(_compiled_step(getattr(tl, dtype), architecture))


def compiled_for_amd(dtype: str, architecture: str = "gfx942") -> dict[str, int]:
    """Compile for an AMD GPU, and return registers, spills and memory as its assembler tells them."""
    import triton.language as tl

    text = _compiled_step(getattr(tl, dtype), architecture).asm["amdgcn"]
    fields: tuple[str, ...] = ("vgpr_count", "sgpr_count", "vgpr_spill_count", "sgpr_spill_count")
    fields += ("private_segment_fixed_size", "group_segment_fixed_size")
    found = {name: re.search(rf"\.{name}:\s+(\d+)", text) for name in fields}
    counted = {name: int(match[1]) for name, match in found.items() if match}
    return {
        **counted,
        "wide_loads": len(re.findall(r"global_load_dwordx4", text)),
        "float64": len(re.findall(r"^\s+v_\w+_f64", text, re.M)),
    }


def _compiled_step(dtype: Any, architecture: int | str) -> Any:
    from nero.backends.triton.kernels import step_kernel

    constants = {**_constants(dtype), "PHASE": int(Phase.WHOLE)}
    return compiled_kernel(step_kernel, constants, architecture)


def _constants(dtype: Any) -> dict[str, Any]:
    return {"DTYPE": dtype, "STOCHASTIC": False, "AVERAGE": None}


def compiled_kernel(
    kernel: Any, constants: dict[str, Any], architecture: int | str, **arguments: str
) -> Any:
    """Compile for an architecture of NVIDIA's, such as 80, or of AMD's, such as "gfx942".

    Args:
        kernel: that takes the table, and then ``arguments``.
        constants: what it is compiled with.
        architecture: of the GPU.
        arguments: types of what it takes besides; by default, those of a step.
    """
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.compiler import compile as compile_triton

    table = {"table": "*i64", "numbers": "*fp64", "factors": "*fp64", "seeds": "*i64"}
    arguments = arguments or {"tiles": "*i32"}
    signature = {**table, **arguments, **dict.fromkeys(constants, "constexpr")}
    is_cuda = isinstance(architecture, int)
    target = GPUTarget("cuda", architecture, 32) if is_cuda else GPUTarget("hip", architecture, 64)
    source = ASTSource(kernel, signature, constants)
    return compile_triton(source, target=target, options=dict(COMPILATION))


def read_code(compiled: Any) -> MachineCode:
    """Disassemble a kernel, and count."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        usage = _tool("cuobjdump", "-res-usage", file.name)
        text = _tool("nvdisasm", "-c", file.name)
    found = re.search(r"REG:(\d+) STACK:(\d+)", usage)
    if found is None:
        raise RuntimeError(f"cuobjdump printed no register count: {usage!r}")
    code = [*_instructions(text)]
    return MachineCode(
        registers=int(found[1]),
        stack_bytes=int(found[2]),
        shared_bytes=compiled.metadata.shared,
        counts=_count([name for name, _, _ in code]),
        loops=tuple(_loops(code)),
    )


def _instructions(text: str) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield each instruction: its name, its operands, and the labels before it."""
    labels: list[str] = []
    for line in text.splitlines():
        if label := _LABEL.match(line):
            labels.append(label[1])
        elif (found := _INSTRUCTION.match(line)) and found[1] != "NOP":
            yield found[1], found[2], tuple(labels)
            labels = []


def _loops(code: list[tuple[str, str, tuple[str, ...]]]) -> Iterator[Counts]:
    """Yield the body of every loop: from a label to the branch that goes back to it."""
    places = {label: i for i, (_, _, labels) in enumerate(code) for label in labels}
    for i, (name, operands, _) in enumerate(code):
        target = re.search(r"\.L_x_\d+", operands)
        if name.startswith("BRA") and target and places.get(target[0], i) < i:
            yield _count([each for each, _, _ in code[places[target[0]] : i + 1]])


def _count(names: list[str]) -> Counts:
    counted = {key: sum(1 for n in names if re.match(p, n)) for key, p in _CLASSES.items()}
    return Counts(total=len(names), **counted)


def _tool(name: str, *arguments: str) -> str:
    done = subprocess.run([_path(name), *arguments], capture_output=True, text=True, check=True)
    return done.stdout


@cache
def _path(name: str) -> str:
    import triton

    return str(Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name)

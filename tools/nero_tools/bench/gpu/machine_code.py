"""The machine code of the Triton kernels, compiled and read without a GPU.

Triton's wheel carries ptxas, cuobjdump and nvdisasm, and LLVM's assembler for AMD. Kernels are compiled for
an architecture, and their instructions counted by what they do.
"""

import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from nero.backends.triton.launch import COMPILATION, compilation
from nero.backends.triton.table import TILES, Kind, Phase

Architecture: TypeAlias = int | str
"""NVIDIA's compute capabilities are numbers, such as 80; AMD's are names, such as "gfx942"."""
DTYPES = ("float32", "bfloat16")
NUM_WARPS = int(COMPILATION["num_warps"])


class Limits(NamedTuple):
    """What a multiprocessor, which AMD calls a compute unit, holds at most."""

    warps: int
    programs: int
    """Of two warps each."""
    registers: int = 65536
    """Of 32 bits."""
    granule: int = 8
    """Registers of a thread are allocated in multiples of this."""


# From the CUDA programming guide, and from ROCm's tables of GPU specifications and LLVM's AMDGPU guide.
_LIMITS: dict[Architecture, Limits] = {
    80: Limits(64, 32),
    86: Limits(48, 16),
    89: Limits(48, 24),
    90: Limits(64, 32),
    100: Limits(64, 32),
    120: Limits(48, 24),
    "gfx90a": Limits(32, 16, registers=131072),
    "gfx942": Limits(32, 16, registers=131072),
    "gfx1100": Limits(32, 16, registers=98304, granule=24),
}
ARCHITECTURES = tuple(_LIMITS)

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
# Of AMD's instructions, those that threads execute: scalar ones, s_, are issued beside them.
_AMD_CLASSES = {
    "float64": r"v_\w+_f64",
    "conversion": r"v_cvt_(?!\w*f64)",
    "load": r"global_load",
    "wide_load": r"global_load_(dwordx4|b128)",
    "store": r"global_(store|atomic)",
    "spill": r"scratch_(load|store)|buffer_(load|store)",
    "shared": r"ds_(load|store|read|write)",
}
_AMD_CLASSES_WITHOUT_STACK = {
    **_AMD_CLASSES,
    "load": r"(global|buffer)_load",
    "wide_load": r"(global|buffer)_load_(dwordx4|b128)",
    "store": r"global_(store|atomic)|buffer_store",
    "spill": r"scratch_(load|store)",
}
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)(.*)")
_LABEL = re.compile(r"^(\.L_x_\d+):")
_AMD_INSTRUCTION = re.compile(r"^\t([a-z]\w+)(.*)")
_AMD_LABEL = re.compile(r"^(\.LBB\d+_\d+):")


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
    scalar_registers: int = 0
    """Of a warp, on AMD."""
    num_spilled: int = 0
    """Registers that the assembler reports as spilled, on AMD."""
    num_warps: int = NUM_WARPS

    @property
    def num_spills(self) -> int:
        """Instructions that move registers to memory and back."""
        return self.counts.spill

    def programs_per_sm(self, architecture: Architecture) -> int:
        """How many programs run on a multiprocessor at a time."""
        limits = _LIMITS[architecture]
        each = -(-self.registers // limits.granule) * limits.granule
        each *= threads(architecture, self.num_warps)
        return min(limits.warps // self.num_warps, limits.programs, limits.registers // each)

    def occupancy(self, architecture: Architecture) -> float:
        """Return the share of a multiprocessor's warps that are in use."""
        return self.programs_per_sm(architecture) * self.num_warps / _LIMITS[architecture].warps


def warp_size(architecture: Architecture) -> int:
    """Return the number of threads per warp: 64 on AMD's CDNA and GCN, and 32 elsewhere.

    >>> [warp_size(each) for each in (80, "gfx90a", "gfx942", "gfx1100")]
    [32, 64, 64, 32]
    """
    if isinstance(architecture, int):
        return 32
    major = int(architecture.removeprefix("gfx")[:-2], 10)  # the last two are minor and stepping
    return 32 if major >= 10 else 64


def threads(architecture: Architecture, num_warps: int = NUM_WARPS) -> int:
    """Return the number of threads per program."""
    return num_warps * warp_size(architecture)


def compiled_tile(
    kind: Kind,
    dtype: str,
    architecture: Architecture,
    *,
    is_exact: bool = False,
    block: int | None = None,
    kept: int = 0,
) -> MachineCode:
    """Compile one kind of tile; without ``is_exact``, its usual path."""
    import triton.language as tl

    from nero_tools.bench.gpu.tile import tile_kernel

    neurons, usual = TILES[kind]
    constants = {
        "KIND": int(kind),
        "NEURONS": neurons,
        "BLOCK": kept or block or usual,
        **_constants(getattr(tl, dtype)),
        "EXACT": is_exact,
    }
    return read_code(compiled_kernel(tile_kernel, constants, architecture, kept=kept))


def compiled_step(dtype: str, architecture: Architecture, kept: int = 0) -> MachineCode:
    """Compile the kernel as it is launched, for rows of up to ``kept`` weights or for all other tiles."""
    import triton.language as tl

    from nero.backends.triton.kernels import step_kernel

    constants = {**_constants(getattr(tl, dtype)), "PHASE": int(Phase.WHOLE), "KEPT": kept}
    return read_code(compiled_kernel(step_kernel, constants, architecture, kept=kept))


def _constants(dtype: Any) -> dict[str, Any]:
    return {"DTYPE": dtype, "STOCHASTIC": False, "AVERAGE": None}


def compiled_kernel(
    kernel: Any,
    constants: dict[str, Any],
    architecture: Architecture,
    *,
    kept: int = 0,
    **arguments: str,
) -> Any:
    """Compile a kernel that takes the table, and then ``arguments``: by default, those of a step."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.compiler import compile as compile_triton

    table = {"table": "*i64", "numbers": "*fp64", "factors": "*fp64", "seeds": "*i64"}
    arguments = arguments or {"tiles": "*i32"}
    signature = {**table, **arguments, **dict.fromkeys(constants, "constexpr")}
    backend = "cuda" if isinstance(architecture, int) else "hip"
    target = GPUTarget(backend, architecture, warp_size(architecture))
    source = ASTSource(kernel, signature, constants)
    return compile_triton(source, target=target, options=dict(compilation(kept)))


def read_code(compiled: Any) -> MachineCode:
    """Disassemble a kernel, and count."""
    if "amdgcn" in compiled.asm:
        read = _read_amd(compiled.asm["amdgcn"], compiled.metadata.shared)
        return replace(read, num_warps=compiled.metadata.num_warps)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        usage = _tool("cuobjdump", "-res-usage", file.name)
        text = _tool("nvdisasm", "-c", file.name)
    found = re.search(r"REG:(\d+) STACK:(\d+)", usage)
    if found is None:
        raise RuntimeError(f"cuobjdump printed no register count: {usage!r}")
    code = [*_instructions(text, _INSTRUCTION, _LABEL)]
    return MachineCode(
        registers=int(found[1]),
        stack_bytes=int(found[2]),
        shared_bytes=compiled.metadata.shared,
        counts=_count([name for name, _, _ in code], _CLASSES),
        loops=tuple(_loops(code, ("BRA",), _CLASSES)),
        num_warps=compiled.metadata.num_warps,
    )


def _read_amd(text: str, shared_bytes: int) -> MachineCode:
    fields = ("vgpr_count", "sgpr_count", "vgpr_spill_count", "sgpr_spill_count")
    told = {}
    for name in (*fields, "private_segment_fixed_size"):
        found = re.search(rf"^\s+\.{name}:\s+(\d+)", text, re.M)
        if found is None:
            raise RuntimeError(f"the assembler does not tell {name}")
        told[name] = int(found[1])
    code = [*_instructions(text, _AMD_INSTRUCTION, _AMD_LABEL)]
    # Without a stack, buffer instructions access tensors, not spills.
    classes = _AMD_CLASSES if told["private_segment_fixed_size"] else _AMD_CLASSES_WITHOUT_STACK
    return MachineCode(
        registers=told["vgpr_count"],
        stack_bytes=told["private_segment_fixed_size"],
        shared_bytes=shared_bytes,
        counts=_count([name for name, _, _ in code], classes),
        loops=tuple(_loops(code, ("s_cbranch", "s_branch"), classes)),
        scalar_registers=told["sgpr_count"],
        num_spilled=told["vgpr_spill_count"] + told["sgpr_spill_count"],
    )


_Code: TypeAlias = list[tuple[str, str, tuple[str, ...]]]


def _instructions(
    text: str, instruction: re.Pattern[str], label: re.Pattern[str]
) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield each instruction: its name, its operands, and the labels before it."""
    labels: list[str] = []
    for line in text.splitlines():
        if found := label.match(line):
            labels.append(found[1])
        elif (found := instruction.match(line)) and found[1] not in ("NOP", "s_nop"):
            yield found[1], found[2], tuple(labels)
            labels = []


def _loops(code: _Code, branches: tuple[str, ...], classes: Mapping[str, str]) -> Iterator[Counts]:
    """Yield the body of every outermost loop: from a label to the last branch that goes back to it.

    LLVM moves rare blocks behind others, so a branch may also go back into a loop's body, or to its origin.
    """
    places = {label: i for i, (_, _, labels) in enumerate(code) for label in labels}
    targets = {}
    for i, (name, operands, _) in enumerate(code):
        target = re.search(r"\.L\w+", operands)
        if name.startswith(branches) and target and target[0] in places:
            targets[i] = places[target[0]]
    back = [(target, i) for i, target in targets.items() if target < i]
    bodies = [(first, last) for first, last in back if last in _reached(code, targets, first)]
    for first, last in bodies:
        others = [each for each in bodies if each != (first, last)]
        if not any(start <= first and last <= end for start, end in others):
            yield _count([each for each, _, _ in code[first : last + 1]], classes)


def _reached(code: _Code, targets: Mapping[int, int], start: int) -> set[int]:
    """Return what may be executed after an instruction."""
    reached, todo = set[int](), [start]
    while todo:
        if (i := todo.pop()) < len(code) and i not in reached:
            reached.add(i)
            todo += [targets[i]] if i in targets else []
            todo += [] if code[i][0] in ("s_branch", "s_endpgm") else [i + 1]
    return reached


def _count(names: list[str], classes: Mapping[str, str]) -> Counts:
    counted = {key: sum(1 for n in names if re.match(p, n)) for key, p in classes.items()}
    return Counts(total=sum(1 for n in names if not n.startswith("s_")), **counted)


def _tool(name: str, *arguments: str) -> str:
    done = subprocess.run([_path(name), *arguments], capture_output=True, text=True, check=True)
    return done.stdout


@cache
def _path(name: str) -> str:
    import triton

    return str(Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name)

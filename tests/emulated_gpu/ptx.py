"""PTX, the assembly language of NVIDIA's virtual machine, as a list of instructions."""

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

WARP = 32


class PtxError(RuntimeError):
    """The kernel does something that is wrong on a GPU, or that the emulator does not implement."""


class Instruction(NamedTuple):
    """One instruction, such as ``@%p1 add.f32 %f3, %f1, %f2``."""

    guard: str | None
    """The predicate register that says which threads execute it."""
    is_negated: bool
    op: str
    mods: tuple[str, ...]
    operands: tuple[Any, ...]
    text: str
    line: str
    """Where it comes from in the Triton source, such as ``kernels.py:283:5``, if known."""

    @property
    def name(self) -> str:
        """The opcode with its modifiers."""
        return ".".join((self.op, *self.mods))


class Address(NamedTuple):
    """A register, parameter or symbol, plus a number of bytes."""

    base: str
    offset: int


@dataclass
class Kernel:
    """The only kernel of a PTX module."""

    name: str
    params: list[str]
    num_threads: int
    code: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    widths: dict[str, int] = field(default_factory=dict)
    """Bits of each register; ``%r*`` stands for all that are declared as ``%r<n>``."""
    tables: dict[str, list[str]] = field(default_factory=dict)
    """The labels that ``brx.idx`` chooses from."""

    @cached_property
    def written(self) -> set[str]:
        """The registers that some instruction writes."""
        first = [ins.operands[0] for ins in self.code if ins.operands]
        return {name for to in first for name in (to if isinstance(to, list) else [to])}

    def width(self, register: str) -> int:
        """Return the number of bits of a register."""
        found = self.widths.get(register) or self.widths.get(re.sub(r"\d+$", "*", register))
        if found is None:
            raise PtxError(f"{register} is not declared")
        self.widths[register] = found
        return found


_TABLE = re.compile(r"(\$?\w+):\s*\.branchtargets\s+([^;]*);")


def read_ptx(text: str) -> Kernel:
    """Read the kernel of a PTX module."""
    head = re.search(r"\.entry\s+(\w+)\((.*?)\)(.*?)\{", text, re.S)
    if head is None:
        raise PtxError("no kernel")
    body = text[head.end() :]
    end = re.search(r"^\}", body, re.M)
    body = body[: end.start()] if end else body
    threads = re.search(r"\.(?:reqntid|maxntid)\s+(\d+)", head[3])
    params = [each.split()[-1] for each in head[2].split(",")]
    kernel = Kernel(head[1], params, int(threads[1]) if threads else WARP)
    for table in _TABLE.finditer(body):
        kernel.tables[table[1]] = re.findall(r"\$\w+", table[2])
    line = ""
    for raw in _TABLE.sub("", body).splitlines():
        if at := re.search(r"\.loc\s.*//\s*(\S+)", raw):
            line = at[1]
        raw = raw.split("//")[0].strip()
        if not raw or raw.startswith((".loc", ".file", ".pragma")):
            continue
        if label := re.match(r"(\$\w+):(.*)", raw):
            kernel.labels[label[1]] = len(kernel.code)
            raw = label[2]
        for part in raw.split(";"):
            _read_statement(kernel, part.strip(), line)
    return kernel


def _read_statement(kernel: Kernel, part: str, line: str) -> None:
    if re.match(r"\{\s*(\.reg|$)", part):  # Triton's inline assembly opens a scope
        part = part[1:].strip()
    part = part.removeprefix("}").strip()
    if part.startswith(".reg"):
        _, type_, names = part.split(None, 2)
        width = 1 if type_ == ".pred" else int(type_[2:])
        for name in names.split(","):
            kernel.widths[re.sub(r"<\d+>", "*", name.strip())] = width
    elif part:
        kernel.code.append(read_instruction(part, line))


def read_instruction(part: str, line: str = "") -> Instruction:
    """Read one instruction, without its semicolon."""
    found = re.match(r"(?:@(!?)(%\w+)\s+)?([a-z][\w.:]*)\s*(.*)$", part, re.S)
    if found is None:
        raise PtxError(f"cannot read {part!r}")
    op, *mods = found[3].replace("::", "_").split(".")
    operands = tuple(_operand(each) for each in _split(found[4]))
    return Instruction(found[2], found[1] == "!", op, tuple(mods), operands, part, line)


def _split(text: str) -> list[str]:
    """Split operands at commas, except within braces and brackets."""
    depth, found = 0, [""]
    for char in text:
        depth += (char in "{[") - (char in "}]")
        if char == "," and depth == 0:
            found.append("")
        else:
            found[-1] += char
    return [each.strip() for each in found if each.strip()]


def _operand(text: str) -> Any:
    """Return a list, an address, the bits of a floating-point number, an integer, or a name."""
    if text.startswith("{"):
        return [_operand(each.strip()) for each in text[1:-1].split(",")]
    if text.startswith("["):
        base, _, offset = text[1:-1].replace(" ", "").partition("+")
        return Address(base, int(offset or "0", 0))
    if re.match(r"0[fF][0-9A-Fa-f]{8}$", text):
        return np.array([int(text[2:], 16)], np.uint32)
    if re.match(r"0[dD][0-9A-Fa-f]{16}$", text):
        return np.array([int(text[2:], 16)], np.uint64)
    if re.match(r"-?(0x[0-9A-Fa-f]+|\d+)U?$", text):
        return int(text.rstrip("U"), 0)
    return text

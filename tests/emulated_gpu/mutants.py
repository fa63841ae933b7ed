"""Whether the self-test notices a broken kernel: change one PTX instruction at a time, and run it.

    python -m tests.emulated_gpu.mutants --json records/ptx-mutants.json

Takes the float32 kernel for one architecture and some instructions of each kind at random. A mutant is
caught by numbers that differ, or by one of the emulator's checks, such as that for races, which a GPU does
not have. All tensors lie far apart, so that no access beyond one hits another. A mutant that the self-test
misses steps 60 random tensors beside the original. If a bit differs it has survived. Otherwise it is
equivalent if `EQUIVALENT` says why, and else undecided.
"""

import argparse
import json
import linecache
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch

from nero.backends.triton import cases, kernels
from nero.backends.triton.launch import TritonBackend, Variant
from nero.backends.triton.selftest import self_test
from tests.emulated_gpu.driver import emulated_gpu
from tests.emulated_gpu.emulator import Emulator
from tests.emulated_gpu.ptx import Address, Instruction
from tests.emulated_gpu.random_updates import random_updates

FLOAT32 = Variant(torch.device("cpu"), torch.float32, stochastic=False)
_GUARD = 1 << 14  # numbers on either side of a tensor
EQUIVALENT = {
    ("store without a mask", "_address(row, EXP_AVG_NORM, WORK) + neuron"): (
        "in a tile of one neuron, the mask only chooses which of the threads stores: the neuron exists, "
        "and all threads hold its average"
    ),
    ("load without a mask", "_address(row, EXP_AVG_NORM, tl.float32) + neuron"): (
        "a neuron that does not exist has a gradient of size 0, and is not summed again whatever is loaded"
    ),
}
"""Why a mutant cannot change a bit, by its kind and by a part of its line in `kernels.py`."""


class Mutator(NamedTuple):
    """A kind of edit."""

    name: str
    applies: Callable[[Instruction], bool]
    edit: Callable[[Instruction], Instruction]


def _operand(i: int, change: Callable[[Any], Any]) -> Callable[[Instruction], Instruction]:
    def edit(ins: Instruction) -> Instruction:
        operands = [*ins.operands]
        operands[i] = change(operands[i])
        return ins._replace(operands=tuple(operands))

    return edit


def _swapped(ins: Instruction) -> Instruction:
    to, first, second, *rest = ins.operands
    return ins._replace(operands=(to, second, first, *rest))


def _is(name: str, **conditions: Any) -> Callable[[Instruction], bool]:
    return lambda ins: ins.name.startswith(name) and all(getattr(ins, k) for k in conditions)


_NOTHING = Instruction(None, False, "mov", ("b32",), ("_", 0), "nothing", "")
MUTATORS = (
    Mutator("drop a barrier", _is("bar.sync"), lambda ins: _NOTHING._replace(line=ins.line)),
    Mutator("load without a mask", _is("ld.global", guard=True), lambda ins: ins._replace(guard=None)),
    Mutator("store without a mask", _is("st.global", guard=True), lambda ins: ins._replace(guard=None)),
    Mutator(
        "load 4 bytes too far", _is("ld.global.b32"),
        _operand(1, lambda at: Address(at.base, at.offset + 4)),
    ),
    Mutator("shuffle half as far", _is("shfl.sync.bfly"), _operand(2, lambda by: by // 2)),
    Mutator("subtract instead of adding", _is("add.rn.f32"), lambda ins: ins._replace(op="sub")),
    Mutator("add instead of multiplying", _is("mul.rn.f64"), lambda ins: ins._replace(op="add")),
    Mutator(
        "the opposite comparison", _is("setp.lt"),
        lambda ins: ins._replace(mods=("ge", *ins.mods[1:])),
    ),
    Mutator("select the other", _is("selp"), _swapped),
    Mutator("subtract in reverse", _is("sub.rn.f64"), _swapped),
)  # fmt: skip


def chosen(emulator: Emulator, num: int, seed: int) -> Iterator[tuple[Mutator, int]]:
    """Yield ``num`` mutants: of each kind in turn, an instruction at random."""
    code, pick = emulator.kernel.code, random.Random(seed)
    places = [[i for i, ins in enumerate(code) if each.applies(ins)] for each in MUTATORS]
    for i in range(num):
        kind = i % len(MUTATORS)
        place = pick.choice(places[kind])
        places[kind].remove(place)
        yield MUTATORS[kind], place


def judge_all(args: argparse.Namespace, part: int) -> list[dict[str, Any]]:
    """Judge every mutant of one of several processes."""
    torch.set_num_threads(1)
    with guarded(), emulated_gpu(args.architecture) as gpu:
        assert self_test(FLOAT32).passed, "the kernel itself fails"
        emulator = gpu.emulator()
    covered, found = len(emulator.executed) / len(emulator.kernel.code), []
    for mutator, place in [*chosen(emulator, args.num, args.seed)][part :: args.jobs]:
        with guarded():
            found.append(judged(emulator, mutator, place, args.architecture))
        found[-1]["covered"] = covered
        print(json.dumps(found[-1]), flush=True)
    return found


def judged(emulator: Emulator, mutator: Mutator, place: int, architecture: int) -> dict[str, Any]:
    """Run the self-test with a mutant, and say what became of it."""
    original = emulator.kernel.code[place]
    found = {
        "mutant": mutator.name,
        "instruction": original.text.replace("\t", " "),
        "line": original.line,
    }
    emulator.set(place, mutator.edit(original))
    try:
        with emulated_gpu(architecture):
            result = self_test(FLOAT32)
        if not result.passed:
            by = "numbers" if result.error is None else "a check"
            why = result.error or str(result.differences[0])
            return {**found, "result": "caught", "by": by, "why": why[:160]}
        mine = _stepped(architecture)
        emulator.set(place, original)
        theirs = _stepped(architecture)
        if not all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True)):
            return {**found, "result": "survived"}
        why = why_equivalent(mutator, original)
        return (
            {**found, "result": "equivalent", "why": why}
            if why
            else {**found, "result": "undecided"}
        )
    finally:
        emulator.set(place, original)


def why_equivalent(mutator: Mutator, ins: Instruction) -> str | None:
    """Return the argument of `EQUIVALENT` for a mutant, if there is one."""
    file, _, rest = ins.line.partition(":")
    if file != Path(kernels.__file__).name:
        return None
    number = int(rest.split(":")[0])
    text = "".join(linecache.getline(kernels.__file__, i) for i in (number, number + 1))
    found = (
        why for (name, part), why in EQUIVALENT.items() if name == mutator.name and part in text
    )
    return next(found, None)


@contextmanager
def guarded() -> Iterator[None]:
    """Put the tensors of cases far apart, so that an access beyond a tensor hits no other."""
    make = cases._Maker.__call__

    def apart(tensor: torch.Tensor) -> torch.Tensor:
        room = tensor.new_zeros(tensor.numel() + 2 * _GUARD)
        return room[_GUARD : _GUARD + tensor.numel()].view(tensor.shape).copy_(tensor)

    def making(self: cases._Maker, *args: Any, **options: Any) -> cases.Case:
        case = make(self, *args, **options)
        update = case.update
        state = {key: apart(tensor) for key, tensor in update.state.items()}
        weight, grad = apart(update.weight), apart(update.grad)
        return case._replace(update=update._replace(weight=weight, grad=grad, state=state))

    with mock.patch.object(cases._Maker, "__call__", making):
        yield


def _stepped(architecture: int) -> list[torch.Tensor]:
    """Return the bits that a step of random tensors writes."""
    updates = random_updates(FLOAT32, num=60, seed=3)
    with emulated_gpu(architecture):
        TritonBackend(keeps_rows=False).step_(updates)
    tensors = [tensor for each in updates for tensor in (each.weight, *each.state.values())]
    return [tensor.contiguous().view(torch.uint8) for tensor in tensors if tensor.ndim]


def main() -> None:
    """Print and write one line per mutant."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--architecture", type=int, default=80)
    parser.add_argument("--num", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with ProcessPoolExecutor(args.jobs, get_context("spawn")) as pool:
        parts = [*pool.map(judge_all, [args] * args.jobs, range(args.jobs))]
    found = [each for part in parts for each in part]
    covered = {each.pop("covered") for each in found}.pop()
    counts = {
        key: sum(each["result"] == key for each in found)
        for key in ("caught", "equivalent", "undecided", "survived")
    }
    print(counts)
    if args.json:
        command = "python -m tests.emulated_gpu.mutants --json records/ptx-mutants.json"
        report = {"command": command, "architecture": args.architecture, "seed": args.seed}
        report |= {"instructions_executed": round(covered, 4), **counts, "mutants": found}
        args.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()

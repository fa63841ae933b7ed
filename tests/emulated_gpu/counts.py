"""How many bytes the kernel moves and how many instructions it executes per weight, counted.

    python -m tests.emulated_gpu.counts --json records/gpu-counts.json

Bytes are 32-byte sectors that each warp asks for, without caches: what a GPU reads from memory if a tensor
does not fit into them. Instructions are PTX instructions, per thread: machine code has about as many. Each
shape is stepped once, all of its rows usual. Machine code is counted by `nero_tools.bench.gpu.roofline`.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

import torch

from nero.backends.triton.cases import _Maker
from nero.backends.triton.launch import TritonBackend, Variant
from nero.backends.triton.table import INTEGERS, Kind, table_entry
from nero.core.spec import STATE
from nero.tables import aligned
from tests.emulated_gpu.driver import emulated_gpu
from tests.emulated_gpu.machine import _SECTOR
from tests.emulated_gpu.ptx import WARP

CPU = torch.device("cpu")
VARIANTS = {
    "float32": Variant(CPU, torch.float32, stochastic=False),
    "float32, momentum": Variant(CPU, torch.float32, stochastic=False, momentum=torch.float32),
    "bfloat16": Variant(CPU, torch.bfloat16, stochastic=True),
}
LENGTHS = (
    *(16, 27, 32, 48, 64, 100, 128, 147, 256, 512, 768, 777),
    *(1024, 1600, 2048, 3072, 4096, 8192, 16384),
)
Shape: TypeAlias = tuple[str, tuple[int, ...], tuple[int, ...] | None]
"""Name, shape, and which dims index neurons."""
SHAPES: list[Shape] = [
    ("elements", (1024,), None),
    *((f"rows of {n}", (max(4096 // n, 2), n), (0,)) for n in LENGTHS),
    ("columns of 64", (64, 64), (1,)),
    ("columns of 768", (768, 32), (1,)),
    ("columns of 3072", (3072, 32), (1,)),
    ("ConvTranspose, 3 x 3", (32, 8, 3, 3), (1,)),
]
_WEIGHTS = ("weight", "grad", "exp_avg")  # of which every weight has one


def counted(
    name: str, variant: Variant, architecture: int, shapes: Iterable[Shape] = SHAPES
) -> list[dict[str, Any]]:
    """Return one row per shape."""
    rows = []
    for shape_name, shape, dims in shapes:
        update = _Maker(variant)(shape_name, shape, dims).update
        kind = Kind(table_entry(update).integers[INTEGERS.index("kind")])
        with emulated_gpu(architecture, counts_traffic=True) as gpu:
            backend = TritonBackend()
            backend.step_([update._replace(lr=0.0)])  # compiles, and touches nothing
            emulator = gpu.emulator()
            emulator.executed.clear()
            emulator.machine.traffic.clear()
            backend.step_([update])
        num, code = update.weight.numel(), emulator.kernel.code
        sectors: Counter[str] = Counter()
        for (region, what), traffic in emulator.machine.traffic.items():
            key = region.split()[0]
            group = "weights" if key in _WEIGHTS else "state" if key in STATE else "table"
            sectors[f"{group} {what}"] += traffic.sectors
        is_float64 = [
            each.mods[-1:] == ("f64",) and each.op not in ("mov", "selp") for each in code
        ]
        executed = emulator.executed
        rows.append(
            {
                "variant": name,
                "shape": shape_name,
                "tile": kind.name.lower(),
                "bytes": sum(sectors[f"weights {w}"] for w in ("load", "store")) * _SECTOR / num,
                "read": sectors["weights load"] * _SECTOR / num,
                "state_bytes": sum(n for key, n in sectors.items() if "state" in key)
                * _SECTOR
                / num,
                "limit": limit(variant),
                "instructions": sum(executed.values()) * WARP / num,
                "float64": sum(n for i, n in executed.items() if is_float64[i]) * WARP / num,
            }
        )
    return rows


def limit(variant: Variant) -> int:
    """Return the bytes per weight of a kernel that reads and writes everything once."""
    momentum = 0 if variant.momentum is None else 2 * variant.momentum.itemsize
    return 3 * variant.dtype.itemsize + momentum


def text(rows: list[dict[str, Any]]) -> str:
    """Return a table."""
    lines = [["variant", "shape", "tile", "bytes", "limit", "state", "instructions", "float64"]]
    for row in rows:
        numbers = [
            f"{row[key]:.1f}"
            for key in ("bytes", "limit", "state_bytes", "instructions", "float64")
        ]
        lines.append([row["variant"], row["shape"], row["tile"], *numbers])
    return aligned(lines, left=(0, 1, 2))


def main() -> None:
    """Print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--architecture", type=int, default=80)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name, variant in VARIANTS.items():
        rows += counted(name, variant, args.architecture)
        print(text(rows), flush=True)
    if args.json:
        command = "python -m tests.emulated_gpu.counts --json records/gpu-counts.json"
        rows = [
            {k: round(v, 2) if isinstance(v, float) else v for k, v in row.items()} for row in rows
        ]
        report = {"command": command, "architecture": args.architecture, "rows": rows}
        args.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()

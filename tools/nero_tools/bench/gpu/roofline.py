"""Predict GPU step times from the Triton kernels' machine code; nothing is measured.

    python -m nero_tools.bench.gpu.roofline --json records/gpu-roofline.json

Compiles the kernels for six NVIDIA and three AMD architectures, and counts registers, spills and
instructions. A step is bound by memory, instructions or float64 arithmetic, and is compared with a copy of
the same bytes. It takes some minutes.
"""

import argparse
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nero import param_groups
from nero.backends.geometry import geometry
from nero.backends.triton.table import KEPT, TILES, Kind, walk_of
from nero.cli.arguments import add_json_argument, names_of
from nero.cli.environment import versions
from nero.cli.output import print_or_write
from nero.core.neurons import neurons_from_options
from nero.tables import aligned
from nero_tools.bench.gpu.cards import CARDS, Card
from nero_tools.bench.gpu.machine_code import (
    ARCHITECTURES,
    DTYPES,
    NUM_WARPS,
    Architecture,
    MachineCode,
    compiled_step,
    compiled_tile,
    threads,
    warp_size,
)
from nero_tools.models import MODELS
from nero_tools.progress import progress

LAUNCH_SECONDS = 5e-6  # of each launch, with what lies between two: an assumption
NUM_LAUNCHES = 2
_BY_NAME = {str(each): each for each in ARCHITECTURES}


@dataclass(frozen=True)
class Load:
    """A model's tensors with tiles of one kind and neurons of one fan-in."""

    kind: Kind
    kept: int
    """The launch for long rows that its tiles are in, or 0."""
    fan_in: int
    num_weights: int
    num_neurons: int
    num_tiles: int


@dataclass(frozen=True)
class Prediction:
    """The least seconds of a step, by each limit."""

    card: str
    model: str
    dtype: str
    copy: float
    """Of moving weights in, gradients in and weights out."""
    memory: float
    instructions: float
    float64: float
    launches: float

    @property
    def step(self) -> float:
        """The largest of the limits, and the launches."""
        return max(self.memory, self.instructions, self.float64) + self.launches

    @property
    def over_copy(self) -> float:
        """The step in units of the copy."""
        return self.step / self.copy


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--model", default="gpt2-124m", choices=[*MODELS])
    parser.add_argument(
        "--architectures",
        type=names_of(_BY_NAME),
        default=",".join(_BY_NAME),
        metavar="NAME,...",
        help="compute capabilities and AMD's targets (default: %(default)s)",
    )
    parser.add_argument(
        "--dtypes",
        type=names_of(dict.fromkeys(DTYPES)),
        default=",".join(DTYPES),
        metavar="NAME,...",
        help="dtypes of the weights (default: %(default)s)",
    )
    add_json_argument(parser)
    args = parser.parse_args(argv)
    architectures = [_BY_NAME[name] for name in args.architectures]
    with progress() as show:
        report = make_report(args.model, architectures, args.dtypes, show)
    print_or_write(text(report), report, args.json)


def make_report(
    model: str,
    architectures: Iterable[Architecture],
    dtypes: Sequence[str] = DTYPES,
    show: Any = lambda _: None,
) -> dict[str, Any]:
    """Compile everything; return what becomes JSON."""
    rows, predictions = [], []
    with torch.device("meta"):
        loads = loads_of(MODELS[model]())
    for architecture in architectures:
        for dtype in dtypes:
            show(f"{architecture}, {dtype}")
            whole = compiled_step(dtype, architecture)
            rows.append(row_of("all", dtype, architecture, whole, whole))
            codes: dict[tuple[Kind, int], MachineCode] = {}
            launches = {0: whole}
            for kind in Kind:
                codes[kind, 0] = code = compiled_tile(kind, dtype, architecture)
                rows.append(row_of(kind.name.lower(), dtype, architecture, code, whole))
            for kept in KEPT:
                launches[kept] = code = compiled_step(dtype, architecture, kept)
                rows.append(row_of(f"all, rows of {kept}", dtype, architecture, code, code))
            for kind, kept in {(load.kind, load.kept) for load in loads if load.kept}:
                codes[kind, kept] = compiled_tile(kind, dtype, architecture, kept=kept)
            for card in CARDS:
                if card.architecture == architecture:
                    found = predicted(card, loads, codes, launches, model=model, dtype=dtype)
                    entry = {**asdict(found), "step": found.step, "over_copy": found.over_copy}
                    predictions.append(entry)
    order = [card.name for card in CARDS]
    return {
        "versions": versions(("triton", "nero-optim")),
        "num_warps": NUM_WARPS,
        "cards": [asdict(card) for card in CARDS],
        "tiles": rows,
        "loads": [{**asdict(load), "kind": load.kind.name.lower()} for load in loads],
        "predictions": sorted(predictions, key=lambda p: (p["dtype"], order.index(p["card"]))),
    }


def row_of(
    name: str, dtype: str, architecture: Architecture, code: MachineCode, whole: MachineCode
) -> dict[str, Any]:
    """Return a row: a kind of tile by its usual path, or the whole kernel."""
    counts = asdict(code.counts)
    row = {
        "tile": name,
        "dtype": dtype,
        "architecture": architecture,
        "warp_size": warp_size(architecture),
        "registers": code.registers,
        "scalar_registers": code.scalar_registers,
        "spills": code.num_spills + code.num_spilled,
        "stack_bytes": code.stack_bytes,
        "shared_bytes": code.shared_bytes,
        "occupancy": whole.occupancy(architecture),
        "instructions": counts["total"],
        "wide_loads": counts["wide_load"],
    }
    if name.startswith("all"):
        return row
    kind = Kind[name.upper()]
    per_thread = math.prod(TILES[kind]) / threads(architecture)
    # Of a neuron as long as its tile; what a tile costs once is divided by its weights.
    return {
        **row,
        "float64_in_loops": sum(loop.float64 for loop in code.loops),
        **{
            f"{key}_per_weight": run_counts(code, TILES[kind][1], TILES[kind][1])[key] / per_thread
            for key in ("total", "float64", "conversion", "load", "store")
        },
    }


def run_counts(code: MachineCode, block: int, fan_in: int) -> dict[str, float]:
    """Return the instructions that a thread runs for a tile, loops included.

    The code has the body of each loop once; a neuron of one block runs it not at all.
    """
    num_more = max(-(-fan_in // block) - 1, 0)
    counts = Counter(asdict(code.counts))
    for loop in code.loops:
        for key, num in asdict(loop).items():
            counts[key] += (num_more - 1) * num
    return dict(counts)


def loads_of(model: nn.Module) -> list[Load]:
    """Return what a model's parameters are to the kernel."""
    loads: dict[tuple[Kind, int, int], list[int]] = {}
    for group in param_groups(model):
        for param in group["params"]:
            tensor: Tensor = param[1] if isinstance(param, tuple) else param
            neurons = neurons_from_options(group, tensor.shape)
            viewed = neurons.view(tensor)
            shape = geometry(tuple(viewed.shape), viewed.stride(), neurons.fan_in_dims)
            walk = None if shape is None else walk_of(shape, is_elements=neurons.is_elementwise)
            if walk is None:
                raise ValueError(f"the kernel cannot walk a tensor of shape {(*tensor.shape,)}")
            kept = kept_of(walk.kind, neurons.fan_in)
            kind = Kind.ROWS_1024 if kept else walk.kind  # the same code, with a larger block
            sums = loads.setdefault((kind, kept, neurons.fan_in), [0, 0, 0])
            for i, num in enumerate((tensor.numel(), neurons.num_neurons, walk.num_tiles)):
                sums[i] += num
    return [Load(*key, *sums) for key, sums in sorted(loads.items())]


def kept_of(kind: Kind, fan_in: int) -> int:
    """Return the launch that keeps rows of this length, or 0."""
    return next((kept for kept in KEPT if kind == Kind.LONG and fan_in <= kept), 0)


def predicted(
    card: Card,
    loads: Sequence[Load],
    codes: Mapping[tuple[Kind, int], MachineCode],
    launches: Mapping[int, MachineCode],
    *,
    model: str,
    dtype: str,
) -> Prediction:
    """Divide what a step moves and computes by the peak rates of a card."""
    size = getattr(torch, dtype).itemsize
    moved = num_instructions = num_float64 = 0.0
    for load in loads:
        # Weights and gradients in, weights out; the average of each neuron in and out.
        moved += 3 * size * load.num_weights + 8 * load.num_neurons
        neurons, block = (1, load.kept) if load.kept else TILES[load.kind]
        whole = launches[load.kept]
        if load.fan_in > block:  # read again, from the cache if all programs' neurons fit into it
            at_once = whole.programs_per_sm(card.architecture) * card.num_sms * neurons
            if at_once * load.fan_in * 2 * size > card.cache_bytes:
                moved += 2 * size * load.num_weights * (1 - block / load.fan_in)
        code = codes[load.kind, load.kept]
        counts = run_counts(code, block, load.fan_in)
        num_threads = threads(card.architecture, code.num_warps) * load.num_tiles
        num_instructions += counts["total"] * num_threads
        num_float64 += counts["float64"] * num_threads
    return Prediction(
        card=card.name,
        model=model,
        dtype=dtype,
        copy=3 * size * sum(load.num_weights for load in loads) / card.bandwidth,
        memory=moved / card.bandwidth,
        instructions=num_instructions / card.issue,
        float64=num_float64 / card.float64,
        launches=(NUM_LAUNCHES + len({load.kept for load in loads} - {0})) * LAUNCH_SECONDS,
    )


def text(report: Mapping[str, Any]) -> str:
    """Return the tables."""
    header = ["target", "dtype", "tile", "registers", "spills", "shared", "occupancy"]
    header += ["128-bit loads"]
    header += ["instructions/weight", "float64/weight", "conversions/weight", "memory/weight"]
    rows = [header]
    for row in report["tiles"]:
        shown = [str(row["architecture"]), row["dtype"], row["tile"], str(row["registers"])]
        shown += [str(row["spills"]), str(row["shared_bytes"]), f"{row['occupancy']:.0%}"]
        shown.append(str(row["wide_loads"]))
        if row["tile"].startswith("all"):
            rows.append([*shown, "", "", "", ""])
            continue
        memory = row["load_per_weight"] + row["store_per_weight"]
        each = [row[f"{key}_per_weight"] for key in ("total", "float64", "conversion")]
        rows.append([*shown, *(f"{number:.1f}" for number in (*each, memory))])
    steps = [["card", "dtype", "copy, us", "memory", "instructions", "float64", "step", "x copy"]]
    for each in report["predictions"]:
        limits = [each[key] for key in ("copy", "memory", "instructions", "float64", "step")]
        micro = [f"{1e6 * seconds:.0f}" for seconds in limits]
        steps.append([each["card"], each["dtype"], *micro, f"{each['over_copy']:.2f}"])
    model = report["predictions"][0]["model"] if report["predictions"] else ""
    title = f"Predicted, not measured: a step of {model}"
    return "\n\n".join([aligned(rows, left=(0, 1, 2)), title, aligned(steps, left=(0, 1))])


if __name__ == "__main__":
    main()

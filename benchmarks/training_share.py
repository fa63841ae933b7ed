"""The optimiser's share of a whole training step of a GPT: ``python -m benchmarks.training_share --help``.

A faster optimiser saves at most this. It is also the honest setting: the step follows a backward pass,
whose OpenMP threads still spin and whose gradients are new.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.gpt_training import add_arguments, random_tokens, train_once
from benchmarks.rivals import RIVALS
from benchmarks.shapes import SHAPES
from nero.bench import Spread, environment, spread
from nero.bench.command import progress
from nero.bench.timing import OTHERS_LIMIT, OthersClock
from nero.tables import aligned

DEFAULT_RIVALS = "nero,adamw-fused,adamw-foreach,nero-plain"


@dataclass
class Times:
    """Milliseconds of every training step of one rival, by part."""

    gradient_ms: list[float] = field(default_factory=list)
    step_ms: list[float] = field(default_factory=list)
    num_disturbed: int = 0

    @property
    def share(self) -> Spread | None:
        """The optimiser's part of a whole step."""
        pairs = zip(self.gradient_ms, self.step_ms, strict=True)
        return spread([step / (gradient + step) for gradient, step in pairs])


def train(
    model: nn.Module,
    rivals: Sequence[str],
    *,
    batch: int,
    length: int,
    rounds: int,
    on_progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Times]:
    """Let rivals take turns at training one model, on random tokens.

    Rounds in which other processes used the machine are left out; up to twice as many are made.
    """
    steps = {name: RIVALS[name].build(model).step for name in rivals}
    times = {name: Times() for name in rivals}
    others = OthersClock()
    for num in range(2 * rounds + 1):
        made = {}
        for name, step in steps.items():
            on_progress(f"round {num} of {rounds}, {name}")
            tokens = random_tokens(model, batch, length)
            made[name] = train_once(model, tokens, step)
        is_calm = others.share() <= OTHERS_LIMIT
        for name, (gradient_seconds, step_seconds) in made.items():
            if num == 0:  # it warms up
                continue
            if is_calm:
                times[name].gradient_ms.append(1000 * gradient_seconds)
                times[name].step_ms.append(1000 * step_seconds)
            else:
                times[name].num_disturbed += 1
        if all(len(each.step_ms) >= rounds for each in times.values()):
            break
    return times


def main(argv: Sequence[str] | None = None) -> int:
    """Run the measurement and return an exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.training_share", description=__doc__
    )
    add_arguments(parser, shape="gpt-small", batch=8)
    parser.add_argument("--rivals", default=DEFAULT_RIVALS, metavar="NAME,...")
    args = parser.parse_args(argv)
    threads = torch.get_num_threads()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    names = args.rivals.split(",")
    try:
        with progress() as tell:
            times = train(
                SHAPES[args.shape](),
                names,
                batch=args.batch,
                length=args.length,
                rounds=args.rounds,
                on_progress=tell,
            )
    finally:
        torch.set_num_threads(threads)
    print(f"{args.shape}, batch {args.batch} x {args.length}, {args.threads} threads")
    print(aligned(_rows(times)))
    if args.json:
        packed = {**environment("cpu"), "options": vars(args), "times": _packed(times)}
        Path(args.json).write_text(json.dumps(packed, indent=2) + "\n")
    return 0


def _rows(times: dict[str, Times]) -> list[list[str]]:
    rows = [["rival", "gradient ms", "step ms", "share of the step", "quartiles", "left out"]]
    for name, each in times.items():
        gradient, step, share = spread(each.gradient_ms), spread(each.step_ms), each.share
        left_out = f"{each.num_disturbed}/{each.num_disturbed + len(each.step_ms)}"
        if gradient is None or step is None or share is None:
            rows.append([name, "-", "-", "-", "-", left_out])
            continue
        quartiles = f"{share.low:.2%} to {share.high:.2%}"
        medians = f"{gradient.median:.4g}", f"{step.median:.4g}", f"{share.median:.2%}"
        rows.append([name, *medians, quartiles, left_out])
    return rows


def _packed(times: dict[str, Times]) -> dict[str, Any]:
    return {
        name: {**asdict(each), "share": each.share and each.share._asdict()}
        for name, each in times.items()
    }


if __name__ == "__main__":
    sys.exit(main())

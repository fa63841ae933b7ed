"""Measure the monitor's overhead: ``python -m nero_tools.bench.monitor_overhead --help``.

Whole training steps of a GPT take turns within a round: one without a monitor, one with an idle one,
and one that is sampled. They are compared within the round, and rounds in which other processes used the
machine are left out. The mean cost of a run follows: idle, and a sample every so many steps.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.optim import Optimizer

from nero import Nero
from nero.cli.environment import environment
from nero.diagnostics import TurningMonitor
from nero.numbers import json_values
from nero.tables import aligned
from nero_tools.bench.gpt_training import add_arguments, calm_rounds, random_tokens, train_once
from nero_tools.bench.timing import Spread, spread
from nero_tools.models import MODELS
from nero_tools.progress import progress

KINDS = ("alone", "idle", "sampled")


@dataclass
class Rounds:
    """Seconds of a training step of each kind, in calm rounds."""

    seconds: dict[str, list[float]]
    num_disturbed: int = 0

    def overhead(self, kind: str) -> Spread | None:
        """Return how much longer such a step takes than one without a monitor, as a share of the latter."""
        pairs = zip(self.seconds[kind], self.seconds["alone"], strict=True)
        return spread([watched / alone - 1 for watched, alone in pairs])

    def mean_overhead(self, every: int) -> float | None:
        """Return the mean overhead of a run that samples one in ``every`` steps."""
        idle, sampled = self.overhead("idle"), self.overhead("sampled")
        if idle is None or sampled is None:
            return None
        return idle.median + (sampled.median - idle.median) / every


def measure(
    model: nn.Module,
    optimizer: Optimizer,
    *,
    batch: int,
    length: int,
    rounds: int,
    max_layers: int | None,
    on_progress: Callable[[str], None] = lambda _: None,
) -> Rounds:
    """Time training steps of each kind in turn, in rounds that nothing disturbed."""
    position = {"step": 0, "position": 0}

    def run(num: int) -> dict[str, float]:
        nonlocal position
        seconds = {}
        # The order reverses, so that no kind always follows the same one.
        for kind in KINDS if num % 2 else reversed(KINDS):
            on_progress(f"round {num} of {rounds}, {kind}")
            tokens = random_tokens(model, batch, length)
            if kind == "alone":
                seconds[kind] = sum(train_once(model, tokens, optimizer.step))
                continue
            with TurningMonitor(optimizer, model, every=10**9, max_layers=max_layers) as monitor:
                # Only step 0 is sampled; layers keep taking turns.
                step = 0 if kind == "sampled" else 1
                monitor.load_state_dict({**position, "step": step})
                seconds[kind] = sum(train_once(model, tokens, optimizer.step))
                position = monitor.state_dict()
                assert (monitor.last_report is not None) == (kind == "sampled")
        return seconds

    calm, num_disturbed = calm_rounds(run, rounds=rounds)
    return Rounds({kind: [each[kind] for each in calm] for kind in KINDS}, num_disturbed)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the measurement and return an exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m nero_tools.bench.monitor_overhead", description=__doc__
    )
    add_arguments(parser, shape="gpt2-124m", batch=4)
    parser.add_argument("--every", type=int, default=100, help="(default: %(default)s)")
    parser.add_argument("--max-layers", type=int, default=8, help="0 for all (%(default)s)")
    args = parser.parse_args(argv)
    threads = torch.get_num_threads()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    model = MODELS[args.shape]()
    try:
        with progress() as show:
            made = measure(
                model,
                Nero(model),
                batch=args.batch,
                length=args.length,
                rounds=args.rounds,
                max_layers=args.max_layers or None,
                on_progress=show,
            )
    finally:
        torch.set_num_threads(threads)
    print(
        f"{args.shape}, batch {args.batch} x {args.length}, {args.threads} threads, "
        f"{args.max_layers or 'all'} layers per sample; {made.num_disturbed} rounds left out"
    )
    print(aligned(_rows(made)))
    mean = made.mean_overhead(args.every)
    if mean is not None:
        print(f"mean overhead with a sample every {args.every} steps: {mean:.2%}")
    if args.json:
        overheads = {kind: made.overhead(kind) for kind in KINDS}
        figures = {**environment("cpu"), "options": vars(args), **vars(made)}
        figures |= {"overhead": overheads, "mean": mean}
        Path(args.json).write_text(json.dumps(json_values(figures), indent=2) + "\n")
    return 0


def _rows(made: Rounds) -> list[list[str]]:
    rows = [["step", "ms", "overhead", "quartiles"]]
    for kind in KINDS:
        seconds, overhead = spread(made.seconds[kind]), made.overhead(kind)
        if seconds is None or overhead is None:
            rows.append([kind, "-", "-", "-"])
            continue
        quartiles = f"{overhead.low:.2%} to {overhead.high:.2%}"
        rows.append([kind, f"{1000 * seconds.median:.4g}", f"{overhead.median:.2%}", quartiles])
    return rows


if __name__ == "__main__":
    sys.exit(main())

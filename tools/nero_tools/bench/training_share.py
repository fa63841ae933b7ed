"""The optimizer's share of a whole training step of a GPT.

    python -m nero_tools.bench.training_share --help

A faster optimizer saves at most this. It is also the honest setting: the step follows a backward pass,
whose OpenMP threads still spin and whose gradients are new.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn

from nero.cli.arguments import names_of
from nero.cli.environment import environment
from nero.numbers import json_values
from nero.tables import aligned
from nero_tools.bench.competitors import COMPETITORS
from nero_tools.bench.gpt_training import add_arguments, calm_rounds, random_tokens, train_once
from nero_tools.bench.timing import Spread, spread
from nero_tools.models import MODELS
from nero_tools.optimizers import step_all
from nero_tools.progress import progress

DEFAULT_OPTIMIZERS = "nero,adamw-fused,adamw-foreach,nero-plain"


@dataclass
class Times:
    """Milliseconds of every training step with one optimizer, by part."""

    gradient_ms: list[float] = field(default_factory=list)
    step_ms: list[float] = field(default_factory=list)
    num_disturbed: int = 0

    @property
    def share(self) -> Spread | None:
        """The optimizer's part of a whole step."""
        pairs = zip(self.gradient_ms, self.step_ms, strict=True)
        return spread([step / (gradient + step) for gradient, step in pairs])


def train(
    model: nn.Module,
    names: Sequence[str],
    *,
    batch: int,
    length: int,
    rounds: int,
    on_progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Times]:
    """Let optimizers take turns at training one model, on random tokens."""
    steps = {name: step_all(COMPETITORS[name].build(model)) for name in names}

    def run(num: int) -> dict[str, tuple[float, float]]:
        seconds = {}
        for name, step in steps.items():
            on_progress(f"round {num} of {rounds}, {name}")
            seconds[name] = train_once(model, random_tokens(model, batch, length), step)
        return seconds

    calm, num_disturbed = calm_rounds(run, rounds=rounds)
    times = {}
    for name in names:
        gradient_ms = [1000 * seconds[name][0] for seconds in calm]
        step_ms = [1000 * seconds[name][1] for seconds in calm]
        times[name] = Times(gradient_ms, step_ms, num_disturbed)
    return times


def main(argv: Sequence[str] | None = None) -> int:
    """Run the measurement and return an exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m nero_tools.bench.training_share", description=__doc__
    )
    add_arguments(parser, shape="gpt-small", batch=8)
    parser.add_argument(
        "--optimizers",
        type=names_of(COMPETITORS),
        default=DEFAULT_OPTIMIZERS,
        metavar="NAME,...",
    )
    args = parser.parse_args(argv)
    threads = torch.get_num_threads()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    try:
        with progress() as show:
            times = train(
                MODELS[args.shape](),
                args.optimizers,
                batch=args.batch,
                length=args.length,
                rounds=args.rounds,
                on_progress=show,
            )
    finally:
        torch.set_num_threads(threads)
    print(f"{args.shape}, batch {args.batch} x {args.length}, {args.threads} threads")
    print(aligned(_rows(times)))
    if args.json:
        shares = {name: {**vars(each), "share": each.share} for name, each in times.items()}
        figures = {**environment("cpu"), "options": vars(args), "times": shares}
        Path(args.json).write_text(json.dumps(json_values(figures), indent=2) + "\n")
    return 0


def _rows(times: dict[str, Times]) -> list[list[str]]:
    rows = [["optimizer", "gradient ms", "step ms", "share of the step", "quartiles", "left out"]]
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


if __name__ == "__main__":
    sys.exit(main())

"""Make an entry for the optimization track of the NanoGPT speedrun.

Reads the track's baseline from your clone of modded-nanogpt, and writes one file with Nero in place of its
optimizers; the network, the data and the training loop stay as they are. The file imports torch alone, so
run it as the track's README says. Nothing is downloaded, and no training starts here.
"""

import argparse
from pathlib import Path

from nero.cli.arguments import CommandError, output_file
from nero.core.presets import find_preset
from nero_tools.arguments import number_between, whole_number
from nero_tools.speedrun.entry import PRESETS, make_entry, read_baseline

LONGEST_RUN = 3525  # steps of ours with the presets


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``nero speedrun``."""
    parser.add_argument(
        "--baseline",
        required=True,
        metavar="FILE",
        help="the track's baseline, records/track_3_optimization/train_gpt_simple.py in a clone of "
        "modded-nanogpt",
    )
    parser.add_argument("--preset", choices=PRESETS, default="polar", help="default: %(default)s")
    parser.add_argument(
        "--steps",
        type=whole_number(10),
        metavar="N",
        help="length of the run (default: the baseline's)",
    )
    parser.add_argument(
        "--lr",
        type=lambda text: number_between(text, 1e-6, 1.0, "an angle from 1e-6 to 1 rad"),
        metavar="RAD",
        help="the largest angle per step (default: the preset's)",
    )
    parser.add_argument(
        "--output", required=True, type=output_file, metavar="FILE", help="the file to write"
    )


def run(args: argparse.Namespace) -> None:
    """Write the entry.

    Raises:
        CommandError: if the baseline can't be read, or is not the one that the command knows.
    """
    baseline, output = Path(args.baseline), Path(args.output)
    if output.exists() and baseline.exists() and output.samefile(baseline):
        raise CommandError("--output is the baseline itself: give another name")
    try:
        text = baseline.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(
            f"cannot read {args.baseline}: {error}; give --baseline a file of your clone"
        ) from error
    num_steps = args.steps or read_baseline(text)[1]
    output.write_text(
        make_entry(text, preset=args.preset, num_steps=num_steps, lr=args.lr), encoding="utf-8"
    )
    print(f"wrote {output}: run it in your clone, with the command in the track's README")
    if args.lr is None and num_steps > LONGEST_RUN:
        print(
            f"its learning rate, {find_preset(args.preset).lr:g}, was measured on runs of up to "
            f"{LONGEST_RUN:,} steps, not of {num_steps:,}; --lr sets another"
        )

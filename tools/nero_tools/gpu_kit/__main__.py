"""Measure a GPU and write one file to attach to an issue, or read such a file.

python -m nero_tools.gpu_kit gpu.json
python -m nero_tools.gpu_kit --read gpu.json
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from nero.cli.arguments import CommandError, output_file
from nero.numbers import json_values
from nero_tools.gpu_kit.measure import FULL, TINY, make_kit
from nero_tools.gpu_kit.read import read_kit, text
from nero_tools.progress import progress


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser("python -m nero_tools.gpu_kit", description=__doc__)
    parser.add_argument("file", metavar="FILE", help="the file to write, or with --read to read")
    parser.add_argument("--read", action="store_true", help="print a summary of FILE")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument(
        "--tiny", action="store_true", help="a rehearsal with tiny models, also on a CPU"
    )
    args = parser.parse_args(argv)
    try:
        if args.read:
            print(text(read_kit(args.file)))
            return 0
        output_file(args.file)
        if args.device == "cuda" and not torch.cuda.is_available():
            raise CommandError(
                "torch sees no CUDA or ROCm device; rehearse with --device cpu --tiny"
            )
        with progress("gpu kit") as show:
            kit = make_kit(args.device, TINY if args.tiny else FULL, show)
        Path(args.file).write_text(json.dumps(json_values(kit), indent=1) + "\n")
        print(text(read_kit(args.file)))
        print(f"\nPlease attach {args.file} to an issue.")
    except CommandError as error:
        print(f"gpu kit: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())

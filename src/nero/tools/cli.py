"""The ``nero`` command. A subcommand is imported when it is named."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from nero import __version__
from nero.tools.arguments import CommandError

# Each module has add_arguments(parser) and run(args); its docstring describes the command.
COMMANDS = {
    "inspect": ("nero.tools.inspect", "show what Nero does with every parameter, and why"),
    "bench": ("nero.tools.bench.command", "time a step of Nero against torch's SGD and AdamW"),
    "plan": ("nero.tools.plan.command", "count memory and communication on simulated ranks"),
    "doctor": ("nero.tools.doctor", "say which backends run here, and test the one for GPUs"),
    "theory": ("nero.tools.theory", "bound the error rate of a model by the paper's theory"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the ``nero`` command and return its exit code.

    Example:
        >>> from nero.tools.cli import main
        >>> main(["inspect", "torch.nn:PReLU", "--plain"])
        parameter  shape  role   neurons  fan-in  constraint  state  why
        weight     1      other  1        1       none        24 B   PReLU
        <BLANKLINE>
        1 parameters, 0 neurons, 24 bytes of state, 300.00% of Adam's
        0
    """
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(prog="nero", description="Tools for the Nero optimiser.")
    parser.add_argument("--version", action="version", version=f"nero {__version__}")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    for name, (module, summary) in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=summary)
        if name in argv:
            command = import_module(module)
            subparser.description = command.__doc__
            command.add_arguments(subparser)
            subparser.set_defaults(run=command.run, refuse=subparser.error)
    args, unknown = parser.parse_known_args(argv)
    if unknown:  # here, because the parent would show its own usage
        args.refuse(f"unrecognized arguments: {' '.join(unknown)}")
    from nero import LayoutError

    try:
        args.run(args)
    except (CommandError, LayoutError) as error:
        print(f"nero {args.command}: {error}", file=sys.stderr)
        return getattr(error, "exit_code", 2)
    except KeyboardInterrupt:
        print(f"\nnero {args.command}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever read the table has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

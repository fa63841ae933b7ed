"""Run the command named on the command line, and import no other."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import entry_points

from nero import __version__
from nero.cli.arguments import CommandError

# Each module has add_arguments(parser) and run(args); its docstring describes the command.
OURS = {
    "inspect": ("nero.cli.inspect", "show how Nero treats every parameter, and why"),
    "doctor": ("nero.cli.doctor", "show which backends run here, and test the GPU kernel"),
}
# Listed even without nero-tools, so that the message can name it.
TOOLS = {
    "bench": "time a step of Nero against torch's SGD and AdamW",
    "plan": "count memory and communication on simulated ranks",
    "speedrun": "make an entry for the NanoGPT speedrun's optimization track",
    "theory": "bound the error rate of a model by the paper's theory",
}


def commands() -> dict[str, tuple[str | None, str]]:
    """Return each command's module, or ``None`` if it is not installed, and its summary.

    Other distributions add theirs with entry points in the group ``nero.commands`` that name such modules.
    """
    modules: dict[str, tuple[str | None, str]] = {**OURS}
    modules |= {name: (None, f"{summary}; needs nero-tools") for name, summary in TOOLS.items()}
    for added in entry_points(group="nero.commands"):
        if added.name not in OURS:
            package = added.value.partition(".")[0]
            modules[added.name] = added.value, TOOLS.get(added.name, f"a command of {package}")
    return modules


def main(argv: Sequence[str] | None = None) -> int:
    """Run the ``nero`` command and return its exit code.

    Example:
        >>> from nero.cli import main
        >>> main(["inspect", "torch.nn:PReLU", "--plain"])
        parameter  shape  role   neurons  fan-in  constraint  state  why
        weight     1      other  1        1       none        24 B   PReLU
        <BLANKLINE>
        1 parameters, 0 neurons, 24 bytes of state, 300.00% of Adam's
        0
    """
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(prog="nero", description="Tools for the Nero optimizer.")
    parser.add_argument("--version", action="version", version=f"nero {__version__}")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    for name, (module, summary) in commands().items():
        # Without a module, all arguments of the command, including --help, lead to the message below.
        subparser = subparsers.add_parser(name, help=summary, add_help=module is not None)
        if name in argv and module is not None:
            command = import_module(module)
            subparser.description = command.__doc__
            command.add_arguments(subparser)
            subparser.set_defaults(run=command.run, refuse=subparser.error)
    args, unknown = parser.parse_known_args(argv)
    if not hasattr(args, "run"):
        print(f"nero {args.command} needs nero-tools: pip install nero-tools", file=sys.stderr)
        return 2
    if unknown:  # refused here, because the parent parser would show its own usage
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
    except BrokenPipeError:  # the reader, such as head, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0

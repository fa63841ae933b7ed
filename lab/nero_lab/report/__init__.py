"""``nero-lab report``: figures, tables and a verdict, from records alone."""

import argparse
from collections.abc import Mapping
from pathlib import Path

from nero_lab.engine import records
from nero_lab.engine.errors import ConfigError
from nero_lab.engine.task import Task
from nero_lab.report.claims import CLAIMS
from nero_lab.report.collecting import collect
from nero_lab.report.comments import read_comments
from nero_lab.report.page import TITLE, page
from nero_lab.report.style import order
from nero_lab.report.webpage import to_html
from nero_lab.tasks import TASKS

__all__ = ["report_command", "write_report"]


def report_command(args: argparse.Namespace) -> int:
    """Write the report that ``nero-lab report`` asks for and return the exit code."""
    write_report(args.results, args.out, scale=args.scale)
    print(f"wrote {args.out / 'report.md'} and {args.out / 'report.html'}")
    return 0


def write_report(
    results_dir: Path, out: Path, *, scale: str | None = None, tasks: Mapping[str, Task] = TASKS
) -> None:
    """Write ``report.md``, ``report.html`` and ``figures/*.png``.

    Args:
        results_dir: folder of records, as runs leave them or copied into files of other names, and of
            ``comments.toml`` (see ``comments.py``).
        out: folder to write to.
        scale: what to show of each task; that at which most optimisers were run if None.
        tasks: the tasks to report on.

    Raises:
        ConfigError: if there are no records, none at that scale, or some that cannot be compared.
    """
    found = records.read_all(results_dir)
    if not found:
        raise ConfigError(
            f"there are no records below {results_dir}: point --results at a folder that `nero-lab run` or "
            "`nero-lab sweep` wrote to, by default runs"
        )
    results = collect(found, tasks, order, scale)
    if not results:
        raise ConfigError(
            f"no run below {results_dir} has begun" + (f" at {scale} scale" if scale else "")
        )
    comments = read_comments(results_dir, tasks=tasks, claims=[claim.key for claim in CLAIMS])
    figures = out / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    for name in tasks:  # some may have no records any more
        for old in figures.glob(f"{name}-*.png"):
            old.unlink()
    text = page(tasks, results, comments, out)
    (out / "report.md").write_text(text, encoding="utf-8")
    (out / "report.html").write_text(to_html(text, TITLE), encoding="utf-8")

"""``nero-lab report``: figures, tables and a verdict, from records alone."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from nero_lab.report import costs, figures, heat_map, overview, page, protocol, today, transfer
from nero_lab.report.claims import CLAIMS
from nero_lab.report.comments import read_comments
from nero_lab.report.comparisons import TRANSFER, pictures
from nero_lab.report.lab import TASKS, ConfigError, Task
from nero_lab.report.runs import PROTOCOL_SCALE, Records, collect, read_records

__all__ = ["report_command", "write_report"]


def report_command(args: argparse.Namespace, tasks: Mapping[str, Task] = TASKS) -> int:
    """Write the report that ``nero-lab report`` asks for and return the exit code."""
    records = write_report(args.results, args.out, scale=args.scale, tasks=tasks)
    for path, reason in records.skipped.items():
        print(f"nero-lab report: skipped {path}: {' '.join(reason.split())}", file=sys.stderr)
    print(f"wrote {args.out / 'report.md'} and {args.out / 'report.html'}")
    return 0


def write_report(
    results_dir: Path, out: Path, *, scale: str | None = None, tasks: Mapping[str, Task] = TASKS
) -> Records:
    """Write ``report.md``, ``report.html``, the pages they link to and ``figures/*.png``.

    Args:
        results_dir: folder with the records, as written by runs or by ``nero-lab collect``, and with
            ``comments.toml`` (see ``comments.py``).
        out: folder to write to.
        scale: the scale to show for each task; if None, the one with the most optimizers.
        tasks: the tasks to report on.

    Returns:
        the records read.

    Raises:
        ConfigError: if there are no records, none at that scale, or some that cannot be compared.
    """
    records = read_records(results_dir, tasks)
    if records.runs.empty:
        some = "" if tasks.keys() >= TASKS.keys() else f" of {', '.join(tasks)}"
        raise ConfigError(
            f"there are no records{some} below {results_dir}: point --results at the folder that "
            "`nero-lab run` or `nero-lab sweep` wrote to (by default, runs)"
        )
    results = collect(records, tasks, scale)
    if not results:
        raise ConfigError(
            f"no run below {results_dir} has begun" + (f" at {scale} scale" if scale else "")
        )
    known = {**TASKS, **tasks}  # there may be comments on tasks that are not shown
    comments = read_comments(results_dir, tasks=known, claims=[claim.key for claim in CLAIMS])
    folder = out / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    in_files = {
        name: name.replace(":", ".") for name in tasks
    }  # names of custom tasks have a colon
    for name in in_files.values():  # some may no longer have records
        for old in folder.glob(f"{name}-*.png"):
            old.unlink()
    for name, found in results.items():
        for picture in pictures(found):
            figures.draw(picture, folder / f"{in_files[name]}-{picture.name}.png")
        if name in TRANSFER:
            transfer.draw(found, folder / f"{in_files[name]}-rates.png")
        for spent in costs.costs(found):
            costs.draw(spent, found.metric, folder / f"{in_files[name]}-{spent.slug}.png")
    of_protocol = collect(records, tasks, PROTOCOL_SCALE)
    own = of_protocol if scale is None else {}
    verdicts = page.judge(tasks, results, own)
    if verdicts:
        overview.draw(verdicts, folder / "verdict.png")
    gaps = heat_map.gaps(results)
    if len(gaps):
        heat_map.draw(gaps, folder / "rates.png")
    scored = protocol.scored(of_protocol)
    if compared := today.rows(scored):
        today.draw(compared, folder / "today.png")
    pages = page.to_pages(
        tasks, results, own, scored, verdicts, comments, records, has_rates=len(gaps) > 0
    )
    for stale in {"claims", "method", *map(page.page_of, tasks)} - pages.keys():
        for ending in ("md", "html"):
            (out / f"{stale}.{ending}").unlink(missing_ok=True)
    for name, text in pages.items():
        (out / f"{name}.md").write_text(text, encoding="utf-8")
        (out / f"{name}.html").write_text(page.to_html(text), encoding="utf-8")
    return records

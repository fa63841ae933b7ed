"""The pages in Markdown and HTML, rendered from the templates next to this module."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import markdown
from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from nero_lab.report import (
    comparisons,
    formatting,
    paper,
    protocol,
    recipes,
    tables,
    today,
    transfer,
)
from nero_lab.report.claims import CLAIMS
from nero_lab.report.costs import costs
from nero_lab.report.lab import OPTIMIZERS, Task
from nero_lab.report.protocol import Scored
from nero_lab.report.rates import NERO_LR
from nero_lab.report.runs import Records, Results
from nero_lab.report.simulation import NUM_TRIALS, error_rates
from nero_lab.report.style import look
from nero_lab.report.verdicts import MARKS, Claim, Verdict, headline

TITLE = "Nero: the paper's experiments, rerun"
# All the learning rates of the paper's grid, including its best ones.
SWEEP = (
    "nero-lab sweep mnist-deep --scale cpu --optimizers nero,sgd,adam,lamb --lrs 0.0001,0.001,0.01,0.1 "
    "--seeds 3"
)


def judge(
    tasks: Mapping[str, Task], results: Mapping[str, Results], own: Mapping[str, Results]
) -> dict[Claim, Verdict]:
    """Return the verdict on every claim about one of the tasks, given the protocol's own results."""
    names = {task.name for task in tasks.values()} - {""}  # tasks without the paper have no name
    asked = {*names, ""} if names & paper.TABLE.keys() else names
    return {claim: claim.verdict(results, own) for claim in CLAIMS if claim.task in asked}


def to_pages(
    tasks: Mapping[str, Task],
    results: Mapping[str, Results],
    own: Mapping[str, Results],
    scored: Mapping[str, Sequence[Scored]],
    verdicts: Mapping[Claim, Verdict],
    comments: Mapping[str, Mapping[str, Any]],
    records: Records,
    *,
    has_rates: bool,
) -> dict[str, str]:
    """Return every page in Markdown, by file name without extension; pictures are drawn elsewhere.

    A report on one task is a single page. Otherwise each task has a page, linked from ``report``.
    """
    values = {
        "summary": tables.summary_table({n: t for n, t in tasks.items() if t.name}, results, own),
        "hours": tables.hours_table(records),
        "tasks": tasks,
        "results": results,
        "at_scale": lambda task, scale: next(
            (each[task] for each in (results, own) if task in each and each[task].scale == scale),
            None,
        ),
        "comments": comments,
        "skipped": records.skipped,
        "verdicts": verdicts,
        "has_rates": has_rates,
        "has_today": bool(today.rows(scored)),
        "protocol": scored,
    }
    if len(tasks) == 1:
        return {"report": _filled("report", values)}
    pages = {"report": _filled("overview", values), "method": _filled("method", values)}
    if verdicts:
        pages["claims"] = _filled("claims", values)
    for name, task in tasks.items():
        values_of_task = {
            "name": name,
            "task": task,
            "found": results.get(name),
            "own_remarks": comments.get(name, {}),
            "compared": scored.get(name, []),
        }
        pages[page_of(name)] = _filled("task", {**values, **values_of_task})
    home = f"[{TITLE if verdicts else 'Runs of nero-lab'}](report.md)"
    for name in pages.keys() - {"report"}:
        raised = re.sub(r"^##(#*) ", r"#\1 ", pages[name], flags=re.MULTILINE)
        pages[name] = f"{raised.rstrip()}\n\nBack to {home}.\n"
    return pages


def page_of(task: str) -> str:
    """Return the name of a task's page.

    Example:
        >>> page_of("pong"), page_of("mine:TASK")
        ('task-pong', 'task-mine.TASK')
    """
    return "task-" + task.replace(":", ".")


def _filled(template: str, values: Mapping[str, Any]) -> str:
    text = _template(f"{template}.md.j2").render(**values)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def to_html(text: str) -> str:
    """Convert a page from Markdown to HTML that needs no files except its pictures."""
    converter = markdown.Markdown(
        extensions=["fenced_code", "md_in_html", "sane_lists", "tables", "toc"],
        extension_configs={"toc": {"toc_depth": "2-2"}},
    )
    text = re.sub(r"(\]\([\w.-]+)\.md\)", r"\1.html)", text)  # links between pages
    head, heading, rest = converter.convert(text).partition("<h2")
    title, template = text.partition("\n")[0].removeprefix("# "), _template("report.html.j2")
    contents = converter.toc if heading else ""
    filled = template.render(title=title, head=head, contents=contents, rest=heading + rest)
    return filled + "\n"


def shared_differences(optimizers: Iterable[str]) -> dict[str, list[str]]:
    """Return the optimizers' differences from the paper, each with the optimizers that have it."""
    titles: dict[str, list[str]] = {}
    for name in optimizers:
        if name in OPTIMIZERS and (text := OPTIMIZERS[name].differences):
            titles.setdefault(text, []).append(look(name).title)
    return titles


def moved_rates(results: Results) -> list[dict[str, Any]]:
    """Return the optimizers whose best learning rate is not the published one, if that was tried."""
    moved = []
    for name, best in results.best(results.rates.optimizer.unique()).items():
        published = paper.scores(results.task.name, name).lr.unique()
        tried = [f"{lr:g}" for lr in published if results.rate(name, lr)]
        if tried and best.lr not in published:
            title = look(name).title
            moved.append({"title": title, "lr": best.lr, "num": best.num_rates, "theirs": tried})
    return moved


def _template(name: str) -> Template:
    environment = Environment(
        loader=PackageLoader("nero_lab.report"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "MARKS": MARKS,
        "NERO_LR": NERO_LR,
        "NUM_TRIALS": NUM_TRIALS,
        "SWEEP": SWEEP,
        "TITLE": TITLE,
        "costs": costs,
        "error_rates": error_rates,
        "formatting": formatting,
        "headline": headline,
        "look": look,
        "moved_rates": moved_rates,
        "paper": paper,
        "protocols": protocol,
        "pictures": comparisons.pictures,
        "recipes": recipes,
        "tables": tables,
        "shared_differences": shared_differences,
        "transfer": transfer,
        "TRANSFER": comparisons.TRANSFER,
    }
    environment.filters |= {
        "capitalised": formatting.capitalised,
        "cell": lambda text: text.replace("|", "\\|").replace("\n", " "),
        "one_line": lambda text: " ".join(text.split()),
        "plain": formatting.plain,
    }
    return environment.get_template(name)

"""The modern question: Nero at its defaults against the optimisers of today, each tuned."""

from nero_lab.report import lineups, wording
from nero_lab.report.results import NERO_LR
from nero_lab.report.scores import Score
from nero_lab.report.style import look
from nero_lab.report.verdict import Results, tested

TASK = "shakespeare"
HEADER = (
    "rival at its best rate",
    "rates tried",
    "its score",
    "Nero's default minus it",
    "ranges",
    "Nero's default is",
)


def rows(results: Results) -> list[list[str]]:
    """Return a row for each rival that was run; none if the task was not run."""
    found, default = tested(results, TASK), _default(results)
    if found is None or default is None:
        return []
    table = []
    for name, line in found.pick(("nero", *lineups.MODERN_RIVALS)).items():
        if line is None or line.score is None or line.best is line.default:
            continue
        title = "Nero itself" if name == "nero" else look(name).title
        title += f", lr {line.best.lr:g}"
        table.append([title, str(len(line.rates)), *_compared(default, line.score)])
    return table


def summary(results: Results) -> str:
    """Say in a sentence what Nero's default score is, and on what."""
    found, default = tested(results, TASK), _default(results)
    if found is None or default is None:
        return f"Not tested: Nero was not run at its default rate on {TASK}, or in smoke runs only."
    text = f"On {found.task.title} ({found.scale} scale), Nero at lr {NERO_LR:g}"
    if default.num_lost:
        return f"{text}: {wording.in_words(default)}."
    return f"{text} ends with a {found.task.metric.label} of {wording.in_words(default)}."


def _default(results: Results) -> Score | None:
    found = tested(results, TASK)
    line = found.line("nero") if found else None
    return line.default.score if line and line.default else None


def _compared(default: Score, rival: Score) -> list[str]:
    lost = [f"Nero's default: {wording.lost(default)}"] if default.num_lost else []
    lost += [wording.lost(rival)] if rival.num_lost else []
    difference = "; ".join(lost)
    if not lost:
        difference = f"{default.mean - rival.mean:+.4f}".replace("-", wording.MINUS)
    comparison = default.against(rival)
    ranges = "overlap" if comparison == "overlap" else "apart"
    words = {"better": "better", "worse": "worse", "overlap": "not told apart"}
    return [wording.in_words(rival), difference, ranges, words[comparison]]

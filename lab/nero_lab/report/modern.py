"""The modern question: Nero at its defaults against the optimisers of today, each tuned."""

from nero_lab.report import wording
from nero_lab.report.results import NERO_LR, Score
from nero_lab.report.style import look
from nero_lab.report.verdict import Results, tested

TASK = "shakespeare"
RIVALS = ("adamw", "muon", "schedule-free", "prodigy", "sgd-momentum")
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
    found = tested(results, TASK)
    line = found.line("nero") if found else None
    default = line.arms[NERO_LR].score if line and NERO_LR in line.arms else None
    if found is None or line is None or default is None:
        return []
    table = []
    if line.best.lr != NERO_LR:
        table.append(_row(f"Nero itself, lr {line.best.lr:g}", len(line.arms), default, line.score))
    for name in RIVALS:
        rival = found.line(name)
        if rival is not None and rival.score is not None:
            title = f"{look(name).title}, lr {rival.best.lr:g}"
            table.append(_row(title, len(rival.arms), default, rival.score))
    return table


def summary(results: Results) -> str:
    """Say in a sentence what Nero's default score is, and on what."""
    found = tested(results, TASK)
    line = found.line("nero") if found else None
    default = line.arms[NERO_LR].score if line and NERO_LR in line.arms else None
    if found is None or default is None:
        return f"Not tested: Nero was not run at its default rate on {TASK}, or in smoke runs only."
    return (
        f"On {found.task.title} ({found.scale} scale), Nero at lr {NERO_LR:g} ends with a "
        f"{found.task.metric.label} of {wording.in_words(default)}."
    )


def _row(title: str, num_rates: int, default: Score, rival: Score | None) -> list[str]:
    if rival is None:
        return [title, str(num_rates), *[wording.NOTHING] * 4]
    if not default.values or not rival.values:
        difference = wording.NOTHING
    else:
        difference = f"{default.mean - rival.mean:+.4f}".replace("-", wording.MINUS)
    comparison = default.against(rival)
    ranges = "overlap" if comparison == "overlap" else "apart"
    words = {"better": "better", "worse": "worse", "overlap": "not told apart"}
    return [title, str(num_rates), wording.in_words(rival), difference, ranges, words[comparison]]

"""The whole page: verdict, a section for each task, summary, and how it was made."""

from collections.abc import Mapping
from pathlib import Path

from nero_lab.engine.task import Task
from nero_lab.report import modern, tables, wording
from nero_lab.report.claims import CLAIMS
from nero_lab.report.comments import Comments
from nero_lab.report.results import TaskResults
from nero_lab.report.section import recipe_only, section
from nero_lab.report.verdict import RULE, Judgement, Outcome, Results, headline

TITLE = "Nero: the experiments of the paper, run again"
_INTRO = (
    "Nero is an optimiser that turns the weight vector of every neuron by an angle that the learning "
    "rate sets, and keeps it balanced: mean zero, norm one. Its paper (“Learning by Turning: Neural "
    "Architecture Aware Optimisation”, 2021) makes claims about it; this page says which of them our "
    "own runs bear out. Figures, tables and outcomes are computed from the records of runs, and the "
    "commands that made them stand below each figure; remarks between them are a person's. Results name"
    " their scale: *paper* is the recipe of the paper (for a task that is not in it, the full one), "
    "*cpu* a shortened one that takes minutes to two hours on one core, *smoke* only shows that the "
    "code runs. A shortened run, of a network that may be smaller too, can support or contradict a "
    "claim, not settle it."
)
# With every rate that the paper tuned over, its best ones among them.
SWEEP = (
    "nero-lab sweep mnist-deep --scale cpu --optimizers nero,sgd,adam,lamb --lrs 0.0001,0.001,0.01,0.1 "
    "--seeds 3"
)
_MARKS: dict[Outcome, str] = {
    "held": "✔",
    "did not hold": "✘",
    "leans towards held": "↗",
    "leans towards not held": "↘",
    "undecided": "≈",
    "not shown": "?",
    "not tested": wording.NOTHING,
}


def page(tasks: Mapping[str, Task], results: Results, comments: Comments, out: Path) -> str:
    """Write the pictures and return the page in Markdown."""
    judged = {claim.key: claim.judge(results) for claim in CLAIMS}
    blocks = [f"# {TITLE}", _INTRO, *_verdict(judged, results, comments)]
    for name, task in tasks.items():
        if name in results:
            own = {claim.text: judged[claim.key] for claim in CLAIMS if claim.task == name}
            blocks += section(results[name], own, comments, out)
        else:
            blocks += recipe_only(task, comments)
    blocks += [
        "## Paper and measurement",
        "Mean ± standard deviation as published, and our mean with range at the best rate; the best "
        "of each line in bold. Rows of different scales are not comparable in value, only in order.",
        tables.summary_table(tasks, results),
        *_how_made(results),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _verdict(judged: Mapping[str, Judgement], results: Results, comments: Comments) -> list[str]:
    rows = []
    for claim in CLAIMS:
        judgement = judged[claim.key]
        remark = comments.on_claim(claim.key)
        measured = claim.told(judgement) + (f". *{remark}*" if remark else "")
        scale = _scale(judgement, results.get(claim.task))
        rows.append([claim.text, claim.where, measured, scale, _outcome(judgement)])
    blocks = [
        "## Verdict",
        headline(judged.values()),
        comments.on_claim("intro"),
        tables.table(("claim", "in the paper", "measured", "scale", "outcome"), rows),
        RULE,
        "### Nero out of the box against today's optimisers",
        modern.summary(results),
    ]
    compared = modern.rows(results)
    if compared:
        blocks.append(tables.table(modern.HEADER, compared))
    return [*blocks, comments.on_claim("modern")]


def _outcome(judgement: Judgement) -> str:
    outcome = judgement.outcome
    text = f"{_MARKS[outcome]} {outcome}"
    if outcome != judgement.finding and judgement.fewest_seeds:
        text += f" ({wording.seeds(judgement.fewest_seeds)})"
    return f'<span class="{outcome.replace(" ", "-")}">{text}</span>'


def _scale(judgement: Judgement, found: TaskResults | None) -> str:
    if found is None or judgement.scale != found.scale:
        return judgement.scale
    return f"{found.scale}: {wording.parameters(found)}"


def _how_made(results: Results) -> list[str]:
    total = sum(len(found.runs) for found in results.values())
    return [
        "## How this was made",
        f"From the records of {total} runs, one JSON object a line, by `nero-lab report`. A single run, "
        "a sweep over rates and seeds, and this page:",
        "\n".join(
            [
                "```sh",
                "pip install nero-lab",
                "nero-lab list",
                "nero-lab run mnist-deep --scale cpu --optimizer nero --seed 0",
                SWEEP,
                "nero-lab report --results lab/results --out lab/report",
                "```",
            ]
        ),
        "Runs go on where they were interrupted; two runs of one configuration on one machine have equal "
        "records, apart from the clock. The published numbers are the paper's tables and the learning "
        "curves that its authors published.",
    ]

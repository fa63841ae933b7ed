"""The section of one task."""

import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path

from nero_lab.engine.optimizers import OPTIMIZERS
from nero_lab.engine.task import Task
from nero_lab.report import figures, tables, wording
from nero_lab.report.comments import Comments
from nero_lab.report.curves import legend_of
from nero_lab.report.paper import published
from nero_lab.report.pictures import Picture, pictures
from nero_lab.report.recipes import NOT_IN_PAPER, recipe_in_words, scale_in_words
from nero_lab.report.results import TaskResults
from nero_lab.report.sensitivity import has_rates
from nero_lab.report.style import look
from nero_lab.report.verdict import Judgement

_FOLD_ABOVE = 3  # commands


def section(
    results: TaskResults, judged: Mapping[str, Judgement], comments: Comments, out: Path
) -> list[str]:
    """Write the pictures of a task and return its section in Markdown, block by block.

    Args:
        results: its runs.
        judged: the claims that this task tests, by their text.
        comments: remarks of a person.
        out: the folder of the report.
    """
    task = results.task
    blocks = [
        f"## {heading(task)}",
        f"{_place(task)} {scale_in_words(results)}",
        comments.on_task(task.name),
    ]
    for picture in pictures(results):
        blocks += _picture(picture, comments, out)
    blocks += ["### Scores and costs", tables.final_table(results), _table_note(results)]
    if any(line.is_tuned for line in results.lines):
        blocks.append(_fold("Every rate", tables.all_rates_table(results)))
    if judged:
        blocks.append(f"**Disagreements with the paper.** {_disagreements(results, judged)}")
    blocks += differences(task, dict.fromkeys(line.optimizer for line in results.lines))
    blocks += [_provenance(results), _not_begun(results)]
    return [block for block in blocks if block]


def recipe_only(task: Task, comments: Comments) -> list[str]:
    """Return the section of a task that was not run."""
    reason = comments.on_task(task.name, "recipe_only") or "not run yet"
    optimizer = next(iter(task.lrs), "nero")
    blocks = [
        f"## {heading(task)}",
        f"{_place(task)} **Recipe only**: {reason}.".replace("..", "."),
        comments.on_task(task.name),
        f"At paper scale: {recipe_in_words(task.recipes['paper'])}.",
        "\n".join(
            [
                "```sh",
                *(
                    f"nero-lab run {task.name} --scale {scale} --optimizer {optimizer}"
                    for scale in task.recipes
                    if scale != "smoke"
                ),
                "```",
            ]
        ),
        *differences(task, task.lrs),
    ]
    return [block for block in blocks if block]


def heading(task: Task) -> str:
    """Return the heading of a task's section."""
    return f"{task.title[0].upper()}{task.title[1:]} (`{task.name}`)"


def differences(task: Task, optimizers: Iterable[str]) -> list[str]:
    """Return what differs from the paper in a task and in optimisers, as lists."""
    blocks = []
    if task.differences:
        items = [f"- {wording.plain(item)}" for item in task.differences]
        blocks += ["**What differs from the paper, or is not in it.**", "\n".join(items)]
    titles: dict[str, list[str]] = {}  # some have a difference in common
    for name in optimizers:
        if name in OPTIMIZERS and (text := OPTIMIZERS[name].differences):
            titles.setdefault(text, []).append(look(name).title)
    if titles:
        items = [f"- {'; '.join(names)}: {wording.plain(text)}" for text, names in titles.items()]
        blocks += ["**On single optimisers.**", "\n".join(items)]
    return blocks


def _place(task: Task) -> str:
    if task.figure == NOT_IN_PAPER:
        return "Not in the paper."
    return f"{task.figure} of the paper."


def _picture(picture: Picture, comments: Comments, out: Path) -> list[str]:
    task = picture.results.task
    file = f"figures/{task.name}-{picture.name}.png"
    figures.draw(picture, out / file)
    title = picture.title[0].upper() + picture.title[1:]
    where = f"{picture.figure}: " if picture.figure.startswith("Fig") else ""
    blocks = [f"### {where}{title}", f"![{title}: {_alt(picture)}]({file})", _caption(picture)]
    blocks.append(comments.on_picture(task.name, picture.name))
    commands = tables.commands(picture)
    code = "\n".join(["```sh", *commands, "```"])
    if len(commands) > _FOLD_ABOVE:
        code = _fold(f"The {len(commands)} commands of these runs", code)
    blocks.append(code)
    return blocks


def _alt(picture: Picture) -> str:
    return (
        "; ".join(legend_of(track) for track in picture.tracks).replace("]", ")").replace("[", "(")
    )


def _caption(picture: Picture) -> str:
    counts = sorted({len(track.arm.seeds) for track in picture.tracks if track.arm.seeds})
    text = "*No run has come to its end yet."
    if counts:
        count = wording.seeds(counts[-1])
        if len(counts) > 1:
            count = f"{counts[0]} to {count}"
        which = "at one rate"
        if has_rates(picture):
            numbers = sorted({len(line.rates) for line in picture.lines if line.rates})
            tried = wording.span(str(numbers[0]), str(numbers[-1]))
            which = f"at the best of the rates that were run, {tried} of each"
        text = f"*Mean and range over {count}; every optimiser {which}."
    if not picture.by_step and picture.results.task.metric.name.startswith("valid_"):
        text += " Training values are averages over the epoch, validation values are at its end."
    if has_rates(picture):
        text += (
            " On the right, the last value at every rate; the grey line is Nero's default, a cross on the "
            "edge is a rate at which a run was lost, and a triangle there one that is off the scale."
        )
    if any(run.end for track in picture.tracks for run in track.arm.strays):
        text += (
            " A cross on a curve is where a run diverged or failed, one on the edge is beyond it."
        )
    if figures.has_authors(picture) and has_rates(picture):
        text += " Runs that the authors stopped before the last epoch are counted as lost."
    return text + "*"


def _table_note(results: TaskResults) -> str:
    text = (
        f"*{results.task.metric.label[0].upper()}{results.task.metric.label[1:]} after the last epoch, "
        f"{'higher' if results.task.metric.higher_is_better else 'lower'} is better. Time per step is the "
        "median of a run, on a CPU in CPU time (in elapsed time, in the oldest records), with other runs "
        "on the same machine: it is good to a factor of two. Memory is the peak of the process, with all "
        "that it has loaded. Both are medians over seeds."
    )
    if any(published(results.task, line.optimizer) for line in results.lines):
        text += " Published: mean ± standard deviation over three seeds, at the paper's scale."
    return f"{text} The network has {wording.parameters(results)}.*"


def _disagreements(results: TaskResults, judged: Mapping[str, Judgement]) -> str:
    items = [
        f"- “{text}” {judgement.outcome}: {judgement.measured}."
        for text, judgement in judged.items()
        if judgement.contradicts
    ]
    items += [
        f"- “{text}” is not shown, for want of tuned rivals: see the verdict."
        for text, judgement in judged.items()
        if judgement.finding == "not shown"
    ]
    for line in results.lines:
        rates = list(dict.fromkeys(entry.lr for entry in published(results.task, line.optimizer)))
        tried = [lr for lr in rates if lr in line.rates]  # who was not in the race cannot have lost
        if not line.variant and tried and line.best.lr not in rates:
            theirs = " or ".join(f"{lr:g}" for lr in tried)
            items.append(
                f"- The best rate of {look(line.optimizer).title} is {line.best.lr:g} here (of "
                f"{len(line.rates)} tried) and {theirs} in the paper."
            )
    if items:
        return "\n\n" + "\n".join(items)
    if all(judgement.outcome == "not tested" for judgement in judged.values()):
        return "These runs test none of its claims."
    return "No claim was contradicted."


def _provenance(results: TaskResults) -> str:
    def distinct(values: list[str]) -> str:
        return "; ".join(dict.fromkeys(values)) or "unknown"

    configs = [run.config for run in results.runs]
    commits = distinct([f"`{config['commit']}`" if config["commit"] else "" for config in configs])
    versions = distinct(
        [", ".join(f"{name} {v}" for name, v in config["versions"].items()) for config in configs]
    )
    hardware = distinct(
        [
            f"{config['hardware']['device']}, {config['hardware']['cores']} cores, "
            f"threads a run: {config['hardware']['threads']}"
            for config in configs
        ]
    )
    days = sorted(config["clock"]["started"][:10] for config in configs)
    seconds = [run.end["clock"]["seconds"] for run in results.runs if run.end]
    took = ""
    if seconds:
        took = (
            f" One run took {wording.duration(statistics.median(seconds))} (median), all of them "
            f"{wording.duration(sum(seconds))}."
        )
    when = wording.span(days[0], days[-1])
    return (
        f"**Origin.** {len(configs)} runs, {when}, on {hardware}.{took} Commit {commits}. "
        f"Versions: {versions}."
    )


def _not_begun(results: TaskResults) -> str:
    if not results.not_begun:
        return ""
    items = [
        f"- `{run.config['command']}`: {wording.plain(run.end['message'])}"
        for run in results.not_begun
        if run.end
    ]
    return "**Not counted**, because they failed before their first step:\n\n" + "\n".join(items)


def _fold(title: str, text: str) -> str:
    # Markdown inside HTML wants blank lines; Python's Markdown wants the attribute besides.
    return f'<details markdown="1">\n<summary>{title}</summary>\n\n{text}\n\n</details>'

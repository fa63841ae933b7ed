"""Recipes in words."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from nero_lab.engine.task import Recipe
from nero_lab.report.results import TaskResults

NOT_IN_PAPER = "not in the paper"
"""What a task has for a figure if there is none."""


def recipe_in_words(recipe: Recipe | Mapping[str, Any]) -> str:
    """Write a recipe as a list of its settings."""
    return ", ".join(f"{name} {value}" if name else value for name, value in _settings(recipe))


def _settings(recipe: Recipe | Mapping[str, Any]) -> list[tuple[str, str]]:
    if isinstance(recipe, Recipe):
        recipe = {**vars(recipe), "schedule": repr(recipe.schedule)}
    settings = [
        ("", f"{recipe['epochs']} epochs"),
        ("batch size", str(recipe["batch_size"])),
        ("schedule", f"`{_rounded(recipe['schedule'])}`"),
        ("", recipe["precision"]),
    ]
    if recipe["clip_norm"] is not None:
        settings.append(("gradient norm clipped at", str(recipe["clip_norm"])))
    for name, value in recipe["options"].items():
        if value is not None and value is not False:
            settings.append((_plain(name), str(value)))
    return settings


def scale_in_words(results: TaskResults) -> str:
    """Say at which scale a task was run, and what the paper's scale has otherwise."""
    task, scale = results.task, results.scale
    varied = {name for variant in task.variants.values() for name in variant}
    recipes = [run.config["recipe"] for run in results.runs if not run.config["options"]]
    recipes = recipes or [run.config["recipe"] for run in results.runs]
    usual = Counter(repr(sorted(recipe.items())) for recipe in recipes).most_common(1)[0][0]
    recipe = next(recipe for recipe in recipes if repr(sorted(recipe.items())) == usual)
    recipe = {**recipe, "options": {k: v for k, v in recipe["options"].items() if k not in varied}}
    ours, theirs = _settings(recipe), _settings(task.recipes["paper"])
    changed = [setting for setting in ours if setting not in theirs]
    missing = [
        setting
        for setting in theirs
        if setting not in ours and setting[0] not in map(_plain, varied)
    ]
    text = f"Shown at **{scale} scale**"
    if not changed and not missing:
        source = "" if task.figure == NOT_IN_PAPER else ", as long and as large as in the paper"
        text += f"{source}: {_join(ours)}."
    else:
        text += f": {_join(changed)}; at paper scale: {_join(missing) or 'no limit on these'}."
        rest = [setting for setting in ours if setting not in changed]
        text += f" The same in both: {_join(rest)}." if rest else ""
    if results.other_scales:
        others = ", ".join(
            f"{count} at {name} scale" for name, count in results.other_scales.items()
        )
        text += f" There are records of other runs that are not shown: {others}."
    return text


def _rounded(schedule: str) -> str:
    return re.sub(r"\d\.\d{4,}", lambda found: f"{float(found[0]):.3g}", schedule)


def _plain(option: str) -> str:
    return option.removeprefix("num_").replace("_", " ")


def _join(settings: list[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {value}".strip() for name, value in settings)

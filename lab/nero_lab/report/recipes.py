"""Recipes and network sizes in words."""

import re
from collections.abc import Mapping
from typing import Any

from nero_lab.report.formatting import span
from nero_lab.report.lab import Recipe
from nero_lab.report.runs import Results
from nero_lab.report.style import look


def settings(recipe: Recipe | Mapping[str, Any]) -> dict[str, str]:
    """Return a recipe's settings in words, by name."""
    if isinstance(recipe, Recipe):
        recipe = {**vars(recipe), "schedule": repr(recipe.schedule)}
    rounded = re.sub(r"\d\.\d{4,}", lambda found: f"{float(found[0]):.3g}", recipe["schedule"])
    words = {
        "epochs": "1 epoch" if recipe["epochs"] == 1 else f"{recipe['epochs']} epochs",
        "batch_size": f"batch size {recipe['batch_size']}",
        "schedule": f"schedule `{rounded}`",
        "precision": recipe["precision"],
    }
    clip_norm = recipe["clip_norm"]
    if isinstance(clip_norm, Mapping):
        some = ", ".join(f"{norm} for {look(name).title}" for name, norm in clip_norm.items())
        words["clip_norm"] = f"gradient norm clipped at {some} only"
    elif clip_norm is not None:
        words["clip_norm"] = f"gradient norm clipped at {clip_norm}"
    for name, value in recipe["options"].items():
        if value is not None and value is not False:
            words[name] = f"{name.removeprefix('num_').replace('_', ' ')} {value}"
    return words


def beside_paper(results: Results) -> dict[str, list[str]]:
    """Return the settings that only our runs have, that only the paper has, and that both have."""
    varied = {name for variant in results.task.variants.values() for name in variant}
    runs = results.runs
    recipes = list(runs.recipe[~runs.has_options]) or list(runs.recipe)
    usual = max(recipes, key=recipes.count)
    ours, theirs = (
        [text for name, text in settings(recipe).items() if name not in varied]
        for recipe in (usual, results.task.recipes.get("paper", usual))
    )
    return {
        "ours": [text for text in ours if text not in theirs],
        "paper": [text for text in theirs if text not in ours],
        "both": [text for text in ours if text in theirs],
    }


def num_parameters(results: Results) -> str:
    """Write the network's size and, if it was shrunk, its size at paper scale.

    The size at paper scale is rounded to three digits: 11.2M.
    """
    smallest, largest = results.runs.num_parameters.min(), results.runs.num_parameters.max()
    text = f"{span(f'{smallest:,}', f'{largest:,}')} parameters"
    full = results.task.paper_parameters
    if full and full > largest:
        text += f" (paper scale: {full / 1e6:.3g}M)"
    return text

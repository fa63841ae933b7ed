"""``nero-lab list``: every task and optimiser at a glance."""

from rich.console import Console
from rich.table import Table

from nero_lab.optimizers import OPTIMIZERS
from nero_lab.task import Recipe
from nero_lab.tasks import TASKS


def print_tasks() -> None:
    """Print the tasks with figure, data, sizes and time at each scale, and the optimisers."""
    console = Console()
    tasks = Table("task", "what", "figure", "data", "scale", "size", "one run takes", box=None)
    for task in TASKS.values():
        first = (task.name, task.title, task.figure, task.data or "none")
        for scale, recipe in task.recipes.items():
            tasks.add_row(*first, scale, _size(recipe), recipe.takes)
            first = ("", "", "", "")
    console.print(tasks)
    for task in TASKS.values():
        if task.variants:
            console.print(f"variants of {task.name}: {', '.join(task.variants)}")
    console.print()
    optimizers = Table("optimiser", "what", "rates of a sweep", box=None)
    for name, entry in OPTIMIZERS.items():
        optimizers.add_row(name, entry.about, ", ".join(f"{lr:g}" for lr in entry.grid))
    console.print(optimizers)


def _size(recipe: Recipe) -> str:
    words = [f"{recipe.epochs} epochs", f"batch {recipe.batch_size}", recipe.precision]
    words += [f"{name} {value:,}" for name, value in recipe.options.items() if _is_number(value)]
    return ", ".join(words)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)

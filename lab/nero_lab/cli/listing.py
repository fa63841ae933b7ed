"""``nero-lab list``: every task and optimiser at a glance."""

from rich.console import Console
from rich.table import Table

from nero_lab.engine.optimizers import OPTIMIZERS
from nero_lab.engine.task import Recipe, Task
from nero_lab.tasks import TASKS


def print_tasks() -> None:
    """Print the tasks with figure, data, sizes and time at each scale, and the optimisers."""
    console = Console(highlight=False)
    for task in TASKS.values():
        console.print(f"[bold]{task.name}[/bold]: {task.title}", soft_wrap=True)
        words = [task.figure, f"data: {task.data or 'none'}"]
        words += [f"variants: {', '.join(task.variants)}"] if task.variants else []
        console.print("  " + "; ".join(words), soft_wrap=True)
        recipes = Table("scale", "size", "one run takes", box=None, padding=(0, 2))
        for scale, recipe in task.recipes.items():
            recipes.add_row(scale, _size(recipe), recipe.takes)
        console.print(recipes)
        for names, grid in _own_grids(task).items():
            console.print(f"  rates of a sweep of {names}: {_rates(grid)}", soft_wrap=True)
        console.print()
    optimizers = Table("optimiser", "what", "rates of a sweep elsewhere", box=None)
    optimizers.columns[0].no_wrap = True
    for name, entry in OPTIMIZERS.items():
        optimizers.add_row(name, entry.about, _rates(entry.grid))
    console.print(optimizers)


def _own_grids(task: Task) -> dict[str, tuple[float, ...]]:
    """Return the grids that a task has for some optimisers, by the names of all that share one."""
    sharing: dict[tuple[float, ...], list[str]] = {}
    for name, grid in task.grids.items():
        sharing.setdefault(grid, []).append(name)
    return {", ".join(names): grid for grid, names in sharing.items()}


def _rates(grid: tuple[float, ...]) -> str:
    return ", ".join(f"{lr:g}" for lr in grid)


def _size(recipe: Recipe) -> str:
    words = [f"{recipe.epochs} epochs", f"batch {recipe.batch_size}", recipe.precision]
    words += [f"{name} {value:,}" for name, value in recipe.options.items() if _is_number(value)]
    return ", ".join(words)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)

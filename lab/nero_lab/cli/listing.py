"""``nero-lab list``: the tasks, one line each, or all there is to know of one of them."""

from rich.console import Console
from rich.table import Table

from nero_lab.engine.optimizers import OPTIMIZERS
from nero_lab.engine.task import Recipe, Task
from nero_lab.tasks import TASKS


def print_tasks() -> None:
    """Print a line for every task, and the names of the optimizers."""
    console = Console(highlight=False)
    width = max(map(len, TASKS))
    for task in TASKS.values():
        shown = f"{task.title}; {task.figure}"
        console.print(f"[bold]{task.name:{width}}[/bold]  {shown}", soft_wrap=True)
    console.print(f"\noptimizers: {', '.join(OPTIMIZERS)}", soft_wrap=True)
    console.print(
        "for a task's data, sizes, times and learning rates: nero-lab list TASK", soft_wrap=True
    )


def print_task(task: Task) -> None:
    """Print the figure, data, sizes and times of a task, and the rates of the optimizers."""
    console = Console(highlight=False)
    console.print(f"[bold]{task.name}[/bold]: {task.title}", soft_wrap=True)
    words = [task.figure, f"data: {task.data or 'none'}"]
    words += [f"variants: {', '.join(task.variants)}"] if task.variants else []
    console.print("; ".join(words), soft_wrap=True)
    recipes = Table("scale", "size", "time per run", box=None, padding=(0, 2, 0, 0))
    for scale, recipe in task.recipes.items():
        recipes.add_row(scale, _size(recipe), recipe.takes)
    console.print(recipes)
    optimizers = Table("optimizer", "description", "lrs in a sweep", box=None, padding=(0, 2, 0, 0))
    optimizers.columns[0].no_wrap = True
    for name, entry in OPTIMIZERS.items():
        optimizers.add_row(name, entry.about, _rates(task.grids.get(name, entry.grid)))
    console.print()
    console.print(optimizers)


def _rates(grid: tuple[float, ...]) -> str:
    return ", ".join(f"{lr:g}" for lr in grid)


def _size(recipe: Recipe) -> str:
    words = [f"{recipe.epochs} epochs", f"batch {recipe.batch_size}", recipe.precision]
    words += [f"{name} {value:,}" for name, value in recipe.options.items() if _is_number(value)]
    return ", ".join(words)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)

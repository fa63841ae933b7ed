"""A plan as a table, and as a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nero.numbers import human_bytes
from nero.tables import aligned
from nero.tools.arguments import CommandError
from nero.tools.plan.simulate import Plan


def table(plan: Plan) -> str:
    """Return one mesh's table, fit for a terminal or a mail."""
    rows = [["optimiser", "state/rank", "collectives/step", "bytes/step", "kinds"]]
    for name, cost in plan.costs.items():
        kinds = ", ".join(f"{num:,} {kind}" for kind, num in cost.collectives.items())
        state, sent = human_bytes(cost.state_bytes), human_bytes(cost.communicated_bytes)
        rows.append([name, state, f"{cost.num_collectives:,}", sent, kinds or "-"])
    title = (
        f"{plan.model}: {plan.num_parameters:,} parameters on {plan.ranks.size:,} ranks ({plan.ranks}), "
        f"{human_bytes(plan.parameter_bytes)} of them on rank 0"
    )
    notes = [f"{name} was not counted: {why}" for name, why in plan.left_out.items()]
    return "\n".join([title, aligned(rows, left=(0, 4)), *notes])


def plot(plans: Sequence[Plan], path: str | Path) -> None:
    """Draw the bytes of state, and those communicated by a step, against the number of ranks.

    Raises:
        CommandError: if matplotlib is not installed, or cannot write such a file.
    """
    figure = figure_class()(figsize=(9, 4), layout="constrained")
    state, sent = figure.subplots(1, 2)
    ordered = sorted(plans, key=lambda plan: plan.ranks.size)
    names = dict.fromkeys(name for plan in ordered for name in plan.costs)
    for axes, title, figure_of in (
        (state, "state on a rank", "state_bytes"),
        (sent, "communicated by a step", "communicated_bytes"),
    ):
        for index, name in enumerate(names):
            drawn = [plan for plan in ordered if name in plan.costs]
            sizes = [plan.ranks.size for plan in drawn]
            nums = [getattr(plan.costs[name], figure_of) for plan in drawn]
            width = max(7 - 2 * index, 1)  # so that lines on top of each other are all seen
            axes.plot(sizes, nums, "o-", linewidth=width, markersize=width + 3, label=name)
        axes.set_xscale("log", base=2)
        # Linear below a kilobyte, because nothing at all is the most common number of bytes.
        axes.set_yscale("symlog", linthresh=1000)
        _, high = axes.get_ylim()
        axes.set_ylim(-200, 3 * high)
        axes.set_yticks([0, *(10**k for k in range(3, 16) if 10**k < 3 * high)])
        axes.grid(axis="y", alpha=0.3)
        axes.set_xlabel("ranks")
        axes.set_title(f"{title}, bytes")
    state.legend(loc="best", frameon=False)
    figure.suptitle(", ".join(dict.fromkeys(plan.model for plan in plans)))
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise CommandError(f"cannot write the picture {path}: {error}") from error


def figure_class() -> Any:
    """Return matplotlib's figure, or raise a `CommandError` that says how to get it."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise CommandError(
            "a picture needs matplotlib: pip install matplotlib, or leave --plot out"
        ) from error
    return Figure

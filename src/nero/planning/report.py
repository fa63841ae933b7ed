"""What a plan says: a table for people, and a picture."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nero.bench.report import human_bytes
from nero.planning.shard import PlanError
from nero.planning.simulate import Plan
from nero.tables import aligned


def table(plan: Plan) -> str:
    """Return one mesh's table, fit for a terminal or a mail."""
    rows = [["optimiser", "state/rank", "collectives/step", "bytes/step", "kinds"]]
    for name, cost in plan.costs.items():
        kinds = ", ".join(f"{num:,} {kind}" for kind, num in cost.collectives.items())
        rows.append(
            [
                name,
                human_bytes(cost.state_bytes),
                f"{cost.num_collectives:,}",
                human_bytes(cost.communicated_bytes),
                kinds or "-",
            ]
        )
    title = (
        f"{plan.model}: {plan.num_parameters:,} parameters on {plan.ranks.size:,} ranks ({plan.ranks}), "
        f"{human_bytes(plan.parameter_bytes)} of them on rank 0"
    )
    notes = [f"{name} was not counted: {why}" for name, why in plan.left_out.items()]
    return "\n".join([title, aligned(rows, left=(0, 4)), *notes])


def as_dict(plan: Plan) -> dict[str, Any]:
    """Return a plan as JSON's types."""
    return {**asdict(plan), "num_ranks": plan.ranks.size}


def plot(plans: Sequence[Plan], path: str | Path) -> None:
    """Draw the bytes of state, and those communicated by a step, against the number of ranks.

    Raises:
        PlanError: if matplotlib is not installed, or cannot write such a file.
    """
    figure = figure_class()(figsize=(9, 4), layout="constrained")
    state, sent = figure.subplots(1, 2)
    ordered = sorted(plans, key=lambda plan: plan.ranks.size)
    for index, name in enumerate(dict.fromkeys(n for plan in ordered for n in plan.costs)):
        points = [(plan.ranks.size, plan.costs[name]) for plan in ordered if name in plan.costs]
        width = max(7 - 2 * index, 1)  # so that lines on top of each other are all seen
        _line(state, name, [(size, cost.state_bytes) for size, cost in points], width)
        _line(sent, name, [(size, cost.communicated_bytes) for size, cost in points], width)
    for axes, title in ((state, "state on a rank"), (sent, "communicated by a step")):
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
        raise PlanError(f"cannot write the picture {path}: {error}") from error


def figure_class() -> Any:
    """Return matplotlib's figure, or raise a `PlanError` that says how to get it."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise PlanError(
            "a picture needs matplotlib: pip install matplotlib, or leave --plot out"
        ) from error
    return Figure


def _line(axes: Any, name: str, points: Sequence[tuple[int, int]], width: float) -> None:
    sizes, nums = zip(*points, strict=True)
    axes.plot(sizes, nums, marker="o", linewidth=width, markersize=width + 3, label=name)

"""What a run found, as tables for people."""

from collections.abc import Sequence

from nero.numbers import human_bytes
from nero.tables import aligned
from nero.tools.bench.competitors import REFERENCES
from nero.tools.bench.run import ModelResult, StepResult
from nero.tools.bench.timing import Spread


def table(result: ModelResult) -> str:
    """Return one model's table, fit for a terminal or a mail."""
    steps = result.optimizers
    references = [r for r in REFERENCES if any(r in step.ratios for step in steps.values())]
    header = ["optimiser", "ms", "quartiles", *(f"x {r}" for r in references)]
    rows = [[*header, "state", "temporary", "left out"]]
    rows += [_row(name, s, references, result.parameter_bytes) for name, s in steps.items()]
    threads = f"{result.threads} thread{'s' * (result.threads > 1)}"
    where = threads if result.device == "cpu" else result.device
    lines = [
        f"{result.model}: {result.num_parameters:,} parameters, {result.dtype}, {where}",
        aligned(rows),
    ]
    lines += [
        f"{name} changed only {step.share_changed:.0%} of the weights: its time says nothing, "
        "and it is no reference"
        for name, step in steps.items()
        if not step.does_the_work
    ]
    disturbed = [n for n, step in steps.items() if step.num_disturbed > step.num_samples / 2]
    if disturbed:
        lines.append(f"other load disturbed most samples of {', '.join(disturbed)}: run it again")
    lines += [f"{name} was not measured: {why}" for name, why in result.left_out.items()]
    return "\n".join(lines)


def _row(name: str, step: StepResult, references: Sequence[str], parameter_bytes: int) -> list[str]:
    ms = step.milliseconds
    return [
        name,
        "-" if ms is None else f"{ms.median:.3g}" if ms.median < 100 else f"{ms.median:.0f}",
        "-" if ms is None else f"{ms.low:.3g} to {ms.high:.3g}",
        *(_ratio(step.ratios.get(r)) for r in references),
        human_bytes(step.state_bytes),
        f"{step.temporary_bytes / parameter_bytes:.2%}",
        f"{step.num_disturbed}/{step.num_samples}",
    ]


def _ratio(ratio: Spread | None) -> str:
    return "-" if ratio is None else f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"

"""Performance targets for a step, checked against a report."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from nero_tools.bench.run import ModelResult

# Ratio of a step to a reference, with two threads: at most, by shape.
RATIOS: dict[tuple[str, str, str], dict[str, float]] = {
    ("float32", "nero", "sgd-fused"): {
        "gpt2-124m": 1.0,
        "gpt2-350m": 1.0,
        "mlp-100": 1.0,
        "resnet50": 1.1,
    },
    ("float32", "nero", "adamw-fused"): dict.fromkeys(
        ("gpt2-124m", "gpt2-350m", "mlp-100", "resnet50"), 0.6
    ),
    ("float32", "nero", "bare"): dict.fromkeys(("gpt2-124m", "gpt2-350m"), 1.15),
    ("float32", "nero-plain", "sgd-fused"): dict.fromkeys(("gpt2-124m", "gpt2-350m"), 3.0),
    ("bfloat16", "nero", "adamw-fused"): dict.fromkeys(("gpt2-124m", "gpt2-350m"), 0.6),
}
NUM_THREADS = 2
TEMPORARY_SHARE = 0.01  # of the parameters' bytes
STATE_SHARE = {"gpt2-124m": 0.002}  # of AdamW's
FIRST_STEP_SECONDS = {"cold": 5.0, "cached": 0.5}


@dataclass(frozen=True)
class Verdict:
    """One target, and how it went; ``measured`` is ``None`` where every sample was disturbed."""

    what: str
    limit: float
    measured: float | None

    @property
    def is_met(self) -> bool:
        """Whether the target was met."""
        return self.measured is not None and self.measured <= self.limit

    def cells(self) -> list[str]:
        """Return the row of a table."""
        measured = "-" if self.measured is None else f"{self.measured:.4g}"
        return [self.what, measured, f"{self.limit:g}", "yes" if self.is_met else "NO"]


def verdicts(report: dict[str, Any]) -> list[Verdict]:
    """Return every target that the report says something about."""
    resident = report.get("resident_temporary_bytes") or {}
    found = [
        verdict
        for result in report["results"]
        if result.device == "cpu" and result.threads == NUM_THREADS
        for verdict in _of_model(result, resident.get(result.model, {}))
    ]
    for when, spans in (report.get("first_step_seconds") or {}).items():
        what = f"first step, {when}, seconds"
        found.append(Verdict(what, FIRST_STEP_SECONDS[when], spans["first_step"]))
    return found


def _of_model(result: ModelResult, resident: dict[str, Any]) -> Iterator[Verdict]:
    where = f"{result.model} {result.dtype}"
    for (dtype, name, to), limits in RATIOS.items():
        step = result.optimizers.get(name)
        if dtype == result.dtype and result.model in limits and step and to in step.ratios:
            ratio = step.ratios[to]
            measured = None if ratio is None else ratio.median
            yield Verdict(f"{where}: {name} / {to}", limits[result.model], measured)
    nero, adamw = result.optimizers.get("nero"), result.optimizers.get("adamw-fused")
    if nero:
        # Neither way of measuring sees everything: take the larger figure.
        most = max(nero.temporary_bytes, resident.get("nero") or 0)
        what = f"{where}: temporary / parameters"
        yield Verdict(what, TEMPORARY_SHARE, most / result.parameter_bytes)
    if nero and adamw and result.model in STATE_SHARE:
        share = nero.state_bytes / adamw.state_bytes
        yield Verdict(f"{where}: state / AdamW's", STATE_SHARE[result.model], share)

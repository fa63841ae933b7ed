"""What `StepCheck` found: faults that name a parameter, and a report that prints."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from nero.core.warn import listed

_MAX_SHOWN = 12


@dataclass(frozen=True)
class StepFault:
    """Something wrong with one parameter."""

    name: str
    """The parameter's name."""
    kind: str
    """One word for the fault, such as ``"layout"`` or ``"still"``."""
    text: str
    """What is wrong; ``{count}`` stands for the number of neurons."""
    advice: str
    """What to do about it."""
    count: int = 0
    """The number of neurons concerned, or 0 if the fault is not about single neurons."""
    ranks: tuple[int, ...] = ()
    """The ranks whose copy of the parameter is wrong; empty if it is the same everywhere."""

    def __str__(self) -> str:
        what = self.text.format(count=f"{self.count:,}")
        if self.count == 1:
            what = re.sub("^1 (neuron|element)s", r"1 \1", what)
        where = f" on rank {', '.join(map(str, self.ranks))}" if self.ranks else ""
        return f"`{self.name}`{where}: {what}; {self.advice}"


@dataclass(frozen=True)
class StepReport:
    """What a check compared, and what it found: print it, or read ``faults``."""

    faults: tuple[StepFault, ...]
    num_params: int
    """How many parameters were checked."""
    num_neurons: int
    """How many neurons they have; biases and gains have none."""
    bounds_only: tuple[str, ...] = ()
    """Parameters whose earlier gradients are unknown: their constraint and angles were checked, but their
    new weights could not be compared with the definition."""
    assumed: tuple[str, ...] = ()
    """Parameters of unregistered modules, whose layout was taken from the optimizer."""

    def __bool__(self) -> bool:
        return not self.faults

    def __str__(self) -> str:
        num = len(self.faults)
        found = "no faults" if not num else "1 fault" if num == 1 else f"{num} faults"
        lines = [
            f"{found} in a step of {self.num_params:,} parameters with {self.num_neurons:,} neurons"
        ]
        lines += [f"- {fault}" for fault in self.faults[:_MAX_SHOWN]]
        if num > _MAX_SHOWN:
            rest = ", ".join(f"`{fault.name}` ({fault.kind})" for fault in self.faults[_MAX_SHOWN:])
            lines.append(f"- and, with details in `report.faults`: {rest}")
        if self.bounds_only:
            lines.append(
                "Not compared with the definition, since earlier gradients are unknown: "
                + listed(self.bounds_only)
            )
        if self.assumed:
            lines.append(
                f"Layout taken from the optimizer, since no module states it: {listed(self.assumed)}"
            )
        return "\n".join(lines)


class StepError(RuntimeError):
    """A step was wrong for the model, the options and the gradients; see ``report``."""

    def __init__(self, report: StepReport) -> None:
        super().__init__(str(report))
        self.report = report


def merged(faults: Iterable[StepFault]) -> tuple[StepFault, ...]:
    """Return the faults of all ranks with one entry per parameter and kind."""
    found: dict[tuple[str, str], StepFault] = {}
    for fault in faults:
        first = found.get((fault.name, fault.kind))
        if first is not None:
            ranks = tuple(sorted({*first.ranks, *fault.ranks}))
            # Ranks with copies of their own count the same neurons; the others share them.
            count = max(first.count, fault.count) if ranks else first.count + fault.count
            fault = replace(first, count=count, ranks=ranks)
        found[fault.name, fault.kind] = fault
    return tuple(found.values())

"""Which pictures a task gets, and which runs are in each."""

from collections.abc import Iterator
from dataclasses import dataclass

from nero_lab.report.results import NERO_LR, Arm, Line, TaskResults
from nero_lab.report.style import Look, variant_look


@dataclass(frozen=True)
class Family:
    """Optimisers that are compared in one picture, if one of ``needs`` was run."""

    name: str
    title: str
    optimizers: tuple[str, ...]
    needs: tuple[str, ...]


FAMILIES = (
    Family(
        "constraints",
        "Nero's constraints, one by one",
        ("nero-none", "nero-mean", "nero-norm", "nero"),
        ("nero-mean", "nero-norm"),
    ),
    Family(
        "relative-without",
        "updates relative to the synapse (Madam), the neuron (Nero) and the layer (LAMB), "
        "without constraints",
        ("madam", "nero-none", "lamb"),
        ("madam",),
    ),
    Family(
        "relative-with",
        "updates relative to the synapse (Madam), the neuron (Nero) and the layer (LAMB), "
        "with constraints",
        ("madam-balanced", "nero", "lamb-balanced"),
        ("madam-balanced", "lamb-balanced"),
    ),
    Family(
        "rivals",
        "Nero and the rivals of the paper",
        ("nero", "sgd", "adam", "lamb"),
        ("sgd", "adam", "lamb"),
    ),
    Family(
        "modern",
        "Nero and the optimisers of today",
        ("nero", "adamw", "sgd-momentum", "muon", "schedule-free", "prodigy"),
        ("adamw", "sgd-momentum", "muon", "schedule-free", "prodigy"),
    ),
)

_FIGURES = {
    ("cifar-vgg11", "constraints"): "Figure 1",
    ("cifar-vgg11", "relative-without"): "Figure 2, top",
    ("cifar-vgg11", "relative-with"): "Figure 2, bottom",
    ("cifar-vgg11", "rivals"): "Figure 6, top",
}

# Tasks that compare variants, not optimisers, and show steps, not epochs.
_BY_VARIANT = ("mnist-reparam",)


@dataclass(frozen=True)
class Track:
    """One optimiser in one picture, at one rate."""

    look: Look
    line: Line
    arm: Arm
    is_default: bool = False  # Nero out of the box, beside its best rate


@dataclass(frozen=True)
class Picture:
    """One picture of a task."""

    name: str
    title: str
    figure: str  # where it is in the paper, or ""
    results: TaskResults
    lines: tuple[Line, ...]
    by_step: bool = False

    @property
    def tracks(self) -> list[Track]:
        """Every line at its best rate, and Nero out of the box beside it."""
        return list(self._tracks())

    def _tracks(self) -> Iterator[Track]:
        compares = len({line.variant for line in self.lines}) > 1
        for line in self.lines:
            variant = line.variant if compares else ""
            appearance = variant_look(line.optimizer, variant)
            yield Track(appearance, line, line.best)
            if line.optimizer == "nero" and line.best.lr != NERO_LR and NERO_LR in line.arms:
                yield Track(appearance, line, line.arms[NERO_LR], is_default=True)


def pictures(results: TaskResults) -> list[Picture]:
    """Return the pictures that the runs of a task allow."""
    if results.task.name in _BY_VARIANT:
        figure = results.task.figure
        return [Picture("variants", results.task.title, figure, results, results.lines, True)]
    found = []
    for variant in results.variants:
        lines = {line.optimizer: line for line in results.lines if line.variant == variant}
        drawn: set[str] = set()
        for family in FAMILIES:
            if not any(name in lines for name in family.needs):
                continue
            members = tuple(lines[name] for name in family.optimizers if name in lines)
            drawn |= set(family.optimizers)
            found.append(_picture(results, family.name, family.title, variant, members))
        rest = [line for name, line in lines.items() if name not in drawn]
        if rest:
            if "nero" in drawn and "nero" in lines:
                rest.insert(0, lines["nero"])
            found.append(_picture(results, "others", results.task.title, variant, tuple(rest)))
    return found


def _picture(
    results: TaskResults, name: str, title: str, variant: str, lines: tuple[Line, ...]
) -> Picture:
    in_paper = results.task.figure if name == "rivals" else ""
    figure = _FIGURES.get((results.task.name, name), in_paper)
    if variant:
        slug = "".join(c if c.isalnum() else "-" for c in variant)
        return Picture(f"{name}-{slug}", f"{title} ({variant})", figure, results, lines)
    return Picture(name, title, figure, results, lines)

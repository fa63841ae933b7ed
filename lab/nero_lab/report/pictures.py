"""Which pictures a task gets, and which runs are in each."""

from collections.abc import Iterator
from dataclasses import dataclass

from nero_lab.report import lineups
from nero_lab.report.results import Arm, Line, TaskResults
from nero_lab.report.style import Look, look, variant_look


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
        lineups.CONSTRAINTS,
        ("nero-mean", "nero-norm"),
    ),
    Family(
        "relative-without",
        "updates relative to the synapse (Madam), the neuron (Nero) and the layer (LAMB), "
        "without constraints",
        lineups.RELATIVE_FREE,
        ("nero-none",),
    ),
    Family(
        "relative-with",
        "updates relative to the synapse (Madam), the neuron (Nero) and the layer (LAMB), "
        "with constraints",
        lineups.RELATIVE_BALANCED,
        ("madam-balanced", "lamb-balanced"),
    ),
    Family(
        "rivals",
        "Nero and the rivals of the paper",
        (*lineups.OF_PAPER, *lineups.OTHER_LAMBS),
        lineups.RIVALS,
    ),
    Family(
        "modern",
        "Nero and the optimisers of today",
        ("nero", *lineups.MODERN_RIVALS),
        lineups.MODERN_RIVALS,
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
            for arm in line.shown:
                yield Track(appearance, line, arm, is_default=arm is not line.shown[0])


def pictures(results: TaskResults) -> list[Picture]:
    """Return the pictures that the runs of a task allow."""
    if results.task.name in _BY_VARIANT:
        return _by_variant(results)
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


def _by_variant(results: TaskResults) -> list[Picture]:
    """Return a picture to compare with the authors', and one of what is not in theirs."""
    ran = {line.optimizer for line in results.lines}
    first = next((name for name in lineups.REPARAMETERISED if name in ran), "")
    main = tuple(line for line in results.lines if line.optimizer in ("nero", first))
    rest = tuple(line for line in results.lines if line not in main)
    title, figure = results.task.title, results.task.figure
    found = [Picture("variants", title, figure, results, main, True)] if main else []
    if rest:
        names = dict.fromkeys(_title(line.optimizer) for line in rest)
        title += f": {' and '.join(names)}"
        found.append(Picture("variants-others", title, "", results, rest, True))
    return found


def _title(optimizer: str) -> str:
    return lineups.REPARAMETERISED.get(optimizer, look(optimizer).title)


def _picture(
    results: TaskResults, name: str, title: str, variant: str, lines: tuple[Line, ...]
) -> Picture:
    in_paper = results.task.figure if name == "rivals" else ""
    figure = _FIGURES.get((results.task.name, name), in_paper)
    if variant:
        slug = "".join(c if c.isalnum() else "-" for c in variant)
        return Picture(f"{name}-{slug}", f"{title} ({variant})", figure, results, lines)
    return Picture(name, title, figure, results, lines)

"""Sentences about layers that someone should read."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from nero.diagnostics.report import LayerReport

HARDLY_RAD = 1e-6
"""At this angle a step, a neuron needs a million steps for a radian, if it never turns back."""
_MAX_ALIKE = 3


class Finding(NamedTuple):
    """Something about one layer."""

    kind: str
    weight: float
    """The more, the worse, among findings of one kind."""
    layer: str
    sentence: str


def told(layers: Iterable["LayerReport"]) -> list[str]:
    """Say what deserves attention; of many layers that have the same trouble, name the worst.

    Example:
        >>> from nero.diagnostics import TurningMonitor
        >>> from nero.diagnostics.findings import told
        >>> model = nn.Linear(8, 4)
        >>> optimizer = nero.Nero(model)
        >>> monitor = TurningMonitor(optimizer)
        >>> model.weight.grad = torch.zeros(4, 8)
        >>> optimizer.step()
        >>> told(monitor.last_report.layers)
        ['weight: 4 of 4 neurons had no gradient', 'weight: 4 of 4 neurons did not turn']
    """
    by_kind: dict[str, list[Finding]] = {kind: [] for kind in _KINDS}
    for layer in layers:
        for finding in _found(layer):
            by_kind[finding.kind].append(finding)
    sentences = []
    for alike in by_kind.values():
        shown = alike
        more = ""
        if len(alike) > _MAX_ALIKE:
            shown = [max(alike, key=lambda finding: finding.weight)]
            more = f"; less so in {len(alike) - 1:,} other layers"
        sentences += [f"{finding.layer}: {finding.sentence}{more}" for finding in shown]
    return sentences


_KINDS = ("nonfinite", "undefined", "too far", "no gradient", "still", "hardly", "drift")


def _found(layer: "LayerReport") -> Iterator[Finding]:
    counted = {
        "nonfinite": (layer.num_nonfinite_grad, "had NaN or inf in their gradient"),
        "undefined": (layer.num_undefined, "are zero or not finite"),
        "too far": (layer.num_too_far, _too_far(layer)),
        "no gradient": (layer.num_zero_grad, "had no gradient"),
        "still": (layer.num_still, "did not turn"),
    }
    for kind, (num, what) in counted.items():
        if num:
            sentence = f"{num:,} of {layer.num_neurons:,} neurons {what}"
            yield Finding(kind, num / layer.num_neurons, layer.name, sentence)
    median = layer.angle.median
    if 0 < median < HARDLY_RAD:
        sentence = f"half of the neurons turned by {median:.0e} rad or less"
        yield Finding("hardly", -median, layer.name, sentence)
    if layer.drift > layer.tolerance:
        sentence = f"a neuron is off its constraint by {layer.drift:.1e}"
        yield Finding("drift", layer.drift, layer.name, sentence)


def _too_far(layer: "LayerReport") -> str:
    ratio = f" ({layer.max_over_lr:.0f} x lr)" if layer.max_over_lr is not None else ""
    return f"turned by more than {layer.too_far:.2g} rad, one by {layer.angle.max:.2g}{ratio}"

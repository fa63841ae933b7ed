"""Sentences about layers that deserve attention."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from nero.diagnostics.layer_report import LayerReport

HARDLY_RAD = 1e-6
"""At this angle per step, a neuron needs a million steps for a radian, if it never turns back."""
_MAX_ALIKE = 3

_Check: TypeAlias = Callable[[LayerReport], tuple[float, str] | None]
"""From a layer to how bad it is, compared with other layers, and a sentence; or to nothing."""


def summarize_findings(layers: Iterable[LayerReport]) -> list[str]:
    """Say what deserves attention; of many layers with the same problem, name the worst.

    Example:
        >>> from nero.diagnostics import TurningMonitor
        >>> from nero.diagnostics.findings import summarize_findings
        >>> model = nn.Linear(8, 4)
        >>> optimizer = nero.Nero(model)
        >>> monitor = TurningMonitor(optimizer)
        >>> model.weight.grad = torch.zeros(4, 8)
        >>> optimizer.step()
        >>> summarize_findings(monitor.last_report.layers)
        ['weight: 4 of 4 neurons had no gradient', 'weight: 4 of 4 neurons did not turn']
    """
    layers, sentences = [*layers], []
    for check in _CHECKS:
        alike = [(*found, layer.name) for layer in layers if (found := check(layer)) is not None]
        more = ""
        if len(alike) > _MAX_ALIKE:
            more = f"; less so in {len(alike) - 1:,} other layers"
            alike = [max(alike, key=lambda found: found[0])]
        sentences += [f"{name}: {sentence}{more}" for _, sentence, name in alike]
    return sentences


def _counted(field: str, what: str) -> _Check:
    def check(layer: LayerReport) -> tuple[float, str] | None:
        num = getattr(layer, field)
        sentence = f"{num:,} of {layer.num_neurons:,} neurons {what}"
        return (num / layer.num_neurons, sentence) if num else None

    return check


def _too_far(layer: LayerReport) -> tuple[float, str] | None:
    ratio = f" ({layer.max_over_lr:.0f} x lr)" if layer.max_over_lr is not None else ""
    what = f"turned by more than {layer.too_far:.2g} rad, one by {layer.angle.max:.2g}{ratio}"
    return _counted("num_too_far", what)(layer)


def _hardly(layer: LayerReport) -> tuple[float, str] | None:
    median = layer.angle.median
    sentence = f"half of the neurons turned by {median:.0e} rad or less"
    return (-median, sentence) if 0 < median < HARDLY_RAD else None


def _drift(layer: LayerReport) -> tuple[float, str] | None:
    sentence = f"a neuron is off its constraint by {layer.drift:.1e}"
    return (layer.drift, sentence) if layer.drift > layer.tolerance else None


_CHECKS = (  # in the order of their sentences
    _counted("num_nonfinite_grad", "had NaN or inf in their gradient"),
    _counted("num_undefined", "are zero or not finite"),
    _too_far,
    _counted("num_zero_grad", "had no gradient"),
    _counted("num_still", "did not turn"),
    _hardly,
    _drift,
)

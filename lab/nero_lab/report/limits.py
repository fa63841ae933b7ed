"""Limits of axes that neither a spike nor a run that was lost can set.

What lies beyond them is drawn as a cross on the edge where bad scores are.
"""

import math
import statistics
from collections.abc import Iterable, Sequence

from nero_lab.engine.task import Metric

MAX_LOG_RATIO = 1000.0  # between the ends of a logarithmic axis
MAX_RATIO = 20.0  # between the worst and the best score on a linear axis
_WINDOW = 5  # points; a spike is shorter than half of it
_FAR_OUT = 3.0  # Tukey's fence, in distances between quartiles


def of_curves(curves: Iterable[Sequence[float]], metric: Metric) -> tuple[float, float] | None:
    """Return limits that show every curve without its spikes, or None if there is nothing to show.

    Where low is good on a linear axis, how bad the first fifth of a run was is left out.
    """
    calm = [_without_spikes(finite) for curve in curves if (finite := _finite(curve))]
    if not calm:
        return None
    low, high = min(map(min, calm)), max(map(max, calm))
    if not metric.log and not metric.higher_is_better:
        high = max(max(curve[len(curve) // 5 :]) for curve in calm)
    return _widened(low, high, metric, margin=0.05)


def of_points(
    points: Iterable[float], kept: Iterable[float], metric: Metric
) -> tuple[float, float] | None:
    """Return limits that leave out scores far worse than most, or None if there is nothing to show.

    Args:
        points: scores at all rates.
        kept: scores to show in any case: those at the best rates.
        metric: what they are scores of.
    """
    points, kept = _finite(points), _finite(kept)
    if not points:
        return None
    low, high = min(points), max(points)
    if len(points) >= 4 and not metric.log:
        first, _, third = statistics.quantiles(points, n=4, method="inclusive")
        fence = _FAR_OUT * (third - first)
        if metric.higher_is_better:
            low = min(value for value in points if value >= first - fence or value in kept)
        else:
            high = max(value for value in points if value <= third + fence or value in kept)
    return _widened(low, high, metric, margin=0.08)


def _widened(low: float, high: float, metric: Metric, *, margin: float) -> tuple[float, float]:
    if metric.log:
        # A share of the logarithm, so that the margin looks the same on every axis.
        high = min(high, low * MAX_LOG_RATIO)
        factor = max((high / low) ** margin, 1.1)
        return low / factor, high * factor
    if not metric.higher_is_better and low > 0:
        high = min(high, low * MAX_RATIO)
    width = margin * (high - low) or margin * abs(high) or 1.0
    return low - width, high + width


def _without_spikes(curve: Sequence[float]) -> list[float]:
    """Return medians over windows that shrink towards the ends, which stay as they are."""
    last = len(curve) - 1
    reach = [min(_WINDOW // 2, index, last - index) for index in range(len(curve))]
    return [
        statistics.median(curve[index - near : index + near + 1])
        for index, near in enumerate(reach)
    ]


def _finite(values: Iterable[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]

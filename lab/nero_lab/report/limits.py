"""Axis limits that ignore spikes and runs that diverged.

Values beyond them are drawn as crosses on the edge where bad scores are.
"""

from collections.abc import Iterable

import numpy as np
from pandas import Series

from nero_lab.report.lab import Metric

MAX_LOG_RATIO = 1000.0  # between the ends of a logarithmic axis
MAX_RATIO = 20.0  # between the worst and the best score on a linear axis
_FAR_OUT = 3.0  # Tukey's fence, in interquartile ranges


def of_curves(curves: Iterable[Series], metric: Metric) -> tuple[float, float] | None:
    """Return limits that show every curve without its spikes, or None if there is nothing to show.

    On a linear axis where lower is better, the upper limit ignores the first fifth of each run.
    """
    calm = [_without_spikes(finite) for curve in curves if len(finite := curve[np.isfinite(curve)])]
    if not calm:
        return None
    low, high = min(map(min, calm)), max(map(max, calm))
    if not metric.log and not metric.higher_is_better:
        high = max(max(curve[len(curve) // 5 :]) for curve in calm)
    return _widened(low, high, metric, margin=0.05)


def of_points(points: Series, kept: Series, metric: Metric) -> tuple[float, float]:
    """Return limits that leave out scores far worse than most.

    Args:
        points: scores at all learning rates; non-finite ones are ignored.
        kept: scores that must be shown: those at the best learning rates.
        metric: the scores' metric.
    """
    points = points[np.isfinite(points)]
    if points.empty:
        return 0.0, 1.0
    low, high = points.min(), points.max()
    if len(points) >= 4 and not metric.log:
        first, third = points.quantile([0.25, 0.75])
        fence = _FAR_OUT * (third - first)
        if metric.higher_is_better:
            low = points[(points >= first - fence) | points.isin(kept)].min()
        else:
            high = points[(points <= third + fence) | points.isin(kept)].max()
    return _widened(low, high, metric, margin=0.08)


def _widened(low: float, high: float, metric: Metric, *, margin: float) -> tuple[float, float]:
    if metric.log:
        # A fraction of the logarithm, so that the margin looks the same on every axis.
        high = min(high, low * MAX_LOG_RATIO)
        factor = max((high / low) ** margin, 1.1)
        return low / factor, high * factor
    if not metric.higher_is_better and low > 0:
        high = min(high, low * MAX_RATIO)
    width = margin * (high - low) or margin * abs(high) or 1.0
    return low - width, high + width


def _without_spikes(curve: Series) -> Series:
    """Return running medians over windows that shrink towards the ends, which are kept as they are."""
    wide, narrow = (curve.rolling(width, center=True).median() for width in (5, 3))
    return wide.fillna(narrow).fillna(curve)

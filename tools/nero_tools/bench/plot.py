"""One bar chart per report."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nero_tools.bench.competitors import REFERENCES
from nero_tools.bench.run import ModelResult

CUT = 6.0
_OURS, _OTHERS = "#3f51b5", "#b0b6c3"


def save_chart(results: Sequence[ModelResult], path: str | Path) -> None:
    """Draw the median time of every optimizer, with quartiles: one panel for each model and thread count.

    Bars start at zero, so that lengths compare. Those beyond `CUT` times the reference are cut off and
    hatched, since Muon would leave nothing of the others.
    """
    results = [
        r for r in results if any(x.milliseconds and x.does_the_work for x in r.optimizers.values())
    ]
    heights = [0.3 * len(r.optimizers) + 0.9 for r in results] or [1.0]
    figure = Figure(figsize=(9, sum(heights)), layout="constrained")
    panels = figure.subplots(max(len(results), 1), 1, squeeze=False, height_ratios=heights)[:, 0]
    for panel, result in zip(panels, results, strict=False):
        _draw(panel, result)
    figure.savefig(path, dpi=120)


def _draw(panel: Axes, result: ModelResult) -> None:
    measured = [
        (name, step, step.milliseconds)
        for name, step in result.optimizers.items()
        if step.milliseconds and step.does_the_work
    ]
    medians = {name: times.median for name, _, times in measured}
    limit = CUT * next((medians[n] for n in REFERENCES if n in medians), min(medians.values()))
    for y, (name, step, times) in enumerate(measured):
        is_cut = times.median > limit
        panel.barh(
            y,
            min(times.median, limit),
            xerr=None if is_cut else [[times.median - times.low], [times.high - times.median]],
            color=_OURS if name == "nero" else _OTHERS,
            hatch="//" if is_cut else None,
            edgecolor="white",
            error_kw={"linewidth": 1},
        )
        ratio = step.ratios.get("sgd-fused")
        label = f"{times.median:,.3g} ms" if times.median < 100 else f"{times.median:,.0f} ms"
        label += f", {ratio.median:.2f} x SGD" if ratio else ""
        panel.text(min(times.high, limit) + limit / 100, y, label, va="center", fontsize=8)
    panel.set_yticks(range(len(measured)), labels=[*medians])
    panel.set_xlim(0, 1.3 * min(limit, max(times.high for _, _, times in measured)))
    panel.invert_yaxis()
    panel.set_title(
        f"{result.model}, {result.num_parameters / 1e6:.3g} M parameters, {result.dtype}, "
        f"{result.threads} threads",
        loc="left",
        fontsize=10,
    )
    panel.set_xlabel("milliseconds for one step", fontsize=8)
    panel.spines[["top", "right"]].set_visible(False)

"""The numbers of a report that are worth a curve, by the names under which loggers keep them."""

from nero.diagnostics.report import LayerReport, TurningReport


def scalars_of(layer: LayerReport) -> dict[str, float]:
    """Return the curves of one layer.

    Example:
        >>> from nero.diagnostics import TurningMonitor
        >>> from nero.diagnostics.sinks.scalars import scalars_of
        >>> model = nn.Linear(8, 4)
        >>> optimizer = nero.Nero(model)
        >>> monitor = TurningMonitor(optimizer)
        >>> model.weight.grad = torch.eye(4, 8)
        >>> optimizer.step()
        >>> scalars_of(monitor.last_report["weight"])["still"]
        0.0
    """
    drifts = {"mean_drift": layer.mean_drift, "norm_drift": layer.norm_drift}
    return {
        "angle_median": layer.angle.median,
        "angle_mean": layer.angle.mean,
        "angle_max": layer.angle.max,
        "relative_change": layer.layer_relative_change,
        "norm_mean": layer.norm.mean,
        **{key: value for key, value in drifts.items() if value is not None},
        "still": float(layer.num_still),
        "zero_grad": float(layer.num_zero_grad),
        "too_far": float(layer.num_too_far),
        "undefined": float(layer.num_undefined),
        "nonfinite_grad": float(layer.num_nonfinite_grad),
    }


def all_scalars(report: TurningReport, prefix: str) -> dict[str, float]:
    """Return the curves of a report, as ``prefix/layer/curve``."""
    named = {
        f"{prefix}/{layer.name}/{key}": value
        for layer in report.layers
        for key, value in scalars_of(layer).items()
    }
    if report.num_skipped is not None:
        named[f"{prefix}/num_skipped"] = float(report.num_skipped)
    return named

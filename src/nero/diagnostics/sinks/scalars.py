"""The numbers of a report that are worth a curve, by the names under which loggers keep them."""

from nero.diagnostics.report import TurningReport


def scalars(report: TurningReport, prefix: str) -> dict[str, float]:
    """Return the curves of a report, as ``prefix/layer/curve``."""
    named: dict[str, float | None] = {f"{prefix}/num_skipped": report.num_skipped}
    for layer in report.layers:
        curves = {
            "angle_median": layer.angle.median,
            "angle_mean": layer.angle.mean,
            "angle_max": layer.angle.max,
            "relative_change": layer.layer_relative_change,
            "norm_mean": layer.norm.mean,
            "mean_drift": layer.mean_drift,
            "norm_drift": layer.norm_drift,
            "still": layer.num_still,
            "zero_grad": layer.num_zero_grad,
            "too_far": layer.num_too_far,
            "undefined": layer.num_undefined,
            "nonfinite_grad": layer.num_nonfinite_grad,
        }
        named |= {f"{prefix}/{layer.name}/{key}": value for key, value in curves.items()}
    return {name: float(value) for name, value in named.items() if value is not None}

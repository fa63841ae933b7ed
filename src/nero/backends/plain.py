"""The reference backend: readable torch operations, any device, dtype and memory format.

Every faster backend is held to this one by tests, and this one to a float64 loop over neurons.
"""

from collections.abc import Sequence

from torch import Tensor

from nero.backends.task import NeroTask
from nero.functional import Updated, nero_elements, nero_neurons, uniform_noise, working_dtype
from nero.functional.sharding import whole


def step_(tasks: Sequence[NeroTask]) -> None:
    """Update, in place, the weights and state of every task; gradients are only read."""
    for task in tasks:
        new = _update(task)
        task.weight.copy_(new.weight)
        task.avg_norm.copy_(new.avg_norm)
        # A step at lr = 0 leaves no trace, in no counter.
        is_active = task.options.lr != 0
        task.step.add_(is_active)
        if task.options.nonfinite != "propagate":
            task.num_skipped.add_(whole((~new.is_finite).sum()) * is_active)


def _update(task: NeroTask) -> Updated:
    options = task.options
    grad = _effective_grad(task)
    shared = {
        "step": task.step + 1,
        "lr": options.lr,
        "beta": options.beta,
        "propagate_nonfinite": options.nonfinite == "propagate",
        "noise": _noise(task),
    }
    if task.scale is not None:
        return nero_elements(task.weight, grad, task.avg_norm, scale=task.scale, **shared)  # type: ignore[arg-type]
    return nero_neurons(
        task.weight,
        grad,
        task.avg_norm,
        fan_in_dims=task.fan_in_dims,
        constraint=options.constraint,
        radius=task.radius,
        zero_norm=options.bias_scale,
        **shared,  # type: ignore[arg-type]
    )


def _noise(task: NeroTask) -> Tensor | None:
    if not task.options.stochastic_rounding:
        return None
    step, seed = task.step + 1, task.options.seed
    return uniform_noise(task.weight, seed=seed, stream=task.stream, step=step)


def _effective_grad(task: NeroTask) -> Tensor:
    grad = -task.grad if task.options.maximize else task.grad
    if task.options.gain_penalty:
        # the gradient of (penalty / 2) * (gain - 1)^2        (section 5.6)
        dtype = working_dtype(task.weight.dtype)
        grad = grad.to(dtype) + task.options.gain_penalty * (task.weight.to(dtype) - 1)
    return grad

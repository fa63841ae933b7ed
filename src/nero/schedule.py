"""The learning rate schedule that the presets were measured with."""

import math
from dataclasses import dataclass

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from nero.core.arguments import real_number, whole_number
from nero.core.warn import warn_user


def cosine_schedule(optimizer: Optimizer, num_steps: int, warmup: float = 0.1) -> LambdaLR:
    """Warm up linearly, then follow half a cosine to zero. Call ``step()`` after every training step.

    Args:
        optimizer: any optimizer; its learning rate is the largest one.
        num_steps: number of training steps in the run.
        warmup: fraction of the run that warms up. The presets were measured with 0.1.

    Returns:
        A scheduler of torch's: save and load it like any other.

    Example:
        >>> optimizer = nero.Nero(nn.Linear(4, 3), preset="rows")
        >>> scheduler = nero.cosine_schedule(optimizer, num_steps=20)
        >>> rates = []
        >>> for _ in range(20):
        ...     rates += scheduler.get_last_lr()[:1]
        ...     optimizer.step()
        ...     scheduler.step()
        >>> [round(rates[step], 4) for step in (0, 1, 2, 10, 19)]
        [0.0075, 0.0225, 0.0299, 0.0163, 0.0001]
    """
    num_steps = whole_number("num_steps", num_steps, smallest=1)
    warmup = real_number("warmup", warmup)
    if not 0 <= warmup < 1:
        raise ValueError(
            f"warmup must be a fraction of the run, at least 0 and below 1, not {warmup}"
        )
    return LambdaLR(optimizer, _Cosine(num_steps, warmup))


@dataclass
class _Cosine:
    """The factor at each step, taken in the middle of it, so that no step has a learning rate of zero."""

    num_steps: int
    warmup: float
    has_warned: bool = False

    def __call__(self, step: int) -> float:
        if step > self.num_steps and not self.has_warned:
            self.has_warned = True
            warn_user(
                f"the schedule ended after num_steps={self.num_steps}: the learning rate is 0 from now on; "
                "pass cosine_schedule the number of steps that you train for"
            )
        return warmup_cosine(step + 0.5, self.num_steps, self.warmup)


def warmup_cosine(time: float, length: float, warmup: float) -> float:
    """Return the factor of the learning rate at a time in a run of this length, both in steps or epochs."""
    rising = warmup * length
    progress = max(time - rising, 0.0) / (length - rising)
    ramp = min(time / rising, 1.0) if rising else 1.0
    return ramp * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))

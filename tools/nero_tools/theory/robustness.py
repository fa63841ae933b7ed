r"""How far all neurons may turn at once before the network errs (Definition 6).

A solution with zero training error is alpha-robust if all neurons may be rotated *arbitrarily* by
up to alpha without an error. To show that a network is not alpha-robust, one rotation is enough, so
the search here tries to break the network.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from nero.core.arguments import real_number, whole_number
from nero.core.spec import int64
from nero.functional import BALANCED, Sphere
from nero.layout import Overrides
from nero_tools.theory.rotation import TurnableNeurons, Weights


@dataclass(frozen=True)
class RobustnessSearch:
    """What [`search_robustness`][nero_tools.theory.search_robustness] found."""

    angle_rad: float
    """An upper bound on alpha: some rotation within this angle causes an error. Infinity if none found."""
    searched_rad: float
    """The largest angle below that at which the search found nothing, or zero. That is no proof."""
    sample: int
    """Which sample the turned network misclassifies; -1 if none."""
    margin: float
    """Its margin: the logit of its class less the largest other one, below zero."""
    weights: Weights = field(repr=False)
    """The turned weights that do it, by parameter name: anyone may check them."""

    def __str__(self) -> str:
        if not math.isfinite(self.angle_rad):
            return f"no error was found up to {self.searched_rad:.4f} rad; that is no proof"
        return (
            f"alpha < {self.angle_rad:.4f} rad, or {math.degrees(self.angle_rad):.2f} degrees: "
            f"turned by that, the network errs on sample {self.sample}"
        )


def search_robustness(
    model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    *,
    max_angle_rad: float = math.pi / 2,
    tolerance: float = 0.02,
    num_starts: int = 2,
    num_targets: int = 4,
    num_steps: int = 20,
    constraint: Sphere | str = BALANCED,
    overrides: Overrides = (),
    seed: int = 0,
) -> RobustnessSearch:
    r"""Search for the smallest angle at which a network is not alpha-robust (Definition 6).

    For an angle, the search starts from the network itself, from random rotations of all neurons by
    that angle, and from the best rotation so far. From each it takes steps that turn every neuron
    against the gradient of a margin (the logit of a sample's class less the largest other one), and
    pulls neurons back that leave their cap. It lowers the smallest margin of all samples, and those
    of the samples that look weakest. A rotation that misclassifies a sample is shortened as long as
    it still does. Then a smaller angle is tried.

    Args:
        model: a classifier with zero error on the samples: ``model(inputs)`` are logits, one row
            per sample. It is left as it is, and in the mode, training or evaluation, that it is in.
        inputs: all training samples.
        labels: their classes.
        max_angle_rad: where to begin.
        tolerance: relative distance between the two ends of the last interval.
        num_starts: random rotations from which to start, for each angle and each of those margins.
        num_targets: samples whose margins are lowered one by one, beside the smallest of all.
        num_steps: steps from each start.
        constraint: as given to the optimizer. Where it centres neurons, they are turned within the
            balanced ones.
        overrides: as given to the optimizer.
        seed: of the random rotations.

    Returns:
        The smallest angle found, with the rotation that proves it.

    Note:
        This proves that the network is not alpha-robust for ``angle_rad`` and above, and not that it
        is below: a better search may find a smaller angle. Biases, gains and frozen parameters are not
        turned.

    Raises:
        ValueError: if a sample is misclassified to begin with, or a neuron is not centred that
            should be.

    Example:
        >>> from nero_tools.theory import search_robustness
        >>> layer = nn.Linear(2, 2, bias=False)  # two neurons, along the two axes
        >>> _ = layer.weight.data.copy_(torch.eye(2))
        >>> inputs, labels = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1])
        >>> found = search_robustness(layer, inputs, labels)
        >>> 0.785 <= found.angle_rad < 0.79  # pi/4: then both neurons are halfway
        True
        >>> print(found)
        alpha < 0.78... rad, or 45... degrees: turned by that, the network errs on sample ...
    """
    if not 0 < real_number("max_angle_rad", max_angle_rad) <= math.pi:
        raise ValueError(f"max_angle_rad must be above 0 and at most pi, but is {max_angle_rad!r}")
    if not 0 < real_number("tolerance", tolerance) < 1:
        raise ValueError(f"tolerance must be above 0 and below 1, but is {tolerance!r}")
    num_steps = whole_number("num_steps", num_steps, smallest=1)
    num_starts = whole_number("num_starts", num_starts, smallest=0)
    num_targets = whole_number("num_targets", num_targets, smallest=0)
    seed = int64("seed", seed)
    neurons = TurnableNeurons(model, inputs, labels, constraint=constraint, overrides=overrides)
    margins = neurons.margins(neurons.origin)
    is_wrong = ~(margins > 0)  # so is a margin of NaN
    if is_wrong.any():
        raise ValueError(
            f"{int(is_wrong.sum())} of {len(labels)} samples are already misclassified, but "
            "alpha-robustness is defined only without training errors: train longer, or pass only "
            "the other samples"
        )
    targets = _weakest(neurons, margins, num_targets)
    generator = torch.Generator().manual_seed(seed)
    found: Weights | None = None
    low, high = 0.0, max_angle_rad
    while found is None or high - low > tolerance * high:
        angle = high if found is None else (low + high) / 2
        starts = _starts(neurons, angle, targets, num_starts, found, generator)
        attempts = (_descend(neurons, start, angle, num_steps, sample) for start, sample in starts)
        broken = next((weights for weights in attempts if weights is not None), None)
        if broken is not None:
            shorter = _shorten(neurons, broken)
            turned = neurons.largest_angle(shorter)
            if found is not None and turned >= high:
                break  # rounding to the model's dtype turns neurons as far: it has no smaller angles
            found, high = shorter, turned
            low = low if low < high else 0.0  # an earlier search missed this rotation
        elif found is None:
            return RobustnessSearch(math.inf, max_angle_rad, -1, math.nan, {})
        else:
            low = angle
    margin, sample = neurons.margins(found).min(0)
    return RobustnessSearch(high, low, int(sample), margin.item(), neurons.stored(found))


def _weakest(neurons: TurnableNeurons, margins: Tensor, num: int) -> list[int]:
    """Return the samples that would be the first to be misclassified, if margins were linear."""
    candidates = margins.argsort()[: 8 * num].tolist()
    return sorted(candidates, key=neurons.first_order_angle)[:num]


def _starts(
    neurons: TurnableNeurons,
    angle_rad: float,
    targets: list[int],
    num_starts: int,
    found: Weights | None,
    generator: torch.Generator,
) -> Iterator[tuple[Weights, int | None]]:
    """Yield where to start from, and the sample whose margin to lower, or none for the smallest."""
    if found is not None:
        yield neurons.pull_back(found, angle_rad), None
    for sample in (None, *targets):
        yield neurons.origin, sample
        for _ in range(num_starts):
            yield neurons.turn_at_random(angle_rad, generator), sample


def _descend(
    neurons: TurnableNeurons, start: Weights, angle_rad: float, num_steps: int, sample: int | None
) -> Weights | None:
    """Lower a margin within the caps; return the first weights at which it is negative."""
    weights = start
    for step in range(num_steps + 1):
        margin, grads = neurons.margin_gradient(weights, sample)
        if margin < 0:
            return weights
        # The first steps cross the cap, the last ones settle. Each neuron turns as far as the
        # others: to first order that is the best within caps, whatever the lengths of the
        # gradients.
        step_rad = angle_rad * max(1 - step / num_steps, 1 / num_steps)
        weights = neurons.pull_back(neurons.turn_against(weights, grads, step_rad), angle_rad)
    return None


def _shorten(neurons: TurnableNeurons, broken: Weights) -> Weights:
    """Turn neurons back, all by the same share of their angles, as long as there is an error."""
    low, high = 0.0, 1.0
    for _ in range(10):
        middle = (low + high) / 2
        if neurons.margins(neurons.take_share(broken, middle)).min() < 0:
            high = middle
        else:
            low = middle
    return neurons.take_share(broken, high) if high < 1 else broken

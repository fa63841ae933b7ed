"""The clock: interleaved rounds, disturbed samples left out, ratios taken within a round.

A machine's speed drifts by more than the differences we look for. So every step runs once per round, in an
order that rotates and reverses, and steps are compared within a round: the median over rounds of the
ratio, not the ratio of two medians.

Contention flatters optimizers that make a single call (an OpenMP barrier that waits for a busy core costs
8 ms, and fused SGD has one per tensor), so disturbed samples are not noise that a median would absorb.
Three signs betray them:

- the machine's CPUs were busy for longer than this process accounts for;
- a *probe*, a pass over a buffer larger than the last cache that runs between any two steps, was slow:
  another process used the memory, which CPU times do not show;
- a step's threads were ready to run and waited for a core, by the counts of the Linux scheduler. (CPU time
  is no sign: OpenMP threads spin while they wait for each other, and our second thread sleeps.)

The probe only reads, so it also leaves every step with the same cold caches, and no dirty cache lines.
"""

import gc
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

# A sample is disturbed if a probe next to it took this much longer than a quick one, ...
PROBE_LIMIT = 1.25
# ... if its threads together waited for a core for more than this part of its time, ...
WAIT_LIMIT = 0.1
# ... or if others used more than this part of one CPU in its round, beyond two ticks of the kernel's clock.
OTHERS_LIMIT, _TICKS_SECONDS = 0.1, 0.02


@dataclass(frozen=True)
class Sample:
    """One timed step."""

    seconds: float
    waited_seconds: float
    """How long its threads were ready to run and had no core, summed; 0 if the system does not say."""
    probe_seconds: float
    """The slower one of the probes just before and just after."""
    others_share: float = 0.0
    """CPUs that other processes kept busy in this round, as far as the kernel says."""


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of ``num`` values."""

    median: float
    low: float
    high: float
    num: int


def spread(values: Sequence[float]) -> Spread | None:
    """Return median and quartiles, or ``None`` if there are no values."""
    if not values:
        return None
    several = values if len(values) > 1 else [*values, *values]
    low, median, high = statistics.quantiles(several, n=4, method="inclusive")
    return Spread(median, low, high, len(values))


@dataclass(frozen=True)
class Timings:
    """The samples of every step, one per round, so that equal positions are neighbours in time."""

    samples: Mapping[str, Sequence[Sample]]

    def is_calm(self, name: str) -> list[bool]:
        """Return, for every round, whether the sample of this step was undisturbed."""
        probes = spread([s.probe_seconds for each in self.samples.values() for s in each])
        return [
            sample.others_share <= OTHERS_LIMIT
            and sample.waited_seconds <= WAIT_LIMIT * sample.seconds
            and (probes is None or sample.probe_seconds <= PROBE_LIMIT * probes.low)
            for sample in self.samples[name]
        ]

    def seconds(self, name: str, *, noisy: bool = False) -> list[float]:
        """Return the undisturbed times of a step, or with ``noisy`` all of them."""
        are_calm = self.is_calm(name)
        return [
            s.seconds for s, calm in zip(self.samples[name], are_calm, strict=True) if calm or noisy
        ]

    def ratios(self, name: str, to: str, *, noisy: bool = False) -> list[float]:
        """Return the time of one step over that of another.

        For rounds in which neither was disturbed, or with ``noisy`` for all rounds.
        """
        are_calm = map(all, zip(self.is_calm(name), self.is_calm(to), strict=True))
        rounds = zip(self.samples[name], self.samples[to], are_calm, strict=True)
        return [a.seconds / b.seconds for a, b, calm in rounds if calm or noisy]

    def num_disturbed(self, name: str) -> int:
        """Return how many samples of a step are left out."""
        return self.is_calm(name).count(False)


def interleave(
    steps: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    probe: Callable[[], float],
    before: Callable[[], None] = lambda: None,
    synchronize: Callable[[], None] | None = None,
    settle_seconds: float = 0.0,
    on_sample: Callable[[int], None] = lambda _: None,
) -> Timings:
    """Time every step once per round, until each has ``rounds`` undisturbed samples.

    At most twice as many rounds are run; `Timings.num_disturbed` says how it went.

    Args:
        steps: by name; they have run before, so that nothing is compiled or allocated here.
        rounds: how many undisturbed samples of each step are wanted.
        probe: takes its own time, and leaves the caches cold.
        before: runs before each step, untimed.
        synchronize: waits for the device; steps on a GPU are timed from idle to idle.
        settle_seconds: wait between the probe and the step. OpenMP threads spin for several
            milliseconds after their work (here: the probe's), on cores that the step needs.
        on_sample: called with the number of the round after each step.
    """
    samples: dict[str, list[Sample]] = {name: [] for name in steps}
    gc.collect()
    gc.disable()
    try:
        others = OthersClock()
        last_probe = probe()
        for num in range(2 * rounds):
            for name in _order([*steps], num):
                before()
                time.sleep(settle_seconds)
                waited = waited_seconds()
                seconds = _timed(steps[name], synchronize)
                waited = waited_seconds() - waited
                next_probe = probe()
                samples[name].append(Sample(seconds, waited, max(last_probe, next_probe)))
                last_probe = next_probe
                on_sample(num)
            share = others.share()  # a single step is too short for the kernel's clock
            for taken in samples.values():
                taken[-1] = replace(taken[-1], others_share=share)
            timings = Timings(samples)
            if all(timings.is_calm(name).count(True) >= rounds for name in steps):
                break
    finally:
        gc.enable()
    return Timings(samples)


def _order(names: list[str], num: int) -> list[str]:
    """Rotate by one every other round, and reverse in between, so that predecessors change as well."""
    first = num // 2 % len(names)
    rotated = names[first:] + names[:first]
    return rotated[::-1] if num % 2 else rotated


def _timed(step: Callable[[], object], synchronize: Callable[[], None] | None) -> float:
    if synchronize is not None:
        synchronize()
    start = time.perf_counter()
    step()
    if synchronize is not None:
        synchronize()
    return time.perf_counter() - start


def waited_seconds() -> float:
    """Return how long this process's threads have been ready to run without a core; 0 if not on Linux."""
    total = 0
    for path in Path("/proc/self/task").glob("*/schedstat"):
        with suppress(OSError):  # a thread that has just ended
            total += int(path.read_text().split()[1])  # after the nanoseconds on a core
    return total / 1e9


class OthersClock:
    """How busy other processes keep the machine, from one call of `share` to the next."""

    def __init__(self) -> None:
        self._last = self._now()

    def share(self) -> float:
        """Return how many CPUs others kept busy since the last call."""
        last, self._last = self._last, self._now()
        wall, busy, ours = (new - old for new, old in zip(self._last, last, strict=True))
        return max(busy - ours - _TICKS_SECONDS, 0.0) / wall

    def _now(self) -> tuple[float, float, float]:
        try:
            # user, nice, system, idle, iowait, irq, softirq, steal
            ticks = [int(n) for n in Path("/proc/stat").read_text().split(maxsplit=9)[1:9]]
            busy = (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
        except OSError:  # not Linux: only the other signs are left
            busy = 0.0
        return time.perf_counter(), busy, time.process_time()

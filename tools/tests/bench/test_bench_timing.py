"""Is the arithmetic of the clock right, on times that we make up?"""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nero_tools.bench.competitors import COMPETITORS, Competitor
from nero_tools.bench.gpt_training import calm_rounds
from nero_tools.bench.memory import batches_that_fit
from nero_tools.bench.timing import (
    OthersClock,
    Sample,
    Spread,
    Timings,
    _order,
    interleave,
    spread,
    waited_seconds,
)


def calm(*seconds):
    return [Sample(s, 0.05 * s, 1.0) for s in seconds]


def test_ratios_are_taken_within_rounds():
    # The machine is three times slower in the second round: the ratio of medians would be 1.5.
    timings = Timings({"a": calm(1, 3, 2), "b": calm(2, 6, 3)})
    assert timings.ratios("b", "a") == [2, 2, 1.5]
    assert spread(timings.ratios("b", "a")).median == 2
    assert timings.ratios("a", "b") == [0.5, 0.5, pytest.approx(2 / 3)]


@pytest.mark.parametrize(
    "sample",
    [
        pytest.param(Sample(9.0, 0.0, 1.3), id="slow probe"),
        pytest.param(Sample(9.0, 1.0, 1.0), id="waited for a core"),
        pytest.param(Sample(9.0, 0.0, 1.0, others_share=0.2), id="others were busy"),
    ],
)
def test_disturbed_samples_are_left_out(sample):
    timings = Timings({"a": [*calm(1, 1, 1, 1), sample], "b": calm(2, 2, 2, 2, 2)})
    assert timings.seconds("a") == [1, 1, 1, 1]
    assert timings.ratios("b", "a") == [2, 2, 2, 2]
    assert timings.num_disturbed("a") == 1
    assert timings.num_disturbed("b") == 0


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="only Linux says")
def test_threads_that_share_a_core_wait_for_it():
    """Half of the time of two busy processes on one core is spent waiting; sleep is no waiting."""
    cores = os.sched_getaffinity(0)
    one = {min(cores)}
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        os.sched_setaffinity(child.pid, one)
        os.sched_setaffinity(0, one)
        before, end = waited_seconds(), time.perf_counter() + 1.0
        while time.perf_counter() < end:
            pass
        assert waited_seconds() - before > 0.2
    finally:
        os.sched_setaffinity(0, cores)
        child.kill()
        child.wait()
    before = waited_seconds()
    time.sleep(0.3)
    assert waited_seconds() - before < 0.2


def test_spread_of_few_values():
    assert spread([]) is None
    assert spread([2.0]) == Spread(2, 2, 2, 1)
    assert spread([1.0, 2.0]) == Spread(1.5, 1.25, 1.75, 2)


def test_every_step_runs_once_a_round_after_a_probe():
    events = []

    def probe():
        events.append("probe")
        return 1.0

    steps = {name: (lambda name=name: events.append(name)) for name in "abc"}
    timings = interleave(steps, rounds=2, probe=probe, before=lambda: events.append("before"))
    num = len(timings.samples["a"])
    assert 2 <= num <= 4
    assert {len(samples) for samples in timings.samples.values()} == {num}
    assert events[0] == "probe"
    assert [event for event in events if event in "abc"][:6] == [*"abc", *"cba"]
    assert events[1::3] == ["before"] * 3 * num
    assert events[3::3] == ["probe"] * 3 * num


def test_order_gives_everyone_every_place():
    orders = [_order([*"abcd"], num) for num in range(8)]
    for name in "abcd":
        assert sorted(order.index(name) for order in orders) == [0, 0, 1, 1, 2, 2, 3, 3]
    before_b = {order[order.index("b") - 1] for order in orders if order[0] != "b"}
    assert before_b == {"a", "c"}


def test_batches_fit_into_memory():
    core = {name: COMPETITORS[name] for name in ("sgd-fused", "adamw-fused", "nero", "nero-plain")}
    lamb = Competitor(COMPETITORS["nero"].build, state_copies=2, temporary_copies=1)
    everyone = {**core, "lamb": lamb}
    batches, misfits = batches_that_fit(everyone, parameter_bytes=100, available=300)
    assert batches == [[*core], ["sgd-fused", "nero", "lamb"]]
    assert misfits == []
    assert batches_that_fit(everyone, parameter_bytes=100, available=1000)[0] == [[*everyone]]
    batches, misfits = batches_that_fit(everyone, parameter_bytes=100, available=10)
    assert batches == [["sgd-fused", "nero"]]
    assert misfits == ["adamw-fused", "nero-plain", "lamb"]
    assert batches_that_fit(everyone, parameter_bytes=100, available=-1) == ([], [*everyone])


def test_rounds_that_others_disturbed_are_left_out(monkeypatch):
    shares = iter([0.0, 0.5, 0.0, 0.5, 0.0, 0.0])
    monkeypatch.setattr(OthersClock, "share", lambda self: next(shares))
    assert calm_rounds(lambda num: num, rounds=2) == ([2, 4], 2)  # round 0 warms up
    monkeypatch.setattr(OthersClock, "share", lambda self: 0.5)
    assert calm_rounds(lambda num: num, rounds=2) == ([], 4)

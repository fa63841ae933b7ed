"""Are promises judged by the right figures?"""

from nero_tools.bench.run import ModelResult, StepResult
from nero_tools.bench.targets import verdicts
from nero_tools.bench.timing import Spread


def step(state_bytes, temporary_bytes=0, **ratios):
    return StepResult(
        milliseconds=Spread(1.0, 1.0, 1.0, 15),
        ratios={
            to.replace("_", "-"): ratio and Spread(ratio, ratio, ratio, 15)
            for to, ratio in ratios.items()
        },
        state_bytes=state_bytes,
        temporary_bytes=temporary_bytes,
        share_changed=1.0,
        num_samples=15,
        num_disturbed=0,
    )


def test_verdicts():
    steps = {
        "nero": step(1, 10, sgd_fused=1.2, adamw_fused=0.5, bare=None),
        "adamw-fused": step(1000, sgd_fused=2.0),
    }
    options = {"parameter_bytes": 10_000, "dtype": "float32", "device": "cpu", "optimizers": steps}
    results = [ModelResult("gpt2-124m", 10, threads=n, **options) for n in (1, 2)]
    extra = {
        "resident_temporary_bytes": {"gpt2-124m": {"nero": 200}},
        "first_step_seconds": {"cold": {"first_step": 4.0}, "cached": {"first_step": 0.6}},
    }
    found = {v.what: (v.measured, v.is_met) for v in verdicts({"results": results, **extra})}
    assert found == {
        "gpt2-124m float32: nero / sgd-fused": (1.2, False),
        "gpt2-124m float32: nero / adamw-fused": (0.5, True),
        "gpt2-124m float32: nero / bare": (None, False),
        "gpt2-124m float32: temporary / parameters": (0.02, False),
        "gpt2-124m float32: state / AdamW's": (0.001, True),
        "first step, cold, seconds": (4.0, True),
        "first step, cached, seconds": (0.6, False),
    }

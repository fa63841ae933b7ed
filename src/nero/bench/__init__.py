"""Times an optimiser step against torch's own, fairly: what ``nero bench`` runs.

It lives in the wheel so that someone with hardware that we do not have can run it and send back what it
wrote. ``benchmarks/`` in the repository adds more models and more rivals to the same clock.
"""

from nero.bench.models import MODELS
from nero.bench.report import Report, environment
from nero.bench.rivals import REFERENCES, RIVALS, Rival, Stepper
from nero.bench.run import ModelResult, Options, RivalResult, measure_model
from nero.bench.timing import Sample, Spread, Timings, interleave, spread
from nero.bench.workload import Workload

__all__ = [
    "MODELS",
    "REFERENCES",
    "RIVALS",
    "ModelResult",
    "Options",
    "Report",
    "Rival",
    "RivalResult",
    "Sample",
    "Spread",
    "Stepper",
    "Timings",
    "Workload",
    "environment",
    "interleave",
    "measure_model",
    "spread",
]

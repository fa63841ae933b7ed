"""Diagnostics: how far neurons turn, whether they are balanced, and whether a step is correct.

>>> from nero.diagnostics import TurningMonitor
>>> model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
>>> monitor = TurningMonitor(nero.Nero(model), every=100)
"""

from nero.diagnostics.angle import turning_angle
from nero.diagnostics.balance import BalanceReport, BalanceRow, balance_, check_balance
from nero.diagnostics.monitor import TurningMonitor
from nero.diagnostics.report import Distribution, LayerReport, TurningReport
from nero.diagnostics.sinks import JsonLinesSink, Sink
from nero.diagnostics.step_check import StepCheck
from nero.diagnostics.step_report import StepError, StepFault, StepReport

__all__ = [
    "BalanceReport",
    "BalanceRow",
    "Distribution",
    "JsonLinesSink",
    "LayerReport",
    "Sink",
    "StepCheck",
    "StepError",
    "StepFault",
    "StepReport",
    "TurningMonitor",
    "TurningReport",
    "balance_",
    "check_balance",
    "turning_angle",
]

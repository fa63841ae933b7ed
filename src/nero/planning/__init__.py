"""Memory and communication of an optimiser step at any scale, simulated: what ``nero plan`` runs.

A model on the meta device is cut among the ranks of a process group that sends nothing, and every optimiser
takes a real step there. All figures are counted from what that step does; none comes from a formula.

Torch's distributed engine is imported by those who plan, not by those who import this.
"""

from nero.planning.contenders import CONTENDERS
from nero.planning.count import CountTraffic, Traffic, state_bytes
from nero.planning.mesh import Ranks, parse_ranks
from nero.planning.models import MODELS
from nero.planning.report import plot, table
from nero.planning.shard import PlanError, shard_
from nero.planning.simulate import Plan, StepCost, plan, step_cost

__all__ = [
    "CONTENDERS",
    "MODELS",
    "CountTraffic",
    "Plan",
    "PlanError",
    "Ranks",
    "StepCost",
    "Traffic",
    "parse_ranks",
    "plan",
    "plot",
    "shard_",
    "state_bytes",
    "step_cost",
    "table",
]

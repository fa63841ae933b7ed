"""Everything that the report imports from the rest of the lab."""

from nero_lab.engine import records
from nero_lab.engine.errors import ConfigError
from nero_lab.engine.optimizers import OPTIMIZERS
from nero_lab.engine.results import read_below
from nero_lab.engine.task import Metric, Recipe, Task
from nero_lab.protocol.plan import NUM_RATES, PLAN, Comparison
from nero_lab.runner.timing import IDLE
from nero_lab.tasks import TASKS

__all__ = [
    "IDLE",
    "NUM_RATES",
    "OPTIMIZERS",
    "PLAN",
    "TASKS",
    "Comparison",
    "ConfigError",
    "Metric",
    "Recipe",
    "Task",
]
__all__ += ["read_below", "records"]

"""One run, from its configuration to its last record.

Example:
    >>> from nero_lab.runner import RunConfig
    >>> RunConfig("mnist-deep").name
    'mnist-deep/cpu/nero-lr0.001-seed0'
"""

from nero_lab.runner.config import RunConfig
from nero_lab.runner.execute import RunDirs, run

__all__ = ["RunConfig", "RunDirs", "run"]

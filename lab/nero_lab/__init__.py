"""The paper's experiments, and a comparison with today's optimizers.

A *task* (data, model, score) x an *optimizer* x a *recipe* (budget, schedule) is a run. A run writes
records; a report reads records and nothing else.

    nero-lab list                        the tasks, and how long they take
    nero-lab run mnist-deep --scale cpu  one run
    nero-lab sweep shakespeare           many runs, on Ray
    nero-lab report                      figures and tables from the records
"""

from importlib import metadata

__version__ = metadata.version("nero-lab")

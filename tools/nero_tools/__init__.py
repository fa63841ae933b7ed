"""Tools to benchmark, plan and analyse optimizers, in a package separate from Nero.

    nero bench     time a step against torch's optimizers
    nero plan      count memory and communication on simulated ranks
    nero theory    bound a model's error rate by the paper's theory

`nero_tools.theory` has the paper's definitions and bounds as functions, and `nero_tools.sinks` shows the
monitor's reports in TensorBoard, Weights & Biases, a terminal or a picture.
"""

from importlib import metadata

__version__ = metadata.version("nero-tools")

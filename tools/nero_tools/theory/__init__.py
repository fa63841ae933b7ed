"""The paper's theory as functions: what its definitions and bounds say about your own model.

Sections 3 and 6 of the paper define when a step is stable, how it is measured, how far a solution
may be turned, and what follows for its error rate. Here each definition is a function that only
reads the model.
"""

from nero_tools.theory.caps import log_cap_lower_bound, log_cap_measure
from nero_tools.theory.generalisation import (
    ErrorBound,
    GeneralisationBound,
    generalisation_bound,
    log_solutions_needed,
    log_version_space,
    pac_bayes_bound,
    samples_needed,
)
from nero_tools.theory.relative_step import (
    ParameterStep,
    RelativeSteps,
    layer_step,
    neuron_step,
    relative_steps,
)
from nero_tools.theory.relative_trust import (
    LayerTrust,
    RelativeTrust,
    proposed_update,
    relative_trust,
)
from nero_tools.theory.robustness import RobustnessSearch, search_robustness
from nero_tools.theory.weight_space import Spheres, WeightSpace, weight_space

__all__ = [
    "ErrorBound",
    "GeneralisationBound",
    "LayerTrust",
    "ParameterStep",
    "RelativeSteps",
    "RelativeTrust",
    "RobustnessSearch",
    "Spheres",
    "WeightSpace",
    "generalisation_bound",
    "layer_step",
    "log_cap_lower_bound",
    "log_cap_measure",
    "log_solutions_needed",
    "log_version_space",
    "neuron_step",
    "pac_bayes_bound",
    "proposed_update",
    "relative_steps",
    "relative_trust",
    "samples_needed",
    "search_robustness",
    "weight_space",
]

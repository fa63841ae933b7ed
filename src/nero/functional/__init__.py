"""Pure tensor mathematics: sums, projection and updates. Knows tensors, and nothing else."""

from nero.functional.constraint import (
    BALANCED,
    INITIAL_SPHERE,
    MEAN_ONLY,
    NORM_ONLY,
    UNCONSTRAINED,
    Sphere,
    as_constraint,
    is_balanced,
    neuron_norm,
    project,
)
from nero.functional.nero import Updated, nero_elements, nero_neurons
from nero.functional.precision import balance_tolerance, sum_dtype, working_dtype
from nero.functional.relative import fromage_update, lamb_update, lars_update, madam_update
from nero.functional.rounding import round_stochastic, uniform_noise
from nero.functional.sums import NeuronSums, neuron_sums
from nero.functional.turn import (
    Turn,
    apply_turn,
    bias_correction,
    turn_elements,
    turn_neurons,
)

__all__ = [
    "BALANCED",
    "INITIAL_SPHERE",
    "MEAN_ONLY",
    "NORM_ONLY",
    "UNCONSTRAINED",
    "NeuronSums",
    "Sphere",
    "Turn",
    "Updated",
    "apply_turn",
    "as_constraint",
    "balance_tolerance",
    "bias_correction",
    "fromage_update",
    "is_balanced",
    "lamb_update",
    "lars_update",
    "madam_update",
    "nero_elements",
    "nero_neurons",
    "neuron_norm",
    "neuron_sums",
    "project",
    "round_stochastic",
    "sum_dtype",
    "turn_elements",
    "turn_neurons",
    "uniform_noise",
    "working_dtype",
]

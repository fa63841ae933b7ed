"""Pure tensor functions: Gram matrices, projections and updates, without an optimizer."""

from nero.core.average import bias_correction
from nero.core.gram import Gram, gram
from nero.core.precision import balance_tolerance, sum_dtype, working_dtype
from nero.core.relative import fromage_update, lamb_update, lars_update, madam_update
from nero.core.rounding import round_stochastic, uniform_noise
from nero.core.rule import (
    Affine,
    Turn,
    Updated,
    apply_turn,
    effective_grad,
    nero_update,
    turn_elements,
    turn_neurons,
    turn_rows,
)
from nero.core.spec import Hyper
from nero.core.sphere import (
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

__all__ = [
    "BALANCED",
    "INITIAL_SPHERE",
    "MEAN_ONLY",
    "NORM_ONLY",
    "UNCONSTRAINED",
    "Affine",
    "Gram",
    "Hyper",
    "Sphere",
    "Turn",
    "Updated",
    "apply_turn",
    "as_constraint",
    "balance_tolerance",
    "bias_correction",
    "effective_grad",
    "fromage_update",
    "gram",
    "is_balanced",
    "lamb_update",
    "lars_update",
    "madam_update",
    "nero_update",
    "neuron_norm",
    "project",
    "round_stochastic",
    "sum_dtype",
    "turn_elements",
    "turn_neurons",
    "turn_rows",
    "uniform_noise",
    "working_dtype",
]

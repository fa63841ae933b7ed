"""All mutants."""

from tests.mutants import (
    mutants_of_a_reviewer,
    mutants_of_backends,
    mutants_of_core,
    mutants_of_observation,
    mutants_of_tools,
)

MUTANTS = [
    *mutants_of_core.MUTANTS,
    *mutants_of_observation.MUTANTS,
    *mutants_of_backends.MUTANTS,
    *mutants_of_tools.MUTANTS,
    *mutants_of_a_reviewer.MUTANTS,
]

"""Relative optimizers at other granularities, with the defaults of their papers."""

from nero.baselines.fromage import Fromage
from nero.baselines.lamb import Lamb
from nero.baselines.lars import Lars
from nero.baselines.madam import Madam

__all__ = ["Fromage", "Lamb", "Lars", "Madam"]

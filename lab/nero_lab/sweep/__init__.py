"""Sweeps: a grid of runs, on one machine or on a cluster of Ray."""

from nero_lab.sweep.grids import grid

__all__ = ["grid"]

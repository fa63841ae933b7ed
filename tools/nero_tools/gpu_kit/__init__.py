"""Figures from a GPU in one file: made in about five minutes, attached to an issue, read by us."""

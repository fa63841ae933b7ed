"""Measure a GPU in about five minutes, and write one file to attach to an issue."""

"""Nero in trainers that build their optimiser themselves: one file per framework, imported by name.

Trainers that take an optimiser, such as Lightning, Accelerate and skorch, need nothing from here.
"""

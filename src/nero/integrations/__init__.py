"""Nero in trainers that build their optimizer themselves: one file per framework, imported by name.

Trainers that take an optimizer, such as Lightning, Accelerate and skorch, need nothing from here.
"""

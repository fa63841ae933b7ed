"""Nero in trainers that build their own optimizer, one module per framework.

Trainers that accept an optimizer, such as Lightning, Accelerate and skorch, need nothing from here.
"""

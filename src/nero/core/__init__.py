"""What everything rests on: layouts, constraints, the lists of options and state, and the update itself.

Knows tensors, and nothing of modules, devices or ranks.
"""

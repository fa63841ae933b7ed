"""What everything rests on: layouts, constraints, the lists of options and state, and the update itself.

Knows tensors and nothing of modules. Of devices it knows which have no float64, and of ranks
only how to find the local shard of a `DTensor`.
"""

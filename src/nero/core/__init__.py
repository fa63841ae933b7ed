"""The foundation of all other packages: layouts, constraints, the lists of options and state, the update.

Works on tensors and knows nothing of modules. A few functions look at a tensor's device to choose a
precision or a block size, and `sharding` gets the local shard of a `DTensor`.
"""

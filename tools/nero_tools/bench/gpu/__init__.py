"""GPU predictions made without a GPU, from the kernels' machine code."""

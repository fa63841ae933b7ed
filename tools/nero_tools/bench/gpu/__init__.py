"""What can be said of GPUs without one: the kernels' machine code, and what it predicts."""

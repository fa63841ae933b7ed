"""Runs the PTX of our Triton kernels on a CPU, and checks what a GPU would not tell: see README.md."""

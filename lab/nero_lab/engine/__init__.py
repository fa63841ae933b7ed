"""What every task runs on: the training loop, its inputs, its records and its checkpoints."""

"""How long an optimiser step takes, and how much memory: see README.md."""

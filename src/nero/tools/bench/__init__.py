"""Times an optimiser step against torch's own, fairly: what ``nero bench`` runs.

It is part of the wheel so that someone with hardware that we do not have can run it and send back what it
wrote. ``benchmarks/`` in the repository runs more optimisers by the same clock.
"""

"""Times an optimizer step against others, fairly.

``nero bench`` is a short benchmark for hardware that we don't have; users send us its output.
The other commands have more optimizers and take longer; ``tools/reports/README.md`` shows how to run them:

    python -m nero_tools.bench.step_time          a step of every optimizer, its memory and a first step
    python -m nero_tools.bench.training_share     the optimizer's share of a training step
    python -m nero_tools.bench.monitor_overhead   what the monitor costs
    python -m nero_tools.bench.versions           two checkouts of nero against each other
    python -m nero_tools.bench.gpu.roofline       GPU step times predicted from machine code
"""

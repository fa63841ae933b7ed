"""A short training run that a monitor watches, for tests of sinks."""

import torch
from torch import nn

import nero
from nero.diagnostics import TurningMonitor

NUM_STEPS = 3


def watch(*sinks, **options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = nero.Nero(model)
    with TurningMonitor(optimizer, every=1, sinks=sinks, **options) as monitor:
        for _ in range(NUM_STEPS):
            optimizer.zero_grad()
            model(torch.randn(32, 8)).square().mean().backward()
            optimizer.step()
    return monitor.last_report

"""Check that a step can be captured in a CUDA graph, and that replaying it gives the same weights."""

from typing import Any

import torch
from torch import nn

from nero import Nero

_NUM_STEPS = 4


def captures(device: str, presets: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """Try every preset; say how it went and, if it failed, why."""
    if device != "cuda":
        return {
            name: {"result": "not run", "why": f"no CUDA graphs on {device}"} for name in presets
        }
    return {name: _capture(name) for name in presets}


def _capture(preset: str) -> dict[str, str]:
    try:
        expected, found = _trained(preset, captured=False), _trained(preset, captured=True)
    except RuntimeError as error:
        torch.cuda.synchronize()
        return {"result": "refused", "why": str(error).splitlines()[0]}
    same = all(map(torch.equal, expected, found))
    return {"result": "passed" if same else "differs", "why": ""}


def _trained(preset: Any, *, captured: bool) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.Linear(64, 8)).cuda()
    optimizer = Nero(model, preset=preset, lr=torch.tensor(0.01, device="cuda"))
    for param in model.parameters():
        param.grad = torch.randn_like(param)
    optimizer.step()  # builds the tables; never part of the graph
    if captured:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            optimizer.step()
        for _ in range(_NUM_STEPS):
            graph.replay()
    else:
        for _ in range(_NUM_STEPS):
            optimizer.step()
    torch.cuda.synchronize()
    return [param.detach().clone() for param in model.parameters()]

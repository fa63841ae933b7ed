"""Checkpoints from which a run goes on to the bit."""

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist


def save(path: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint, so that a kill at any moment leaves the old one or the new one."""
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def load(path: Path, device: torch.device) -> dict[str, Any] | None:
    """Read a checkpoint, if there is one."""
    if not path.exists():
        return None
    state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
    return state


def random_states() -> list[dict[str, Any]]:
    """Return the states of every rank's generators."""
    kind, keys, position, has_gauss, gauss = np.random.get_state()
    version, internal, gauss_next = random.getstate()
    own = {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
        "numpy": [
            str(kind),
            torch.from_numpy(np.asarray(keys).astype(np.int64)),
            position,
            has_gauss,
            gauss,
        ],
        "python": [version, list(internal), gauss_next],
    }
    if not dist.is_initialized():
        return [own]
    states: list[dict[str, Any]] = [{}] * dist.get_world_size()
    dist.all_gather_object(states, own)
    return states


def set_random_states(states: list[dict[str, Any]]) -> None:
    """Put this rank's generators back."""
    own = states[dist.get_rank() if dist.is_initialized() else 0]
    torch.set_rng_state(own["torch"].cpu())
    if own["cuda"] is not None:
        torch.cuda.set_rng_state(own["cuda"].cpu())
    kind, keys, position, has_gauss, gauss = own["numpy"]
    np.random.set_state((kind, keys.cpu().numpy().astype(np.uint32), position, has_gauss, gauss))
    version, internal, gauss_next = own["python"]
    random.setstate((version, tuple(internal), gauss_next))

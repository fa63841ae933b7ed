"""Checkpoints from which a run resumes bit-exactly.

They hold tensors and plain values only, no classes: a checkpoint survives renamed modules.
"""

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from nero_lab.engine.errors import ConfigError, in_one_line

FILE_NAME = "checkpoint.pt"


def save(path: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint, so that a kill at any moment leaves the old one or the new one."""
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def load(path: Path, device: torch.device) -> dict[str, Any] | None:
    """Read a checkpoint, if there is one.

    Raises:
        ConfigError: if it is damaged.
    """
    if not path.exists():
        return None
    try:
        state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
    except Exception as error:  # of many types, by where the file ends
        raise ConfigError(
            f"{path} is damaged ({in_one_line(error)}); remove it to start the run over"
        ) from error
    return state


def gather_ranks(own: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the state of every rank, in rank order; every rank must call this."""
    if not dist.is_initialized():
        return [own]
    gathered: list[dict[str, Any]] = [{}] * dist.get_world_size()
    dist.all_gather_object(gathered, own)
    return gathered


def select_rank(gathered: list[dict[str, Any]]) -> dict[str, Any]:
    """Return this rank's part of what ``gather_ranks`` gathered."""
    return gathered[dist.get_rank() if dist.is_initialized() else 0]


def random_state() -> dict[str, Any]:
    """Return the state of every generator of this process."""
    kind, keys, position, has_gauss, gauss = np.random.get_state()
    version, internal, gauss_next = random.getstate()
    return {
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


def set_random_state(state: dict[str, Any]) -> None:
    """Restore the generators of this process."""
    torch.set_rng_state(state["torch"].cpu())
    if state["cuda"] is not None:
        torch.cuda.set_rng_state(state["cuda"].cpu())
    kind, keys, position, has_gauss, gauss = state["numpy"]
    np.random.set_state((kind, keys.cpu().numpy().astype(np.uint32), position, has_gauss, gauss))
    version, internal, gauss_next = state["python"]
    random.setstate((version, tuple(internal), gauss_next))

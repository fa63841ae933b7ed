"""Checkpoints that an earlier version wrote, and the weights that it reached by training on.

    python -m tests.gold.checkpoints --out DIR      # write them
    python -m tests.gold.checkpoints --check DIR    # load them, train on, compare bit by bit

The committed ones are in ``tests/gold/checkpoints``; `test_gold.py` holds every machine to them, within
tolerances.
"""

import argparse
import copy
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import nero
from nero.baselines import Lamb, Madam
from tests.gold.cases import Case, build_nero
from tests.gold.compare import differences
from tests.gold.trajectory import base_rates, tensors_of

FOLDER = Path(__file__).parent / "checkpoints"
BEFORE, AFTER = range(25), range(25, 50)
# Written by the kernel; continued by both. A group's `fused` says which, in optimizers that have it.
BACKENDS: dict[str, bool | None] = {"kernel": None, "plain": False}

CASES = {
    case.name: case
    for case in [
        Case("nero", "embedding first", build_nero()),
        Case("nero_initial", "embedding first", build_nero(constraint="initial")),
        Case(
            "nero_bfloat16_stochastic",
            "embedding first",
            build_nero(stochastic_rounding=True, seed=3),
            torch.bfloat16,
        ),
        Case("nero_of_parameters", "embedding first", lambda model: nero.Nero(model.parameters())),
        Case("nero_convolutions", "convolutions", build_nero()),
        Case("nero_tiny_gpt", "tiny GPT", build_nero(gain_penalty=0.1)),
        Case(
            "balanced_adam",
            "embedding first",
            lambda model: nero.Balanced(torch.optim.Adam(nero.param_groups(model), lr=0.01)),
        ),
        Case("lamb", "embedding first", lambda model: Lamb(model, lr=0.01)),
        Case("madam", "embedding first", Madam),
    ]
}


def write(case: Case, folder: Path) -> Path:
    """Train half-way, save, and save what training on gives."""
    model = case.model()
    optimizer = case.build(model)
    rates = base_rates(optimizer)
    case.advance(model, optimizer, BEFORE, rates=rates)
    checkpoint = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "expected": {},
    }
    has_backends = "fused" in optimizer.param_groups[0] and isinstance(optimizer, nero.Nero)
    for backend in BACKENDS if has_backends else ["plain"]:
        checkpoint["expected"][backend] = resumed(case, checkpoint, backend)
    path = folder / f"{case.name}.pt"
    torch.save(checkpoint, path)
    return path


def resumed(case: Case, checkpoint: dict[str, Any], backend: str) -> dict[str, Tensor]:
    """Load a checkpoint into a fresh model and optimizer, and return the weights after training on."""
    model = case.model()
    optimizer = case.build(model)
    rates = base_rates(optimizer)  # the checkpoint's are in the midst of a schedule
    model.load_state_dict(checkpoint["model"])
    # A copy: the state that torch's own optimizers load shares memory with the dict that it came from.
    optimizer.load_state_dict(copy.deepcopy(checkpoint["optimizer"]))
    if isinstance(optimizer, nero.Nero):
        for group in optimizer.param_groups:
            group["fused"] = BACKENDS[backend]
    case.advance(model, optimizer, AFTER, rates=rates)
    return tensors_of(model)


def load(name: str, folder: Path = FOLDER) -> dict[str, Any]:
    """Read a checkpoint file; it holds nothing but tensors and plain values."""
    checkpoint: dict[str, Any] = torch.load(folder / f"{name}.pt", weights_only=True)
    return checkpoint


def check(folder: Path) -> int:
    """Print whether each file's continuation has the bits that it stores; return how many have not."""
    num_different = 0
    for name, case in CASES.items():
        checkpoint = load(name, folder)
        for backend, expected in checkpoint["expected"].items():
            found = differences(expected, resumed(case, checkpoint, backend))
            num_different += bool(found)
            print(f"{'DIFFERS' if found else 'equal  '}  {name}, {backend}")
            for tensor, difference in found.items():
                print(f"         {tensor}: {difference}")
    return num_different


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path, help="folder to write checkpoints to")
    what.add_argument("--check", type=Path, help="folder of checkpoints to train on from")
    args = parser.parse_args()
    print(f"nero from {Path(nero.__file__).parent}")
    if args.check:
        return 1 if check(args.check) else 0
    args.out.mkdir(parents=True, exist_ok=True)
    for case in CASES.values():
        path = write(case, args.out)
        print(f"{path.stat().st_size / 1000:6.1f} kB  {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

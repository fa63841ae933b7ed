"""Compare two records of one machine: ``python -m tests.gold.compare OLD_DIR NEW_DIR``.

Prints every case as equal, or its tensors that differ and by how much; exits with 1 if anything differs.
"""

import argparse
import sys
from pathlib import Path

import torch
from torch import Tensor

from tests.gold.record import Tensors, digest, load_tensors


def differences(old: dict[str, Tensor], new: dict[str, Tensor]) -> dict[str, str]:
    """Return what is different of each tensor that is not the same bit for bit, by its name."""
    found = {}
    for name in {**old, **new}:
        if name not in new:
            found[name] = "only in the old record"
        elif name not in old:
            found[name] = "only in the new record"
        elif digest(old[name]) != digest(new[name]):
            found[name] = _difference(old[name], new[name])
    return found


def _difference(old: Tensor, new: Tensor) -> str:
    if old.dtype != new.dtype:
        return f"{old.dtype} has become {new.dtype}"
    if old.shape != new.shape:
        return f"shape {tuple(old.shape)} has become {tuple(new.shape)}"
    old, new = old.double(), new.double()
    if not torch.equal(old.isfinite(), new.isfinite()):
        return "other elements are finite"
    gap = (old - new).abs().nan_to_num(0.0)
    largest = old.abs().nan_to_num(0.0, 0.0).max().item()
    count = int((gap > 0).sum())
    return f"max |difference| {gap.max():.3g} of {largest:.3g}, {count} of {gap.numel()} elements"


def report(old: Tensors, new: Tensors) -> int:
    """Print the comparison, and return how many tensors differ."""
    num_tensors = num_different = 0
    for case in {**old, **new}:
        found = differences(old.get(case, {}), new.get(case, {}))
        num_tensors += len({**old.get(case, {}), **new.get(case, {})})
        num_different += len(found)
        print(f"{'DIFFERS' if found else 'equal  '}  {case}")
        for name, difference in found.items():
            print(f"         {name}: {difference}")
    print(f"{len({**old, **new})} cases, {num_tensors} tensors, {num_different} differ")
    return num_different


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    args = parser.parse_args()
    return 1 if report(load_tensors(args.old), load_tensors(args.new)) else 0


if __name__ == "__main__":
    sys.exit(main())

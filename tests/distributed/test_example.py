"""The example trains, communicates nothing in step(), and resumes on another number of ranks."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "fsdp2.py"
LINE = re.compile(r"step +(\d+) +loss ([\d.]+) +collectives in optimizer.step\(\): (\d+)")


def run(num_ranks, num_steps, directory):
    """Return the lines that it prints: step, loss, number of collectives."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    torchrun += ["--nproc-per-node", str(num_ranks)]
    done = subprocess.run(
        [*torchrun, str(EXAMPLE), "--steps", str(num_steps), "--checkpoint", "checkpoint"],
        cwd=directory,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=300,
        capture_output=True,
        text=True,
    )
    lines = [(int(s), float(loss), int(n)) for s, loss, n in LINE.findall(done.stdout)]
    # gloo may abort at exit: what was printed and saved counts as well.
    is_saved = (directory / "checkpoint" / f"step-{num_steps:06d}" / ".metadata").exists()
    if not is_saved:
        pytest.fail(f"exit code {done.returncode}: {done.stdout}\n{done.stderr}")
    return lines


@pytest.mark.slow
def test_example_trains_and_resumes(tmp_path):
    lines = run(2, 10, tmp_path)
    assert [step for step, _, _ in lines] == [5, 10]
    lines += run(3, 20, tmp_path)
    steps, losses, num_collectives = zip(*lines, strict=True)
    assert steps == (5, 10, 15, 20)  # and not from the start again
    assert sorted(losses, reverse=True) == list(losses)
    assert num_collectives == (0, 0, 0, 0)

"""Kills ranks at random, lets torchrun restart them, and compares with the run that nobody disturbed.

python -m tests.distributed.soak --kills 24 --json records/soak.json
"""

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import torch

from tests.distributed.elastic_worker import NUM_STEPS, SAVE_EVERY, Kill

ROOT = Path(__file__).parents[2]
NUM_RANKS = 2
KINDS = (
    "between steps",
    "saving data",
    "saving metadata",
    "before all-reduce",
    "during all-reduce",
    "after all-reduce",
)
# A process may abort at exit, after a right result: that is no kill of ours, and costs a restart.
NUM_SPARE_RESTARTS = 2
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    # Or restarted workers find the addresses of the dead in the agent's store, and may try to connect to
    # them: "Connection refused", or a wait without end (https://github.com/pytorch/pytorch/issues/135712).
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
}


def run(directory, kills=(), timeout=600):
    """Train under torchrun, killed as planned; return the result, the starts and the kills that were used.

    It is the result that counts, whatever the exit code is; it is ``None`` if there is none.
    """
    directory.mkdir(parents=True)
    (directory / "kills.json").write_text(json.dumps([asdict(kill) for kill in kills]))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    torchrun += ["--nproc-per-node", str(NUM_RANKS)]
    torchrun += ["--max-restarts", str(len(kills) + NUM_SPARE_RESTARTS if kills else 0)]
    with (directory / "log").open("w") as log:
        agent = subprocess.Popen(
            [*torchrun, "-m", "tests.distributed.elastic_worker", str(directory)],
            cwd=ROOT,
            env={**os.environ, **ENVIRONMENT},
            stdout=log,
            stderr=log,
        )
        try:
            exit_code = agent.wait(timeout)
        except subprocess.TimeoutExpired:
            agent.terminate()  # it ends its workers
            exit_code = agent.wait()
    result, starts = directory / "result.pt", directory / "starts.jsonl"
    return {
        "result": torch.load(result, weights_only=True) if result.exists() else None,
        "starts": [json.loads(line) for line in starts.read_text().splitlines()],
        "used": [json.loads(path.read_text()) for path in sorted(directory.glob("used-*"))],
        "exit_code": exit_code,
    }


def differences(a, b, where="result"):
    """Return the places where two nested results are not the same, bit for bit."""
    if type(a) is not type(b):
        return [where]
    if isinstance(a, dict):
        if a.keys() != b.keys():
            return [where]
        return [d for key in a for d in differences(a[key], b[key], f"{where}.{key}")]
    if isinstance(a, (list, tuple)):
        if len(a) != len(b):
            return [where]
        return [d for i in range(len(a)) for d in differences(a[i], b[i], f"{where}.{i}")]
    if isinstance(a, torch.Tensor):
        is_same = a.dtype == b.dtype and a.shape == b.shape and torch.equal(_bytes(a), _bytes(b))
    else:
        is_same = a == b
    return [] if is_same else [where]


def _bytes(tensor):
    return tensor.contiguous().flatten().view(torch.uint8)


def random_kills(num, seed):
    """Draw kills of every kind, as evenly as can be, at random steps and ranks, in random order."""
    rng = random.Random(seed)
    kinds = [KINDS[i % len(KINDS)] for i in range(num)]
    rng.shuffle(kinds)
    kills = []
    for kind in kinds:
        every = SAVE_EVERY if kind.startswith("saving") else 1
        step = rng.randrange(every, NUM_STEPS + 1, every)
        rank = 0 if kind == "saving metadata" else rng.randrange(NUM_RANKS)
        kills.append(Kill(kind, step, rank))
    return kills


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=24)
    parser.add_argument("--kills-per-run", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    start, runs = time.monotonic(), []
    kills = random_kills(options.kills, options.seed)
    with tempfile.TemporaryDirectory() as scratch:
        unbroken = run(Path(scratch) / "unbroken")["result"]
        for first in range(0, len(kills), options.kills_per_run):
            planned = kills[first : first + options.kills_per_run]
            broken = run(Path(scratch) / f"from-{first}", planned)
            runs.append(
                {
                    "differences": differences(broken.pop("result"), unbroken),
                    "num_planned": len(planned),
                    **broken,
                }
            )
            print(json.dumps(runs[-1]), flush=True)

    used = [kill for one in runs for kill in one["used"]]
    record = {
        "what": "SIGKILL of one of 2 ranks (FSDP2, gloo; momentum 0.9, polar directions) under torchrun "
        "--max-restarts: final weights, optimizer state, schedule and lr against the unbroken run, bit "
        "for bit",
        "command": "python -m tests.distributed.soak " + " ".join(sys.argv[1:]),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "num_kills": len(used),
        "kills_by_kind": dict(sorted(Counter(kill["kind"] for kill in used).items())),
        "num_kills_without_effect": len(kills) - len(used),
        "num_runs": len(runs),
        "num_runs_bit_equal": sum(not one["differences"] for one in runs),
        "num_restarts": sum(len(one["starts"]) - 1 for one in runs),
        "seconds": round(time.monotonic() - start),
        "runs": runs,
    }
    if options.json:
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    is_good = record["num_runs_bit_equal"] == len(runs) and len(used) == len(kills)
    print("all bit-equal" if is_good else "NOT all bit-equal, or a kill was not used")
    sys.exit(not is_good)


if __name__ == "__main__":
    main()

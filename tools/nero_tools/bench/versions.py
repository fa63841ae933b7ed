"""Compare the step time of two checkouts of nero, interleaved in one run.

    python -m nero_tools.bench.versions OLD_SRC NEW_SRC --model gpt2-124m --rounds 30

Each version has a process of its own, which waits while the other steps. Every round both take ``--steps``
steps, in an order that alternates; the ratio is taken within a round, and its median is reported.
``--construct`` times building the optimizer instead. With
``--ranks 2`` each version has two processes that share the neurons of a model cut by tensor parallelism.
"""

import argparse
import importlib.util
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

_MODELS = Path(__file__).parents[1] / "models.py"


def build(name: str) -> nn.Module:
    """Return a model of the catalogue, or 100 square matrices of 64; the same for both versions."""
    torch.manual_seed(0)
    if name == "small-100":
        return nn.ModuleList([nn.Linear(64, 64, bias=False) for _ in range(100)])
    spec = importlib.util.spec_from_file_location("models", _MODELS)
    assert spec is not None
    assert spec.loader is not None
    models = importlib.util.module_from_spec(spec)
    sys.modules["models"] = models
    spec.loader.exec_module(models)
    model: nn.Module = models.MODELS[name]()
    return model


class Worker:
    """One process that steps one version when it is told to."""

    def __init__(self, src: str, arguments: list[str], environment: dict[str, str]) -> None:
        env = {**os.environ, "PYTHONPATH": src, **environment}
        command = [sys.executable, str(Path(__file__)), "--worker", *arguments]
        self._process = subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def tell(self) -> None:
        """Let it take its steps."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def seconds(self) -> float:
        """Wait for the time that they took."""
        assert self._process.stdout is not None
        return float(self._process.stdout.readline())

    def stop(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def work(args: argparse.Namespace) -> None:
    """Run as a worker: on each line of stdin, take steps and print the seconds per step."""
    from nero import Nero

    torch.set_num_threads(args.threads)
    model = build(args.model)
    if args.ranks > 1:
        model = cut(model)
    optimizer = Nero(model)

    def construct() -> None:
        Nero(model)

    timed = construct if args.construct else optimizer.step
    if not args.construct:
        for param in model.parameters():
            param.grad = torch.randn_like(param)
        for _ in range(3):
            optimizer.step()
    print(0.0, flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        for _ in range(args.steps):
            timed()
        print((time.perf_counter() - start) / args.steps, flush=True)
    if args.ranks > 1:
        torch.distributed.destroy_process_group()


def cut(model: nn.Module) -> nn.Module:
    """Shard a GPT with tensor parallelism, so that half of its matrices have a sharded fan-in."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        ParallelStyle,
        RowwiseParallel,
        parallelize_module,
    )

    torch.distributed.init_process_group("gloo")
    plan: dict[str, ParallelStyle] = {}
    for name, module in model.named_modules():
        last = name.rpartition(".")[2]
        if isinstance(module, nn.Linear) and last in ("qkv", "up"):
            plan[name] = ColwiseParallel()
        elif isinstance(module, nn.Linear) and last in ("out", "down"):
            plan[name] = RowwiseParallel()
    mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    return parallelize_module(model, mesh, plan)


def workers(src: str, args: argparse.Namespace) -> list[Worker]:
    """Start the processes of one version, and wait until they are warm."""
    arguments = ["--model", args.model, "--steps", str(args.steps)]
    arguments += ["--threads", str(args.threads), "--ranks", str(args.ranks)]
    arguments += ["--construct"] * args.construct
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    started = [
        Worker(
            src,
            arguments,
            {
                "RANK": str(rank),
                "WORLD_SIZE": str(args.ranks),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
            },
        )
        for rank in range(args.ranks)
    ]
    for worker in started:
        worker.seconds()
    return started


def compare(args: argparse.Namespace) -> dict[str, Any]:
    """Time both versions, and return medians and the ratio of new to old."""
    sides = {"old": workers(args.old, args), "new": workers(args.new, args)}
    times: dict[str, list[float]] = {"old": [], "new": []}
    for number in range(args.rounds):
        for side in ("old", "new") if number % 2 else ("new", "old"):
            for worker in sides[side]:
                worker.tell()
            times[side].append(max(worker.seconds() for worker in sides[side]))
    for worker in (*sides["old"], *sides["new"]):
        worker.stop()
    ratios = [new / old for new, old in zip(times["new"], times["old"], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return {
        "model": args.model,
        "timed": "construction" if args.construct else "step",
        "ranks": args.ranks,
        "threads": args.threads,
        "rounds": args.rounds,
        "steps_per_round": args.steps,
        "old_ms": round(1000 * statistics.median(times["old"]), 4),
        "new_ms": round(1000 * statistics.median(times["new"]), 4),
        "ratio": round(middle, 4),
        "ratio_quartiles": [round(low, 4), round(high, 4)],
    }


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("old", nargs="?", help="the src folder of the older checkout")
    parser.add_argument("new", nargs="?", help="the src folder of the newer one")
    parser.add_argument("--model", default="small-100")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--steps", type=int, default=1, help="steps per round")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--construct", action="store_true", help="time Nero(model), not its steps")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(args)
    else:
        print(json.dumps(compare(args)))


if __name__ == "__main__":
    main()

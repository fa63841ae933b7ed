"""One training step of a GPT, as the commands that time it share it."""

import argparse
import time
from collections.abc import Callable
from typing import TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from nero.cli.arguments import output_file
from nero_tools.bench.timing import OTHERS_LIMIT, OthersClock
from nero_tools.models import MODELS

_T = TypeVar("_T")


def add_arguments(parser: argparse.ArgumentParser, *, shape: str, batch: int) -> None:
    """Add the options of a command that trains a GPT."""
    gpts = [name for name in MODELS if name.startswith("gpt")]
    parser.add_argument("--shape", default=shape, choices=gpts)
    parser.add_argument("--batch", type=int, default=batch)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=output_file, metavar="FILE")


def random_tokens(model: nn.Module, batch: int, length: int) -> Tensor:
    """Draw a batch of sequences, with the last target."""
    vocabulary = cast(nn.Embedding, model.get_submodule("tokens")).num_embeddings
    return torch.randint(vocabulary, (batch, length + 1))


def train_once(model: nn.Module, tokens: Tensor, step: Callable[[], object]) -> tuple[float, float]:
    """Train on one batch; return the seconds of the gradient and of the optimizer's step."""
    start = time.perf_counter()
    model.zero_grad()
    logits = model(tokens[:, :-1])
    cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
    middle = time.perf_counter()
    step()
    return middle - start, time.perf_counter() - middle


def calm_rounds(run: Callable[[int], _T], *, rounds: int) -> tuple[list[_T], int]:
    """Return ``rounds`` undisturbed results of ``run(round)``, and how many rounds were left out.

    For work whose rounds are compared whole, such as training steps. Left out are rounds in which other
    processes used the machine, and round 0, which warms up; at most twice as many rounds are run.
    """
    results: list[_T] = []
    others, num_disturbed = OthersClock(), 0
    for num in range(2 * rounds + 1):
        result = run(num)
        is_calm = others.share() <= OTHERS_LIMIT
        if num > 0 and is_calm:
            results.append(result)
        num_disturbed += num > 0 and not is_calm
        if len(results) == rounds:
            break
    return results, num_disturbed

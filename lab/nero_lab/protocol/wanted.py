"""Which runs a comparison needs next, given those that are there."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from nero_lab.engine.records import RunRecord
from nero_lab.protocol.plan import MAX_ADDED, MAX_BEHIND, Comparison, Entrant
from nero_lab.runner.config import RunConfig
from nero_lab.sweep.table import Found, Row, best, rows
from nero_lab.sweep.widening import beyond, open_end

Find = Callable[[RunConfig], RunRecord | None]
"""Returns the record of a run, or None if it has not been made."""


@dataclass(frozen=True)
class Wanted:
    """A run that a comparison needs, and the runs of the same optimizer that it must keep up with."""

    config: RunConfig
    beside: tuple[RunConfig, ...] = ()


def wanted(comparison: Comparison, scale: str, find: Find) -> Iterator[Wanted]:
    """Yield the comparison's runs that are already determined, in the order in which to make them.

    Rates come first, those beyond an end of them as soon as the best one is that end, and the other seeds
    once every optimizer has its rate.
    """
    chosen = []
    for entrant in comparison.entrants:
        configs = tuple(_tried(comparison, entrant, scale, find))
        rivals = configs if entrant.default is None else ()  # a preset's runs are never stopped
        yield from (Wanted(config, rivals) for config in configs)
        chosen.append(chosen_rate(entrant, [(config, find(config)) for config in configs]))
    for seed in range(1, comparison.num_seeds):
        for entrant, lr in zip(comparison.entrants, chosen, strict=True):
            if lr is not None:
                yield Wanted(_config(comparison, scale, entrant.optimizer, lr, seed))


def chosen_rate(entrant: Entrant, found: Sequence[Found]) -> float | None:
    """Return the rate at which an optimizer is scored, or None if that cannot be said yet."""
    if entrant.default is not None:
        return entrant.default
    if not all(record and record.is_done for _, record in found):
        return None
    higher = found[0][0].task_spec.metric.higher_is_better
    row = best(rows(found), higher_is_better=higher)
    return row.lr if row else None


def too_far_behind(
    config: RunConfig, others: Iterable[RunRecord | None]
) -> Callable[[int, Mapping[str, float]], str | None]:
    """Return the rule that stops a run at half time: how long it is, and the best of its other rates.

    The rule ignores scores of zero or less, for which a relative gap is meaningless.
    """
    metric, num_epochs = config.task_spec.metric, config.recipe.epochs
    half = -(-num_epochs // 2)
    reached = [
        record.epochs[half - 1].get(metric.name)
        for record in others
        if record and record.status == "finished" and len(record.epochs) >= half
    ]
    values = [value for value in reached if value is not None]

    def stop(epoch: int, scores: Mapping[str, float]) -> str | None:
        if epoch != half or not values:
            return None
        score, leader = scores[metric.name], (max if metric.higher_is_better else min)(values)
        if min(score, leader) <= 0:
            return None
        ratio = leader / score if metric.higher_is_better else score / leader
        if ratio <= 1 + MAX_BEHIND:
            return None
        return (
            f"{metric.name} is {score:.4g} after epoch {epoch} of {num_epochs}, more than "
            f"{100 * MAX_BEHIND:.0f}% worse than {leader:.4g} at another learning rate"
        )

    return stop


def _tried(comparison: Comparison, entrant: Entrant, scale: str, find: Find) -> Iterator[RunConfig]:
    """Yield the first seed of every rate, and of those beyond the ends as long as the best is one."""
    found: list[Found] = []
    for lr in entrant.lrs:
        config = _config(comparison, scale, entrant.optimizer, lr)
        found.append((config, find(config)))
        yield config
    for _ in range(MAX_ADDED if entrant.default is None else 0):
        if not all(record and record.is_done for _, record in found):
            return
        line: list[Row] = rows(found)
        higher = found[0][0].task_spec.metric.higher_is_better
        end = open_end(line, best(line, higher_is_better=higher))
        if end is None:
            return
        config = _config(comparison, scale, entrant.optimizer, beyond(line, end))
        found.append((config, find(config)))
        yield config


def _config(
    comparison: Comparison, scale: str, optimizer: str, lr: float, seed: int = 0
) -> RunConfig:
    return RunConfig(comparison.task, scale, optimizer, lr, seed, comparison.variant)

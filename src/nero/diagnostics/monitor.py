"""Sample some steps of an optimizer, and report to sinks how far neurons turned."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from nero.core.arguments import kind_of, real_number, whole_number
from nero.core.sharding import is_sharded, to_local
from nero.core.spec import flag
from nero.core.warn import warn_user
from nero.diagnostics.angle import NeuronTurns, measure, neuron_rows
from nero.diagnostics.neurons import (
    NamedNeurons,
    gradient_of,
    innermost,
    skipped_counts,
    target_norms,
    watched_params,
)
from nero.diagnostics.report import TurningReport, read_summary
from nero.diagnostics.sinks import Sink
from nero.diagnostics.summary import read_all, summarize
from nero.functional import Sphere, balance_tolerance
from nero.optim import Balanced, Nero

TOO_FAR_RAD = 0.3
"""About 17 degrees: at any learning rate, far for one step."""
TOO_FAR_LR = 10.0
"""Nero's learning rate is an angle: this many times it is far."""


class TurningMonitor(AbstractContextManager["TurningMonitor"]):
    """Watch by which angles an optimizer turns neurons; change nothing.

    It attaches to any torch optimizer. At a sampled step it keeps a copy of the weights of the sampled
    layers, compares them afterwards, writes a report to every sink, and forgets the copy. At all other
    steps it only counts.

    Parameters that are sharded (FSDP2, tensor parallel) are compared where they are. Then the ranks add up
    one small buffer per process group, and all have the same report. Every rank needs a monitor.

    Args:
        optimizer: any torch optimizer; `Balanced` rather than the one within it. Neurons are those that
            the optimizer knows, if it is one of this package or has groups from
            [`param_groups`][nero.param_groups]; otherwise they are found from ``model``, and without one
            from shapes.
        model: the model, for names, order and layouts. Needless with an optimizer that was given the model.
        every: sample the first step, and every so many steps after it.
        max_layers: how many layers to sample at once, in turn; ``None`` for all. Bounds the memory and the
            time that a sampled step takes.
        too_far: count the neurons that turn by more than this angle. By default 0.3 rad, or ten times the
            learning rate if the optimizer is Nero and that is less, but no less than the dtype's eps.
        constraint: measure the drift from here; by default from where the optimizer holds its neurons.
        sinks: where reports go. See [`Sink`][nero.diagnostics.Sink].
        every_rank: write to sinks on every rank of a distributed run, not on rank 0 alone.
        on_error: what to do when a sink raises. ``"warn"`` warns once, gives that sink no more reports, and
            training goes on; ``"raise"`` lets the error out of ``optimizer.step()``, which has moved the
            weights already.

    Example:
        >>> from nero.diagnostics import TurningMonitor
        >>> model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
        >>> optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
        >>> with TurningMonitor(optimizer, model, every=10) as monitor:
        ...     for _ in range(20):
        ...         optimizer.zero_grad()
        ...         model(torch.randn(16, 8)).square().mean().backward()
        ...         optimizer.step()
        >>> monitor.last_report.step
        11
        >>> monitor.last_report["2.weight"].angle.median < 0.1
        True
    """

    def __init__(
        self,
        optimizer: Optimizer,
        model: nn.Module | None = None,
        *,
        every: int = 100,
        max_layers: int | None = 8,
        too_far: float | None = None,
        constraint: Sphere | str | None = None,
        sinks: Sequence[Sink] = (),
        every_rank: bool = False,
        on_error: Literal["warn", "raise"] = "warn",
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(
                f"TurningMonitor watches an optimizer, not {kind_of(optimizer)}: pass the one that "
                "trains the model"
            )
        every = whole_number("every", every, smallest=1)
        if max_layers is not None:
            max_layers = whole_number("max_layers", max_layers, smallest=1)
        if too_far is not None and not real_number("too_far", too_far) > 0:
            raise ValueError(f"too_far must be an angle in radians above 0, but is {too_far}")
        if on_error not in ("warn", "raise"):
            raise ValueError(f'on_error must be "warn" or "raise", but is {on_error!r}')
        if not isinstance(sinks, Sequence):
            raise TypeError(f"sinks must be a list of sinks, not {kind_of(sinks)}")
        for sink in sinks:
            if isinstance(sink, type) or not isinstance(sink, Sink):
                raise TypeError(
                    f"sinks has {kind_of(sink)}, but each must be an object with write(report)"
                )
        every_rank = flag("every_rank", every_rank)
        self.optimizer = innermost(optimizer)
        self.model = model
        self.every, self.max_layers = every, max_layers
        self.too_far, self.constraint = too_far, constraint
        self.sinks, self.every_rank, self.on_error = list(sinks), every_rank, on_error
        self.step = 0
        """The number of steps seen."""
        self.last_report: TurningReport | None = None
        """Of the last sampled step."""
        self._position = 0  # of the layer that is next in turn
        self._before: list[tuple[NamedNeurons, Tensor]] = []
        self._failed_sinks: set[int] = set()  # by identity
        if hasattr(self.optimizer, "_is_balanced") and not isinstance(self.optimizer, Balanced):
            warn_user(
                "this optimizer is inside Balanced, which projects the weights after each of its steps: "
                "attach to Balanced, to see where they end"
            )
        if not self._watched():
            warn_user("this optimizer has no parameter with neurons to watch; pass the model too")
        # A compiled step must not compile the monitor with it.
        before, after = map(torch.compiler.disable, (self._before_step, self._after_step))
        self._hooks = [
            self.optimizer.register_step_pre_hook(before),
            self.optimizer.register_step_post_hook(after),
        ]

    def detach(self) -> None:
        """Remove all hooks from the optimizer."""
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._before = [], []

    def close(self) -> None:
        """Detach, and close those sinks that can be closed."""
        self.detach()
        for sink in self.sinks:
            if hasattr(sink, "close"):
                self._try_sink(sink, sink.close)

    def __exit__(self, *_: object) -> None:
        self.close()

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs in order to sample the same steps and layers."""
        return {"step": self.step, "position": self._position}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on as the monitor that was saved would have."""
        if not isinstance(state_dict, Mapping) or not {"step", "position"} <= state_dict.keys():
            raise ValueError(
                "this state_dict is not that of a monitor, which has step and position: pass what "
                "monitor.state_dict() returned"
            )
        self.step, self._position = (
            whole_number(key, state_dict[key], smallest=0) for key in ("step", "position")
        )

    def _watched(self) -> list[NamedNeurons]:
        # Anew each time: parameters are added, frozen and swapped while a model trains.
        return watched_params(self.optimizer, self.model, self.constraint)

    def _in_turn(self) -> list[NamedNeurons]:
        watched = self._watched()
        if self.max_layers is None or self.max_layers >= len(watched):
            return watched
        start = self._position % len(watched)
        self._position = (start + self.max_layers) % len(watched)
        chosen = {(start + i) % len(watched) for i in range(self.max_layers)}
        return [each for i, each in enumerate(watched) if i in chosen]

    @torch.no_grad()
    def _before_step(self, *_: Any) -> None:
        self._before = []  # of a step that has failed
        if self.step % self.every == 0:
            self._before = [
                (each, _rows(each).clone(memory_format=torch.contiguous_format))
                for each in self._in_turn()
            ]
        self.step += 1

    @torch.no_grad()
    def _after_step(self, *_: Any) -> None:
        if not self._before:
            return
        pairs, self._before = self._before, []
        self.last_report = self._report(pairs)
        if self.every_rank or _is_first_rank():
            for sink in self.sinks:
                if id(sink) not in self._failed_sinks:
                    self._try_sink(sink, partial(sink.write, self.last_report))

    def _try_sink(self, sink: Sink, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as error:
            if self.on_error == "raise":
                raise
            is_known, name = id(sink) in self._failed_sinks, type(sink).__name__
            self._failed_sinks.add(id(sink))
            if not is_known:
                warn_user(
                    f"the sink {name} raised {error!r}: it gets no more reports, and training goes on; "
                    'set on_error="raise" to stop instead'
                )

    def _report(self, pairs: list[tuple[NamedNeurons, Tensor]]) -> TurningReport:
        turns: list[tuple[NamedNeurons, NeuronTurns]] = []
        while pairs:  # a copy is freed as soon as it is measured
            each, before = pairs.pop(0)
            grad = gradient_of(each)
            grad_rows = None if grad is None else neuron_rows(grad, each.neurons)
            target = target_norms(self.optimizer, each)
            turns.append((each, measure(before, _rows(each), grad_rows, target)))
        counts = skipped_counts(self.optimizer)
        if any(is_sharded(each.param) for each, _ in [*turns, *counts]):
            from nero.diagnostics.gather import gather

            turns, counts = gather(turns, counts)
        summaries = [
            summarize(measured, each, too_far=self._too_far(each)) for each, measured in turns
        ]
        # Everything so far is on its way on the device; here we wait for it.
        totals = {each.param: count for each, count in counts}
        *layers, read_totals = read_all([*summaries, totals])
        skipped = {param: int(total) for param, (total,) in read_totals.items()}
        reports = (
            read_summary(
                numbers,
                name=each.name,
                num_neurons=each.neurons.num_neurons,
                fan_in=each.neurons.fan_in,
                lr=each.lr,
                lr_is_angle=isinstance(self.optimizer, Nero),
                too_far=self._too_far(each),
                num_skipped=skipped.get(each.param),
                tolerance=balance_tolerance(each.param.dtype),
            )
            for (each, _), numbers in zip(turns, layers, strict=True)
        )
        return TurningReport(self.step, tuple(reports), sum(skipped.values()) if skipped else None)

    def _too_far(self, each: NamedNeurons) -> float:
        if self.too_far is not None:
            return self.too_far
        if not isinstance(self.optimizer, Nero):
            return TOO_FAR_RAD
        # Rounding alone may turn a neuron by eps: at a tiny rate, that is harmless.
        return min(TOO_FAR_RAD, max(TOO_FAR_LR * each.lr, torch.finfo(each.param.dtype).eps))


def _rows(each: NamedNeurons) -> Tensor:
    return neuron_rows(to_local(each.param.detach()), each.neurons)


def _is_first_rank() -> bool:
    engine = torch.distributed
    return not (engine.is_available() and engine.is_initialized()) or engine.get_rank() == 0

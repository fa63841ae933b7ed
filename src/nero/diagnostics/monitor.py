"""Sample some optimizer steps, and report to sinks how far neurons turned."""

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
"""0.3 rad is about 17 degrees: too far for one step at any learning rate."""
TOO_FAR_LR = 10.0
"""Nero's learning rate is an angle; this multiple of it is far."""


class TurningMonitor(AbstractContextManager["TurningMonitor"]):
    """Measure how far an optimizer turns each neuron, without changing anything.

    Works with any torch optimizer. At a sampled step it copies the weights of the sampled layers, compares
    them after the step, writes a report to every sink, and frees the copy. At all other steps it only
    counts.

    Sharded parameters (FSDP2, tensor parallel) are compared in place. The ranks then all-reduce one small
    buffer per process group, so all of them have the same report. Every rank needs a monitor.

    Args:
        optimizer: any torch optimizer; pass `Balanced` rather than the optimizer inside it. Layouts come
            from the optimizer if it belongs to this package or has groups from
            [`param_groups`][nero.param_groups], else from ``model``, else from shapes.
        model: the model, for names, order and layouts. Not needed if the optimizer was built from it.
        every: sample the first step, and then every this many steps.
        max_layers: how many layers to sample at once, in rotation; ``None`` for all. Bounds the memory and
            time of a sampled step.
        too_far: count the neurons that turn by more than this angle. The default is 0.3 rad; for Nero it is
            ten times the learning rate if that is less, but at least the dtype's eps.
        constraint: measure drift from this constraint; by default from the optimizer's own.
        sinks: where reports go. See [`Sink`][nero.diagnostics.Sink].
        every_rank: write to sinks on every rank of a distributed run, not only on rank 0.
        on_error: what to do when a sink raises. ``"warn"`` warns once, sends that sink no more reports, and
            lets training continue; ``"raise"`` lets the error propagate from ``optimizer.step()``; the
            weights have already been updated.

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
                f"optimizer must be a torch.optim.Optimizer, not {kind_of(optimizer)}: pass the one "
                "that trains the model"
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
        """The report of the last sampled step."""
        self._position = 0  # of the layer to sample next
        self._before: list[tuple[NamedNeurons, Tensor]] = []
        self._failed_sinks: set[int] = set()  # by identity
        if hasattr(self.optimizer, "_is_balanced") and not isinstance(self.optimizer, Balanced):
            warn_user(
                "this optimizer is inside Balanced, which projects the weights after each of its steps: "
                "attach the monitor to Balanced, to measure the projected weights"
            )
        if not self._watched():
            warn_user("this optimizer has no parameter with neurons to watch; pass the model too")
        # Compiling a step must not compile the monitor with it.
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
        """Detach, and close the sinks that have ``close``."""
        self.detach()
        for sink in self.sinks:
            if hasattr(sink, "close"):
                self._try_sink(sink, sink.close)

    def __exit__(self, *_: object) -> None:
        self.close()

    def state_dict(self) -> dict[str, Any]:
        """Return the state that a resumed run needs to sample the same steps and layers."""
        return {"step": self.step, "position": self._position}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue where the saved monitor stopped."""
        if not isinstance(state_dict, Mapping) or not {"step", "position"} <= state_dict.keys():
            raise ValueError(
                "this state_dict has no step and position, so it is not a monitor's: pass what "
                "monitor.state_dict() returned"
            )
        self.step, self._position = (
            whole_number(key, state_dict[key], smallest=0) for key in ("step", "position")
        )

    def _watched(self) -> list[NamedNeurons]:
        # Recomputed each time: parameters may be added, frozen or swapped during training.
        return watched_params(self.optimizer, self.model, self.constraint)

    def _next_layers(self) -> list[NamedNeurons]:
        watched = self._watched()
        if self.max_layers is None or self.max_layers >= len(watched):
            return watched
        start = self._position % len(watched)
        self._position = (start + self.max_layers) % len(watched)
        chosen = {(start + i) % len(watched) for i in range(self.max_layers)}
        return [layer for i, layer in enumerate(watched) if i in chosen]

    @torch.no_grad()
    def _before_step(self, *_: Any) -> None:
        self._before = []  # drops the copies of a failed step
        if self.step % self.every == 0:
            self._before = [
                (layer, _rows(layer).clone(memory_format=torch.contiguous_format))
                for layer in self._next_layers()
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
            is_new = id(sink) not in self._failed_sinks
            self._failed_sinks.add(id(sink))
            if is_new:
                warn_user(
                    f"the sink {type(sink).__name__} raised {error!r}. It gets no more reports, "
                    'and training continues; set on_error="raise" to stop instead'
                )

    def _report(self, pairs: list[tuple[NamedNeurons, Tensor]]) -> TurningReport:
        turns: list[tuple[NamedNeurons, NeuronTurns]] = []
        while pairs:  # a copy is freed as soon as it is measured
            layer, before = pairs.pop(0)
            grad = gradient_of(layer)
            grad_rows = None if grad is None else neuron_rows(grad, layer.neurons)
            target = target_norms(self.optimizer, layer)
            turns.append((layer, measure(before, _rows(layer), grad_rows, target)))
        counts = skipped_counts(self.optimizer)
        if any(is_sharded(layer.param) for layer, _ in [*turns, *counts]):
            from nero.diagnostics.gather import gather

            turns, counts = gather(turns, counts)
        summaries = [
            summarize(measured, layer, too_far=self._too_far(layer)) for layer, measured in turns
        ]
        # The one synchronization with the device.
        totals = {layer.param: count for layer, count in counts}
        *layers, read_totals = read_all([*summaries, totals])
        skipped = {param: int(total) for param, (total,) in read_totals.items()}
        reports = (
            read_summary(
                numbers,
                name=layer.name,
                num_neurons=layer.neurons.num_neurons,
                is_table=layer.is_table,
                fan_in=layer.neurons.fan_in,
                lr=layer.lr,
                lr_is_angle=isinstance(self.optimizer, Nero),
                too_far=self._too_far(layer),
                num_skipped=skipped.get(layer.param),
                tolerance=balance_tolerance(layer.param.dtype),
            )
            for (layer, _), numbers in zip(turns, layers, strict=True)
        )
        return TurningReport(self.step, tuple(reports), sum(skipped.values()) if skipped else None)

    def _too_far(self, layer: NamedNeurons) -> float:
        if self.too_far is not None:
            return self.too_far
        if not isinstance(self.optimizer, Nero):
            return TOO_FAR_RAD
        # Rounding alone may turn a neuron by eps, which is harmless at a tiny learning rate.
        return min(TOO_FAR_RAD, max(TOO_FAR_LR * layer.lr, torch.finfo(layer.param.dtype).eps))


def _rows(layer: NamedNeurons) -> Tensor:
    return neuron_rows(to_local(layer.param.detach()), layer.neurons)


def _is_first_rank() -> bool:
    engine = torch.distributed
    return not (engine.is_available() and engine.is_initialized()) or engine.get_rank() == 0

"""Compare one parameter before and after a step, row by row, with what the step should have done."""

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from nero.core.sharding import full_tensor
from nero.core.spec import Hyper
from nero.diagnostics.angle import neuron_rows, turning_angle
from nero.diagnostics.definition import Memory, has_no_direction, largest_turn, next_rows
from nero.diagnostics.full_values import Full
from nero.diagnostics.step_memory import Watched, fingerprint, recalled
from nero.diagnostics.step_report import StepFault
from nero.functional import balance_tolerance

_KNOWN = ("gradient", "polar")
_DATA = "something else wrote these weights: load and copy weights before you build the optimizer"


class Comparison:
    """One parameter at one step."""

    def __init__(self, watched: Watched, full: Full, hyper: Hyper, lr: float) -> None:
        self.watched, self.hyper, self.lr = watched, hyper.for_neurons(watched.neurons), lr
        self.peers, self.is_shared, self.dtype = full.peers, full.is_shared, full.value.dtype
        self.is_on_gpu = full.value.is_cuda
        self.before_print = fingerprint(full.value)
        self.expected: Tensor | None = None
        self.faults: list[StepFault] = []

    def prepare(self, full: Full, state: Mapping[str, Any], num_steps: int | None) -> None:
        """Read the weights before the step, and compute those that should follow."""
        watched, memory = self.watched, self.watched.memory
        self.before = self._share(full.value)
        old = self.before.double()
        if memory is not None and num_steps is not None and num_steps < memory.num_steps:
            self._add(
                "forgot",
                f"the optimizer counts {num_steps} steps, but {memory.num_steps} were checked",
                "it lost its state: keep the same optimizer, and load its checkpoint after a restart",
            )
        is_next = memory is not None and num_steps in (None, memory.num_steps)
        if is_next and self.before_print != watched.fingerprint:
            self._add("written", "its weights changed between two checked steps", _DATA)
        if memory is None or (num_steps or 0) > memory.num_steps:
            elementwise = watched.neurons.is_elementwise
            memory = recalled(old, full.value, self.hyper, elementwise=elementwise)
            if num_steps:
                self._read_state(
                    memory, {key: full_tensor(tensor) for key, tensor in state.items()}
                )
                memory.num_steps = num_steps
            watched.memory = memory
        if self.hyper.momentum and memory.average is None:
            memory.average = torch.zeros_like(old)
        self._check_constraint(old, "off before", " before the step")
        if full.grad is None:
            return
        self.grad = self._share(full.grad).double()
        self.expected = next_rows(
            memory, old, self.grad, self.hyper, self.lr, self._num_rows(), full.value.device
        )
        if self.hyper.direction not in _KNOWN:
            memory.norm = memory.norm * math.nan
            self.expected = self.expected * math.nan

    def finish(self, full: Full) -> list[StepFault]:
        """Read the weights after the step, and return all faults."""
        watched = self.watched
        watched.fingerprint = fingerprint(full.value)
        if self.expected is None:
            if watched.fingerprint != self.before_print:
                self._add("moved", "it has no gradient, but the step changed it", _DATA)
            return self.faults
        old, new, expected = self.before.double(), self._share(full.value).double(), self.expected
        moved = (new != old).any(1)
        self._check_constraint(new, "off", "", among=moved)
        self._check_turn(old, new)
        known = expected.isfinite().all(1)
        if not self.is_known:
            self._check_still(moved, known)
        wanted, change = (expected - old).norm(dim=1), (new - old).norm(dim=1)
        scale = torch.maximum(old.norm(dim=1), expected.norm(dim=1))
        wrong = known & ~(
            (new - expected).norm(dim=1) <= self._error() * wanted + self._rounding() * scale
        )
        stuck = known & ~moved & (wanted > 2 * self._rounding() * scale)
        self._count_still(stuck)
        idle = known & moved & (wanted == 0)
        self._count("moved", idle, "{count} neurons moved, despite a zero gradient", _DATA)
        wrong = wrong & ~stuck & ~idle
        if wrong.any():
            ratio = (change[wrong] / wanted[wrong]).nanmedian()
            cosine = ((new - old) * (expected - old)).sum(1)[wrong] / (change * wanted)[wrong]
            self._count(
                "wrong",
                wrong,
                f"{{count}} neurons moved {ratio:.3g} times as far as expected, and the cosine between the "
                f"actual and the expected move is {cosine.nanmedian():.3f}",
                "if the cosine is near 1, the learning rate or the running norm is wrong; otherwise "
                "the gradient, momentum, direction or layout",
            )
        self._check_lost(old, new, known)
        return self.faults

    @property
    def is_known(self) -> bool:
        """Whether the definition gives the new weights of any of these rows."""
        return (
            self.expected is None
            or bool(self.expected.isfinite().all(1).any())
            or not len(self.before)
        )

    @property
    def is_stuck(self) -> bool:
        """Whether nothing moved that should have."""
        return any(fault.kind == "still" for fault in self.faults)

    # --- the checks ---

    def _check_constraint(
        self, rows: Tensor, kind: str, when: str, among: Tensor | None = None
    ) -> None:
        sphere, memory = self.hyper.constraint, self.watched.memory
        if self.watched.neurons.is_elementwise or memory is None or sphere.is_free:
            return
        norm, tolerance = rows.norm(dim=1), balance_tolerance(self.dtype)
        is_on = torch.ones_like(norm, dtype=torch.bool)
        if sphere.centre:
            is_on &= rows.sum(1).abs() / math.sqrt(rows.shape[1]) <= tolerance * norm
        if memory.radius is not None:
            radius = torch.as_tensor(memory.radius, dtype=norm.dtype).reshape(-1)
            is_on &= (norm - radius).abs() <= tolerance * radius
        unmoved = ~among if among is not None else torch.ones_like(is_on)
        is_on |= unmoved & has_no_direction(rows, sphere.centre).flatten()
        is_on |= unmoved & ~rows.isfinite().all(1)
        worst = f"norms {norm.min():.4g} to {norm.max():.4g}" if len(norm) else ""
        self._count(
            kind,
            ~is_on,
            f"{{count}} neurons did not satisfy the constraint ({sphere}){when}, with {worst}",
            _DATA
            if kind == "off before"
            else "the step did not see whole neurons: pass full parameters or DTensors, with "
            "the model's layout",
        )

    def _check_turn(self, old: Tensor, new: Tensor) -> None:
        memory = self.watched.memory
        assert memory is not None
        limit = largest_turn(self.hyper, self.lr, memory.num_steps or None)
        if memory.length is not None:
            longest = math.sin(limit) if limit < math.pi else math.inf
            turn = (new - old).abs().flatten() / torch.as_tensor(memory.length).clamp(min=1e-300)
            rounding = (
                self._rounding() * torch.maximum(old.abs(), new.abs()).flatten() / memory.length
            )
        else:
            longest = limit
            turn = turning_angle(old, new, fan_in_dims=(1,)).flatten()
            turn = torch.where(
                has_no_direction(old, self.hyper.constraint.centre).flatten(), 0.0, turn
            )
            rounding = 2 * torch.full_like(turn, self._rounding())
        far = turn > longest * 1.001 + rounding
        how, unit = ("turned", "rad") if memory.length is None else ("moved", "times its scale")
        self._count(
            "far",
            far,
            f"{{count}} neurons {how} by up to {turn.max() if len(turn) else 0:.4g} {unit}, but this "
            f"learning rate allows no more than {longest:.4g}",
            "the step used a different learning rate, or something else also wrote to the weights",
        )

    def _check_still(self, moved: Tensor, known: Tensor) -> None:
        should = self.grad.isfinite().all(1) & (self.grad != 0).any(1) & ~known & (self.lr > 0)
        if (should & ~moved).sum() * 2 > should.sum():
            self._count_still(should & ~moved)

    def _count_still(self, stuck: Tensor) -> None:
        self._count(
            "still",
            stuck,
            "{count} neurons did not move, despite a nonzero gradient",
            "check that this parameter is in the optimizer, and that every rank takes the step",
        )

    def _check_lost(self, old: Tensor, new: Tensor, known: Tensor) -> None:
        if self.dtype.itemsize > 2 or self.hyper.stochastic_rounding or self.is_stuck:
            return
        assert self.expected is not None
        wanted, change = (self.expected - old)[known], (new - old)[known]
        share = (wanted * change).sum() / wanted.square().sum()
        if share < 0.5:
            self._add(
                "lost",
                f"rounding to {self.dtype} kept only {max(float(share), 0):.0%} of the step",
                "set stochastic_rounding=True, or keep the weights in float32",
            )

    # --- rows, tolerances and state ---

    def _share(self, tensor: Tensor) -> Tensor:
        """Return a copy of the rows that this rank looks at."""
        neurons = self.watched.neurons
        return self._mine(
            tensor.reshape(-1, 1) if neurons.is_elementwise else neuron_rows(tensor, neurons)
        )

    def _mine(self, rows: Tensor) -> Tensor:
        if self.is_shared and len(self.peers) > 1:
            place, num = self.peers.index(dist.get_rank()), len(self.peers)
            if self.hyper.direction == "gradient":
                rows = rows[place::num]
            elif self.watched.index % num != place:
                rows = rows[:0]  # another rank has the whole matrix
        return rows.detach().to("cpu", copy=True)

    def _num_rows(self) -> int:
        """Return how many rows a matrix has: experts are several."""
        neurons = self.watched.neurons
        return neurons.state_shape[neurons.neuron_dims[-1]] if neurons.neuron_dims else 1

    def _error(self) -> Tensor | float:
        """Return the relative error that a step may have, per row."""
        assert self.watched.memory is not None
        error: Tensor | float = 1e-4
        if self.hyper.momentum_dtype == "bfloat16" and self.hyper.momentum:
            error = error + 0.05 * self.watched.memory.stretch  # about ten roundings of 2^-8 each
        if self.hyper.direction == "polar":
            error = error + (0.15 if self.is_on_gpu else 0.02)  # which multiply in bfloat16
        return error

    def _read_state(self, memory: Memory, state: Mapping[str, Tensor]) -> None:
        """Start from the optimizer's state; what it does not show is unknown."""
        num, hyper = self.watched.neurons.num_neurons, self.hyper
        norms = state.get("exp_avg_norm")
        memory.norm = memory.norm * math.nan
        if norms is not None and norms.numel() == num:
            norm = self._mine(norms.reshape(-1, 1)).double()
            memory.norm = torch.where(torch.signbit(norm), torch.nan, norm)
        if memory.length is not None:
            memory.length = float(state["scale"]) if "scale" in state else math.nan
        if hyper.constraint.radius == "initial" and "radius" in state:
            memory.radius = self._mine(state["radius"].reshape(-1, 1)).double()
        if hyper.momentum:
            average = state.get("exp_avg")
            memory.average = self.before.double() * math.nan
            if average is not None and average.numel() == num * self.watched.neurons.fan_in:
                memory.average = self._share(average).double()

    def _rounding(self) -> float:
        """Return the relative error of weights in their dtype."""
        return torch.finfo(self.dtype).eps * (1 if self.dtype.itemsize <= 2 else 8)

    def _count(self, kind: str, where: Tensor, text: str, advice: str) -> None:
        num = int(where.sum())
        if num:
            what = "element" if self.watched.neurons.is_elementwise else "neuron"
            self._add(kind, text.replace("neuron", what), advice, num)

    def _add(self, kind: str, text: str, advice: str, count: int = 0) -> None:
        is_alone = self.is_shared or not (dist.is_available() and dist.is_initialized())
        ranks = () if is_alone else (dist.get_rank(),)
        self.faults.append(StepFault(self.watched.name, kind, text, advice, count, ranks))

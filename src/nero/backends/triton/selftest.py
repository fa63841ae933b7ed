"""Test a kernel on this device against the plain backend: every rule, on tensors of a few weights.

Both backends step each case, and every number written by a step is compared. The result is a `SelfTest`,
used by `nero.backends.triton.trust` and printed by ``nero doctor``.
"""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from nero.backends import plain
from nero.backends.triton.cases import Case, cases, moving_cases, twin
from nero.backends.triton.launch import TritonBackend, Variant, why_not, why_not_device
from nero.core.precision import dtype_name
from nero.core.update import Update, rounds_average
from nero.core.warn import and_more

# A step rounds a float32 weight about three times; a 16-bit one may also be rounded the other way.
_TOLERANCE, _TOLERANCE_64 = 2e-6, 1e-11
# If a new weight is a difference of terms larger than this, the tolerance grows in proportion, since the
# terms are rounded too: three times by each backend, which may add up to 3.6e-7 of a term.
_CANCELLED = 4.0
# The share of stochastically rounded numbers that may go the other way, because their noise nearly ties.
_MAX_TIES = 0.02
# The tensors that a step writes, in the order in which differences are reported.
_WRITTEN = ("weight", "exp_avg_norm", "exp_avg", "num_skipped", "step")


@dataclass(frozen=True)
class Difference:
    """One tensor of a case in which the backends differ."""

    case: str
    tensor: str
    num_different: int
    num: int
    largest: float
    """NaN if only one backend has NaN."""
    allowed: float

    @property
    def counted(self) -> str:
        """How many numbers differ, and by how much."""
        by = f"by up to {self.largest:.2g} ({self.allowed:.1g} allowed)"
        return f"{self.num_different} of {self.num} numbers differ, {by}"

    def __str__(self) -> str:
        return f"{self.case}: {self.tensor}: {self.counted}"


@dataclass(frozen=True)
class SelfTest:
    """The result of a self-test, as plain data."""

    device: str
    dtype: str
    stochastic: bool
    momentum: str | None
    """The dtype of the momentum buffer."""
    shared: bool
    """Whether the step was taken in two halves."""
    kept: int
    """The length of rows that a program keeps in registers, if the kernel is that of long rows."""
    num_cases: int
    seconds: float
    differences: tuple[Difference, ...] = ()
    error: str | None = None
    """The exception, if the kernel did not compile or run."""

    @property
    def passed(self) -> bool:
        """Whether the kernel ran and agreed."""
        return self.error is None and not self.differences

    def __str__(self) -> str:
        kernel = [self.dtype]
        if self.momentum:
            kernel.append("bfloat16 momentum" if self.momentum == "bfloat16" else "momentum")
        kernel += ["stochastic rounding"] * self.stochastic
        kernel += ["sharded fan-in"] * self.shared
        kernel += [f"rows of up to {self.kept}"] * bool(self.kept)
        name = f"{', '.join(kernel)} on {self.device}"
        if self.error is not None:
            return f"{name}: the kernel does not run: {self.error}"
        if self.passed:
            return f"{name}: all {self.num_cases} cases agree"
        cases = [*dict.fromkeys(difference.case for difference in self.differences)]
        return (
            f"{name}: {len(cases)} of {self.num_cases} cases differ ({and_more(cases, separator='; ')}); "
            f"first, {self.differences[0]}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {"passed": self.passed, **asdict(self)}


def self_test(variant: Variant, backend: TritonBackend | None = None) -> SelfTest:
    """Step every case with the kernel and with the plain backend, and compare.

    Args:
        variant: the kernel.
        backend: the backend to test; a new one by default.

    Example:
        >>> from nero.backends.triton.launch import Variant
        >>> result = self_test(Variant(torch.device("meta"), torch.float32, stochastic=False))
        >>> result.passed, result.error
        (False, 'it is on meta')
    """
    start, num_cases, differences = time.perf_counter(), 0, []
    error = why_not_device(variant.device)
    if error is None:
        try:
            backend = backend or TritonBackend(keeps_rows=variant.kept > 0)
            for case, different in _compared(variant, backend):
                num_cases += max(len(case.rows), 1)
                differences += different
        except Exception as raised:  # anything a compiler or driver may raise
            lines = str(raised).strip().splitlines() or [""]
            error = f"{type(raised).__name__}: {lines[0]}"
    return SelfTest(
        device=device_name(variant.device),
        dtype=dtype_name(variant.dtype),
        stochastic=variant.stochastic,
        momentum=None if variant.momentum is None else dtype_name(variant.momentum),
        shared=variant.shared,
        kept=variant.kept,
        num_cases=num_cases,
        seconds=time.perf_counter() - start,
        differences=tuple(differences),
        error=error,
    )


def device_name(device: torch.device) -> str:
    """Return a device's name for users.

    Example:
        >>> device_name(torch.device("cpu"))
        "Triton's interpreter"
    """
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return "Triton's interpreter" if device.type == "cpu" else str(device)


def _compared(variant: Variant, backend: TritonBackend) -> Iterator[tuple[Case, list[Difference]]]:
    once, moving = cases(variant), moving_cases(variant)
    for case in (*once, *(before for before, _ in moving)):
        reason = why_not(case.update)
        assert reason is None, f"{case.name}: {reason}"
    if variant.shared:
        once = [case for case in once if not case.update.neurons.is_elementwise]
    theirs = [twin(case) for case in once]
    updates = [case.update for case in once]
    if variant.shared:
        turns = map(plain.turn_of, updates, backend.gram(updates))
        backend.apply_(updates, list(turns))
    else:
        backend.step_(updates)
    terms = [_step_plainly(case.update) for case in theirs]
    yield from zip(once, map(_differences, once, theirs, terms), strict=True)
    if variant.shared:
        return

    for before, after in moving:
        # The second step continues from the first.
        first = twin(before)
        second = first.update._replace(grad=after.update.grad, lr=after.update.lr)
        for ours, others in ((before.update, first.update), (after.update, second)):
            backend.step_([ours])
            last = _step_plainly(others)
        yield after, _differences(after, after._replace(update=second), last)


def _step_plainly(update: Update) -> Tensor:
    """Step with the plain backend; return the size of the largest term of each new weight, ``p*w``."""
    turn = plain.turn_of(update, None if update.neurons.is_elementwise else plain.gram_of(update))
    p, dtype = turn.weight.coefficients[0], turn.weight.shift.dtype
    terms = (p * update.weight.to(dtype)).abs().double()
    plain.write_rows_(update, turn)
    plain.write_state_(update, turn)
    return terms


def _differences(ours: Case, theirs: Case, terms: Tensor) -> list[Difference]:
    differences = []
    for key in _WRITTEN:
        mine, other = (_written(case, key) for case in (ours, theirs))
        if mine is None or other is None:
            continue
        is_per_row = bool(ours.rows) and mine.ndim > 0
        for i, name in enumerate(ours.rows if is_per_row else (ours.name,)):
            pair = (mine[i], other[i]) if is_per_row else (mine, other)
            scale = None
            if key == "weight":
                scale = (terms[i] if is_per_row else terms).nan_to_num(1.0) / _CANCELLED
            difference = _difference(name, key, *pair, ours, scale)
            if difference is not None:
                differences.append(difference)
    return differences


def _written(case: Case, key: str) -> Tensor | None:
    return case.update.weight if key == "weight" else case.update.state.get(key)


def _difference(
    name: str, key: str, ours: Tensor, theirs: Tensor, case: Case, scale: Tensor | None
) -> Difference | None:
    tolerance = _TOLERANCE_64 if ours.dtype == torch.float64 else _TOLERANCE
    relative = tolerance
    if ours.is_floating_point() and ours.dtype.itemsize == 2:
        relative += case.num_steps * torch.finfo(ours.dtype).eps
    mine, other = ours.double().cpu(), theirs.double().cpu()
    is_same = (mine == other) | (mine.isnan() & other.isnan())
    allowed = relative * other.abs()
    if scale is not None:  # only weights are near one; averages are as large as gradients
        allowed = allowed + tolerance * scale.cpu().clamp(min=1.0)
    is_wrong = ~is_same & ~((mine - other).abs() <= allowed)
    is_rounded = key == "weight" and case.update.hyper.stochastic_rounding
    is_rounded = is_rounded or (key == "exp_avg" and rounds_average(case.update))
    if is_rounded and (~is_same).sum() > max(1, _MAX_TIES * mine.numel()):
        is_wrong = ~is_same
    if not is_wrong.any():
        return None
    gaps, limits = (mine - other).abs()[is_wrong], allowed[is_wrong]
    return Difference(
        name, key, int(is_wrong.sum()), mine.numel(), gaps.max().item(), limits.max().item()
    )

"""Instructions whose results are documented up to an error: PTX ISA, "Floating Point Instructions"."""

from collections.abc import Callable

import numpy as np

from tests.emulated_gpu.ptx import Instruction

# By opcode: the largest error, relative to the exact result, or in units in its last place.
_RELATIVE = {"rsqrt.approx": 2**-22.9, "sqrt.approx": 2.0**-23}
_ULPS = {"rcp.approx": 1, "div.approx": 2, "div.full": 2, "ex2.approx": 2}

EXACT: dict[str, Callable[..., np.ndarray]] = {
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sqrt": np.sqrt,
    "rcp": lambda x: 1 / x,
    "div": lambda a, b: a / b,
    "ex2": np.exp2,
}
"""The functions themselves, for float64."""


def is_approximate(ins: Instruction) -> bool:
    """Whether an instruction may return another number than the nearest."""
    return "approx" in ins.mods or "full" in ins.mods


class Approximation:
    """Errors within the documented bounds.

    Args:
        error: in parts of what is allowed: 0 rounds to nearest, 1 and -1 are the limits; ``None`` draws
            the error of every result at random.
    """

    def __init__(self, error: float | None = 0.0, seed: int = 0) -> None:
        self.error = error
        self._random = np.random.default_rng(seed)

    def __call__(self, ins: Instruction, *operands: np.ndarray) -> np.ndarray:
        """Return a float32 result of an approximate instruction."""
        exact = EXACT[ins.op](*(x.astype(np.float64) for x in operands))
        nearest = exact.astype(np.float32)
        if self.error == 0.0:
            return nearest
        is_usual = np.isfinite(nearest) & (np.abs(nearest) >= np.float32(2.0**-126))
        allowed = np.where(is_usual, allowed_error(ins, exact), 0.0)
        parts = self._random.uniform(-1, 1, exact.shape) if self.error is None else self.error
        moved = (exact + parts * allowed).astype(np.float32)
        # Rounding may have left the bounds: back by one.
        inward = np.where(moved > exact, -np.inf, np.inf).astype(np.float32)
        is_out = np.abs(moved.astype(np.float64) - exact) > allowed
        moved = np.where(is_out, np.nextafter(moved, inward), moved)
        is_out = np.abs(moved.astype(np.float64) - exact) > allowed
        return np.where(is_usual & ~is_out, moved, nearest)


def allowed_error(ins: Instruction, exact: np.ndarray) -> np.ndarray:
    """Return the largest absolute error that the documentation allows."""
    name = f"{ins.op}.{'approx' if 'approx' in ins.mods else 'full'}"
    if name in _RELATIVE:
        return _RELATIVE[name] * np.abs(exact)
    ulp = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    return _ULPS[name] * ulp

"""The published GPU specifications that a prediction needs."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Card:
    """Peak rates of a GPU, from its data sheet."""

    name: str
    architecture: int
    bandwidth: float
    """Bytes per second."""
    float64: float
    """Operations per second, half of the published number, which counts a multiply-add twice."""
    num_sms: int
    clock: float
    """Boost clock in Hz."""
    cache_bytes: float
    """Of the second level, which all multiprocessors share."""

    @property
    def issue(self) -> float:
        """Instructions per second, counted by threads: four warps per multiprocessor and cycle."""
        return 128 * self.num_sms * self.clock


CARDS = (
    Card("A100 80 GB SXM", 80, 2.039e12, 9.7e12 / 2, 108, 1.41e9, 40e6),
    Card("H100 SXM", 90, 3.35e12, 34e12 / 2, 132, 1.98e9, 50e6),
    Card("RTX 4090", 89, 1.008e12, 82.6e12 / 64 / 2, 128, 2.52e9, 72e6),
    Card("L4", 89, 0.3e12, 30.3e12 / 64 / 2, 58, 2.04e9, 48e6),
    Card("B200", 100, 8.0e12, 37e12 / 2, 148, 1.96e9, 126e6),
)

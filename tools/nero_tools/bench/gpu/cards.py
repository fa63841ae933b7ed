"""The published GPU specifications that a prediction needs."""

from dataclasses import dataclass

from nero_tools.bench.gpu.machine_code import Architecture


@dataclass(frozen=True)
class Card:
    """Peak rates of a GPU, from its data sheet."""

    name: str
    architecture: Architecture
    bandwidth: float
    """Bytes per second."""
    float64: float
    """Operations per second, half of the published number, which counts a multiply-add twice."""
    num_sms: int
    """Multiprocessors, which AMD calls compute units."""
    clock: float
    """Boost clock in Hz."""
    cache_bytes: float
    """Of the last level, which all multiprocessors share."""
    source: str
    """Who published the bandwidth and the peak rates."""

    @property
    def issue(self) -> float:
        """Instructions per second, counted by threads.

        Per multiprocessor and cycle, NVIDIA's issue four warps of 32 threads. AMD's execute vector
        instructions of 64 threads: four SIMDs of 16 lanes on CDNA, and two of 32 on RDNA, whose dual issue
        is not counted.
        """
        lanes = 128 if isinstance(self.architecture, int) else 64
        return lanes * self.num_sms * self.clock


_AMPERE = "NVIDIA, A100 Tensor Core GPU data sheet and architecture white paper"
_HOPPER = "NVIDIA, H100 Tensor Core GPU data sheet and architecture white paper"
_ROCM = "and AMD, ROCm GPU specifications"
CARDS = (
    Card("A100 80 GB SXM", 80, 2.039e12, 9.7e12 / 2, 108, 1.41e9, 40e6, _AMPERE),
    Card("H100 SXM", 90, 3.35e12, 34e12 / 2, 132, 1.98e9, 50e6, _HOPPER),
    Card(
        "H200 SXM", 90, 4.8e12, 34e12 / 2, 132, 1.98e9, 50e6,
        "NVIDIA, H200 Tensor Core GPU data sheet; multiprocessors, clock and cache as on the H100",
    ),
    Card("B200", 100, 8.0e12, 37e12 / 2, 148, 1.96e9, 126e6, "NVIDIA, HGX B200 data sheet"),
    Card(
        "RTX 4090", 89, 1.008e12, 82.6e12 / 64 / 2, 128, 2.52e9, 72e6,
        "NVIDIA, Ada GPU architecture white paper",
    ),
    Card(
        "RTX 5090", 120, 1.792e12, 104.8e12 / 64 / 2, 170, 2.407e9, 96e6,
        "NVIDIA, RTX Blackwell GPU architecture white paper",
    ),
    Card(
        "L4", 89, 0.3e12, 30.3e12 / 64 / 2, 58, 2.04e9, 48e6, "NVIDIA, L4 Tensor Core GPU data sheet"
    ),
    Card(
        # torch sees each of the two dies as a GPU: half of the published numbers
        "MI250X, one die", "gfx90a", 3.2e12 / 2, 47.9e12 / 2 / 2, 110, 1.7e9, 8e6,
        f"AMD, Instinct MI250X data sheet {_ROCM}",
    ),
    Card(
        "MI300X", "gfx942", 5.3e12, 81.7e12 / 2, 304, 2.1e9, 256e6,
        f"AMD, Instinct MI300X data sheet {_ROCM}",
    ),
    Card(
        "RX 7900 XTX", "gfx1100", 0.96e12, 61.4e12 / 32 / 2, 96, 2.5e9, 96e6,
        f"AMD, Radeon RX 7900 XTX product page {_ROCM}",
    ),
)  # fmt: skip

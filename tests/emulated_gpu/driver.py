"""A Triton driver for a GPU that does not exist: kernels are compiled as usual, and their PTX emulated.

    with emulated_gpu(80):
        assert self_test(Variant(torch.device("cpu"), torch.float32, stochastic=False)).passed

`nero.backends.triton.launch` runs as it does on a GPU, and so does Triton's own launching: binding,
specialization of arguments, compilation, cache. Tensors are on the CPU.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from torch import Tensor

from tests.emulated_gpu.emulator import Emulator
from tests.emulated_gpu.memory import Memory


class EmulatedGpu:
    """What Triton asks of a driver, and the launches so far.

    Args:
        architecture: a compute capability, such as 80 or 90.
        error: of approximate instructions: see `Approximation`.
        counts_traffic: whether to count what loads and stores move.
    """

    def __init__(
        self, architecture: int, error: float | None = 0.0, *, counts_traffic: bool = False
    ) -> None:
        self.architecture, self.error, self.counts_traffic = architecture, error, counts_traffic
        self.memory = Memory()
        self.emulators: dict[tuple[str, str], Emulator] = {}
        """By the kernel's name and hash."""
        self.launches: Counter[str] = Counter()
        self.launcher_cls = _Launcher
        self.utils = SimpleNamespace(
            get_device_properties=lambda device: {"max_shared_mem": 99 << 10},
            load_binary=lambda name, *rest: (1, name, 0, 0, 1024),
        )

    def get_current_device(self) -> int:
        """Return a number by which Triton keeps compiled kernels apart."""
        return self.architecture

    def get_current_stream(self, device: int) -> int:
        """Return the default stream."""
        return 0

    def get_current_target(self) -> Any:
        """Return what to compile for."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.architecture, 32)

    def emulator(self, name: str = "step_kernel") -> Emulator:
        """Return the emulator of the only kernel of this name that was launched."""
        (found,) = (each for (kernel, _), each in self.emulators.items() if kernel == name)
        return found

    def add(self, tensor: Tensor, name: str) -> None:
        """Let kernels touch a tensor."""
        if tensor.numel():
            last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
            self.memory.add(tensor.data_ptr(), (last + 1) * tensor.element_size(), name)

    def add_updates(self, updates: Iterable[Any]) -> None:
        """Let kernels touch the tensors of these updates, and nothing else."""
        self.memory.clear()
        for i, update in enumerate(updates):
            tensors = {"weight": update.weight, "grad": update.grad, **update.state}
            if isinstance(update.lr, Tensor):
                tensors["lr"] = update.lr
            for key, tensor in tensors.items():
                self.add(tensor, f"{key} {i}")


class _Launcher:
    """Launches one compiled kernel; it outlives the GPU that was active when it was compiled."""

    def __init__(self, source: Any, metadata: Any) -> None:
        from triton.runtime.cache import get_cache_manager

        self._types = list(source.signature.values())
        self._key = (metadata.name, metadata.hash)
        path = get_cache_manager(metadata.hash).get_file(f"{metadata.name}.ptx")
        self._emulator = Emulator(Path(path).read_text(), shared_bytes=metadata.shared)

    def __call__(
        self, x: int, y: int, z: int, stream: int, function: Any, packed: Any, metadata: Any,
        enter: Any, leave: Any, *arguments: Any,
    ) -> None:  # fmt: skip
        from triton.runtime import driver

        assert (y, z) == (1, 1)
        gpu: EmulatedGpu = driver.active
        values = []
        for argument, type_ in zip(arguments, self._types, strict=True):
            if isinstance(argument, Tensor):
                gpu.add(argument, "table")
                argument = argument.data_ptr()
            if type_ != "constexpr":
                values.append(int(argument))
        emulator, machine = self._emulator, self._emulator.machine
        gpu.emulators[self._key] = emulator
        machine.memory, machine.counts_traffic = gpu.memory, gpu.counts_traffic
        emulator.approximation.error = gpu.error
        gpu.launches[self._key[0]] += 1
        emulator.run(x, *values)


@contextmanager
def emulated_gpu(
    architecture: int = 80, error: float | None = 0.0, *, counts_traffic: bool = False
) -> Iterator[EmulatedGpu]:
    """Let the Triton backend take tensors on the CPU, and run its compiled kernels there."""
    from triton.runtime import driver

    from nero.backends.triton import launch, selftest

    gpu, before = EmulatedGpu(architecture, error, counts_traffic=counts_traffic), driver._active
    backend, run = launch.TritonBackend, launch._run

    def run_with_tables(table: Any, *rest: Any) -> None:
        gpu.add(table._lrs, "table")
        for buffers in table.buffers:
            for key, tensor in zip(buffers._fields, buffers, strict=True):
                gpu.add(tensor, key)
        run(table, *rest)

    def with_memory(method: Any) -> Any:
        def stepping(self: Any, updates: Any, *rest: Any) -> Any:
            gpu.add_updates(updates)
            return method(self, updates, *rest)

        return stepping

    driver.set_active(gpu)
    try:
        with (
            mock.patch.object(launch, "why_not_device", return_value=None),
            mock.patch.object(selftest, "why_not_device", return_value=None),
            mock.patch.object(launch, "_run", run_with_tables),
            mock.patch.object(backend, "step_", with_memory(backend.step_)),
            mock.patch.object(backend, "gram", with_memory(backend.gram)),
            mock.patch.object(backend, "apply_", with_memory(backend.apply_)),
        ):
            yield gpu
    finally:
        driver._active = before

"""Whether to trust a kernel on a device: it is tested there before its first step, once.

We have no GPU, so the kernel proves itself where it runs. A passed self-test is kept on disk, with all that
it holds for (device, driver, dtype, sources, versions), so that other processes need not repeat it; a file
that says anything else, or nothing, is not believed. A failed one is not kept: its cause, such as a driver,
may be gone tomorrow.
"""

import hashlib
import json
import os
import platform
import tempfile
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from nero.backends.triton.launch import Variant, is_capturing
from nero.backends.triton.selftest import SelfTest, device_name, self_test
from nero.core.warn import warn_user

_verdicts: dict[Variant, SelfTest | None] = {}  # of this process; None is a pass of another one
_warned: set[Variant] = set()


def agrees_or_warns(variant: Variant) -> bool:
    """Tell whether the kernel agrees with the plain backend; warn once if it does not."""
    found = verdict(variant)
    if found is None or found.passed:
        return True
    if variant not in _warned:
        _warned.add(variant)
        warn_user(
            f"Nero runs on plain torch operations, because the self-test of its Triton kernel failed. "
            f"{found}. `nero doctor` prints all of it; fused=False skips the test"
        )
    return False


def agrees_or_raises(variant: Variant) -> bool:
    """Return ``True`` if the kernel agrees with the plain backend.

    Raises:
        RuntimeError: if it does not, and says what differed.
    """
    found = verdict(variant)
    if found is None or found.passed:
        return True
    raise RuntimeError(
        f"fused=True, but the self-test of the Triton kernel failed. {found}. `nero doctor` prints all of "
        "it; leave fused=None to go on with plain torch operations"
    )


def verdict(variant: Variant) -> SelfTest | None:
    """Return what came of the self-test of a kernel; ``None`` if another process saw it pass.

    Raises:
        RuntimeError: if the test must be run while a CUDA graph is being captured.
    """
    if variant not in _verdicts:
        if is_capturing(variant.device):
            raise RuntimeError(
                "a CUDA graph is being captured, but the Triton kernel has not been tested on this device "
                "yet: step once before the capture"
            )
        path = _path(variant)
        if _has_passed(path, variant):
            _verdicts[variant] = None
        else:
            found = _verdicts[variant] = self_test(variant)
            if found.passed:
                _keep(path, found, variant)
    return _verdicts[variant]


def forget() -> None:
    """Forget what this process has tested and warned of; what is on disk stays."""
    _verdicts.clear()
    _warned.clear()


def cache_folder() -> Path:
    """Return where passed self-tests are kept: ``$NERO_CACHE``, or ``nero`` in the user's cache.

    Example:
        >>> cache_folder().name
        'nero'
    """
    if os.environ.get("NERO_CACHE"):
        return Path(os.environ["NERO_CACHE"])
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "nero"


def identity(variant: Variant) -> dict[str, Any]:
    """Return what a verdict holds for: a kernel, the device, and every version that could change it."""
    device = variant.device
    found: dict[str, Any] = {
        "device": device_name(device),
        "machine": platform.machine(),
        "driver": _driver(),
        "dtype": str(variant.dtype),
        "stochastic": variant.stochastic,
        "momentum": str(variant.momentum),
        "shared": variant.shared,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "sources": _digest(),
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found["capability"] = [properties.major, properties.minor]
    for package in ("nero-optim", "triton"):
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def _path(variant: Variant) -> Path:
    packed = json.dumps(identity(variant), sort_keys=True)
    return cache_folder() / f"selftest-{hashlib.sha256(packed.encode()).hexdigest()[:20]}.json"


def _has_passed(path: Path, variant: Variant) -> bool:
    """Tell whether a file says that this very kernel has passed, here and in these versions."""
    try:
        kept = json.loads(path.read_text())
        is_same = kept["of"] == json.loads(json.dumps(identity(variant)))
        return is_same and kept["found"]["passed"] is True
    except (OSError, ValueError, KeyError, TypeError):  # no file, no text, no JSON, or another one
        return False


def _keep(path: Path, found: SelfTest, variant: Variant) -> None:
    with suppress(OSError):  # a folder that cannot be written to: the next process tests again
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"of": identity(variant), "found": found.as_dict()}, indent=2)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            file.write(text + "\n")
        os.replace(file.name, path)  # whole, also if other ranks write it too


_DRIVERS = ("/proc/driver/nvidia/version", "/sys/module/amdgpu/version")


def _driver() -> str | None:
    """Return what the driver says of itself, where Linux tells it."""
    for path in _DRIVERS:
        with suppress(OSError):
            return Path(path).read_text().strip()
    return None


@cache
def _digest() -> str:
    """Return a hash of the sources of the kernel and of what it is held to."""
    digest, package = hashlib.sha256(), Path(__file__).parents[2]
    for path in sorted([*(package / "backends").rglob("*.py"), *(package / "core").rglob("*.py")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:20]

"""Decide whether to trust a kernel on a device: it is tested there once, before its first step.

We have no GPU, so the kernel is tested where it runs. A passed self-test is cached on disk, together with
everything it depends on (device, driver, dtype, sources, versions), so that other processes need not repeat
it; a file with anything else is ignored. A failed one is not cached, since its cause, such as a driver, may
be fixed.
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

_verdicts: dict[Variant, SelfTest | None] = {}  # in this process; None means passed in another one
_warned: set[Variant] = set()


def agrees_or_warns(variant: Variant) -> bool:
    """Whether the kernel agrees with the plain backend; warns once if it does not."""
    result = verdict(variant)
    if result is None or result.passed:
        return True
    if variant not in _warned:
        _warned.add(variant)
        what = "fell back to plain torch operations, because its Triton kernel"
        if variant.kept:  # another launch can take these rows, if it passes its own test
            rows = f"rows of up to {variant.kept:,} weights"
            what = f"reads {rows} twice, because the launch that reads them once"
        warn_user(
            f"Nero {what} failed the self-test. {result}. Run `nero doctor` for the full report, or pass "
            "fused=False to skip the test"
        )
    return False


def agrees_or_raises(variant: Variant) -> bool:
    """Return ``True`` if the kernel agrees with the plain backend.

    Raises:
        RuntimeError: if it does not, with the differences.
    """
    result = verdict(variant)
    if result is None or result.passed:
        return True
    raise RuntimeError(
        f"fused=True, but the Triton kernel failed its self-test. {result}. Run `nero doctor` for the "
        "full report, or leave fused=None to fall back"
    )


def verdict(variant: Variant) -> SelfTest | None:
    """Return the result of a kernel's self-test; ``None`` if it passed in another process.

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
            result = _verdicts[variant] = self_test(variant)
            if result.passed:
                _save(path, result, variant)
    return _verdicts[variant]


def forget() -> None:
    """Forget this process's self-tests and warnings; the cache on disk stays."""
    _verdicts.clear()
    _warned.clear()


def cache_folder() -> Path:
    """Return the folder for passed self-tests: ``$NERO_CACHE``, or ``nero`` in the user's cache.

    Example:
        >>> cache_folder().name
        'nero'
    """
    if os.environ.get("NERO_CACHE"):
        return Path(os.environ["NERO_CACHE"])
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "nero"


def identity(variant: Variant) -> dict[str, Any]:
    """Return everything a verdict depends on: the kernel, the device, and all relevant versions."""
    device = variant.device
    values: dict[str, Any] = {
        "device": device_name(device),
        "machine": platform.machine(),
        "driver": _driver(),
        "dtype": str(variant.dtype),
        "stochastic": variant.stochastic,
        "momentum": str(variant.momentum),
        "shared": variant.shared,
        "kept": variant.kept,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "sources": _digest(),
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        values["capability"] = [properties.major, properties.minor]
    for package in ("nero-optim", "triton"):
        with suppress(PackageNotFoundError):
            values[package] = version(package)
    return values


def _path(variant: Variant) -> Path:
    text = json.dumps(identity(variant), sort_keys=True)
    return cache_folder() / f"selftest-{hashlib.sha256(text.encode()).hexdigest()[:20]}.json"


def _has_passed(path: Path, variant: Variant) -> bool:
    """Whether a file says that this kernel has passed on this device and with these versions."""
    try:
        saved = json.loads(path.read_text())
        is_same = saved["of"] == json.loads(json.dumps(identity(variant)))
        return is_same and saved["found"]["passed"] is True
    except (OSError, ValueError, KeyError, TypeError):  # missing, not text, not JSON, or other JSON
        return False


def _save(path: Path, result: SelfTest, variant: Variant) -> None:
    with suppress(OSError):  # if the folder is not writable, the next process tests again
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"of": identity(variant), "found": result.as_dict()}, indent=2)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            file.write(text + "\n")
        os.replace(file.name, path)  # atomic, even if other ranks write it too


_DRIVERS = ("/proc/driver/nvidia/version", "/sys/module/amdgpu/version")


def _driver() -> str | None:
    """Return the GPU driver's version, if Linux reports it."""
    for path in _DRIVERS:
        with suppress(OSError):
            return Path(path).read_text().strip()
    return None


@cache
def _digest() -> str:
    """Return a hash of the sources of the kernel and of its reference."""
    digest, package = hashlib.sha256(), Path(__file__).parents[2]
    for path in sorted([*(package / "backends").rglob("*.py"), *(package / "core").rglob("*.py")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:20]

"""Read, validate and summarize a GPU report."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nero.cli.arguments import CommandError
from nero.cli.doctor import self_tests_text
from nero.tables import aligned
from nero_tools.gpu_kit.measure import PRESETS, SCHEMA

_RESULTS = ("passed", "differs", "refused", "not run")


def read_kit(path: str) -> dict[str, Any]:
    """Read and check a file.

    Raises:
        CommandError: that says what is wrong, and where.
    """
    try:
        kit = json.loads(Path(path).read_text())
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise CommandError(f"{path} is not JSON: {error}") from error
    if not isinstance(kit, dict) or kit.get("kit_schema") != SCHEMA:
        raise CommandError(f"{path} is not a file of the gpu kit with kit_schema {SCHEMA}")
    _text(kit, "date", path)
    for name in ("python", "torch", "nero-optim"):
        _text(_part(kit, "versions", dict, path), name, f"{path}: versions")
    device = _part(kit, "device", dict, path)
    for name in ("type", "name"):
        _text(device, name, f"{path}: device")
    for i, test in enumerate(_part(kit, "self_tests", list, path)):
        where = f"{path}: self_tests[{i}]"
        for name in ("device", "dtype"):
            _text(_mapping(test, where), name, where)
        _part(test, "passed", bool, where)
        _part(test, "differences", list, where)
        for name in ("num_cases", "seconds"):
            _number(test, name, where)
    _check_steps(kit, path)
    captures = _part(kit, "captures", dict, path)
    for preset in PRESETS:
        where = f"{path}: captures.{preset}"
        result = _text(_part(captures, preset, dict, f"{path}: captures"), "result", where)
        if result not in _RESULTS:
            raise CommandError(f"{where}: result must be one of {_RESULTS}, not {result!r}")
    _check_curves(kit, path)
    return kit


def _check_steps(kit: Mapping[str, Any], path: str) -> None:
    steps = _part(kit, "steps", list, path)
    if not steps:
        raise CommandError(f"{path}: steps is empty")
    for i, step in enumerate(steps):
        where = f"{path}: steps[{i}]"
        _text(_mapping(step, where), "model", where)
        _number(step, "num_parameters", where, least=1)
        optimizers = _part(step, "optimizers", dict, where)
        if not optimizers:
            raise CommandError(f"{where}: optimizers is empty")
        for name, figures in optimizers.items():
            inside = f"{where}.optimizers.{name}"
            times = _times(_mapping(figures, inside))
            if times is None:
                raise CommandError(f"{inside} has no milliseconds")
            low, median, high = (
                _number(times, key, inside, least=1e-9) for key in ("low", "median", "high")
            )
            if not low <= median <= high:
                raise CommandError(f"{inside}: median {median} must lie in {low} to {high}")
            for key in ("state_bytes", "temporary_bytes"):
                _number(figures, key, inside)
            if _number(figures, "share_changed", inside) > 1:
                raise CommandError(f"{inside}: share_changed must be at most 1")


def _check_curves(kit: Mapping[str, Any], path: str) -> None:
    curves = _part(kit, "curves", list, path)
    found = [_text(_mapping(c, f"{path}: curves"), "preset", f"{path}: curves") for c in curves]
    if found != [*PRESETS]:
        raise CommandError(f"{path}: curves must be of the presets {PRESETS}, not {found}")
    for curve in curves:
        where = f"{path}: curve {curve['preset']}"
        pair = [_part(curve, key, list, where) for key in ("device", "cpu")]
        if len(pair[0]) != len(pair[1]) or not pair[0]:
            raise CommandError(f"{where}: both must have the same number of losses, at least one")
        for which, losses in zip(("device", "cpu"), pair, strict=True):
            for i, loss in enumerate(losses):
                # JSON has no NaN: a loss that is not finite is null, which on a device is worth reading.
                if not (loss is None and which == "device"):
                    _number({"loss": loss}, "loss", f"{where}, {which}, step {i}")


def text(kit: Mapping[str, Any]) -> str:
    """Return the summary of a file that `read_kit` has checked."""
    device, versions = kit["device"], kit["versions"]
    lines = [
        f"{device['name']} ({device.get('capability')}), driver {device.get('driver')}, {kit['date']}",
        ", ".join(f"{name} {version}" for name, version in versions.items()),
        "",
        self_tests_text(kit["self_tests"]),
        "",
    ]
    header = ["model", "optimizer", "ms", "quartiles", "x adamw-fused", "state MiB", "peak MiB"]
    rows = [header]
    for step in kit["steps"]:
        for name, figures in step["optimizers"].items():
            times = _times(figures)
            assert times is not None
            ratio = (figures["ratios"] or {}).get("adamw-fused")
            rows.append(
                [
                    step["model"],
                    name,
                    f"{times['median']:.3g}{'' if figures['milliseconds'] else '~'}",
                    f"{times['low']:.3g} to {times['high']:.3g}",
                    "-" if ratio is None else f"{ratio['median']:.2f}",
                    f"{figures['state_bytes'] / 2**20:.1f}",
                    f"{figures['temporary_bytes'] / 2**20:.1f}",
                ]
            )
    lines += [aligned(rows, left=(0, 1)), "~ from disturbed samples", ""]
    graphs = [["preset", "CUDA graph", "why"]]
    graphs += [
        [p, kit["captures"][p]["result"], kit["captures"][p].get("why", "")] for p in PRESETS
    ]
    lines += [aligned(graphs, left=(0, 1, 2)), ""]
    ends = [["preset", "steps", "last loss", "on the CPU", "largest relative difference"]]
    for curve in kit["curves"]:
        pairs = [*zip(curve["device"], curve["cpu"], strict=True)]
        both = [(a, b) for a, b in pairs if a is not None]
        worst = max((abs(a - b) / max(abs(b), 1e-12) for a, b in both), default=math.inf)
        shown = f"{worst:.1e}" if len(both) == len(pairs) else "not finite on the device"
        last = ["not finite" if loss is None else f"{loss:.4f}" for loss in pairs[-1]]
        ends.append([curve["preset"], str(len(pairs)), *last, shown])
    return "\n".join([*lines, aligned(ends, left=(0,))])


def _times(figures: Mapping[str, Any]) -> Any:
    return figures.get("milliseconds") or figures.get("noisy_milliseconds")


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise CommandError(f"{where} must be an object, not {value!r:.40}")
    return value


def _part(values: Mapping[Any, Any], name: Any, kind: type, where: str) -> Any:
    if name not in values:
        raise CommandError(f"{where}: {name} is missing")
    if not isinstance(values[name], kind):
        raise CommandError(f"{where}: {name} must be a {kind.__name__}, not {values[name]!r:.40}")
    return values[name]


def _text(values: Mapping[Any, Any], name: str, where: str) -> str:
    found = str(_part(values, name, str, where))
    if not found:
        raise CommandError(f"{where}: {name} is empty")
    return found


def _number(values: Mapping[Any, Any], name: Any, where: str, least: float = 0.0) -> float:
    value = values.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise CommandError(f"{where}: {name} must be a number, not {value!r:.40}")
    if not least <= value < math.inf:
        raise CommandError(f"{where}: {name} must be finite and at least {least}, but is {value}")
    return float(value)

"""One model of the zoo: what the registry says of its parameters, and what a forward pass shows."""

import time
from typing import Any, TypeAlias

from torch import nn
from transformers import PreTrainedModel

from nero.layout import NamedLayout, infer_layouts
from nero.layout.observation import observe
from nero.layout.observation.sightings import Seen, same_neurons
from tests.zoo.builder import build
from tests.zoo.catalogue import Entry
from tests.zoo.inputs import parts, variants

MAX_SECONDS = 60.0
"""No further pass is begun after this time."""


def study(entry: Entry) -> dict[str, Any]:
    """Build a model, watch its passes, and compare."""
    result: dict[str, Any] = {**entry._asdict(), "half": entry.half, "passes": {}, "params": []}
    try:
        model, result["config"] = build(entry.type, entry.cls)
    except Exception as failure:
        return {**result, "error": words(failure)}
    begun = time.perf_counter()
    found = infer_layouts(model)
    names = {each.name for each in found}
    sights = Sights()
    try:
        result["passes"] = _passes(model, names, sights)
    except Exception as failure:
        result["passes"]["inputs"] = words(failure)
    seen = {name: sights.of(name) for name in names}
    result["seconds"] = round(time.perf_counter() - begun, 2)
    owners = {
        f"{path}.{name}" if path else name: (type(module).__name__, name)
        for path, module in model.named_modules()
        for name, _ in module.named_parameters(recurse=False)
    }
    result["params"] = [
        {"name": each.name, "owner": owners[each.name], **compared(each, seen[each.name])}
        for each in found
    ]
    return result


Inputs: TypeAlias = dict[str, Any]


class Sights:
    """What several passes showed; those that stopped early only count where no other was."""

    def __init__(self) -> None:
        self.whole: dict[str, list[Seen]] = {}
        self.partial: dict[str, list[Seen]] = {}

    def of(self, name: str) -> list[Seen]:
        """Return what was seen of a parameter."""
        return self.whole.get(name) or self.partial.get(name, [])

    def watch(self, model: nn.Module, inputs: Inputs, prefix: str = "") -> tuple[str, int]:
        """Run one pass, and return why it stopped and how many parameters it showed."""
        observation = observe(model, inputs)
        kept = self.partial if observation.error else self.whole
        for name, each in observation.seen.items():
            if each.layouts:
                kept.setdefault(prefix + name, []).append(each)
        return observation.error[:200], len(observation.seen)

    def best(self, model: nn.Module, prefix: str = "") -> tuple[Inputs, str]:
        """Watch the first form of the inputs with which a pass completes, or that which shows most."""
        tried = []
        for inputs in variants(model):
            error, count = self.watch(model, inputs, prefix)
            tried.append((bool(error), -count, len(tried), inputs, error))
            if not error:
                break
        *_, inputs, error = min(tried)
        return inputs, error


def _passes(model: nn.Module, names: set[str], sights: Sights) -> dict[str, str]:
    """Run a model on all of its inputs, then on parts of them, then tower by tower; return the errors."""
    begun = time.perf_counter()
    inputs, error = sights.best(model)
    errors = {"all": error}

    def is_done() -> bool:
        is_late = time.perf_counter() - begun > MAX_SECONDS
        return names <= {*sights.whole} or is_late

    for name, part in parts(inputs):
        if not is_done():
            errors[name], _ = sights.watch(model, part)
    towers = [
        (path, module)
        for path, module in model.named_modules()
        if path and isinstance(module, PreTrainedModel)
    ]
    for path, tower in towers:
        unseen = [n for n in names if n.startswith(f"{path}.") and n not in sights.whole]
        if unseen and not is_done():
            _, errors[f"tower {path}"] = sights.best(tower, f"{path}.")
    return errors


def compared(each: NamedLayout, seen: list[Seen]) -> dict[str, Any]:
    """Return what is registered or guessed of a parameter, and what was seen of it."""
    layouts = []
    for layout in (layout for one in seen for layout in one.layouts):
        if not any(same_neurons(layout, other, each.param.shape) for other in layouts):
            layouts.append(layout)
    agrees = [same_neurons(each.layout, layout, each.param.shape) for layout in layouts]
    verdict = "unseen" if not agrees else "agrees" if all(agrees) else "differs"
    if verdict == "agrees" and not _same_role(each.layout.role, layouts[0].role):
        verdict = "other role"
    return {
        "shape": [*each.param.shape],
        "by": "guess" if each.is_guess else "registry",
        "layout": _short(each.layout),
        "seen": [_short(layout) for layout in layouts],
        "how": " and ".join(dict.fromkeys(one.how for one in seen)),
        "verdict": verdict,
    }


def _same_role(role: str, other: str) -> bool:
    return role == other or {role, other} <= {"neuron", "embedding"}


def _short(layout: Any) -> str:
    dims = "" if layout.neuron_dims is None else f" {layout.neuron_dims}"
    return layout.role + dims + (f" / {layout.num_groups}" if layout.num_groups > 1 else "")


def words(failure: Exception) -> str:
    """Return the kind of an error and its first line."""
    text = str(failure).strip().splitlines() or [""]
    return f"{type(failure).__name__}: {text[0]}"[:200]

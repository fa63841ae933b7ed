"""One model of the zoo: what the registry says of its parameters, and what a forward pass shows."""

import time
from typing import Any, TypeAlias

from torch import nn

from nero.layout import infer_layouts
from nero.layout.infer import NamedLayout
from nero.layout.observation import observe
from nero.layout.observation.sightings import Seen
from nero.layout.reconcile import same_neurons
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
    seen: dict[str, list[Seen]] = {}
    try:
        inputs, result["passes"]["all"] = _best(model, variants(model), seen)
        for name, part in parts(inputs):
            if names <= {*seen} or time.perf_counter() - begun > MAX_SECONDS:
                break
            result["passes"][name], _ = _watch(model, part, seen)
    except Exception as failure:
        result["passes"]["inputs"] = words(failure)
    result["seconds"] = round(time.perf_counter() - begun, 2)
    owners = {
        f"{path}.{name}" if path else name: (type(module).__name__, name)
        for path, module in model.named_modules()
        for name, _ in module.named_parameters(recurse=False)
    }
    result["params"] = [
        {"name": each.name, "owner": owners[each.name], **compared(each, seen.get(each.name, []))}
        for each in found
    ]
    return result


Inputs: TypeAlias = dict[str, Any]


def _best(
    model: nn.Module, forms: list[Inputs], seen: dict[str, list[Seen]]
) -> tuple[Inputs, str]:
    """Return the first form of the inputs with which a pass completes, or that which shows most."""
    tried = []
    for inputs in forms:
        error, count = _watch(model, inputs, seen)
        tried.append((bool(error), -count, len(tried), inputs, error))
        if not error:
            break
    *_, inputs, error = min(tried)
    return inputs, error


def _watch(model: nn.Module, inputs: Inputs, seen: dict[str, list[Seen]]) -> tuple[str, int]:
    """Run one pass, and return why it stopped and how many parameters it showed."""
    observation = observe(model, inputs)
    for name, each in observation.seen.items():
        if each.layouts:
            seen.setdefault(name, []).append(each)
    return observation.error[:200], len(observation.seen)


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

"""What the zoo shows in all: counts, times, failures, and every difference."""

import fnmatch
from collections import Counter, defaultdict
from collections.abc import Iterable
from statistics import median
from typing import Any

import torch
import transformers

from tests.zoo.catalogue import HALVES
from tests.zoo.exceptions import EXCEPTIONS

Result = dict[str, Any]


def summary(results: Iterable[Result]) -> dict[str, Any]:
    """Return the record of these models."""
    by_kind: dict[str, list[Result]] = defaultdict(list)
    for each in sorted(results, key=lambda each: (each["kind"], each["type"])):
        by_kind[each["kind"]].append(each)
    everything = [each for one in by_kind.values() for each in one]
    return {
        "command": "python -m tests.zoo",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "protocol": "rules tuned on the first half of the families; records/zoo-held-out.json has the "
        "first run of the second half",
        "kinds": {kind: counts(each) for kind, each in by_kind.items()},
        "halves": {h: counts([e for e in everything if e["half"] == h]) for h in HALVES},
        "differences": differences(everything),
        "exceptions": differences(everything, excepted=True),
        "not_built": reasons((e["type"], e["error"]) for e in everything if "error" in e),
        "not_run": reasons(
            (e["type"], next(iter(e["passes"].values()), "no pass"))
            for e in everything
            if "error" not in e and has_failed(e)
        ),
    }


def counts(results: list[Result]) -> dict[str, Any]:
    """Count models, parameters and verdicts."""
    built = [each for each in results if "error" not in each]
    params = [param for each in built for param in each["params"]]
    seconds = sorted(each["seconds"] for each in built)
    verdicts: Counter[tuple[str, str]] = Counter()
    for param in params:
        verdict = param["verdict"]
        if verdict == "differs" and exception(param):
            verdict = "excepted"
        verdicts[param["by"], verdict] += 1
    return {
        "tried": len(results),
        "built": len(built),
        "completed_a_pass": sum(not has_failed(each) for each in built),
        "completed_on_all_inputs": sum(each["passes"].get("all") == "" for each in built),
        "completed_in_towers_only": sum(
            has_failed(each) and not all(each["passes"].values()) for each in built
        ),
        "seen_whole": sum(
            bool(each["params"]) and all(p["verdict"] != "unseen" for p in each["params"])
            for each in built
        ),
        "parameters": len(params),
        "seen": sum(param["verdict"] != "unseen" for param in params),
        **{
            by: {
                "agree": verdicts[by, "agrees"] + verdicts[by, "other role"],
                "of_these_in_another_role": verdicts[by, "other role"],
                "differ": verdicts[by, "differs"],
                "excepted": verdicts[by, "excepted"],
            }
            for by in ("registry", "guess")
        },
        "median_seconds": median(seconds) if seconds else None,
        "p90_seconds": seconds[int(0.9 * (len(seconds) - 1))] if seconds else None,
    }


def has_failed(result: Result) -> bool:
    """Whether no pass came to its end."""
    passes = {n: e for n, e in result["passes"].items() if not n.startswith("tower")}
    return "error" in result or all(passes.values())


def differences(results: Iterable[Result], *, excepted: bool = False) -> dict[str, Any]:
    """Return what differs, by class and parameter, with the number of parameters."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for each in results:
        for param in each.get("params", []):
            why = exception(param)
            if param["verdict"] == "differs" and bool(why) == excepted:
                words = f"{param['by']}: {param['layout']}; seen: {', '.join(param['seen'])}"
                found[_key(param)][why or words] += 1
    return {key: dict(sorted(each.items())) for key, each in sorted(found.items())}


def _key(param: dict[str, Any]) -> str:
    """Return the class that holds a parameter and its name; for layers of torch the layer's name too."""
    owner, name = param["owner"]
    if owner in ("Embedding", "Linear", "Conv1d", "Conv2d"):
        path = [part for part in param["name"].split(".")[:-1] if not part.isdigit()]
        return f"{owner} {'.'.join(path[-1:])}.{name}"
    return f"{owner}.{name}"


def exception(param: dict[str, Any]) -> str:
    """Return why a difference is none, or nothing."""
    for owner, name, reason in EXCEPTIONS:
        is_owner = fnmatch.fnmatchcase(param["owner"][0], owner)
        if is_owner and fnmatch.fnmatchcase(param["name"], f"*{name}"):
            return reason
    return ""


def reasons(failures: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return failures by type, in a few words."""
    return {name: error[:120] for name, error in sorted(failures)}

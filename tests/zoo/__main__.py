"""Run the zoo: `python -m tests.zoo [--kind base|causal|...] [--half first|second] [--jobs N]`.

What was studied is kept in runs/zoo.jsonl, so that a run that was interrupted goes on; `--again` names the
models to study again: all, or those that failed, or those where registry and observation differ. The
summary of all of it goes to records/zoo.json.
"""

import argparse
import json
from typing import Any

from tests.zoo.catalogue import HALVES, KINDS, entries
from tests.zoo.pool import ROOT, study_all
from tests.zoo.zoo_record import differences, has_failed, summary

DETAILS = ROOT / "runs" / "zoo.jsonl"
RECORD = ROOT / "records" / "zoo.json"


def main() -> None:
    """Study what is asked for and write the record."""
    parser = argparse.ArgumentParser("python -m tests.zoo", description=__doc__)
    parser.add_argument("--kind", action="append", choices=[*KINDS])
    parser.add_argument("--half", choices=HALVES)
    parser.add_argument("--types", help="model types, with commas between them")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--again", choices=("all", "failed", "differs"))
    options = parser.parse_args()
    known = _known()
    chosen = [
        entry
        for kind in options.kind or ["base", "causal"]
        for entry in entries(kind)
        if options.half in (None, entry.half)
        and (options.types is None or entry.type in options.types.split(","))
        and _is_wanted(known.get((entry.kind, entry.type)), options.again)
    ]
    DETAILS.parent.mkdir(exist_ok=True)
    with DETAILS.open("a") as details:
        for number, result in enumerate(study_all(chosen, options.jobs), 1):
            known[result["kind"], result["type"]] = result
            print(json.dumps(result), file=details, flush=True)
            print(f"{number}/{len(chosen)} {result['kind']} {result['type']}: {_words(result)}")
    RECORD.write_text(json.dumps(summary(known.values()), indent=1) + "\n")


def _known() -> dict[tuple[str, str], dict[str, Any]]:
    """Return the last result of every model that was studied before."""
    lines = DETAILS.read_text().splitlines() if DETAILS.exists() else []
    results = [json.loads(line) for line in lines]
    return {(each["kind"], each["type"]): each for each in results}


def _is_wanted(result: dict[str, Any] | None, again: str | None) -> bool:
    if result is None or again == "all":
        return True
    if again == "differs":
        return bool(differences([result]))
    return again == "failed" and has_failed(result)


def _words(result: dict[str, Any]) -> str:
    if "error" in result:
        return result["error"]
    params = result["params"]
    seen = sum(each["verdict"] != "unseen" for each in params)
    differ = sum(each["verdict"] == "differs" for each in params)
    failed = "; ".join(f"{name}: {error}" for name, error in result["passes"].items() if error)
    return f"{seen} of {len(params)} seen, {differ} differ, {result['seconds']} s  {failed}"


if __name__ == "__main__":
    main()

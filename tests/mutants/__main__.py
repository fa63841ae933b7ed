"""Run the mutants: `python -m tests.mutants [--only PATTERN] [--jobs N] [--fresh] [--list] [--status]`.

Verdicts are kept in records/mutants.json, each with a digest of the edit, the edited file and its tests. If
one of these changes, the verdict is stale, and the mutant runs again. A run that was interrupted resumes.
`--status` counts the verdicts that hold and the stale ones. `--baseline` runs the tests of all mutants on
the repository as it is: they must pass, or a kill says nothing.
"""

import argparse
import os
import subprocess
import sys
from collections import Counter

from tests.mutants.mutant import ROOT
from tests.mutants.mutant_digest import state_of
from tests.mutants.mutant_list import MUTANTS
from tests.mutants.mutant_runner import PYTEST, read_record, run_all, write_record

RECORD = ROOT / "records" / "mutants.json"


def main() -> int:
    """Run what is asked for; fail if a mutant survives that should not."""
    parser = argparse.ArgumentParser("python -m tests.mutants", description=__doc__)
    parser.add_argument(
        "--only", action="append", help="part of a mutant's name or file; repeatable"
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds per mutant")
    parser.add_argument("--fresh", action="store_true", help="forget the results that there are")
    parser.add_argument("--list", action="store_true", help="print the names, and run nothing")
    parser.add_argument("--status", action="store_true", help="count verdicts, and run nothing")
    parser.add_argument("--baseline", action="store_true", help="run the tests without any edit")
    options = parser.parse_args()
    parts = options.only or [""]
    chosen = [m for m in MUTANTS if any(part in m.name or part in m.file for part in parts)]
    if options.list or options.status:
        known = read_record(RECORD)
        states = [(mutant, state_of(mutant, known)) for mutant in chosen]
        if options.list:
            print(*(f"{state:9} {m.name:40} {m.file}" for m, state in states), sep="\n")
        else:
            counts = Counter(state for _, state in states)
            print(f"mutants: {', '.join(f'{num} {state}' for state, num in counts.items())}")
        return 0
    if options.baseline:
        selections = dict.fromkeys((m.tests, tuple(m.env.items())) for m in chosen)
        paths = os.pathsep.join(str(ROOT / part) for part in ("src", "lab", "tools"))
        failed = 0
        for tests, env in selections:
            command = [sys.executable, "-m", "pytest", *PYTEST, *tests]
            failed += bool(
                subprocess.call(
                    command, cwd=ROOT, env={**os.environ, "PYTHONPATH": paths, **dict(env)}
                )
            )
        return failed
    known, listed = read_record(RECORD), {mutant.name for mutant in MUTANTS}
    if known.keys() - listed:
        write_record(RECORD, {name: each for name, each in known.items() if name in listed})
    names = {mutant.name for mutant in chosen}
    results = run_all(
        chosen, RECORD, jobs=options.jobs, fresh=options.fresh, timeout=options.timeout
    )
    lived = [
        name
        for name, found in results.items()
        if name in names and found["result"] != "killed" and not found.get("survives_because")
    ]
    print(f"{len(names) - len(lived)} of {len(names)} killed, or known not to be reachable")
    print(*(f"  {results[name]['result']}: {name}" for name in lived), sep="\n")
    return int(bool(lived))


sys.exit(main())

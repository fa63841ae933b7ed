"""Edits of how a forward pass is watched, and of how parameters without a model are read."""

from tests.mutants.mutant_runner import Mutant

_ROOM = "src/nero/layout/observation"
CONTRACTIONS, FUNCTIONS, MOVEMENTS, SIGHTINGS, FORWARD = (
    f"{_ROOM}/{name}.py"
    for name in ("contractions", "functions", "movements", "sightings", "forward")
)
ARRIVAL, GUESS, RECONCILE, INFER = (
    f"src/nero/layout/{name}.py" for name in ("arrival", "guess", "reconcile", "infer")
)
CHECKS = "src/nero/optim/checks.py"

CASES = ("tests/layout/observation/test_operations.py",)
PASSES = ("tests/layout/observation/test_forward.py",)
ARRIVALS = ("tests/layout/test_arrival.py",)
GUESSES = ("tests/layout/test_guess.py",)
TIES = ("tests/optim/test_unseen_ties.py",)

MUTANTS = [
    Mutant(
        "observe-transposed",
        CONTRACTIONS,
        "0 if is_transposed else 1,",
        "0 if groups else 1,",
        CASES,
    ),
    Mutant("observe-groups", CONTRACTIONS, "groups if is_transposed else 1", "1", CASES),
    Mutant(
        "observe-groups-in-a-view",
        CONTRACTIONS,
        "if 0 in summed else 1",
        "if not summed else 1",
        CASES,
    ),
    Mutant("observe-tokens-in-heads", CONTRACTIONS, " and not kept & summed", "", CASES),
    Mutant("observe-experts", CONTRACTIONS, "if kept <= summed else", "if kept else", CASES),
    Mutant("observe-constants-weigh-less", SIGHTINGS, "if not each.is_weak", "if each", CASES),
    Mutant(
        "observe-offset",
        SIGHTINGS,
        "self.is_nonlinear or self.has_offset",
        "self.is_nonlinear",
        CASES,
    ),
    Mutant(
        "observe-logits", FUNCTIONS, '"bias", "logits of softmax"', '"embedding", "softmax"', CASES
    ),
    Mutant("observe-products", FUNCTIONS, 'call.name == "sum"', 'call.name == "mean"', CASES),
    Mutant(
        "observe-scaled-parameter",
        FUNCTIONS,
        "len(s.dims()) > len(source.dims())",
        "len(s.dims()) < len(source.dims())",
        CASES,
    ),
    Mutant(
        "observe-joined",
        MOVEMENTS,
        "observer.join(moved, call.name) if is_data",
        "moved if is_data",
        CASES,
    ),
    Mutant("observe-leaves-attributes", FORWARD, "vars(module).update(attributes)", "pass", PASSES),
    Mutant(
        "observe-labels",
        FORWARD,
        "_arguments(model, example[0]) if example",
        "(example, {}) if example",
        PASSES,
    ),
    Mutant("arrive-started", ARRIVAL, "!= inspect.GEN_CREATED", "== inspect.GEN_CLOSED", ARRIVALS),
    Mutant("arrive-not-recursive", ARRIVAL, 'given["recurse"] and ', "", ARRIVALS),
    Mutant("arrive-constants", ARRIVAL, " and constant_value(param)", " and False", ARRIVALS),
    Mutant(
        "arrive-parts",
        ARRIVAL,
        "known[param] if param in known else",
        "None if param in known else",
        ARRIVALS,
    ),
    Mutant(
        "guess-logarithms", GUESS, 'if "log" in (words[0], words[-1])', 'if "log" in ()', GUESSES
    ),
    Mutant("guess-norms-at-zero", GUESS, "if constant_value(param) == 0:", "if False:", GUESSES),
    Mutant(
        "reconcile-seeing-beats-guessing",
        RECONCILE,
        "replace(each, layout=layout, reason",
        "replace(each, reason",
        PASSES,
    ),
    Mutant(
        "reconcile-registered-stays",
        RECONCILE,
        "    return each, seen\n",
        "    return replace(each, layout=layout), seen\n",
        PASSES,
    ),
    Mutant(
        "tie-seen-of-guesses",
        RECONCILE,
        "(_as_output(known) if seen.is_layer else known)",
        "known",
        TIES,
    ),
    Mutant(
        "tie-seen-of-embeddings-only",
        RECONCILE,
        "(_as_output(each) if seen.is_layer else each)",
        "_as_output(each)",
        TIES,
    ),
    Mutant("tie-is-an-output", RECONCILE, "is_output=True, reason", "reason", TIES),
    Mutant("tie-ends-the-search", INFER, "return everything  # an", "pass  # an", TIES),
    Mutant("tie-warns-of-the-largest", CHECKS, "max(large, key", "min(large, key", TIES),
    Mutant("tie-knows-a-head", CHECKS, "len(param) not in nums_outputs", "True", TIES),
    Mutant("tie-trusts-an-example", ARRIVAL, "example is not None)", "False)", TIES),
]

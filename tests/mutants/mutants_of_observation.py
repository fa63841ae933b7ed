"""Edits of how a forward pass is watched, and of how parameters without a model are read."""

from tests.mutants.mutant_runner import Mutant

_ROOM = "src/nero/layout/observation"
CONTRACTIONS, FUNCTIONS, MOVEMENTS, SIGHTINGS, FORWARD, OBSERVER = (
    f"{_ROOM}/{name}.py"
    for name in ("contractions", "functions", "movements", "sightings", "forward", "observer")
)
ARRIVAL, GUESS, RECONCILE, INFER, GROUPS = (
    f"src/nero/layout/{name}.py" for name in ("arrival", "guess", "reconcile", "infer", "groups")
)
CHECKS = "src/nero/optim/checks.py"

CASES = ("tests/layout/observation/test_operations.py",)
PASSES = ("tests/layout/observation/test_forward.py",)
ARRIVALS = ("tests/layout/test_arrival.py",)
GUESSES = ("tests/layout/test_guess.py",)
IDIOMS = ("tests/layout/test_idioms.py",)
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
    Mutant("observe-one-matrix-for-all", CONTRACTIONS, " and partner.stride(0) > 0", "", CASES),
    Mutant("observe-queries", CONTRACTIONS, "if is_token and source", "if False and source", CASES),
    Mutant(
        "observe-keys", CONTRACTIONS, "if right.ndim == 2 or not right.stride(0)", "if True", CASES
    ),
    Mutant("observe-low-rank", OBSERVER, 'if source.stage == "token" and', "if False and", CASES),
    Mutant(
        "observe-mask-tokens",
        FUNCTIONS,
        "if source.is_switched and name in _TERM",
        "if False",
        CASES,
    ),
    Mutant(
        "observe-gains-are-no-tokens",
        FUNCTIONS,
        'name == "mul" and _is_switch(call, place, source)',
        'name == "mul"',
        (*CASES, *IDIOMS),
    ),
    Mutant("observe-own-transpose", FUNCTIONS, "if source.name in mixed", "if False", CASES),
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
    Mutant("guess-layers-of-tokens", GUESS, "not {*words} & _OF_TOKENS", "True", GUESSES),
    Mutant("guess-a-query-beside-a-key", GUESS, "and not is_layer", "", GUESSES),
    Mutant("guess-says-its-doubts", GROUPS, " or each.is_doubtful", "", GUESSES),
    Mutant("guess-generators", INFER, "isinstance(each, _Orthogonal)", "False", GUESSES),
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
        "(_as_output(known) if is_output else known)",
        "known",
        TIES,
    ),
    Mutant(
        "tie-is-the-last-layer",
        RECONCILE,
        "0 < seen.place == last",
        "0 < seen.place",
        TIES,
    ),
    Mutant("tie-is-an-output", RECONCILE, "is_output=True, reason", "reason", TIES),
    Mutant("tie-ends-the-search", INFER, "return everything  # an", "pass  # an", TIES),
    Mutant("tie-of-data-only", OBSERVER, "self.origin(data).is_data", "True", TIES),
    Mutant("tie-of-a-whole-pass", RECONCILE, "[] if observation.error else ", "", TIES),
    Mutant("tie-knows-a-head", CHECKS, "param.shape[-1] in ends", "True", TIES),
    Mutant("tie-trusts-an-example", ARRIVAL, "is_seen=example is not None", "is_seen=True", TIES),
    Mutant("tie-trusts-a-mark", GROUPS, "else _as_marked(found)", "else found", TIES),
    Mutant("tie-forgets-marks", ARRIVAL, "        forget_marks(model)\n", "        pass\n", TIES),
]

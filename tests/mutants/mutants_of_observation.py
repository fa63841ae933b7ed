"""Edits of how a forward pass is watched, and of how parameters without a model are read."""

from tests.mutants.mutant import Mutant

_ROOM = "src/nero/layout/observation"
CONTRACTIONS, FUNCTIONS, MOVEMENTS, SIGHTINGS, FORWARD, NOTES = (
    f"{_ROOM}/{name}.py"
    for name in ("contractions", "functions", "movements", "sightings", "forward", "notes")
)
ARRIVAL, GUESS, GROUPS, RECONCILE, OWNERS, INFER, OUTPUTS = (
    f"src/nero/layout/{name}.py"
    for name in ("arrival", "guess", "groups", "reconcile", "owners", "infer", "outputs")
)
CHECKS = "src/nero/checks/outputs.py"

CASES = ("tests/layout/observation/test_operations.py",)
PASSES = ("tests/layout/observation/test_forward.py",)
ARRIVALS = ("tests/layout/test_arrival.py",)
GUESSES = ("tests/layout/test_guess.py",)
IDIOMS = ("tests/layout/test_idioms.py",)
TIES = ("tests/optim/test_unseen_ties.py",)
FACTORS = ("tests/optim/test_factorizations.py",)
ENDS = ("tests/layout/test_outputs.py",)
MARKED = ("tests/layout/test_authority.py",)

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
    Mutant("observe-low-rank", NOTES, 'if source.stage == "token" and', "if False and", CASES),
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
        'name == "mul" and _is_switch(call, position, source)',
        'name == "mul"',
        (*CASES, *IDIOMS),
    ),
    Mutant("observe-own-transpose", FUNCTIONS, "if source.name in mixed", "if False", CASES),
    Mutant("observe-experts", CONTRACTIONS, "if kept <= summed else", "if kept else", CASES),
    Mutant("observe-constants-weigh-less", SIGHTINGS, "if not use.is_weak", "if use", CASES),
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
    Mutant("observe-products", FUNCTIONS, 'and call.name == "sum":', "and False:", CASES),
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
        "notes.join(moved, call.name) if call.is_data",
        "moved if call.is_data",
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
    Mutant("arrive-not-recursive", ARRIVAL, 'args["recurse"] and ', "", ARRIVALS),
    Mutant("arrive-constants", ARRIVAL, " and constant_value(param)", " and False", ARRIVALS),
    Mutant(
        "arrive-parts",
        ARRIVAL,
        "of_model[param] if param in of_model else",
        "None if param in of_model else",
        ARRIVALS,
    ),
    Mutant(
        "guess-logarithms", GUESS, 'if "log" in (words[0], words[-1])', 'if "log" in ()', GUESSES
    ),
    Mutant("guess-layers-of-tokens", GUESS, "not {*words} & _NOT_TOKENS", "True", GUESSES),
    Mutant("guess-a-query-beside-a-key", GUESS, "and not is_layer", "", GUESSES),
    Mutant("guess-says-its-doubts", GROUPS, " or named.is_doubtful", "", GUESSES),
    Mutant("guess-generators", OWNERS, "isinstance(part, _Orthogonal)", "False", GUESSES),
    Mutant("guess-norms-at-zero", GUESS, "if constant_value(param) == 0:", "if False:", GUESSES),
    Mutant(
        "reconcile-seeing-beats-guessing",
        RECONCILE,
        "replace(named, layout=layout, reason=reason, auth",
        "replace(named, reason=reason, auth",
        PASSES,
    ),
    Mutant(
        "reconcile-registered-stays",
        RECONCILE,
        "    return named, seen\n",
        "    return replace(named, layout=layout), seen\n",
        PASSES,
    ),
    Mutant(
        "tie-seen-of-guesses",
        RECONCILE,
        "\n        return as_output(named, use), None\n    if any",
        "\n        return named, None\n    if any",
        TIES,
    ),
    Mutant("tie-is-scored", OUTPUTS, "if seen.is_scored:", "if False:", TIES),
    Mutant(
        "tie-is-no-codebook", SIGHTINGS, "is_later and layer", "layer.layer_number and layer", TIES
    ),
    Mutant(
        "tie-of-rows",
        OUTPUTS,
        "any(same_neurons(EMBEDDING, end, named.param.shape) for end in seen.ends)",
        "seen.ends",
        ENDS,
    ),
    Mutant("tie-is-an-output", OUTPUTS, ", is_tied=True)", ")", TIES),
    Mutant("tie-of-data-only", NOTES, "and self.origin(data).is_data", "", TIES),
    Mutant(
        "tie-of-a-whole-pass",
        RECONCILE,
        "is_complete = not observation.error",
        "is_complete = True",
        TIES,
    ),
    Mutant("tie-knows-a-head", CHECKS, "num_neurons == table[0] and", "num_neurons == 0 and", TIES),
    Mutant("tie-knows-a-value", CHECKS, "or (last.num_neurons == 1 and", "or (False and", TIES),
    Mutant("tie-knows-a-reader", CHECKS, "or (last.fan_in == rows and", "or (False and", TIES),
    Mutant("tie-trusts-an-example", RECONCILE, "is_seen=is_complete)", "is_seen=True)", TIES),
    Mutant("ends-are-outputs", OUTPUTS, "if named.is_end}", "if False}", ENDS),
    Mutant("ends-unreached", OUTPUTS, "(not ends or last.is_end is None)", "not ends", ENDS),
    Mutant("ends-are-followed", NOTES, "end.is_end = False", "pass", ENDS),
    Mutant("ends-go-on", NOTES, "self._ends[tensor] = tuple(ends.values())", "pass", ENDS),
    Mutant("ends-in-sums", FUNCTIONS, "notes.see_layer(source, sighting, tensor)", "pass", ENDS),
    Mutant(
        "ends-in-pairs",
        CONTRACTIONS,
        "call.args[0] if tensor is call.args[1] else None",
        "None",
        ENDS,
    ),
    Mutant(
        "factors-in-sums",
        FUNCTIONS,
        'source.factor if call.name == "sum" else None',
        "None",
        FACTORS,
    ),
    Mutant("factors-of-vectors", FUNCTIONS, "any(n > 1 and axes for", "any(True for", FACTORS),
    Mutant(
        "factors-in-products",
        CONTRACTIONS,
        "notes.factor(partner), partner)",
        "None, partner)",
        FACTORS,
    ),
    Mutant(
        "factors-after-means",
        FUNCTIONS,
        'elif source.stage == "row" and not summed',
        "elif False",
        FACTORS,
    ),
    Mutant("factors-that-are-read", OUTPUTS, "if seen.meets_rows else", "if False else", FACTORS),
    Mutant(
        "factors-alone",
        CHECKS,
        "if alone and not isinstance",
        "if False and not isinstance",
        FACTORS,
    ),
    Mutant(
        "mark-of-the-user",
        INFER,
        'is_override = mark.authority == "override"',
        "is_override = False",
        MARKED,
    ),
    Mutant(
        "mark-of-a-pass",
        INFER,
        'mark.authority == "observation" and is_observed',
        "False",
        MARKED,
    ),
    Mutant(
        "mark-of-old-modules",
        INFER,
        "        and (mark.stated, mark.stated_by) == (named.layout, named.authority)\n",
        "",
        MARKED,
    ),
    Mutant(
        "mark-and-guess",
        INFER,
        "is_more_than_a_guess = named.is_guess and",
        "is_more_than_a_guess =",
        MARKED,
    ),
    Mutant(
        "mark-of-the-whole",
        INFER,
        "mark.is_end if all(observed) else None",
        "mark.is_end",
        MARKED,
    ),
    Mutant(
        "mark-warns",
        ARRIVAL,
        "    warn_of_guesses(layouts)\n    for param",
        "    for param",
        ARRIVALS,
    ),
    Mutant("arrive-left-out", OWNERS, "if param not in yielded:", "if False:", ARRIVALS),
    Mutant(
        "arrive-exactly",
        ARRIVAL,
        "return model if {*map(id, yielded)}",
        "return model if True or {*map(id, yielded)}",
        ARRIVALS,
    ),
    Mutant("tie-forgets-marks", ARRIVAL, "        forget_marks(model)\n", "        pass\n", TIES),
]

"""Edits of what a layout is, of the rule, of the lists of options and state, and of optimizers."""

from tests.mutants.mutant import Mutant

NEURONS, RULE, GRAM, SPEC = (f"src/nero/core/{n}.py" for n in ("neurons", "rule", "gram", "spec"))
SPHERE, ROUNDING = "src/nero/core/sphere.py", "src/nero/core/rounding.py"
AVERAGE = "src/nero/core/average.py"
BASE, NERO, CHECKPOINT = (f"src/nero/optim/{name}.py" for name in ("base", "nero", "checkpoint"))
FLATTENED = "src/nero/checks/flattened.py"

LAWS = ("tests/layout/test_layout_laws.py",)
VECTORS = ("tests/reference/test_vectors.py", "-k", "test_nero_passes and plain")
MISSED = ("tests/rules/test_nonfinite.py::TestTurnsAfterSkippedSteps", "-k", "plain")
STATES = "tests/backends/test_every_state.py"
OPTIM = "tests/optim/test_nero.py"
BAD_OPTIONS = (OPTIM, "-k", "test_bad_options")


def awkward(name: str) -> tuple[str, ...]:
    return (f"tests/rules/test_awkward_cases.py::{name}", "-k", "plain")


def option(name: str, backend: str = "plain") -> tuple[str, ...]:
    test = "test_a_change_in_mid_training_is_obeyed"
    return (f"tests/backends/test_every_option.py::{test}[{name}-{backend}]",)


MUTANTS = [
    # --- layouts ---
    Mutant(
        "layout-fan-in-of-groups",
        NEURONS,
        "for d in dims]) // groups",
        "for d in dims])",
        (NEURONS,),
    ),
    Mutant(
        "layout-fan-in-one", NEURONS, "if fan_in <= 1:", "if fan_in < 1:", awkward("TestFanInOne")
    ),
    Mutant(
        "layout-negative-dims", NEURONS, "sorted({d % len(shape) for d", "sorted({d for d", LAWS
    ),
    Mutant("layout-groups-divide", NEURONS, "shape[0] % groups:", "shape[-1] % groups:", LAWS),
    Mutant("layout-dims-of-groups", NEURONS, "tuple(d + 1 for d in dims)", "dims", LAWS),
    Mutant(
        "layout-vectors-have-no-fan-in",
        NEURONS,
        "sum(n > 1 for n in shape) <= 1",
        "sum(n > 1 for n in shape) < 1",
        (NEURONS,),
    ),
    Mutant(
        "layout-gain-keeps-no-dims",
        NEURONS,
        "(both_neurons or self.role == other.role) and (",
        "(",
        LAWS,
    ),
    Mutant(
        "layout-dims-out-of-range",
        NEURONS,
        "not -len(shape) <= d < len(shape)",
        "not d < len(shape)",
        LAWS,
    ),
    Mutant(
        "layout-fan-in-two",
        SPHERE,
        "if fan_in == 2 and",
        "if fan_in == 1 and",
        awkward("TestFanInTwo"),
    ),
    # --- the rule ---
    Mutant(
        "rule-average",
        AVERAGE,
        "beta * old_sq + (1 - beta) * grad_sq",
        "beta * old_sq + grad_sq",
        VECTORS,
    ),
    Mutant(
        "rule-peak-fades",
        AVERAGE,
        "torch.maximum(beta * beta * old_sq, grad_sq)",
        "torch.maximum(beta * old_sq, grad_sq)",
        VECTORS,
    ),
    Mutant(
        "rule-peak-kept",
        AVERAGE,
        '1.0 if norm == "peak" else growth(beta, step)',
        "growth(beta, step)",
        ("tests/rules/test_peak.py",),
    ),
    Mutant(
        "rule-correction",
        AVERAGE,
        "return -math.expm1(step * log_beta)",
        "return -math.expm1((step + 1) * log_beta)",
        (AVERAGE,),
    ),
    Mutant(
        "rule-missed-steps-cap",
        AVERAGE,
        "is_short = is_behind & (squared < least)",
        "is_short = is_behind & (old == 0) & (squared < least)",
        MISSED,
    ),
    Mutant(
        "rule-missed-steps-growth",
        AVERAGE,
        "else growth(beta, step)",
        "else 1.0",
        MISSED,
    ),
    Mutant(
        "rule-missed-steps-sign",
        AVERAGE,
        "is_short | (is_behind & (grad_sq == 0))",
        "is_short",
        MISSED,
    ),
    Mutant(
        "rule-missed-steps-overflow",
        AVERAGE,
        ".clamp(max=torch.finfo(old.dtype).max)",
        "",
        MISSED,
    ),
    Mutant(
        "spec-scale-of-finite-entries",
        SPEC,
        "num_finite = full_tensor(torch.isfinite(param).sum())",
        "num_finite = full_tensor(torch.ones_like(param).sum())",
        ("tests/rules/test_nonfinite.py::TestWeightsThatAreNotFinite", "-k", "plain"),
    ),
    Mutant(
        "rule-correction-tensor",
        AVERAGE,
        "-torch.expm1(step.to(sum_dtype(step)) * log_beta)",
        "-torch.expm1((step.to(sum_dtype(step)) + 1) * log_beta)",
        VECTORS,
    ),
    Mutant(
        "rule-mean-after-step", RULE, "mean = (w1 - k * g1) / fan_in", "mean = w1 / fan_in", VECTORS
    ),
    Mutant(
        "rule-norm-after-step",
        RULE,
        "norm_sq = ww - 2 * kwg + kkgg",
        "norm_sq = ww - kwg + kkgg",
        VECTORS,
    ),
    Mutant("rule-relative-to-norm", RULE, "k = lr * (ww * average", "k = lr * (average", VECTORS),
    Mutant(
        "rule-zero-neuron-norm",
        RULE,
        "start = hyper.bias_scale if target is None",
        "start = 1.0 if target is None",
        awkward("TestRowWithoutDirection"),
    ),
    Mutant(
        "rule-zero-neuron-mean",
        RULE,
        "start * grad_mean).to(dtype)",
        "-start * grad_mean).to(dtype)",
        awkward("TestRowWithoutDirection"),
    ),
    Mutant(
        "rule-constant-gradient",
        RULE,
        "moves = (gg != 0) & (usual | grad_has_direction)",
        "moves = gg != 0",
        awkward("TestRowWithoutDirection"),
    ),
    Mutant(
        "rule-zero-gradient",
        RULE,
        "moves = (gg != 0) & (usual | grad_has_direction)",
        "moves = usual | grad_has_direction",
        awkward("TestZeroGradient"),
    ),
    Mutant(
        "rule-free-threshold",
        RULE,
        "64 * eps if target is None else math.sqrt(eps)",
        "math.sqrt(eps)",
        ("tests/rules/test_cancellation.py",),
    ),
    Mutant(
        "rule-threshold",
        RULE,
        "64 * eps if target is None else math.sqrt(eps)",
        "64 * eps if target is None else 0.0",
        ("tests/rules/test_cancellation.py",),
    ),
    Mutant(
        "rule-lr-zero",
        RULE,
        "torch.ones_like(is_finite) & (lr != 0)",
        "torch.ones_like(is_finite)",
        awkward("TestZeroLearningRate"),
    ),
    Mutant(
        "rule-propagate",
        RULE,
        'if hyper.nonfinite != "propagate":',
        "if True:",
        awkward("TestNonFiniteGradient"),
    ),
    Mutant(
        "rule-maximize",
        RULE,
        "grad = -grad if hyper.maximize else grad",
        "grad = grad",
        option("maximize"),
    ),
    Mutant(
        "rule-gain-penalty",
        RULE,
        "(weight.to(dtype) - 1)",
        "weight.to(dtype)",
        (OPTIM, "-k", "gain_penalty"),
    ),
    Mutant("rule-element-scale", RULE, 'lr * state["scale"] * (average', "lr * (average", VECTORS),
    Mutant(
        "rule-element-zero-grad",
        RULE,
        "affine, g != 0, average,",
        "affine, g == g, average,",
        awkward("TestNonFiniteGradient"),
        survives="an element whose gradient is zero moves by zero anyway, and one of NaN is skipped",
    ),
    Mutant(
        "rule-order-of-rows",
        GRAM,
        '(exact[a] if b == "1" else exact[a] * exact[b])',
        '(exact[a] if b == "1" else exact[a] * exact[a])',
        VECTORS,
    ),
    Mutant(
        "gram-float64",
        GRAM,
        "row.to(sum_dtype(row))",
        "row.float()",
        ("tests/properties/test_properties.py", "-k", "rescaling and plain"),
    ),
    Mutant("gram-keys", GRAM, 'row + row, row + "1"]', 'row + "1", row + row]', (GRAM,)),
    Mutant(
        "sphere-centre-twice",
        SPHERE,
        "for _ in range(2):",
        "for _ in range(1):",
        ("tests/properties/test_properties.py", "-k", "projected or twice"),
    ),
    Mutant(
        "sphere-constant-row",
        SPHERE,
        "threshold**2 * size_sq",
        "0 * size_sq",
        ("tests/rules/test_cancellation.py",),
    ),
    Mutant(
        "sphere-same-bits",
        SPHERE,
        "has_direction & ~done",
        "has_direction",
        awkward("TestAlreadyBalancedRow"),
    ),
    Mutant(
        "rounding-seed",
        ROUNDING,
        'int64("seed", seed), device',
        "0, device",
        option("seed", "kernel"),
    ),
    Mutant(
        "rounding-step", ROUNDING, "_mix(start + step)", "_mix(start)", option("seed", "kernel")
    ),
    Mutant(
        "rounding-up",
        ROUNDING,
        "(noise < x / spacing - below)",
        "(noise > x / spacing - below)",
        ("tests/backends/test_rounding.py",),
    ),
    # --- the lists ---
    Mutant(
        "spec-beta-of-one", SPEC, 'lambda x: 0 <= x < 1, "', 'lambda x: 0 <= x <= 1, "', BAD_OPTIONS
    ),
    Mutant("spec-infinite-bias-scale", SPEC, "lambda x: 0 < x < math.inf", "lambda x: 0 < x", LAWS),
    Mutant(
        "spec-penalty-of-gains-only",
        SPEC,
        'if neurons.role == "gain" else 0.0',
        "if neurons.is_elementwise else 0.0",
        (OPTIM, "-k", "gain_penalty"),
    ),
    Mutant(
        "spec-elements-are-free", SPEC, "if not neurons.is_elementwise:", "if neurons.role:", LAWS
    ),
    Mutant(
        "spec-encoded-centre",
        SPEC,
        'values["centre"] = centre',
        'values["centre"] = True',
        option("constraint", "kernel"),
    ),
    Mutant(
        "spec-decoded-radius", SPEC, '"initial" if target == INITIAL else target', "target", LAWS
    ),
    Mutant(
        "spec-zero-scale", SPEC, "torch.where(scale > 0, scale, hyper.bias_scale)", "scale", VECTORS
    ),
    Mutant(
        "spec-zero-radius",
        SPEC,
        "torch.where(norm > 0, norm, hyper.bias_scale)",
        "norm",
        awkward("TestRowWithoutDirection"),
    ),
    Mutant(
        "spec-bytes-per-neuron",
        SPEC,
        '"per neuron": neurons.num_neurons',
        '"per neuron": numel',
        (STATES,),
    ),
    Mutant(
        "spec-radius-is-optional",
        SPEC,
        'hyper.constraint.radius == "initial"',
        "True",
        (STATES, "-k", "describe or update or some"),
    ),
    Mutant(
        "spec-skipped-is-optional",
        SPEC,
        'StateSpec("scalar", torch.int64, is_required=False)',
        'StateSpec("scalar", torch.int64)',
        (STATES, "-k", "checkpoints"),
    ),
    # --- the optimizer ---
    Mutant(
        "optim-position-is-place",
        BASE,
        "as_update(prepared, param, grad, state, lr, position)",
        "as_update(prepared, param, grad, state, lr, place)",
        (OPTIM, "-k", "position or noise"),
    ),
    Mutant(
        "optim-options-change",
        BASE,
        "prepared.options is options and ",
        "",
        option("beta"),
    ),
    Mutant(
        "optim-layout-changes",
        BASE,
        '(*self.rule.options, "role", "neuron_dims", "num_groups")',
        "(*self.rule.options,)",
        ("tests/backends/test_cpu.py", "-k", "role_that_changes"),
    ),
    Mutant(
        "optim-swapped-parameters",
        "src/nero/optim/originals.py",
        "if isinstance(key, Tensor) and key not in members and not is_range(key)",
        "if False",
        ("tests/contract/test_contract_step.py", "-k", "swapped_parameters_can_be_saved and nero"),
    ),
    Mutant(
        "optim-state-moves",
        "src/nero/optim/state.py",
        "if is_here and all(tensor.dtype == dtypes[key] for key, tensor in state.items()):",
        "if is_here:",
        ("tests/backends/test_cpu.py", "-k", "change_of_precision"),
    ),
    Mutant(
        "optim-state-dtype",
        SPEC,
        "return own or working_dtype(dtype)",
        "return own or dtype",
        awkward("TestHalfPrecision"),
    ),
    Mutant(
        "optim-frozen",
        "src/nero/optim/prepared.py",
        "return param.requires_grad and (",
        "return (",
        ("tests/contract/test_contract_step.py", "-k", "left_over_gradient and nero"),
    ),
    Mutant(
        "optim-refused-group",
        BASE,
        "del self.param_groups[num_groups:]\n",
        "pass\n",
        ("tests/contract/test_contract_groups.py", "-k", "refused and nero"),
    ),
    Mutant(
        "optim-fused-changes",
        "src/nero/optim/turning.py",
        '"fused": flag, ',
        "",
        ("tests/backends/test_every_option.py::TestFused", "-k", "eager"),
    ),
    Mutant(
        "optim-raise",
        "src/nero/checks/finite.py",
        'if update.hyper.nonfinite == "raise"]',
        "if False]",
        awkward("TestNonFiniteGradient"),
    ),
    Mutant(
        "optim-projects",
        "src/nero/optim/turning.py",
        "project_held_(held, hyper.constraint, radius)",
        "pass",
        awkward("TestConstruction"),
    ),
    # --- checkpoints ---
    Mutant(
        "checkpoint-skipped-is-not-saved",
        NERO,
        'if k != "num_skipped"}',
        "}",
        (STATES, "-k", "checkpoints"),
    ),
    Mutant(
        "checkpoint-constraint-is-plain",
        NERO,
        'asdict(as_constraint(group["constraint"]))',
        'as_constraint(group["constraint"])',
        ("tests/contract/test_contract_checkpoint.py", "-k", "survives_the_disk and nero"),
    ),
    Mutant(
        "checkpoint-layout-wins",
        CHECKPOINT,
        "{**own, **lacking, **saved, **layout}",
        "{**own, **lacking, **saved}",
        (OPTIM, "-k", "layout_of_a_checkpoint"),
    ),
    Mutant(
        "checkpoint-options-are-loaded",
        CHECKPOINT,
        "{**own, **lacking, **saved, **layout}",
        "{**saved, **own, 'params': saved['params']}",
        (OPTIM, "-k", "layout_of_a_checkpoint"),
    ),
    Mutant(
        "checkpoint-shapes",
        CHECKPOINT,
        "if value.shape != tensor.shape:",
        "if value.ndim != tensor.ndim:",
        (OPTIM, "-k", "layout_of_a_checkpoint"),
    ),
    Mutant(
        "checkpoint-copies",
        CHECKPOINT,
        "tensor.dtype, copy=True)",
        "tensor.dtype)",
        ("tests/contract/test_contract_checkpoint.py", "-k", "loading_reads and nero"),
    ),
    Mutant(
        "checkpoint-required",
        CHECKPOINT,
        "if not specs[key].is_required:",
        "if True:",
        (OPTIM, "-k", "checkpoint_of_another"),
    ),
    Mutant(
        "checkpoint-names",
        CHECKPOINT,
        "_value_of(name, key, owners[name])",
        "_value_of(each[0], key, owners[name])",
        (OPTIM, "-k", "matched_by_name"),
    ),
    Mutant(
        "checkpoint-nothing-before-all",
        "src/nero/optim/checkpoint.py",
        "        optimizer.check_group_(options)\n",
        "",
        (OPTIM, "-k", "options_of_a_checkpoint"),
    ),
    # --- vectors that engines swap in ---
    Mutant(
        "flattened-more-dims",
        FLATTENED,
        "return had_more_dims or num_params",
        "return num_params",
        ("tests/optim/test_flattened.py",),
    ),
    Mutant(
        "flattened-several-biases",
        FLATTENED,
        "return had_more_dims or num_params == 1 < len(shapes)",
        "return had_more_dims",
        ("tests/optim/test_flattened.py",),
    ),
    Mutant(
        "flattened-known",
        FLATTENED,
        " and not known.get(param)",
        "",
        ("tests/optim/test_flattened.py",),
    ),
    Mutant(
        "flattened-empty-groups",
        FLATTENED,
        "(is_flat or is_alone)",
        "is_flat",
        ("tests/optim/test_flattened.py",),
    ),
    Mutant(
        "flattened-at-the-step",
        BASE,
        """        if not is_traced:
            self._shapes.check(self.param_groups, self.state)
""",
        "",
        ("tests/optim/test_flattened.py",),
    ),
    Mutant(
        "flattened-after-loading",
        BASE,
        "        self._shapes.note(self.param_groups)\n",
        "",
        ("tests/optim/test_flattened.py",),
    ),
]

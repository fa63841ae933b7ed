"""Edits of the plain backend, of the kernels and their plans, of the compiled operator, of ranks."""

from tests.mutants.mutant import Mutant
from tests.mutants.mutants_of_core import STATES, awkward, option

PLAIN, GEOMETRY = "src/nero/backends/plain.py", "src/nero/backends/geometry.py"
OPERATOR = "src/nero/backends/operator.py"
CPU, TRITON, SHARED = "src/nero/backends/cpu/", "src/nero/backends/triton/", "src/nero/distributed/"
TEST_CPU = "tests/backends/test_cpu.py"
BLOCKS = ("tests/backends/test_plain.py",)
POLAR = ("tests/optim/test_polar.py",)
TWO_RANKS = ("tests/distributed/test_two_ranks.py",)
AGREEMENT = "tests/distributed/test_agreement.py"
PLAN_CHANGES = (TEST_CPU, "-k", "made_anew")


def kernel(name: str, old: str, new: str, *tests: str) -> Mutant:
    return Mutant(f"kernel-{name}", CPU + "kernel.py", old, new, tests, is_kernel=True)


def triton(name: str, file: str, old: str, new: str, selected: str) -> Mutant:
    tests = ("tests/backends/triton_in_interpreter.py", "-k", selected)
    return Mutant(
        f"triton-{name}", f"{TRITON}{file}.py", old, new, tests, env={"TRITON_INTERPRET": "1"}
    )


MUTANTS = [
    # --- plain ---
    Mutant(
        "plain-counts-steps",
        PLAIN,
        'update.state["step"].add_(is_active)',
        'update.state["step"].add_(1)',
        awkward("TestZeroLearningRate"),
    ),
    Mutant(
        "plain-counts-skipped",
        PLAIN,
        "(~turn.is_finite).sum() * is_active",
        "(~turn.is_finite).sum()",
        ("tests/optim/test_nero.py", "-k", "rate_of_zero"),
    ),
    Mutant(
        "plain-propagated-is-not-skipped",
        PLAIN,
        'if update.hyper.nonfinite != "propagate":',
        "if True:",
        awkward("TestNonFiniteGradient"),
    ),
    Mutant(
        "plain-noise-of-parameters",
        PLAIN,
        "stream=update.position",
        "stream=0",
        option("seed", "kernel"),
    ),
    Mutant(
        "plain-noise-of-blocks",
        PLAIN,
        "start + i * num * strides[0]",
        "start + 0 * num * strides[0]",
        BLOCKS,
    ),
    Mutant(
        "plain-blocks-of-columns", PLAIN, "0 in update.neurons.fan_in_dims or", "False or", BLOCKS
    ),
    Mutant(
        "plain-block-coefficients",
        PLAIN,
        "turn.moves.split(num)",
        "turn.moves.roll(1, 0).split(num)",
        BLOCKS,
    ),
    Mutant(
        "plain-matrix-sums",
        PLAIN,
        "(letters.index(a), letters.index(b))",
        "(letters.index(b), letters.index(b))",
        BLOCKS,
    ),
    Mutant(
        "plain-block-sums",
        PLAIN,
        'x = exact[a] if b == "1" else',
        'x = exact[b] if b in exact else exact[a] if b == "1" else',
        BLOCKS,
    ),
    # --- how memory is walked ---
    Mutant(
        "geometry-other-grad-dtype",
        GEOMETRY,
        "weight.dtype != grad.dtype or not",
        "not",
        ("tests/backends/test_geometry.py",),
    ),
    Mutant(
        "geometry-other-grad-strides",
        GEOMETRY,
        "if strides != other.stride() and not _same_memory(shape, strides, other.stride()):",
        "if False:",
        ("tests/backends/test_geometry.py",),
    ),
    Mutant(
        "geometry-order-of-neurons",
        GEOMETRY,
        "if neuron_dims != sorted(neuron_dims):",
        "if False:",
        ("tests/backends/test_geometry.py",),
    ),
    Mutant(
        "geometry-elements-apart",
        GEOMETRY,
        "if not fan_in_dims and (b > 1 or (a > 1 and a_stride != 1)):",
        "if False:",
        (TEST_CPU, "-k", "elements"),
    ),
    Mutant(
        "geometry-scattered-noise",
        GEOMETRY,
        "is_rounded and not weight.is_contiguous()",
        "False",
        (TEST_CPU, "-k", "any_memory_format"),
    ),
    Mutant(
        "geometry-size-one-strides",
        GEOMETRY,
        "all(n == 1 or a == b for",
        "all(a == b for",
        ("tests/backends/test_geometry.py",),
    ),
    # --- the plan of the CPU kernel ---
    Mutant(
        "plan-rests-on-options",
        CPU + "plan.py",
        "        update.hyper,\n        update.neurons,",
        "        update.hyper.beta,\n        update.neurons,",
        option("bias_scale", "kernel"),
    ),
    Mutant(
        "plan-rests-on-nonfinite",
        CPU + "plan.py",
        "        update.hyper,\n        update.neurons,",
        "        update.hyper._replace(nonfinite='skip'),\n        update.neurons,",
        option("nonfinite", "kernel"),
    ),
    Mutant(
        "plan-rests-on-seed",
        CPU + "plan.py",
        "        update.hyper,\n        update.neurons,",
        "        update.hyper._replace(seed=0),\n        update.neurons,",
        option("seed", "kernel"),
    ),
    Mutant(
        "plan-rests-on-rounding",
        CPU + "plan.py",
        "        update.hyper,\n        update.neurons,",
        "        update.hyper._replace(stochastic_rounding=False),\n        update.neurons,",
        option("stochastic_rounding", "kernel"),
    ),
    Mutant(
        "plan-rests-on-state",
        CPU + "plan.py",
        "*map(Tensor.data_ptr, update.state.values())",
        "0",
        PLAN_CHANGES,
    ),
    Mutant(
        "plan-rests-on-strides",
        CPU + "plan.py",
        "        weight.dtype,\n        weight.stride(),",
        "        weight.dtype,",
        (TEST_CPU, "-k", "same_memory"),
    ),
    Mutant(
        "plan-rests-on-address", CPU + "plan.py", "        weight.data_ptr(),\n", "", PLAN_CHANGES
    ),
    Mutant(
        "plan-keeps-no-gradient",
        CPU + "plan.py",
        "update._replace(grad=update.grad.new_empty(0))",
        "update",
        (TEST_CPU, "-k", "no_gradient_is_kept"),
    ),
    Mutant(
        "plan-autograd-sees",
        CPU + "plan.py",
        "        increment_version(self.weights)",
        "        pass",
        (TEST_CPU, "-k", "autograd_sees"),
    ),
    Mutant(
        "plan-rates-of-groups",
        CPU + "plan.py",
        "numbers[id(update.lr)] for update in members",
        "numbers[id(members[0].lr)] for update in members",
        ("tests/contract/test_contract_groups.py", "-k", "their_own_lr and Nero"),
    ),
    Mutant(
        "plan-rest-goes-to-plain",
        CPU + "plan.py",
        "plain.step_([updates[i] for i in plan.others])",
        "pass",
        (TEST_CPU, "-k", "two_neuron_loops or elements_may_lie or any_memory"),
    ),
    # --- the CPU kernel ---
    kernel(
        "average",
        "beta * old_sq + (1 - beta) * grad_sq",
        "beta * old_sq + grad_sq",
        *option("lr", "kernel"),
    ),
    kernel(
        "peak-fades",
        "faded = beta * beta * old_sq",
        "faded = beta * old_sq",
        *option("norm", "kernel"),
    ),
    kernel(
        "missed-steps",
        "is_short = is_behind & (old_sq[j] < least)",
        "is_short = False",
        *("tests/rules/test_nonfinite.py::TestTurnsAfterSkippedSteps", "-k", "kernel"),
    ),
    kernel(
        "no-penalty-of-inf",
        "select(penalty != 0, penalty * (np.float64(load(w[i])) - 1.0), 0.0)",
        "penalty * (np.float64(load(w[i])) - 1.0)",
        *("tests/rules/test_nonfinite.py", "-k", "kernel"),
    ),
    kernel(
        "zero-neuron",
        "-mean * p, from_grad * grad_mean)",
        "-mean * p, -from_grad * grad_mean)",
        "tests/rules/test_awkward_cases.py::TestRowWithoutDirection",
    ),
    kernel(
        "gain-penalty",
        "(np.float64(load(w[i])) - 1.0)",
        "np.float64(load(w[i]))",
        *option("gain_penalty", "kernel"),
    ),
    kernel(
        "counts-steps",
        "pointer(task.step, INT64)[0] += 1",
        "pointer(task.step, INT64)[0] += 2",
        *option("lr", "kernel"),
    ),
    kernel(
        "float32-range",
        "is_safe = (gg > 1e-20) & (gg < 1e30)",
        "is_safe = (gg > -1.0)",
        TEST_CPU,
        "-k",
        "sums_hold",
    ),
    kernel(
        "cancellation",
        "(ww < 1e30) & (norm_sq > 0.1 * terms)",
        "(ww < 1e30)",
        TEST_CPU,
        "-k",
        "cancel",
    ),
    kernel(
        "noise-of-parameters", "np.uint64(task.position)", "np.uint64(0)", *option("seed", "kernel")
    ),
    kernel(
        "propagate",
        "is_written = is_done & (finite | propagate)",
        "is_written = is_done & finite",
        *option("nonfinite", "kernel"),
    ),
    kernel(
        "initial-radius",
        "target[j] = pointer(task.radius + 4 * first, FLOAT32)[j]",
        "target[j] = 1.0",
        "tests/reference/test_vectors.py",
        "-k",
        "float32 and kernel and initial",
    ),
    kernel(
        "maximize",
        "return -1.0 if task.maximize else 1.0",
        "return 1.0",
        *option("maximize", "kernel"),
    ),
    kernel(
        "shared-sign",
        "select((k == 2) | (k == 4), sign, 1.0)",
        "1.0",
        "tests/backends/test_every_option.py",
        "-k",
        "ranks_that_share",
    ),
    # --- the compiled operator ---
    Mutant(
        "operator-maximize",
        OPERATOR,
        "hyper=Hyper.decode(columns)",
        "hyper=Hyper.decode({**columns, 'maximize': 0})",
        option("combined rule", "kernel compiled"),
    ),
    Mutant(
        "operator-position",
        OPERATOR,
        "        position=position,",
        "        position=0,",
        option("combined noise", "kernel compiled"),
    ),
    Mutant(
        "operator-position-list",
        OPERATOR,
        "            update.position,\n",
        "            0,\n",
        (STATES, "-k", "operator"),
    ),
    Mutant(
        "operator-dims",
        OPERATOR,
        "for d in range(weight.ndim) if d not in dims",
        "for d in range(1)",
        (STATES, "-k", "operator"),
    ),
    Mutant(
        "operator-lr",
        OPERATOR,
        "[_lr(u) for u in updates]",
        "[_lr(updates[0])] * len(updates)",
        ("tests/backends/test_operator.py",),
    ),
    Mutant(
        "operator-mutates",
        OPERATOR,
        'mutates_args=("weights", "written")',
        'mutates_args=("weights",)',
        ("tests/backends/test_operator.py",),
    ),
    # --- Triton ---
    triton(
        "maximize",
        "kernels",
        "(1 - 2 * tl.load(row + MAXIMIZE))",
        "(1 - 0 * tl.load(row + MAXIMIZE))",
        "test_with_plain_for_every_option",
    ),
    triton(
        "gain-penalty",
        "kernels",
        "penalty * (w - 1)",
        "penalty * w",
        "test_with_plain_for_every_option",
    ),
    triton(
        "noise-of-parameters",
        "kernels",
        "+ tl.load(row + POSITION, mask, 0))",
        "+ 0 * tl.load(row + POSITION, mask, 0))",
        "draws_the_noise",
    ),
    triton(
        "lr-zero",
        "kernels",
        "tl.store(count, step, mask & (lr != 0))",
        "tl.store(count, step, mask)",
        "lr",
    ),
    triton(
        "propagate",
        "kernels",
        "== PROPAGATE, mask, is_finite)",
        "== PROPAGATE, is_finite, is_finite)",
        "TestRules",
    ),
    triton(
        "mean",
        "kernels",
        "(sw - k * sg) * inverse_fan_in, 0.0)",
        "sw * inverse_fan_in, 0.0)",
        "test_with_plain_for_every_layout",
    ),
    triton("position", "table", '"position": update.position', '"position": 0', "draws_the_noise"),
    triton(
        "alignment",
        "table",
        "if is_aligned else (Kind.SHORT, Kind.STRIDED)",
        "if True else (Kind.SHORT, Kind.STRIDED)",
        "test_with_plain_for_every_layout",
    ),
    triton(
        "first-tile",
        "launch",
        'columns["first_tile"] = first_tile',
        'columns["first_tile"] = 0',
        "whole_model",
    ),
    triton(
        "exact-sums",
        "kernels",
        "if EXACT and SUM != tl.float64:",
        "if False:",
        "TestRules",
    ),
    triton(
        "neighbours",
        "kernels",
        "i, start, is_rough, fan_in, fan_inner, fan_stride, WALK, PIECE",
        "i, start, is_neuron, fan_in, fan_inner, fan_stride, WALK, PIECE",
        "neighbours",
    ),
    triton(
        "noise-of-shards",
        "kernels",
        "+ tl.load(row + START, mask, 0), mask)",
        ", mask)",
        "shard",
    ),
    triton(
        "long-rows-trust-nobody",
        "launch",
        "if variant.kept and self._judge(twice):",
        "if variant.kept:",
        "keeping_them_is_not_trusted",
    ),
    triton(
        "long-rows-displace-others",
        "launch",
        "launches.setdefault(twice, []).extend(indices)",
        "launches[twice] = indices",
        "keeping_them_is_not_trusted",
    ),
    triton(
        "lr-changes", "launch", "if values != self._lr_values:", "if self._lr_values is None:", "lr"
    ),
    # --- neurons that ranks share ---
    Mutant(
        "shared-cut-dims",
        SHARED + "placement.py",
        "param.ndim) not in (neurons.neuron_dims or ())",
        "param.ndim) in (neurons.neuron_dims or ())",
        TWO_RANKS,
    ),
    Mutant(
        "shared-no-gradient-anywhere",
        SHARED + "sharded_step.py",
        "lr = torch.where(sums[-1] > 0, lr, 0.0)",
        "lr = lr * 1.0",
        TWO_RANKS,
    ),
    Mutant(
        "shared-no-gradient-here",
        "src/nero/optim/prepared.py",
        "(grad is not None or prepared.steps_with_others)",
        "grad is not None",
        ("tests/distributed/test_other_modes.py",),
    ),
    Mutant(
        "owners-no-gradient-here",
        "src/nero/optim/prepared.py",
        "steps_with_others=bool(reduce_over) or needs_whole,",
        "steps_with_others=bool(reduce_over),",
        ("tests/distributed/test_other_modes.py",),
    ),
    Mutant(
        "owners-no-gradient-anywhere",
        SHARED + "owners.py",
        "lr = torch.where(held[i][-1] > 0, lr, 0.0)",
        "lr = lr * 1.0",
        ("tests/distributed/test_other_modes.py",),
    ),
    Mutant(
        "owners-cuts-between",
        SHARED + "owners.py",
        "for outer, inner in combinations(shardings, 2):",
        "for outer, inner in zip(shardings, shardings[1:]):",
        ("tests/distributed/test_same_bits.py", "-k", "cut_last"),
    ),
    Mutant(
        "owners-has-grad",
        SHARED + "owners.py",
        "update._replace(lr=lr, has_grad=True)",
        "update._replace(lr=lr)",
        ("tests/distributed/test_same_bits.py", "-k", "grid"),
    ),
    Mutant(
        "owners-order-of-cuts",
        SHARED + "owners.py",
        "return early + late",
        "return late + early",
        ("tests/distributed/test_same_bits.py", "-k", "one_process and 4"),
    ),
    Mutant(
        "polar-not-finite",
        "src/nero/core/directions.py",
        "torch.where(is_finite, directions.to(matrices.dtype), math.nan)",
        "directions.to(matrices.dtype)",
        POLAR,
    ),
    Mutant(
        "polar-range",
        "src/nero/core/polar.py",
        "x = x / or_one(x.abs().amax(dim=(-2, -1), keepdim=True))",
        "x = x * 1.0",
        POLAR,
    ),
    Mutant(
        "polar-average-of-skipped",
        "src/nero/core/rule.py",
        'is_written = is_finite if hyper.nonfinite != "propagate" else torch.ones_like(is_finite)',
        "is_written = torch.ones_like(is_finite)",
        POLAR,
    ),
    Mutant(
        "polar-outputs",
        "src/nero/layout/outputs.py",
        "return _as_tied(named) if is_output else named",
        "return replace(_as_tied(named), is_tied=False) if is_output else named",
        POLAR,
    ),
    Mutant(
        "shared-counts-once",
        SHARED + "placement.py",
        "is_first = all(mesh.get_local_rank(d) == 0 for d in shared)",
        "is_first = True",
        TWO_RANKS,
    ),
    Mutant(
        "shared-replicas-count-once",
        SHARED + "placement.py",
        "if sharded_dim(p, param.ndim) is None\n        }",
        "if False\n        }",
        TWO_RANKS,
    ),
    Mutant(
        "shared-initial-norm",
        SHARED + "placement.py",
        "norm = all_reduce(norm.to(sum_dtype(norm)).square(), mesh, mesh_dim).sqrt()",
        "pass",
        TWO_RANKS,
    ),
    Mutant(
        "shared-state-of-groups",
        SHARED + "placement.py",
        "sizes[0] = neurons.num_groups",
        "pass",
        TWO_RANKS,
    ),
    Mutant(
        "agree-on-raise",
        "src/nero/checks/finite.py",
        "first, where = lowest_on_any_rank(first, meshes)",
        "first, where = first",
        (AGREEMENT, "-k", "2"),
    ),
    Mutant(
        "agree-on-every-mesh-dim",
        SHARED + "collectives.py",
        "for mesh_dim in range(mesh.ndim):",
        "for mesh_dim in range(1):",
        (AGREEMENT, "-k", "4"),
    ),
    Mutant(
        "agree-on-gradients-of-baselines",
        "src/nero/baselines/base.py",
        " & (shared.num_with_grad > 0)",
        " & True",
        (AGREEMENT, "-k", "2"),
    ),
    Mutant(
        "agree-on-projecting",
        "src/nero/optim/balanced.py",
        "param.grad is not None or held.neuron_mesh_dims",
        "param.grad is not None",
        (AGREEMENT, "-k", "2"),
    ),
    Mutant(
        "shared-order-of-buffers",
        SHARED + "collectives.py",
        "for i, part in zip(indices, parts, strict=True):",
        "for i, part in zip(indices, reversed(parts), strict=True):",
        TWO_RANKS,
    ),
    Mutant(
        "shared-kernel-moves",
        "src/nero/backends/halves.py",
        "self.moves.copy_(turn.moves.reshape(shape))",
        "self.moves.fill_(True)",
        TWO_RANKS,
    ),
]

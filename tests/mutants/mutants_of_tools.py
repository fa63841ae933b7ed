"""Edits of `nero plan`, of the monitor and the balance check, and of the lab's engine."""

from tests.mutants.mutant import Mutant

PLAN, WATCH, ENGINE = "tools/nero_tools/plan/", "src/nero/diagnostics/", "lab/nero_lab/engine/"
MONITOR = "tests/diagnostics/test_turning_monitor.py"
BALANCE = ("tests/diagnostics/test_balance_check.py",)
SUMMARY = ("tests/diagnostics/test_summary.py",)
ANGLE = ("tests/diagnostics/test_turning_angle.py",)
SCHEDULES = (ENGINE + "schedules.py",)
BATCHES = ("lab/tests/test_batches.py",)


def monitor(words: str) -> tuple[str, ...]:
    return (MONITOR, "-k", words)


MUTANTS = [
    # --- nero plan ---
    Mutant(
        "plan-size-of-mesh",
        PLAN + "mesh.py",
        "return math.prod(asdict(self).values())",
        "return self.replicate * self.fsdp",
        ("tools/tests/plan/test_meshes.py",),
    ),
    Mutant(
        "plan-axis-twice",
        PLAN + "mesh.py",
        "if axis in sizes:",
        "if False:",
        ("tools/tests/plan/test_meshes.py",),
    ),
    Mutant(
        "plan-too-many-ranks",
        PLAN + "mesh.py",
        "if self.size > MAX_RANKS:",
        "if False:",
        ("tools/tests/plan/test_meshes.py",),
    ),
    Mutant(
        "plan-counts-inputs-only",
        PLAN + "simulate.py",
        "max(map(num_bytes, (*args, out)))",
        "max(map(num_bytes, args))",
        ("tools/tests/plan/test_counts.py",),
    ),
    Mutant(
        "plan-counts-waiting",
        PLAN + "simulate.py",
        "and name not in _NOT_SENDING",
        "",
        ("tools/tests/plan/test_counts.py",),
    ),
    Mutant(
        "plan-ties",
        PLAN + "shard.py",
        "setattr(model.get_submodule(owner), name, model.get_parameter(kept))",
        "pass",
        ("tools/tests/plan/test_same_as_real.py", "-k", "tied"),
    ),
    Mutant(
        "plan-copies-the-model",
        PLAN + "simulate.py",
        "on_meta(copy.deepcopy(model))",
        "on_meta(model)",
        ("tools/tests/plan/test_same_as_real.py", "-k", "left_alone"),
    ),
    Mutant(
        "plan-frozen",
        PLAN + "simulate.py",
        "torch.zeros_like(param) if param.requires_grad else None",
        "torch.zeros_like(param)",
        ("tools/tests/plan/test_plan_command.py", "-k", "frozen"),
        survives="optimizers leave a frozen parameter alone whether it has a gradient or not",
    ),
    # --- the monitor ---
    Mutant(
        "monitor-first-step",
        WATCH + "monitor.py",
        "if self.step % self.every == 0:",
        "if self.step % self.every == 1:",
        monitor("samples_the_first"),
    ),
    Mutant(
        "monitor-turns",
        WATCH + "monitor.py",
        "(start + self.max_layers) % len(watched)",
        "(start + 1) % len(watched)",
        monitor("take_turns"),
    ),
    Mutant(
        "monitor-too-far",
        WATCH + "monitor.py",
        "min(TOO_FAR_RAD, max(",
        "max(TOO_FAR_RAD, max(",
        monitor("too_far"),
    ),
    Mutant(
        "monitor-rounding-is-not-far",
        WATCH + "monitor.py",
        "max(TOO_FAR_LR * layer.lr, torch.finfo(layer.param.dtype).eps)",
        "TOO_FAR_LR * layer.lr",
        monitor("rounding_at_a_tiny"),
    ),
    Mutant(
        "monitor-failed-step",
        WATCH + "monitor.py",
        "self._before = []  # drops the copies of a failed step",
        "pass",
        monitor("fails_leaves"),
    ),
    Mutant(
        "monitor-resumes",
        WATCH + "monitor.py",
        '{"step": self.step, "position": self._position}',
        '{"step": self.step, "position": 0}',
        monitor("resumed"),
    ),
    Mutant(
        "monitor-failed-sink",
        WATCH + "monitor.py",
        "if id(sink) not in self._failed_sinks:",
        "if True:",
        ("tests/diagnostics/test_sinks.py", "-k", "sink"),
    ),
    Mutant("angle-kahan", WATCH + "angle.py", "v = v * (old / new)", "v = v * 1.0", ANGLE),
    Mutant(
        "angle-shared",
        WATCH + "angle.py",
        "torch.atan2(sine, sums.old_sq + sums.old_change)",
        "torch.atan2(sine, sums.old_sq)",
        ANGLE,
    ),
    Mutant("angle-undefined", WATCH + "angle.py", "(old > 0) & (new > 0) &", "(old > 0) &", ANGLE),
    Mutant(
        "angle-zero-gradient", WATCH + "angle.py", "ord=torch.inf, dim=1", "ord=2, dim=1", ANGLE
    ),
    Mutant(
        "summary-still",
        WATCH + "summary.py",
        '"num_still": (angle == 0).sum()',
        '"num_still": (angle <= 1e-6).sum()',
        SUMMARY,
    ),
    Mutant(
        "summary-quantiles",
        WATCH + "summary.py",
        "shares * (num - 1).clamp(min=0)",
        "shares * num.clamp(min=0) * 0.9",
        monitor("loop_over"),
    ),
    Mutant(
        "summary-drift",
        WATCH + "summary.py",
        "(math.sqrt(layer.neurons.fan_in) * new)",
        "(layer.neurons.fan_in * new)",
        SUMMARY,
    ),
    Mutant(
        "balance-centre",
        WATCH + "balance.py",
        "is_balanced &= off_mean <= tolerance * norm",
        "pass",
        BALANCE,
    ),
    Mutant(
        "balance-norm",
        WATCH + "balance.py",
        "is_balanced &= norm_drift <= tolerance",
        "pass",
        BALANCE,
    ),
    Mutant(
        "balance-constant",
        WATCH + "balance.py",
        "(norm == 0) | is_constant if centre",
        "(norm == 0) if centre",
        BALANCE,
    ),
    # --- the lab ---
    Mutant(
        "lab-milestone",
        ENGINE + "schedules.py",
        "sum(epoch >= milestone",
        "sum(epoch > milestone",
        SCHEDULES,
    ),
    Mutant(
        "lab-cosine",
        "src/nero/schedule.py",
        "min(progress, 1.0)))",
        "min(2 * progress, 1.0)))",
        SCHEDULES,
    ),
    Mutant(
        "lab-warmup",
        ENGINE + "schedules.py",
        "min(epoch / length, 1.0) if length",
        "epoch / length if length",
        SCHEDULES,
    ),
    Mutant(
        "lab-triangle",
        ENGINE + "schedules.py",
        "2 * min(epoch, num_epochs - epoch)",
        "2 * max(epoch, num_epochs - epoch)",
        SCHEDULES,
    ),
    Mutant(
        "lab-shuffled-by-epoch",
        ENGINE + "batching.py",
        "generator(seed, epoch))",
        "generator(seed, 0))",
        BATCHES,
    ),
    Mutant(
        "lab-batches-of-ranks",
        ENGINE + "batching.py",
        "items[rank::world_size]",
        "items[::world_size]",
        BATCHES,
    ),
    Mutant(
        "lab-batches-start",
        ENGINE + "batching.py",
        "for index in range(start, num",
        "for index in range(0, num",
        BATCHES,
    ),
    Mutant(
        "lab-every-item-is-judged",
        ENGINE + "batching.py",
        "torch.arange(rank, num_items, world_size)",
        "torch.arange(rank, num_items - 1, world_size)",
        BATCHES,
    ),
    Mutant(
        "lab-seeds-differ",
        ENGINE + "batching.py",
        "(seed * 6364136223846793005 + number",
        "(seed + number",
        BATCHES,
    ),
    Mutant(
        "lab-random-state",
        ENGINE + "checkpoint.py",
        'torch.set_rng_state(state["torch"].cpu())',
        "pass",
        ("lab/tests/test_checkpoint_file.py",),
    ),
    Mutant(
        "lab-numpy-state",
        ENGINE + "checkpoint.py",
        "np.random.set_state((kind, keys.cpu().numpy().astype(np.uint32), position, has_gauss, gauss))",
        "pass",
        ("lab/tests/test_checkpoint_file.py",),
    ),
    Mutant(
        "lab-whole-checkpoints",
        ENGINE + "checkpoint.py",
        "partial.replace(path)",
        "partial.rename(path.with_suffix('.new'))",
        ("lab/tests/test_checkpoint_file.py",),
    ),
]

"""Replace the optimizer in the speedrun's baseline file, and leave everything else as it is.

The baseline has sections with banners. Two of them are replaced, as the track's guidelines suggest: the
optimizer, and what sets initial weights, hyperparameters and the schedule. The rest needs three names from
them: ``train_steps``, ``optimizers`` and ``set_hparams``. A file with another structure is refused.
"""

import ast
import inspect
import re
from collections.abc import Sequence
from typing import NamedTuple

from nero import __version__
from nero.cli.arguments import CommandError
from nero.core.presets import find_preset, resolve_options
from nero_tools.speedrun import one_file

PRESETS = ("rows", "polar")
OPTIMIZER, HYPERPARAMS = "Optimizer", "Init & Optim Hyperparams"
SECTIONS = ("Architecture", OPTIMIZER, "Setup", HYPERPARAMS, "Training and Validation")
NEEDED = {"train_steps", "optimizers", "set_hparams"}
"""What the rest of the baseline reads from the replaced sections."""
LAYERS = {"embed", "blocks", "proj"}
"""The network's attributes that the new sections read."""

_BANNER = re.compile(r"^ *#{10,}\n *# +(?P<title>\S.*?) +#\n *#{10,}\n", re.MULTILINE)

_HYPERPARAMS = """
    # the number of steps is this track's score
    train_steps = {steps}

    # initialize model parameters: random directions, since the optimizer sets each row's mean and norm
    for name, p in model.named_parameters():
        if p.ndim == 2:
            p.data.normal_()
        elif name.endswith("gains"):
            p.data.fill_(1)
        elif name.endswith("bias"):
            p.data.zero_()
        else:
            raise Exception(f"Uninitialized parameter: {{name}}")

    # create the optimizer: preset={preset!r} of nero-optim {version}
    groups = [
        dict(params=[model.embed.weight], radius=model.embed.weight.size(1)**0.5, beta={table_beta}),
        dict(params=[p for p in model.blocks.parameters() if p.ndim == 2], radius=1.0, polar={is_polar}),
        dict(params=[model.proj.weight], radius=1.0, beta={output_beta}),
        dict(params=[p for p in model.parameters() if p.ndim < 2]),
    ]
    optimizers = [Nero(groups, lr={lr}, momentum={momentum}, beta={beta})]
    assert set(p for group in groups for p in group["params"]) == set(model.parameters())

    # learning rate schedule: warm up linearly, then follow half a cosine to zero
    def set_hparams(step, warmup=0.1):
        time, rising = step + 0.5, warmup * train_steps
        progress = max(time - rising, 0.0) / (train_steps - rising)
        eta = min(time / rising, 1.0) * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))
        for group in optimizers[0].param_groups:
            group["lr"] = {lr} * eta


"""


class Section(NamedTuple):
    """A part of the baseline, from the end of its banner to the next banner."""

    title: str
    start: int
    """Offset of its first character."""
    end: int
    first_line: int
    last_line: int


def make_entry(baseline: str, *, preset: str, num_steps: int, lr: float | None = None) -> str:
    """Return the baseline's text with Nero as its optimizer.

    Args:
        baseline: the text of the track's baseline file.
        preset: ``"rows"`` or ``"polar"``.
        num_steps: length of the run.
        lr: the largest angle; by default the preset's.

    Raises:
        CommandError: if the text doesn't have the baseline's structure.
    """
    sections, _ = read_baseline(baseline)
    hidden = resolve_options(preset, {}, role="neuron")
    output = resolve_options(preset, {}, role="neuron", is_output=True)
    table = resolve_options(preset, {}, role="embedding")
    hyperparams = _HYPERPARAMS.format(
        steps=num_steps,
        preset=preset,
        version=__version__,
        table_beta=table["beta"],
        output_beta=output["beta"],
        is_polar=hidden["direction"] == "polar",
        lr=find_preset(preset).lr if lr is None else lr,
        momentum=hidden["momentum"],
        beta=hidden["beta"],
    )
    replaced = {OPTIMIZER: f"\n{optimizer_source()}\n\n", HYPERPARAMS: hyperparams}
    entry = baseline
    for section in reversed(sections):
        if section.title in replaced:
            entry = entry[: section.start] + replaced[section.title] + entry[section.end :]
    return entry


def optimizer_source() -> str:
    """Return the source of `nero_tools.speedrun.one_file` without its docstring."""
    source = inspect.getsource(one_file)
    docstring = ast.parse(source).body[0]
    return "".join(source.splitlines(keepends=True)[docstring.end_lineno :]).strip() + "\n"


def read_baseline(text: str) -> tuple[list[Section], int]:
    """Return the baseline's sections and its number of steps.

    Raises:
        CommandError: if the text doesn't have the baseline's structure.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise _refusal(f"it is not Python: {error}") from error
    sections = _sections(text)
    titles = [section.title for section in sections]
    if [title for title in titles if title in SECTIONS] != list(SECTIONS):
        raise _refusal(f"its sections must include, in this order, {', '.join(SECTIONS)}")
    replaced = [section for section in sections if section.title in (OPTIMIZER, HYPERPARAMS)]
    ours, theirs = _nodes(tree, replaced)
    read = _names(theirs, ast.Load) & (_names(ours, ast.Store) - _names(theirs, ast.Store))
    if read != NEEDED:
        raise _refusal(
            f"the rest of it must read {_listed(NEEDED)} from the sections to replace, "
            f"but reads {_listed(read) or 'nothing'}"
        )
    if not any(_is_call(node, "set_hparams", num_args=1) for node in theirs):
        raise _refusal("it must call set_hparams(step)")
    _check_network(theirs)
    return sections, _steps(ours)


def _sections(text: str) -> list[Section]:
    banners = list(_BANNER.finditer(text))
    ends = [*(banner.start() for banner in banners[1:]), len(text)][: len(banners)]
    return [
        Section(
            banner["title"],
            banner.end(),
            end,
            text.count("\n", 0, banner.end()) + 1,
            text.count("\n", 0, end),
        )
        for banner, end in zip(banners, ends, strict=True)
    ]


def _nodes(tree: ast.Module, replaced: Sequence[Section]) -> tuple[list[ast.AST], list[ast.AST]]:
    """Return the nodes inside the replaced sections, and all others."""
    ours: list[ast.AST] = []
    theirs: list[ast.AST] = []
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        is_ours = any(section.first_line <= line <= section.last_line for section in replaced)
        (ours if is_ours else theirs).append(node)
    return ours, theirs


def _names(nodes: Sequence[ast.AST], context: type[ast.expr_context]) -> set[str]:
    """Return the names that nodes read or bind; function and class definitions bind theirs."""
    found = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, context)}
    if context is ast.Store:
        found |= {n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.ClassDef)}
        found |= {n.arg for n in nodes if isinstance(n, ast.arg)}
        imports = (n for n in nodes if isinstance(n, ast.Import | ast.ImportFrom))
        found |= {(alias.asname or alias.name).split(".")[0] for n in imports for alias in n.names}
    return found


def _is_call(node: ast.AST, name: str, *, num_args: int) -> bool:
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    return is_call and (node.func.id, len(node.args)) == (name, num_args)  # type: ignore[attr-defined]


def _check_network(nodes: Sequence[ast.AST]) -> None:
    """Check that ``model`` has the layers that the new sections read."""
    classes = {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}
    for node in nodes:
        if not isinstance(node, ast.Assign) or ast.unparse(node.targets[0]) != "model":
            continue
        for made in ast.walk(node.value):
            if isinstance(made, ast.Name) and made.id in classes:
                layers = {
                    n.attr
                    for n in ast.walk(classes[made.id])
                    if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)
                }
                if layers >= LAYERS:
                    return
                raise _refusal(f"its {made.id} must have {_listed(LAYERS)}")
    raise _refusal("it must make a `model` from a class of its own")


def _steps(nodes: Sequence[ast.AST]) -> int:
    for node in nodes:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "train_steps":
            value = node.value
            if isinstance(value, ast.Constant) and isinstance(value.value, int):
                return value.value
    raise _refusal("it must set train_steps to a whole number")


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))


def _refusal(reason: str) -> CommandError:
    return CommandError(
        f"this is not the baseline that the command knows: {reason}; give it "
        "records/track_3_optimization/train_gpt_simple.py of modded-nanogpt, as of August 2026"
    )

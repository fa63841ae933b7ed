"""MkDocs hook: a page of all errors and warnings, read from the sources."""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

SOURCES = Path(__file__).parents[2] / "src" / "nero"
RAISED = re.compile(r"(Error|Warning|Exception|warn\w*|error|exit)$")
PLACEHOLDERS = re.compile(r"(\{[^{}]*(\{[^{}]*\}[^{}]*)*\})+")
INTRODUCTION = """# Messages

Every error and warning of the library says what happened, to which parameter, and what to do, in at
most 300 characters. This list is made from the source; dots stand for names and numbers. To find a
message, search for its fixed words. If its advice doesn't help, see [troubleshooting](troubleshooting.md).
"""
TOPICS = {
    "optim": "Building the optimizer and stepping",
    "schedule.py": "Building the optimizer and stepping",
    "core": "Options and tensors",
    "layout": "Layouts",
    "checks": "Parameters, learning rates and checkpoints",
    "projection.py": "Parameters, learning rates and checkpoints",
    "backends": "GPU kernel",
    "distributed": "Sharded parameters",
    "diagnostics": "Monitoring",
    "integrations": "Trainers",
    "jax": "JAX",
    "cli": "The `nero` command",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page to the site."""
    files.append(File.generated(config, "messages.md", content=page()))
    return files


def page() -> str:
    """Write the page: a section per topic, a line per message."""
    by_topic: dict[str, list[str]] = {topic: [] for topic in TOPICS.values()}
    for path in sorted(SOURCES.rglob("*.py")):
        topic = TOPICS.get(path.relative_to(SOURCES).parts[0])
        if topic is not None:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            by_topic[topic] += [_line(kind, text) for _, kind, text in messages(tree)]
    sections = [f"## {topic}\n\n" + "\n".join(lines) for topic, lines in by_topic.items() if lines]
    return "\n\n".join([INTRODUCTION, *sections]) + "\n"


def messages(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Yield line, kind and text of each exception and warning, with placeholders in braces."""
    constants = {
        target.id: as_text(node.value, {})
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and RAISED.search(ast.unparse(node.func)):
            arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
            names = [argument.id for argument in arguments if isinstance(argument, ast.Name)]
            called = ast.unparse(node.func).rpartition(".")[2]
            is_error = called[0].isupper()
            kind = called if is_error else next((n for n in names if "Warning" in n), "UserWarning")
            for argument in arguments:
                text = as_text(argument, constants)
                if len(PLACEHOLDERS.sub("", text).split()) > 1:
                    yield node.lineno, kind, text


def as_text(node: ast.expr, constants: Mapping[str, str]) -> str:
    """Return the text of a string, an f-string, a constant or a sum of them; "" of anything else."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name):
            return constants.get(name, "")
        case ast.FormattedValue(value=value):
            return as_text(value, constants) or f"{{{ast.unparse(value)}}}"
        case ast.JoinedStr(values=parts):
            return "".join(as_text(part, constants) for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return as_text(left, constants) + as_text(right, constants)
    return ""


def _line(kind: str, text: str) -> str:
    shown = PLACEHOLDERS.sub("…", text).replace("`", "")
    return f"- `{shown}` ({kind})"

"""The English of the project, one paragraph at a time: pages, docstrings, comments and messages."""

import ast
import inspect
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from docs.hooks.messages import messages

ROOT = Path(__file__).parents[2]
PAGES = ("*.md", "docs/**/*.md", "lab/*.md", "tools/*.md", "conformance/*.md", "tools/reports/*.md")
SOURCES = ("src/nero", "lab/nero_lab", "tools/nero_tools", "examples", "lab/examples", "docs/hooks")


@dataclass(frozen=True)
class Text:
    """A paragraph, without its code and formulas."""

    path: Path
    line: int
    kind: str  # "page", "docstring", "comment" or "message"
    words: str


def pages() -> Iterator[Text]:
    """Yield the paragraphs of Markdown files."""
    for path in sorted({path for pattern in PAGES for path in ROOT.glob(pattern)}):
        source = re.sub(r"\A---\n.*?\n---\n", _blank, path.read_text(encoding="utf-8"), flags=re.S)
        for line, paragraph in _paragraphs(source):
            yield Text(path, line, "page", paragraph)


def sources() -> Iterator[Text]:
    """Yield the docstrings, comments and messages of Python files."""
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for line, docstring in docstrings(tree):
                for offset, paragraph in _paragraphs(docstring):
                    yield Text(path, line + offset - 1, "docstring", paragraph)
            for line, _, message in messages(tree):
                yield Text(path, line, "message", prose(message))
            yield from _comments(path)


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the strings that stand alone: docstrings of modules, classes, functions and attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(docstring))):
                yield node.lineno, inspect.cleandoc(docstring)


def sentences(paragraph: str) -> list[str]:
    """Split a paragraph after full stops, question and exclamation marks."""
    return re.split(r"(?<=[.!?])\s+(?=[A-Z\"(])", paragraph)


def prose(text: str) -> str:
    """Replace code, formulas and placeholders by the word CODE, and links by their text."""
    for pattern in (
        r"``.+?``",
        r"`[^`]+`",
        r"\$[^$]+\$",
        r"\{[^{}]*\}",
        r"https?://\S+",
        r"<[^<>]+>",
    ):
        text = re.sub(pattern, "CODE", text, flags=re.S)
    text = re.sub(r"!?\[([^\]]*)\](\([^)]*\)|\[[^\]]*\])", r"\1", text, flags=re.S)
    return " ".join(re.sub(r"\*\*|__", "", text).split())


def _paragraphs(source: str) -> Iterator[tuple[int, str]]:
    source = re.sub(
        r"(?<=\n\n)( {4}.*\n|\n)+", _blank, source
    )  # commands, set as code by indentation
    for block in (r"^ *```.*?^ *```", r"^\$\$.*?^\$\$", r"^ *>>> .*?(?=\n\s*\n|\Z)", r"<!--.*?-->"):
        source = re.sub(block, _blank, source, flags=re.S | re.M)
    collected: list[str] = []
    start = 1
    for number, line in enumerate([*source.split("\n"), ""], 1):
        bare = line.strip()
        begins = re.match(r"([-*#|]|\d+\. |\w+( \(.*\))?: |!!!|\"|>)", bare) is not None
        if (not bare or begins or bare.endswith(":") or line.startswith("    ...")) and collected:
            yield start, prose(" ".join(collected))
            collected = []
        if bare:
            for cell in [cell for cell in bare.strip("|").split("|") if bare.startswith("|")][:-1]:
                yield number, prose(cell)
            start = number if not collected else start
            collected.append(
                re.sub(r"^([-*#>]+|\d+\.) ", "", bare.strip("|").split("|")[-1].strip())
            )
            if begins and bare.startswith(("#", "|")):
                yield start, prose(" ".join(collected))
                collected = []


def _blank(match: re.Match[str]) -> str:
    return "\n" * match.group().count("\n")


def _comments(path: Path) -> Iterator[Text]:
    collected: list[str] = []
    start = last = 0
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.COMMENT and not re.match(
                r"# (type|noqa|fmt|%%|pragma)", token.string
            ):
                if collected and token.start[0] != last + 1:
                    yield Text(path, start, "comment", prose(" ".join(collected)))
                    collected = []
                start = token.start[0] if not collected else start
                last = token.start[0]
                collected.append(token.string.lstrip("# "))
    if collected:
        yield Text(path, start, "comment", prose(" ".join(collected)))

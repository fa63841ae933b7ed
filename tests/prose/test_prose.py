"""Is it plain English? Every page, docstring, comment and message follows the rules in rules.toml."""

import ast
import re
from pathlib import Path

import pytest
import tomllib

from docs.hooks.messages import messages, page
from tests.contract.wrong_uses import MAX_LENGTH
from tests.prose.texts import ROOT, Text, pages, sentences, sources

RULES = tomllib.loads((Path(__file__).parent / "rules.toml").read_text(encoding="utf-8"))
PATTERNS = [(re.compile(rule["pattern"], re.IGNORECASE), rule) for rule in RULES["rule"]]


def violations(text: Text) -> list[str]:
    """Say what is wrong with a paragraph."""
    name = text.path.relative_to(ROOT).as_posix()
    where = f"{name}:{text.line}"
    if name.startswith(tuple(RULES["unchecked"])):
        return []
    found = [
        f"{where}: {match.group()!r}; write {rule['instead']}"
        for pattern, rule in PATTERNS
        for match in pattern.finditer(text.words)
    ]
    if text.kind != "comment":
        for sentence in sentences(text.words):
            if (num_words := len(sentence.split())) > RULES["max_words"]:
                found.append(f"{where}: a sentence of {num_words} words: {sentence[:60]} ...")
    return found


@pytest.mark.parametrize("texts", [pages, sources])
def test_english_follows_the_rules(texts) -> None:
    found = [line for text in texts() for line in violations(text)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("folder", ["src/nero", "lab/nero_lab", "tools/nero_tools"])
def test_messages_are_short(folder: str) -> None:
    """What users see may be longer, by names: the tables of wrong uses hold it to the same limit."""
    for path in (ROOT / folder).rglob("*.py"):
        for line, _, message in messages(ast.parse(path.read_text(encoding="utf-8"))):
            assert len(message) <= MAX_LENGTH, f"{path}:{line}: {message}"


def test_the_page_lists_every_message() -> None:
    text = page()
    for words in ("weight_decay must be 0", "no parameter requires a gradient", "nero.jax needs"):
        assert words in text
    num_messages = sum(
        len([*messages(ast.parse(path.read_text(encoding="utf-8")))])
        for path in (ROOT / "src" / "nero").rglob("*.py")
        if path.name != "__init__.py" or path.parent.name == "jax"
    )
    assert len(re.findall(r"^- `", text, re.MULTILINE)) == num_messages


@pytest.mark.parametrize("rule", RULES["rule"], ids=lambda rule: rule["wrong"])
def test_the_rule_catches_its_example(rule: dict[str, str]) -> None:
    assert re.search(rule["pattern"], rule["wrong"], re.IGNORECASE)


def test_long_sentences_are_found() -> None:
    long = Text(ROOT / "page.md", 1, "page", "word " * 41 + ".")
    assert len(violations(long)) == 1

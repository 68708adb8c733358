"""Module docstrings are plain statements, and help texts avoid phrases that make a reader stop.

Documents are checked in `test_docs.py`. Rubrics, prompts and tool descriptions are data and are not checked.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
AVOIDED = {
    r"\banew\b": "again",
    r"\b(?:somebody|nobody|whoever)\b": "a person, no one, or name the role",
    r"\bmay be given again\b": "repeatable",
    r"\b(?:is|are) none\b": "there is no …, or the positive statement",
    r"\bso many\b": "a number, or `up to n`",
    r"\b(?:stands|lies) (?:in|at|beside|behind|there|apart|before|above|below|alone)\b": "is",
    r"\b(?:is|are|was|were|be) told\b": "is reported, is stated",
    r"\bwhere (?:it|there|nothing|no|none|that) (?:is|are|was|were|has|have)\b": "if",
    r"\bone an? \w+": "one per",
}
"""Phrases that make a reader stop, and what to write instead."""
PATTERN = re.compile("|".join(AVOIDED))
NOUN_AND_GLOSS = re.compile(r"^(?:\S+ ){0,3}\S+: \S|;")
"""A few words with a gloss after a colon, or several glosses."""
WH_CLAUSE = re.compile(r"(?:What|How|Where|Who|Whether|When|Which)\b")
MODULES = sorted((ROOT / "editloupe").rglob("*.py"))


def find_avoided(text: str) -> str | None:
    """Return the first avoided phrase in a text."""
    match = PATTERN.search(text)
    return match.group() if match else None


def read_help_texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and text of every `help=` of a command line option or argument."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "help":
            parts = [part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant)]
            yield node.value.lineno, "".join(str(part) for part in parts)


@pytest.mark.long
def test_module_docstrings_are_plain_statements() -> None:
    offenders = []
    for path in MODULES:
        first, _, _ = (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").partition("\n")
        statement = re.sub(r"`[^`]*`", "", first)
        if NOUN_AND_GLOSS.search(statement) or WH_CLAUSE.match(statement) or find_avoided(statement):
            offenders.append(f"{path.relative_to(ROOT)}: {first}")
    assert not offenders, "\n".join(offenders)


@pytest.mark.long
def test_help_texts_avoid_phrases_that_make_a_reader_stop() -> None:
    offenders = [
        f"{path.relative_to(ROOT)}:{line}: {phrase!r} in {text!r}"
        for path in MODULES
        for line, text in read_help_texts(ast.parse(path.read_text("utf-8")))
        if (phrase := find_avoided(text))
    ]
    assert not offenders, "\n".join(offenders)


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("The page is drawn anew.", "anew"),
        ("A table with one a model.", "one a model"),
        ("Used where there is no picture.", "where there is"),
        ("If there is no picture, the row is empty.", None),
        ("The folder where runs are stored.", None),
    ],
)
def test_the_check_finds_what_it_looks_for(text: str, phrase: str | None) -> None:
    assert find_avoided(text) == phrase

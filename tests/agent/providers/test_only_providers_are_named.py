"""General code names no provider; everything special about one is in its own file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[3] / "editloupe"
OWN = PACKAGE / "agent" / "providers"
NAME = re.compile(r"openai|gemini|google|anthropic|claude|bedrock|openrouter", re.IGNORECASE)
EXAMPLE = re.compile(r"\b(?:openai|google_genai):(?:NAME|[\w.-]+)|\(with OPENAI_API_KEY set\)|\bopenai/clip[\w-]*")
"""Prose that shows people how a judge is written, and where weights lie on a hub; nothing is decided by it."""


def named(code: str) -> Iterator[str]:
    """Yield what of a module's code names a provider, with its line; docstrings and comments are prose."""
    tree = ast.parse(code)
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        words: list[str] = []
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)) and id(node) not in prose:
            text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            words = [EXAMPLE.sub("", text)]
        elif isinstance(node, ast.Name):
            words = [node.id]
        elif isinstance(node, ast.Attribute):
            words = [node.attr]
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            words = [node.name]
        elif isinstance(node, (ast.arg, ast.keyword)):
            words = [node.arg or ""]
        elif isinstance(node, ast.ImportFrom):
            words = [node.module or "", *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Import):
            words = [alias.name for alias in node.names]
        yield from (f"{node.lineno}: {word[:80]}" for word in words if NAME.search(word))  # type: ignore[attr-defined]


@pytest.mark.long
def test_no_module_but_a_provider_s_own_and_the_list_of_them_names_one() -> None:
    general = [path for path in PACKAGE.rglob("*.py") if path.parent != OWN or path.name == "provider.py"]
    assert OWN / "provider.py" in general
    offenders = [
        f"{path.relative_to(PACKAGE)}:{found}" for path in sorted(general) for found in named(path.read_text("utf-8"))
    ]
    assert offenders == []


@pytest.mark.parametrize(
    "code",
    [
        'if provider == "openai": pass',
        "import langchain_openai",
        "from editloupe.agent.providers import gemini",
        "def gemini_client(): pass",
        "open(google_api_key=1)",
        'x = f"{y} at OpenAI"',
    ],
)
def test_whatever_names_one_is_found(code: str) -> None:
    assert list(named(code))


def test_how_a_judge_is_written_may_be_shown() -> None:
    assert not list(named('help = "write openai:NAME or google_genai:gemini-3-pro"'))

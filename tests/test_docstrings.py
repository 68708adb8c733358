"""Every example in a docstring holds."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OPTIONAL = {
    "datasets",
    "fastapi",
    "jinja2",
    "lmms_eval",
    "ncnn",
    "onnxruntime",
    "pyarrow",
    "rapidocr",
    "ray",
    "starlette",
    "torch",
    "transformers",
}
"""What the extras bring: a module that asks for it at its top is skipped where it is absent."""
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted((ROOT / "editloupe").rglob("*.py"))
    if ">>> " in path.read_text("utf-8")
]


@pytest.mark.long
@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_the_docstrings_hold(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in OPTIONAL:
            raise
        pytest.skip(f"{error.name} is not installed")

    result = doctest.testmod(module)

    assert result.attempted > 0
    assert result.failed == 0

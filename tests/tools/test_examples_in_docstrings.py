from __future__ import annotations

import doctest
import importlib

import pytest

MODULES = ("contract", "geometry", "tiling", "parameters", "memory", "grounding", "detect", "read_text", "realesrgan")


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_the_docstrings_hold(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"editloupe.tools.{name}"))

    assert result.attempted > 0
    assert result.failed == 0

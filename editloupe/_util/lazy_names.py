"""Public names of a package that are imported when they are first used, so that importing the package costs nothing."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy_names(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package that imports its public names under `TYPE_CHECKING` only.

    These imports are the only list of which module holds which name: type checkers and the linter read it as it is, and here
    it is read from the package's source when a name is first asked for.

    Args:
        package: The package's `__name__`.
        file: Its `__file__`.

    >>> import editloupe
    >>> editloupe.Judge.__module__, "Judge" in dir(editloupe)
    ('editloupe.judge.judge', True)
    """

    @cache
    def modules() -> dict[str, str]:
        """Return the module of every name."""
        return {
            alias.name: node.module
            for guard in ast.parse(Path(file).read_text("utf-8")).body
            if isinstance(guard, ast.If) and ast.unparse(guard.test) == "TYPE_CHECKING"
            for node in guard.body
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
        }

    def get(name: str) -> Any:
        if name not in modules():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(modules()[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules()})

    return get, list_names

"""Import the public names of a package on first use, so that importing the package is fast."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package that imports its public names under `TYPE_CHECKING` only.

    These imports are the only list of names and modules. Type checkers read them directly, and this function reads them from
    the package's source on first use. The source comes from the package's loader, so an archive works too; an installation
    without source files does not.

    Args:
        package: The package's `__name__`.

    >>> import editloupe
    >>> editloupe.Judge.__module__, "Judge" in dir(editloupe)
    ('editloupe.judge.judge', True)
    """

    @cache
    def modules() -> dict[str, str]:
        """Return the module of every name."""
        source = _source_of(package)
        return {
            alias.name: node.module
            for guard in ast.parse(source).body
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
        internal = (name for name in vars(sys.modules[package]) if name.startswith("__"))
        return sorted({*internal, *modules()})

    return get, list_names


def _source_of(package: str) -> str:
    spec = sys.modules[package].__spec__
    loader: Any = spec.loader if spec else None
    source: str | None = loader.get_source(package) if hasattr(loader, "get_source") else None
    if source is None:
        raise ImportError(f"{package} is installed without its source files, which list its public names")
    return source

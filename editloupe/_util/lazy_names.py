"""Public names of a package that are imported when they are first used, so that importing the package costs nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package whose public names live in the modules given: relative to the package, or whole.

    >>> import editloupe
    >>> editloupe.Judge.__module__
    'editloupe.judge.judge'
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = homes[name]
        value = getattr(import_module(home if home.startswith("editloupe.") else f"{package}.{home}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return get

"""The commands of the program. `editloupe/__main__.py` starts and ends it.

Public names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from editloupe._util.lazy_names import lazy_names

if TYPE_CHECKING:
    from editloupe.cli.main import COMMANDS, Command, run

__all__ = [
    "COMMANDS",
    "Command",
    "run",
]

__getattr__, __dir__ = lazy_names(__name__)

"""Generate test scenes with known answers for the protocols of papers: billiards and ten algorithmic tasks.

Public names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from editloupe._util.lazy_names import lazy_names

if TYPE_CHECKING:
    from editloupe.generators.contract import AnswerCheck, Puzzle, PuzzleKind, Undecided
    from editloupe.generators.scenes import TASKS, check_answers, write_billiards, write_puzzles

__all__ = [
    "TASKS",
    "AnswerCheck",
    "Puzzle",
    "PuzzleKind",
    "Undecided",
    "check_answers",
    "write_billiards",
    "write_puzzles",
]

__getattr__, __dir__ = lazy_names(__name__)

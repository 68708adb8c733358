"""Rubrics, protocols and papers. Every bundled paper has a sub-package of its own.

Public names are imported on first use, because the list of protocols reads every bundled rubric.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from editloupe._util.lazy_names import lazy_names

if TYPE_CHECKING:
    from editloupe.rubrics.case import Case
    from editloupe.rubrics.model import (
        Answer,
        ChecksAnswer,
        LabelAnswer,
        MeasuredAnswer,
        NumberAnswer,
        Rubric,
        TextAnswer,
        YesNoAnswer,
    )
    from editloupe.rubrics.paper import Benchmark, Paper, Scored
    from editloupe.rubrics.protocol import MissingInput, Protocol
    from editloupe.rubrics.registry import PROTOCOLS, papers, register, usual_repeats
    from editloupe.rubrics.rubric_files import load_rubric, load_rubrics
    from editloupe.rubrics.tables import PrintedTable
    from editloupe.rubrics.user_rubrics import protocol_from_folder, with_files

__all__ = [
    "PROTOCOLS",
    "Answer",
    "Benchmark",
    "Case",
    "ChecksAnswer",
    "LabelAnswer",
    "MeasuredAnswer",
    "MissingInput",
    "NumberAnswer",
    "Paper",
    "PrintedTable",
    "Protocol",
    "Rubric",
    "Scored",
    "TextAnswer",
    "YesNoAnswer",
    "load_rubric",
    "load_rubrics",
    "papers",
    "protocol_from_folder",
    "register",
    "usual_repeats",
    "with_files",
]

__getattr__, __dir__ = lazy_names(__name__)

"""The record of a case, which is one question about one edit and its pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from editloupe.rubrics.model import Rubric
from editloupe.types import Box, Edit, Mode, Record, Sha

SOURCE, EDITED, REFERENCE = "Source Image", "Edited Image", "Reference Image"
"""Names of pictures in rubrics and prompts (DLEBench, Table 16). They are part of the tools' public contract."""
LOOP, MEASURE = "loop", "measure"
"""Names of the engine that asks a judge, and of the one that computes a measure."""


class Case(Record):
    """One question about one edit. A case holds hashes of pictures and no pixels.

    `Protocol.make_cases` builds the cases of an edit. If an edit has several cases on one rubric, its worst label counts.

    Args:
        edit: The edit.
        rubric: The rubric that is asked.
        mode: The mode it is asked in.
        pictures: Hash of every picture by name, in the order they are shown.
        target: Index of the target box if targets are judged separately, else None.
        target_boxes: Target boxes per picture, in that picture's pixels; empty in modes without annotated targets.
        facts: Further values that the engine needs, such as what a detector has to check.
        engine: Name of the graph that judges the case, as in `editloupe/graphs/registry.py`.
    """

    edit: Edit
    rubric: Rubric
    mode: Mode
    pictures: Mapping[str, Sha]
    target: int | None = None
    target_boxes: Mapping[str, tuple[Box, ...]] = Field(default_factory=dict)
    facts: Mapping[str, Any] = Field(default_factory=dict)
    engine: str = LOOP

    @property
    def uses_tools(self) -> bool:
        """Whether the judge may call tools."""
        return self.rubric.modes[self.mode].tools

"""A case: one question about one edit, with the pictures it is asked about — what one run of the loop judges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from editloupe.rubrics.model import Rubric
from editloupe.types import Box, Edit, Mode, Record, Sha

SOURCE, EDITED, REFERENCE = "Source Image", "Edited Image", "Reference Image"
"""Names of pictures in rubrics and for judges (DLEBench, Table 16); they are part of the tools' public contract."""


class Case(Record):
    """One question about one edit; holds hashes, never pixels."""

    edit: Edit
    rubric: Rubric
    mode: Mode
    pictures: Mapping[str, Sha]
    """Names to hashes, in the order they are shown."""
    target: int | None = None
    """Which target box the case is about, where targets are judged one by one."""
    target_boxes: Mapping[str, tuple[Box, ...]] = Field(default_factory=dict)
    """Where the targets are in each picture, in that picture's pixels; only in modes that know."""
    facts: Mapping[str, Any] = Field(default_factory=dict)
    """What else the protocol says about this case."""
    engine: str = "loop"
    """Which graph judges the case, by its name in `graphs/registry.py`."""

    @property
    def uses_tools(self) -> bool:
        """True where the judge may call tools."""
        return self.rubric.modes[self.mode].tools

"""Edits cut down to what the means of criteria are told by, equal ones kept once: whole edits are most of a long run's memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from editloupe.evals.runs.readback import KeptEdit
from editloupe.rubrics.registry import known_protocol
from editloupe.types import Edit


class Shortened:
    """Shortens the edits of one reading; where the protocol scores whole edits they stay as they are."""

    def __init__(self, protocol: str) -> None:
        known = known_protocol(protocol)
        self._reads_edits = known is not None and known.edit_score is not None
        self._apart = known.apart if known else ()
        self._known: dict[tuple[str, ...], KeptEdit] = {}

    def __call__(self, kept: KeptEdit) -> KeptEdit:
        """Return the edit with the model, the type and what the paper keeps apart; nothing else is to be asked of it."""
        if self._reads_edits:
            return kept
        edit = kept.edit
        columns = {name: edit.extra[name] for name in self._apart if name in edit.extra}
        fields = {name: getattr(edit, name) for name in ("model", "instruction_type", *self._apart) if name in _FIELDS}
        told = tuple(map(repr, (fields, columns)))
        if (short := self._known.get(told)) is None:
            short = self._known[told] = KeptEdit(_without_pictures(**fields, extra=columns), {}, "")
        return short


_FIELDS = Edit.model_fields


def _without_pictures(**fields: Any) -> Edit:
    return Edit.model_construct(source=Path(), edited=Path(), instruction="", **fields)

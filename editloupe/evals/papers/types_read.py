"""Types of edits as they are read: spelt as the protocol spells them that judges, since its arithmetic goes by the names."""

from __future__ import annotations

from collections.abc import Callable

from editloupe.rubrics.registry import known_protocol
from editloupe.types import Edit

Note = Callable[[str], object]
"""Is told a sentence."""
MOST = 5
"""Types of their own that are told one by one."""


def type_reader(protocol: str | None, note: Note | None = None) -> Callable[[Edit], Edit]:
    """Return what gives an edit its type as a protocol spells it; a type that the protocol cannot do with is a UserError.

    Where a protocol takes types of the user's own, `note` is told once of each of the first few.
    """
    known = known_protocol(protocol)
    if known is None:
        return lambda edit: edit
    told: set[str] = set()

    def typed(edit: Edit) -> Edit:
        edit = known.typed(edit)
        kind = edit.instruction_type
        own = bool(kind) and bool(known.types) and known.type_of is None and kind not in known.types
        if note and own and kind not in told and len(told) < MOST and known.weighting == "types":
            told.add(str(kind))
            note(f'"{kind}" is no type of {known.title}; it is counted as a type of its own')
            if len(told) == MOST:
                note("further types that it does not know are not listed")
        return edit

    return typed

"""The key of a case, a compact set of ids for large manifests, and the unedited baseline of every case."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from editloupe.rubrics.protocol import OUTPUT
from editloupe.types import Edit

NOTHING_EDITED = "nothing edited"
"""Model name of unedited outputs; reports show them as a reference and do not rank them."""


def case_key(edit: Edit, pictures: Mapping[str, Sequence[Any]]) -> tuple[Any, ...]:
    """Return the key of an edit's case, which is the same for the outputs of all editing models.

    A case is a source picture with an instruction, targets, a turn and further input pictures. A hint is for the judge: it
    influences answers, but does not separate cases.

    Args:
        edit: The edit.
        pictures: Content hashes or paths of the pictures by role. Without a source, the edit's path is used.
    """
    roles = [role for role in pictures if role not in ("source", "edited")]
    inputs = tuple((role, *pictures[role]) for role in sorted(roles)) if roles else ()
    source = sources[0] if (sources := pictures.get("source")) else str(edit.source)
    return source, edit.instruction, edit.target_boxes, edit.turn, inputs


class IdSet:
    """A set of ids as 64-bit hashes in an open-addressed table. A hit means *probably seen*; a miss is certain.

    >>> seen = IdSet()
    >>> seen.add("a"), seen.add("b"), seen.add("a")
    (False, False, True)
    """

    def __init__(self) -> None:
        self._slots = array("Q", bytes(8 * 1024))
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, name: str) -> bool:
        """Add an id; return whether its hash was in the set before."""
        digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        value = int.from_bytes(digest, "big") or 1
        if self._count * 2 >= len(self._slots):
            self._grow()
        is_new = self._insert(self._slots, value)
        self._count += is_new
        return not is_new

    def _grow(self) -> None:
        wider = array("Q", bytes(8 * 2 * len(self._slots)))
        for value in self._slots:
            if value:
                self._insert(wider, value)
        self._slots = wider

    @staticmethod
    def _insert(slots: array[int], value: int) -> bool:
        mask = len(slots) - 1
        index = value & mask
        while slots[index]:
            if slots[index] == value:
                return False
            index = (index + 1) & mask
        slots[index] = value
        return True


def copy_unedited(edit: Edit) -> Edit:
    """Return the edit with the source as its edited picture, without human labels and marks of a missing output."""
    extra = {name: value for name, value in edit.extra.items() if name != OUTPUT}
    return edit.model_copy(update={"edited": edit.source, "model": NOTHING_EDITED, "human": {}, "extra": extra})


def with_untouched(edits: Iterable[Edit]) -> Iterator[Edit]:
    """Stream the edits and, after the first edit of every case, the same case with nothing edited.

    Only sixteen bytes per case are kept in memory.

    Args:
        edits: The edits.
    """
    seen: set[bytes] = set()
    for edit in edits:
        yield edit
        key = repr(case_key(edit, edit.files)).encode("utf-8", "surrogatepass")
        case = hashlib.blake2b(key, digest_size=16).digest()
        if case not in seen:
            seen.add(case)
            if edit.model != NOTHING_EDITED:
                yield copy_unedited(edit)

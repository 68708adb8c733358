"""What identifies edits: a compact set of ids for manifests of millions, and the key of a case."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from editloupe.rubrics.protocol import OUTPUT
from editloupe.types import Edit

NOTHING_EDITED = "nothing edited"
"""The name of the model that returns its source; reports show it as a reference and rank it nowhere."""


def case_key(edit: Edit, pictures: Mapping[str, Sequence[Any]]) -> tuple[Any, ...]:
    """Return the key of an edit's case, which is the same for the outputs of all editing models.

    A case is a source picture with an instruction, targets, a turn and further input pictures. A hint is for the judge: it
    decides an answer, but does not separate cases.

    Args:
        edit: The edit.
        pictures: By role, what identifies each picture: content hashes or paths. Without a source, the edit's path is used.
    """
    roles = [role for role in pictures if role not in ("source", "edited")]
    inputs = tuple((role, *pictures[role]) for role in sorted(roles)) if roles else ()
    source = sources[0] if (sources := pictures.get("source")) else str(edit.source)
    return source, edit.instruction, edit.target_boxes, edit.turn, inputs


class IdSet:
    """Remembers ids by a 64-bit hash in one open-addressed table; a hit says *probably seen*, a miss is certain.

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
        """Add an id; return True where its hash was there before."""
        digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        value = int.from_bytes(digest, "big") or 1
        if self._count * 2 >= len(self._slots):
            self._grow()
        return not self._put(self._slots, value) or self._counted()

    def _counted(self) -> bool:
        self._count += 1
        return False

    def _grow(self) -> None:
        wider = array("Q", bytes(8 * 2 * len(self._slots)))
        for value in self._slots:
            if value:
                self._put(wider, value)
        self._slots = wider

    @staticmethod
    def _put(slots: array[int], value: int) -> bool:
        mask = len(slots) - 1
        place = value & mask
        while slots[place]:
            if slots[place] == value:
                return False
            place = (place + 1) & mask
        slots[place] = value
        return True


def copy_unedited(edit: Edit) -> Edit:
    """Return the edit with the source as its edited picture; labels by people belong to another picture and are left out.

    So is a reader's word that the model left no picture.
    """
    extra = {name: value for name, value in edit.extra.items() if name != OUTPUT}
    return edit.model_copy(update={"edited": edit.source, "model": NOTHING_EDITED, "human": {}, "extra": extra})


def with_untouched(edits: Iterable[Edit]) -> Iterator[Edit]:
    """Stream the edits and, behind the first edit of every case, the same case with nothing edited.

    Sixteen bytes of each case's key are remembered, so that manifests of any length can be streamed.
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

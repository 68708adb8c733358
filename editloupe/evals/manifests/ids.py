"""What identifies edits: a compact set of ids for manifests of millions, and the key of a case."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from editloupe.types import Edit


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

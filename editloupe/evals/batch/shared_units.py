"""Units that several edits share in one session: one edit is asked, and the others wait for what comes of it."""

from __future__ import annotations

import threading
from collections.abc import Collection
from hashlib import blake2b

from editloupe.judge.question_key import Question

_Place = tuple[Question, int]


class SharedUnits:
    """Knows which units are under way and who waits for them; the planner asks from its thread, the runner from its own."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._under_way: dict[_Place, list[int]] = {}
        self._being_written: set[_Place] = set()
        self._over: set[bytes] = set()
        """Those that are not asked twice although the run alone would have them asked again."""

    def follows(self, question: Question, repeat: int, number: int | None) -> bool:
        """Have an edit wait for a unit that another edit is being asked; False where nobody is.

        Of a unit that is being written the end is awaited: after that the run tells what it holds.
        """
        place = (question, repeat)
        with self._changed:
            self._changed.wait_for(lambda: place not in self._being_written)
            if question.shown is None or place not in self._under_way:
                return False
            if number is not None:
                self._under_way[place].append(number)
            return True

    def begin(self, question: Question, repeat: int) -> None:
        """Note a unit as under way."""
        if question.shown is not None:
            with self._changed:
                self._under_way.setdefault((question, repeat), [])

    def followers(self, question: Question, repeat: int) -> tuple[int, ...]:
        """Return the edits that wait for a unit, which is about to be written; further ones wait until it is."""
        place = (question, repeat)
        with self._changed:
            if place not in self._under_way:
                return ()
            self._being_written.add(place)
            return tuple(self._under_way[place])

    def end(self, questions: Collection[Question], repeat: int) -> None:
        """Note units as no longer under way, whatever came of them."""
        with self._changed:
            for question in questions:
                self._under_way.pop((question, repeat), None)
                self._being_written.discard((question, repeat))
            self._changed.notify_all()

    def settle(self, question: Question, repeat: int) -> None:
        """Note a unit as asked in this session, for which nothing further is asked in it."""
        if question.shown is not None:
            self._over.add(_mark(question, repeat))

    def settled(self, question: Question, repeat: int) -> bool:
        """True where a unit was asked in this session."""
        return bool(self._over) and _mark(question, repeat) in self._over


def _mark(question: Question, repeat: int) -> bytes:
    """Return a few bytes for a unit: with everything judged anew there are as many as the run has units."""
    return blake2b(f"{question.asked} {question.shown} {repeat}".encode(), digest_size=16).digest()

"""Counts as a sentence has them: one edit, two edits."""

from __future__ import annotations


def number_of(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun.

    >>> number_of(1, "edit"), number_of(2, "edit"), number_of(0, "criterion", "criteria")
    ('1 edit', '2 edits', '0 criteria')
    """
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def verb(number: int, one: str, several: str) -> str:
    """Return the form of a word that goes with a number.

    >>> verb(1, "is", "are"), verb(0, "is", "are")
    ('is', 'are')
    """
    return one if number == 1 else several

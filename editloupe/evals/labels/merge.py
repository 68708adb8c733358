"""Which labels of people count, where a manifest and several files hold some: one rule for every command and page.

Annotators are kept apart. A named one is the same person in every source, and the later label of the same person
replaces the earlier one. Whoever has no name is somebody of that source alone, unless a source repeats another one's
labels one by one: a copy is not a second opinion. A label marked as adjudicated settles what others said differently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

Place = tuple[str, str]
"""An edit's name in its run, and a criterion."""
SURE = 10
"""So many equal labels, and no other, are not given by chance: below that an unnamed person is nobody who is named elsewhere."""
Given = dict[Place, dict[str, float]]
"""Scores by place and annotator."""


class Saying(NamedTuple):
    """One label as somebody gave it."""

    place: Place
    rater: str | None
    """None where nobody is named: the first, second … label of its place in its source."""
    score: float | None
    """On the rubric's scale; None takes back what the same person said before."""
    adjudicated: bool = False
    """Given to settle what others said differently: it counts in their place, and is no further opinion."""


@dataclass(frozen=True)
class Source:
    """A manifest or a file with labels, in the order in which they were given."""

    origin: str
    """In words, such as a file's name."""
    sayings: Sequence[Saying]
    whole: bool = False
    """True for the manifest, whose unnamed annotators need no origin behind their number."""

    @property
    def has_labels(self) -> bool:
        """True if it labels anything."""
        return any(saying.score is not None for saying in self.sayings)


class Merged(NamedTuple):
    """What people said, put together from all sources."""

    given: Given
    """Scores by place and annotator."""
    adjudicated: Mapping[Place, float]
    """Scores that settle places where annotators differed; `consensus.counting_scores` says which count."""
    notes: tuple[str, ...]
    """What a reader should know about them."""


def merged(sources: Sequence[Source]) -> Merged:
    """Return what people said, by edit and criterion and annotator; adjudicated labels stand apart, the last of a place counts.

    >>> ada = [Saying(("e1", "c"), "Ada", 1.0)]
    >>> merged([Source("a.csv", ada), Source("b.csv", [Saying(("e1", "c"), "Ada", 3.0)])]).given
    {('e1', 'c'): {'Ada': 3.0}}
    """
    given: Given = {}
    settled: dict[Place, float] = {}
    unnamed = [_unnamed(source) for source in sources]
    copies, notes = _copies(sources, unnamed)
    for number, source in enumerate(sources):
        for rater, labels in unnamed[number].items():
            if (number, rater) not in copies:
                for place, score in labels.items():
                    given.setdefault(place, {})[_called(source, rater)] = score
        for saying in source.sayings:
            if saying.adjudicated:
                settled.pop(saying.place, None)
                if saying.score is not None:
                    settled[saying.place] = saying.score
            if saying.rater is None or saying.adjudicated:
                continue
            here = given.setdefault(saying.place, {})
            here.pop(saying.rater, None)
            if saying.score is not None:
                here[saying.rater] = saying.score
    return Merged({place: labels for place, labels in given.items() if labels}, settled, tuple(notes))


def _called(source: Source, rater: int) -> str:
    return f"annotator {rater}" if source.whole else f"annotator {rater} of {source.origin}"


def _unnamed(source: Source) -> dict[int, dict[Place, float]]:
    """Return the labels of those without a name, by the number of the label at its place; an empty one keeps its number."""
    found: dict[int, dict[Place, float]] = {}
    counts: dict[Place, int] = {}
    for place, name, score, adjudicated in source.sayings:
        if name is None and not adjudicated:
            counts[place] = counts.get(place, 0) + 1
            if score is not None:
                found.setdefault(counts[place], {})[place] = score
    return found


def _named(source: Source) -> dict[str, dict[Place, float]]:
    found: dict[str, dict[Place, float]] = {}
    for place, name, score, adjudicated in source.sayings:
        if name is not None and not adjudicated:
            labels = found.setdefault(name, {})
            labels.pop(place, None)
            if score is not None:
                labels[place] = score
    return found


def _copies(
    sources: Sequence[Source], unnamed: Sequence[Mapping[int, Mapping[Place, float]]]
) -> tuple[set[tuple[int, int]], list[str]]:
    """Return the unnamed annotators whose labels are, one by one, those of somebody in another source."""
    copies: set[tuple[int, int]] = set()
    notes = []
    known: dict[frozenset[tuple[Place, float]], list[tuple[int, str]]] = {}
    for number, source in enumerate(sources):
        for name, labels in _named(source).items():
            if len(labels) < SURE:
                continue
            known.setdefault(frozenset(labels.items()), []).append((number, name))
    for number, source in enumerate(sources):
        mine = []
        for rater, said in unnamed[number].items():
            key = frozenset(said.items())
            if other := next((name for place, name in known.get(key, ()) if place != number), None):
                copies.add((number, rater))
                notes.append(
                    f"The {len(said)} labels of {_called(source, rater)} are those of {other}, one by one, and are counted "
                    "once; a column `rater` tells two people apart who agree on everything."
                )
            else:
                mine.append((key, (number, _called(source, rater))))
        for key, one in mine:
            known.setdefault(key, []).append(one)
    return copies, notes

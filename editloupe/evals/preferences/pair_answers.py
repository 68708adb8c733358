"""What people answered about pairs: a JSONL file that only grows, and what its answers decide.

A row says who answered what when: `{"pair", "who", "when", "ratings": {KEY: 1..5}}` first, then with `"choice"`, a key or
`tie`, in place of the ratings. A later row of the same person replaces the earlier one.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from editloupe._util.json_safe import storable
from editloupe.evals.manifests.jsonl_log import append_line, read_log_rows
from editloupe.evals.preferences.records import TIE, OpenPair
from editloupe.evals.runs.unit_rows import timestamp
from editloupe.types import UserError

SCALE = (1, 2, 3, 4, 5)
"""The papers' scale of single candidates, 5 best."""
State = Literal["open", "another", "decided", "split"]


@dataclass
class Answer:
    """What one person said about one pair."""

    ratings: dict[str, int] = field(default_factory=dict)
    choice: str | None = None

    @property
    def contradicts_itself(self) -> bool:
        """True where the one rated lower was chosen."""
        if self.choice in (None, TIE) or self.choice not in self.ratings:
            return False
        return any(other > self.ratings[str(self.choice)] for other in self.ratings.values())


@dataclass(frozen=True)
class Decision:
    """What people's answers come to."""

    state: State
    """`open`: too few have answered; `another`: they disagree and one more is asked; `split`: no agreement, so no pair."""
    choice: str | None = None
    votes: Mapping[str, int] = field(default_factory=dict)


@dataclass
class PairQueue:
    """What one person is asked."""

    done: int = 0
    begun: list[OpenPair] = field(default_factory=list)
    """Rated, and no choice made."""
    untouched: list[OpenPair] = field(default_factory=list)

    @property
    def left(self) -> int:
        """How many pairs are still theirs to answer."""
        return len(self.begun) + len(self.untouched)

    @property
    def first(self) -> OpenPair | None:
        """What is asked next: what was begun first."""
        return next(iter((*self.begun[:1], *self.untouched[:1])), None)


def decide(pair: OpenPair, choices: Iterable[str]) -> Decision:
    """Return what choices, in the order in which they were first made, decide about a pair.

    `third`: where the first people disagree one more is asked, and more than half decide. `unanimous`: one other choice is
    enough to drop the pair.
    """
    given = list(choices)
    votes = Counter(given)
    if len(given) < pair.people:
        return Decision("open", None, votes)
    if len(votes) == 1:
        return Decision("decided", given[0], votes)
    if pair.rule == "third":
        ((most, count),) = votes.most_common(1)
        if len(given) == pair.people and not (pair.people > 2 and 2 * count > len(given)):
            return Decision("another", None, votes)
        if 2 * count > len(given):
            return Decision("decided", most, votes)
    return Decision("split", None, votes)


class PairAnswers:
    """The answers to one file of pairs, whole in memory; every one is on disk before it counts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._size = -1
        self._given: dict[str, dict[str, Answer]] = {}
        self.notes: tuple[str, ...] = ()
        """What of the file was passed over."""

    def all(self) -> dict[str, dict[str, Answer]]:
        """Return answers by pair and person, people in the order in which they first chose."""
        with self._lock:
            self._read()
            return self._given

    def of(self, pair: str, who: str) -> Answer:
        """Return what one person said about one pair, an empty answer where that is nothing."""
        return self.all().get(pair, {}).get(who) or Answer()

    def choices(self, pair: OpenPair) -> dict[str, str]:
        """Return the choices about a pair by person; one that names neither of its sides is none."""
        return self._choices(pair, self.all())

    def queue(self, pairs: Iterable[OpenPair], who: str) -> PairQueue:
        """Return what a person has answered, and what is still theirs: not yet answered by them, nor by enough people."""
        given = self.all()
        found = PairQueue()
        for pair in pairs:
            choices = self._choices(pair, given)
            if who in choices:
                found.done += 1
            elif decide(pair, choices.values()).state in ("open", "another"):
                begun = given.get(pair.id, {}).get(who)
                (found.begun if begun and begun.ratings else found.untouched).append(pair)
        return found

    def _choices(self, pair: OpenPair, given: Mapping[str, Mapping[str, Answer]]) -> dict[str, str]:
        found = given.get(pair.id, {})
        return {who: one.choice for who, one in found.items() if one.choice in (*pair.keys, TIE)}

    def decision(self, pair: OpenPair) -> Decision:
        """Return what the answers about a pair come to."""
        return decide(pair, self.choices(pair).values())

    def rate(self, pair: OpenPair, who: str, ratings: Mapping[str, int]) -> None:
        """Keep how somebody rates each of the two on its own."""
        if set(ratings) != set(pair.keys) or not all(value in SCALE for value in ratings.values()):
            raise UserError(f"rate both candidates from {SCALE[0]} to {SCALE[-1]}")
        self._append(pair, who, {"ratings": dict(ratings)})

    def choose(self, pair: OpenPair, who: str, choice: str) -> None:
        """Keep which of the two somebody prefers; candidates are rated first."""
        if choice not in (*pair.keys, TIE):
            raise UserError("choose one of the two, or tie")
        if pair.kind == "outputs" and not self.of(pair.id, who).ratings:
            raise UserError("rate both candidates before you choose")
        self._append(pair, who, {"choice": choice})

    def _append(self, pair: OpenPair, who: str, said: dict[str, Any]) -> None:
        row = {"pair": pair.id, "dimension": pair.dimension, "who": who, "when": timestamp(), **said}
        line = json.dumps(storable(row), ensure_ascii=False).encode()
        with self._lock:
            self._read()
            try:
                size = append_line(self.path, line)
            except OSError as error:
                raise UserError(f"{self.path} cannot be written: {error.strerror or error}") from None
            self._take(row)
            # Another size means that another process wrote after the reading above: read the file again.
            self._size = size if size == max(self._size, 0) + len(line) + 1 else -1

    def _read(self) -> None:
        """Read the file again where somebody else wrote to it."""
        size = self.path.stat().st_size if self.path.is_file() else 0
        if size == self._size:
            return
        notes: list[str] = []
        self._given = {}
        if size:
            for row in read_log_rows(self.path, notes):
                self._take(row.values)
        self._size, self.notes = size, tuple(notes)

    def _take(self, row: Mapping[str, Any]) -> None:
        pair, who = str(row.get("pair") or ""), str(row.get("who") or "")
        if not pair or not who:
            return
        people = self._given.setdefault(pair, {})
        answer = people.get(who) or Answer()
        ratings = row.get("ratings")
        if isinstance(ratings, Mapping):
            answer.ratings = {str(key): value for key, value in ratings.items() if value in SCALE}
        if isinstance(row.get("choice"), str):
            if answer.choice is None:  # who chooses first stands first, whoever rated first
                people.pop(who, None)
            answer.choice = str(row["choice"])
        people[who] = answer

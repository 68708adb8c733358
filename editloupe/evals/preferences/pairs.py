"""Records and files of preference pairs, people's answers about them, and how the answers decide the pairs.

`pairs.jsonl` holds the decided pairs. Next to it, `pairs.open.jsonl` holds every pair that was drawn, with facts that annotators
must not see, and `pairs.answers.jsonl` is the log of people's answers. A row of the log is `{"pair", "who", "when", "ratings":
{KEY: 1..5}}`, followed by a row with `"choice"`, a key or `tie`, in place of the ratings. A later row of the same person replaces
the earlier one.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, islice
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, ValidationError

from editloupe._util.files import atomic_text_file, make_folder
from editloupe._util.hashing import content_key
from editloupe._util.json_safe import sanitize
from editloupe.evals.manifests.jsonl_log import append_line, read_log_rows
from editloupe.evals.manifests.readers import read_jsonl
from editloupe.evals.runs.unit_rows import timestamp
from editloupe.evals.stats.agreement import coefficients as st
from editloupe.evals.stats.intervals import Floats
from editloupe.rubrics.rubric_files import describe_validation_error
from editloupe.types import Box, Record, UserError

PairKind = Literal["outputs", "rationales"]
DecisionRule = Literal["third", "unanimous"]
RULES: tuple[DecisionRule, ...] = ("third", "unanimous")
TIE, UNCLEAR = "tie", "unclear"


class PairSide(Record):
    """One of the two sides of a pair.

    Args:
        key: Hash of the content. Answers refer to it, so they stay valid if the order or the draw changes.
        name: The editing model, or the judge; annotators do not see it.
        picture: The edited picture's file, relative to the file of pairs.
        rationale: The judge's rationale.
        label: The label the judge gave with the rationale.
        score: Score from 0 to 100 by the run's judge.
    """

    key: str
    name: str
    picture: str | None = None
    rationale: str | None = None
    label: str | None = None
    score: float | None = None


class OpenPair(Record):
    """Two outputs for one source and instruction, or two rationales about one edit, with one question about them.

    Args:
        id: Identifies the pair.
        kind: `outputs` or `rationales`.
        dimension: The dimension or, for rationales, the criterion.
        title: Title of the dimension.
        question: The question to people.
        prompt: The edit's instruction.
        source: Identifies the source picture.
        source_image: The source picture's file.
        edited: For rationales: the edited picture's file.
        a: The first side.
        b: The second side.
        by_scores: The key of the better side, `tie` or `unclear`; None if the pair was not scored.
        target_boxes: The edit's target boxes, in pixels of the source picture.
        people: Number of people to ask.
        rule: How their answers decide.
        fields: Further fields of the line in `pairs.jsonl`: task, flags, hints.
    """

    id: str
    kind: PairKind
    dimension: str
    title: str
    question: str
    prompt: str
    source: str
    source_image: str
    edited: str | None = None
    a: PairSide
    b: PairSide
    by_scores: str | None = None
    target_boxes: tuple[Box, ...] = ()
    people: Annotated[int, Field(ge=1)] = 2
    rule: DecisionRule = "third"
    fields: Mapping[str, Any] = {}

    @property
    def keys(self) -> tuple[str, str]:
        """Both keys, in an order that does not depend on which side is shown first."""
        first, second = sorted((self.a.key, self.b.key))
        return first, second

    @property
    def references(self) -> tuple[str, ...]:
        """Further input pictures, relative to the file of pairs."""
        paths = self.fields.get("reference_image_path") or ()
        return tuple(paths) if isinstance(paths, (list, tuple)) else (paths,)

    def side(self, key: str) -> PairSide:
        """Return the side of a key."""
        return self.a if self.a.key == key else self.b


def open_pairs_file(pairs: Path) -> Path:
    """Return the path of the file with all drawn pairs."""
    return pairs.with_name(f"{pairs.stem}.open.jsonl")


def answers_file(pairs: Path) -> Path:
    """Return the path of the file with people's answers."""
    return pairs.with_name(f"{pairs.stem}.answers.jsonl")


def content_id(*facts: Any) -> str:
    """Return a short hash of some facts."""
    return content_key(facts)[:16]


def shuffle_pairs(seed: int, pairs: Iterable[OpenPair]) -> list[OpenPair]:
    """Return pairs in an order, and each with its sides in an order, that the seed decides alone."""
    ordered = []
    for pair in pairs:
        turned = int(content_id(seed, pair.id), 16) % 2
        ordered.append(pair.model_copy(update={"a": pair.b, "b": pair.a}) if turned else pair)
    return sorted(ordered, key=lambda pair: content_id("order", seed, pair.id))


def write_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> int:
    """Write a JSONL file atomically and return the number of its lines."""
    make_folder(path.parent)
    count = 0
    with atomic_text_file(path) as out:
        for record in records:
            out.write(json.dumps(record, ensure_ascii=False) + "\n")
            count += 1
    return count


def read_open_pairs(pairs: Path) -> list[OpenPair]:
    """Read all pairs that belong to a file of pairs.

    Args:
        pairs: The file of pairs.

    Raises:
        UserError: The file with all drawn pairs is missing, or was not written by `editloupe make pairs`.
    """
    path = open_pairs_file(pairs)
    if not path.is_file():
        raise UserError(
            f"there is no {path.name} next to {pairs}: make the pairs with `editloupe make pairs RUN --out {pairs}`"
        )
    records = []
    for row in read_jsonl(path):
        try:
            records.append(OpenPair.model_validate(row.values))
        except ValidationError as error:
            raise row.error(describe_validation_error(error)) from None
    return records


RATING_SCALE = (1, 2, 3, 4, 5)
"""The papers' scale of single candidates, 5 best."""
DecisionState = Literal["open", "another", "decided", "split"]
DecidedBy = Literal["scores", "people"]
TieRule = Literal["keep", "drop"]
CHOICE_VALUES = (-1.0, 0.0, 1.0)
"""The other one, tie, this one: choices between two are ordered labels."""


@dataclass
class PairAnswer:
    """One person's answer about one pair."""

    ratings: dict[str, int] = field(default_factory=dict)
    choice: str | None = None

    @property
    def contradicts_itself(self) -> bool:
        """Whether the candidate with the lower rating was chosen."""
        if self.choice in (None, TIE) or self.choice not in self.ratings:
            return False
        return any(other > self.ratings[str(self.choice)] for other in self.ratings.values())


@dataclass(frozen=True)
class PairDecision:
    """The decision that people's answers lead to."""

    state: DecisionState
    """`open`: too few have answered; `another`: they disagree and one more is asked; `split`: no agreement, so no pair."""
    choice: str | None = None
    votes: Mapping[str, int] = field(default_factory=dict)


@dataclass
class PairQueue:
    """The pairs that one person is still to answer."""

    done: int = 0
    begun: list[OpenPair] = field(default_factory=list)
    """Rated, and no choice made."""
    untouched: list[OpenPair] = field(default_factory=list)

    @property
    def left(self) -> int:
        """Number of pairs that the person is still to answer."""
        return len(self.begun) + len(self.untouched)

    @property
    def first(self) -> OpenPair | None:
        """The next pair to ask about: one that was begun, else a new one."""
        return next(iter((*self.begun[:1], *self.untouched[:1])), None)


def decide_pair(pair: OpenPair, choices: Iterable[str]) -> PairDecision:
    """Decide a pair by people's choices, in the order in which they were first made.

    By the rule `third`, one more person is asked if the first ones disagree, and more than half decide. By `unanimous`, one
    different choice is enough to drop the pair.

    Args:
        pair: The pair.
        choices: The keys that people chose, or `tie`.
    """
    votes = Counter(choices)
    if votes.total() < pair.people:
        return PairDecision("open", None, votes)
    ((choice, count),) = votes.most_common(1)
    if count == votes.total():
        return PairDecision("decided", choice, votes)
    if pair.rule == "third":
        has_majority = 2 * count > votes.total()
        if votes.total() == pair.people and not (pair.people > 2 and has_majority):
            return PairDecision("another", None, votes)
        if has_majority:
            return PairDecision("decided", choice, votes)
    return PairDecision("split", None, votes)


class PairAnswers:
    """The answers to one file of pairs, held in memory. An answer is on disk before it counts.

    Args:
        path: The JSONL log of answers.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._size = -1
        self._given: dict[str, dict[str, PairAnswer]] = {}
        self.notes: tuple[str, ...] = ()
        """Notes on rows of the file that could not be read."""

    def all(self) -> dict[str, dict[str, PairAnswer]]:
        """Return answers by pair and person, people in the order in which they first chose."""
        with self._lock:
            self._read()
            return self._given

    def of(self, pair: str, who: str) -> PairAnswer:
        """Return one person's answer about one pair; an empty answer if there is none."""
        return self.all().get(pair, {}).get(who) or PairAnswer()

    def choices(self, pair: OpenPair) -> dict[str, str]:
        """Return the choices about a pair by person, without choices that name neither of its sides."""
        return self._choices(pair, self.all())

    def queue(self, pairs: Iterable[OpenPair], who: str) -> PairQueue:
        """Return the pairs a person is still to answer: those without their answer that are not decided yet."""
        answers = self.all()
        queue = PairQueue()
        for pair in pairs:
            choices = self._choices(pair, answers)
            if who in choices:
                queue.done += 1
            elif decide_pair(pair, choices.values()).state in ("open", "another"):
                begun = answers.get(pair.id, {}).get(who)
                (queue.begun if begun and begun.ratings else queue.untouched).append(pair)
        return queue

    def _choices(self, pair: OpenPair, answers: Mapping[str, Mapping[str, PairAnswer]]) -> dict[str, str]:
        own = answers.get(pair.id, {})
        return {who: answer.choice for who, answer in own.items() if answer.choice in (*pair.keys, TIE)}

    def decision(self, pair: OpenPair) -> PairDecision:
        """Return the decision about a pair."""
        return decide_pair(pair, self.choices(pair).values())

    def rate(self, pair: OpenPair, who: str, ratings: Mapping[str, int]) -> None:
        """Store a person's rating of each of the two candidates."""
        if set(ratings) != set(pair.keys) or not all(value in RATING_SCALE for value in ratings.values()):
            raise UserError(f"rate both candidates from {RATING_SCALE[0]} to {RATING_SCALE[-1]}")
        self._append(pair, who, {"ratings": dict(ratings)})

    def choose(self, pair: OpenPair, who: str, choice: str) -> None:
        """Store which of the two a person prefers; candidates must be rated first."""
        if choice not in (*pair.keys, TIE):
            raise UserError("choose one of the two, or tie")
        if pair.kind == "outputs" and not self.of(pair.id, who).ratings:
            raise UserError("rate both candidates before you choose")
        self._append(pair, who, {"choice": choice})

    def _append(self, pair: OpenPair, who: str, content: dict[str, Any]) -> None:
        row = {"pair": pair.id, "dimension": pair.dimension, "who": who, "when": timestamp(), **content}
        line = json.dumps(sanitize(row), ensure_ascii=False).encode()
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
        """Read the file again if another process wrote to it."""
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
        answer = people.get(who) or PairAnswer()
        ratings = row.get("ratings")
        if isinstance(ratings, Mapping):
            answer.ratings = {str(key): value for key, value in ratings.items() if value in RATING_SCALE}
        if isinstance(row.get("choice"), str):
            if answer.choice is None:  # in the order of first choices, not of ratings
                people.pop(who, None)
            answer.choice = str(row["choice"])
        people[who] = answer


@dataclass
class PairCounts:
    """Numbers of pairs of one dimension, by what became of them."""

    pairs: int = 0
    preferences: int = 0
    ties: int = 0
    states: Counter[str] = field(default_factory=Counter)
    """Undecided pairs by their state."""
    contradictions: int = 0
    """Answers in which the candidate rated lower was chosen."""


def build_decided_lines(
    pairs: Sequence[OpenPair], answers: PairAnswers, by: DecidedBy, ties: TieRule, counts: dict[str, PairCounts]
) -> Iterator[dict[str, Any]]:
    """Yield a line for every decided pair, and count all pairs by dimension in `counts`."""
    for pair in pairs:
        own = counts.setdefault(pair.dimension, PairCounts())
        own.pairs += 1
        own.contradictions += sum(answer.contradicts_itself for answer in answers.all().get(pair.id, {}).values())
        if by == "people":
            decision = answers.decision(pair)
            choice, votes = decision.choice, decision.votes
            state: str = decision.state
        else:
            choice = None if pair.by_scores == UNCLEAR else pair.by_scores
            state, votes = UNCLEAR if choice is None else "decided", {}
        if choice is None:
            own.states[state] += 1
            continue
        own.ties += choice == TIE
        own.preferences += choice != TIE
        if choice != TIE or ties == "keep":
            yield _build_line(pair, choice, by, votes)


def _build_line(pair: OpenPair, choice: str, by: DecidedBy, votes: Mapping[str, int]) -> dict[str, Any]:
    winner, loser = (pair.a, pair.b) if choice in (TIE, pair.a.key) else (pair.b, pair.a)
    voices = {"winner": votes.get(winner.key, 0), "loser": votes.get(loser.key, 0), TIE: votes.get(TIE, 0)}
    decision: dict[str, Any] = {"by": by, **({"votes": voices} if votes else {})}
    label = TIE if choice == TIE else "preference"
    if pair.kind == "rationales":
        sides = {
            name: {"judge": side.name, "label": side.label, "rationale": side.rationale}
            for name, side in (("winner", winner), ("loser", loser))
        }
        about = {"criterion": pair.dimension, "prompt": pair.prompt, "source_image": pair.source_image}
        return {"id": pair.id, **pair.fields, **about, "edited": pair.edited, **sides, "label": label, **decision}
    return {
        "id": pair.id,
        "source_image": pair.source_image,
        "prompt": pair.prompt,
        "winner": winner.picture,
        "loser": loser.picture,
        "dimension": pair.dimension,
        "label": label,
        **pair.fields,
        "models": {"winner": winner.name, "loser": loser.name},
        "scores": {"winner": winner.score, "loser": loser.score},
        **decision,
    }


class PairAgreement(Record):
    """Agreement of people on one dimension."""

    dimension: str
    shared: int
    """Pairs that two people or more have chosen on."""
    same: float | None
    """Share of equal choices among all pairs of people on one pair."""
    choices_alpha: float | None
    ratings_alpha: float | None
    kappa: float | None
    """Cohen's κ of the two people who share most pairs."""
    why: str | None = None
    """Why α of the choices is missing."""

    def format(self) -> str:
        """Return the agreement in one line."""

        def number(value: float | None) -> str:
            return "–" if value is None else f"{value:.2f}"

        reason = f" ({self.why})" if self.choices_alpha is None and self.why else ""
        return (
            f"{self.dimension}: {self.shared} shared, same choice {number(self.same)}, Krippendorff α of choices "
            f"{number(self.choices_alpha)}{reason}, of ratings {number(self.ratings_alpha)}, Cohen κ {number(self.kappa)}"
        )


def measure_pair_agreement(pairs: Sequence[OpenPair], answers: PairAnswers) -> list[PairAgreement]:
    """Measure the agreement of people on every dimension that has answers.

    Only the first people asked about a pair count. A further person is asked only about disputed pairs, so their answers would
    bias the agreement.

    Args:
        pairs: The pairs.
        answers: People's answers.
    """
    agreements = []
    for dimension in dict.fromkeys(pair.dimension for pair in pairs):
        own = [pair for pair in pairs if pair.dimension == dimension]
        chosen: list[Mapping[str, float]] = []
        rated: list[Mapping[str, float]] = []
        for pair in own:
            first, _ = pair.keys
            choices = dict(islice(answers.choices(pair).items(), pair.people))
            chosen.append({who: _choice_value(choice, first) for who, choice in choices.items()})
            for key in pair.keys:
                ratings = ((who, answers.of(pair.id, who).ratings) for who in choices)
                rated.append({who: float(values[key]) for who, values in ratings if key in values})
        if any(chosen):
            agreements.append(_measure_agreement(dimension, _build_table(chosen), _build_table(rated)))
    return agreements


def _choice_value(choice: str, first: str) -> float:
    return 0.0 if choice == TIE else 1.0 if choice == first else -1.0


def _build_table(items: Sequence[Mapping[str, float]]) -> Floats:
    """Return items × people, NaN if a person gave no value."""
    people = {who: position for position, who in enumerate(dict.fromkeys(who for item in items for who in item))}
    table = np.full((len(items), max(1, len(people))), np.nan)
    for number, item in enumerate(items):
        for who, value in item.items():
            table[number, people[who]] = value
    return table


def _measure_agreement(dimension: str, choices: Floats, ratings: Floats) -> PairAgreement:
    alpha, why = st.alpha(choices)
    equal = total = 0
    best: tuple[int, float | None] = (0, None)
    for first, second in combinations(range(choices.shape[1]), 2):
        both = np.isfinite(choices[:, first]) & np.isfinite(choices[:, second])
        x, y = choices[both, first], choices[both, second]
        equal, total = equal + int((x == y).sum()), total + len(x)
        if len(x) > best[0]:
            best = (len(x), st.kappa(x, y, np.array(CHOICE_VALUES))[0])
    shared = int((np.isfinite(choices).sum(1) >= 2).sum())
    return PairAgreement(
        dimension=dimension,
        shared=shared,
        same=equal / total if total else None,
        choices_alpha=alpha,
        ratings_alpha=st.alpha(ratings)[0],
        kappa=best[1],
        why=why,
    )

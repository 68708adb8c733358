"""The protocol of EdiVal-Agent, which judges edits and chains of edits object by object with a detector, and its arithmetic."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any, Literal

from editloupe.pictures.decode import Album
from editloupe.rubrics.case import EDITED, SOURCE, Case
from editloupe.rubrics.edival.pools import KEY
from editloupe.rubrics.edival.questions import build_parts, build_question
from editloupe.rubrics.edival.reading import find_turn
from editloupe.rubrics.edival.rules import load_published, load_sources
from editloupe.rubrics.edival.tasks import TYPES, Task, TaskType
from editloupe.rubrics.model import Rubric
from editloupe.rubrics.paper import Paper
from editloupe.rubrics.protocol import Protocol, UneditedScore
from editloupe.rubrics.rubric_files import load_bundled_rubric
from editloupe.rubrics.tables import mean
from editloupe.types import Edit, Mode, Record

__all__ = ["ASKED", "EDIVAL", "PAPER", "PRECHECKS"]

ENGINE = "objects"
"""The graph that checks single objects with a detector and crops."""


def case_facts(edit: Edit, rubric: Rubric, mode: Mode) -> dict[str, Any]:
    """Return the fields from which the turn is read in tools mode."""
    if mode != "tools":
        return {}
    return {"instruction": edit.instruction, "instruction_type": edit.instruction_type, KEY: edit.extra.get(KEY)}


def build_cases(edit: Edit, rubric: Rubric, mode: Mode, album: Album) -> list[Case]:
    """Return the single case of an edit. In tools mode its facts hold the tasks to check."""
    source, edited = album.open(edit.source), album.open(edit.edited)
    pictures = {SOURCE: source.sha, EDITED: edited.sha}
    if mode != "tools":
        return [Case(edit=edit, rubric=rubric, mode=mode, pictures=pictures)]
    facts = {KEY: find_turn(edit).model_dump(mode="json")}
    return [Case(edit=edit, rubric=rubric, mode=mode, pictures=pictures, facts=facts, engine=ENGINE)]


UNLISTED = "crops"
"""A setting that is younger than the notes. Its default adds nothing to them, so that keys stay the same."""
ASKED = (
    Task(type="color_alter", object="OBJECT", color="COLOR"),
    Task(type="material_alter", object="OBJECT", material="MATERIAL"),
    Task(type="text_change", object="OBJECT", text="TEXT"),
    Task(type="background_change", background="BACKGROUND"),
)
"""One example task per type that an LMM is asked about."""


PRECHECKS = (
    Task(type="subject_add", new_object="NEW OBJECT"),
    Task(type="subject_replace", object="OBJECT", new_object="NEW OBJECT"),
)
"""One example task per type whose outcome an LMM may be asked to confirm."""


def score_following(edit: Edit, scores: Mapping[str, float]) -> float | None:
    """Return the score of a single edit, which is EdiVal-IF. Consistency and quality are reported separately."""
    return scores.get("instruction_following")


def add_checks(rubric: Rubric) -> Rubric:
    """Return the rubric with all thresholds and questions of tools mode among its notes.

    `editloupe protocols show edival` prints them, and they are hashed into a verdict's key like any text of a rubric.
    """
    mode = rubric.modes["tools"]
    numbers = [
        f"{name}: {entry['value']} ({entry['source']})" for name, entry in load_sources().items() if name != UNLISTED
    ]
    questions = [
        " ".join((f"{task.type}:", build_question(task).question.strip(), *build_question(task).notes))
        for task in ASKED
    ]
    spelled_out = mode.model_copy(update={"notes": (*mode.notes, *numbers, *questions)})
    return rubric.model_copy(update={"modes": {**rubric.modes, "tools": spelled_out}})


Missing = Literal["complete", "per_turn"]
"""Pictures that a table counts: those with all turns (as in the paper), or at each turn those with all turns up to it."""


Alpha = Literal["share", "types"]
"""EdiVal-IF of a turn: the share of all pictures (Tables 3 and 16), or the mean over instruction types (Section O.4)."""


class TurnScore(Record):
    """The scores of one model's picture of one turn, or of one level in complex mode."""

    model: str
    mode: str
    """`multi`, or `complex` with its connector."""
    image: str
    turn: int
    types: tuple[TaskType, ...]
    """Types of the instructions judged on this picture: one, or in complex mode one per level up to this."""
    follows: tuple[bool | None, ...]
    """Whether each instruction was followed; None if it is unjudged."""
    object_similarity: float | None = None
    background_similarity: float | None = None
    object_l1: float | None = None
    background_l1: float | None = None
    quality: float | None = None
    quality_base: float | None = None
    """Quality of the chain's base picture."""
    p99: float | None = None
    p999: float | None = None
    p999_base: float | None = None
    square: bool | None = None
    """Whether the base picture is square (Tables 23 and 24)."""

    @property
    def last(self) -> bool | None:
        """Whether the turn's own instruction was followed."""
        return self.follows[-1]


class Rate(Record):
    """A share of successes."""

    successes: int
    judged: int
    unjudged: int = 0

    @property
    def value(self) -> float | None:
        """The share, 0 to 1, or None if nothing was judged."""
        return self.successes / self.judged if self.judged else None


def compute_rate(outcomes: Iterable[bool | None]) -> Rate:
    """Count successes among the judged outcomes.

    >>> compute_rate([True, False, None]).value
    0.5
    """
    counts = Counter(outcomes)
    return Rate(successes=counts[True], judged=counts[True] + counts[False], unjudged=counts[None])


def all_succeed(outcomes: Iterable[bool | None]) -> bool | None:
    """Return the logical AND of outcomes that may be unknown: False if one is False, else None if one is None.

    >>> all_succeed([True, True]), all_succeed([True, False]), all_succeed([False, None]), all_succeed([True, None])
    (True, False, False, None)
    """
    kinds = set(outcomes)
    if False in kinds:
        return False
    return None if None in kinds else True


def count_turns(scores: Iterable[TurnScore], turns: int, missing: Missing = "complete") -> list[TurnScore]:
    """Return the scores of one model and mode that the tables count (Section O.4).

    `complete` keeps pictures with all turns. The paper's tables have the same denominator at all turns, so this is its rule.
    `per_turn` keeps at each turn the pictures with this turn and all turns before it.
    """
    own = list(scores)
    have: dict[str, set[int]] = {}
    for score in own:
        have.setdefault(score.image, set()).add(score.turn)
    needed = set(range(1, turns + 1))
    if missing == "complete":
        return [score for score in own if needed <= have[score.image]]
    return [score for score in own if set(range(1, score.turn + 1)) <= have[score.image]]


def chain_success(scores: Iterable[TurnScore], turn: int) -> Rate:
    """Return the share of pictures for which every edit up to this turn succeeded (EdiVal-IF of Table 3).

    Pictures without this turn are left out. In complex mode a single picture has all instructions, so its outcomes are joined.
    """
    return compute_rate(_find_chain_outcomes(scores, turn).values())


def chain_success_by_type(scores: Sequence[TurnScore], turn: int) -> float | None:
    """Return the mean over instruction types of the share of pictures for which every edit up to this turn succeeded.

    Section O.4 words α_t in this way; a picture belongs to the type of the turn's own instruction. Table 16 does not do so.
    """
    kinds = {score.image: score.types[-1] for score in scores if score.turn == turn}
    by_type: dict[str, list[bool | None]] = {}
    for image, outcome in _find_chain_outcomes(scores, turn).items():
        by_type.setdefault(kinds[image], []).append(outcome)
    return mean(compute_rate(outcomes).value for outcomes in by_type.values())


def _find_chain_outcomes(scores: Iterable[TurnScore], turn: int) -> dict[str, bool | None]:
    chains: dict[str, list[bool | None]] = {}
    for score in scores:
        if score.mode == "multi" and score.turn <= turn:
            chains.setdefault(score.image, []).append(score.last)
        elif score.mode != "multi" and score.turn == turn:
            chains.setdefault(score.image, []).extend(score.follows)
    return {image: all_succeed(outcomes) for image, outcomes in chains.items() if len(outcomes) == turn}


def marginal_success(scores: Iterable[TurnScore], turn: int) -> Rate:
    """Return the share of pictures whose instruction of this turn alone was followed (Figure 5)."""
    return compute_rate(score.last for score in scores if score.turn == turn)


def task_success(scores: Iterable[TurnScore], turn: int) -> Rate:
    """Return the share of followed instructions among all judged on the pictures of this turn (Tables 16 and 19)."""
    return compute_rate(outcome for score in scores if score.turn == turn for outcome in score.follows)


def type_success(scores: Iterable[TurnScore], turn: int, kind: TaskType) -> Rate:
    """Return the share of followed instructions of one type at this turn (Tables 17, 18, 20 and 21)."""
    pairs = (pair for s in scores if s.turn == turn for pair in zip(s.types, s.follows, strict=True))
    return compute_rate(outcome for own, outcome in pairs if own == kind)


def consistency(object_part: float | None, background_part: float | None) -> float | None:
    """Return EdiVal-CC (Equation 3), the mean of the parts that are not None.

    >>> round(consistency(0.8950, 0.9552), 4)
    0.9251
    """
    return mean((object_part, background_part))


def mean_consistency(scores: Sequence[TurnScore], turn: int) -> float | None:
    """Return EdiVal-CC of a table: the mean of the average object part and the average background part.

    Tables 3 and 22 agree with this: each part is averaged over the pictures that have it before the two are combined.
    """
    own = [score for score in scores if score.turn == turn]
    return consistency(mean(s.object_similarity for s in own), mean(s.background_similarity for s in own))


def quality_change(scores: Sequence[TurnScore], turn: int) -> float | None:
    """Return the distance between the mean quality and that of the same base pictures.

    As in Table 4, means are taken first: all models there have the same base score of 4.38.
    """
    both = [s for s in scores if s.turn == turn and s.quality is not None and s.quality_base is not None]
    own, base = mean(s.quality for s in both), mean(s.quality_base for s in both)
    return None if own is None or base is None else abs(own - base)


def overall(following: float | None, consistent: float | None) -> float | None:
    """Return EdiVal-O, the geometric mean of EdiVal-IF and EdiVal-CC.

    >>> round(100 * overall(0.7593, 0.9251), 2)
    83.81
    """
    if following is None or consistent is None:
        return None
    return math.sqrt(following * consistent)


def find_pareto_front(points: Mapping[str, tuple[float | None, float | None]]) -> tuple[str, ...]:
    """Return the names on the Pareto front of two measures, higher is better, from left to right.

    >>> find_pareto_front({"a": (1, 3), "b": (2, 2), "c": (1, 2), "d": (3, 1)})
    ('a', 'b', 'd')
    """
    complete = {name: (x, y) for name, (x, y) in points.items() if x is not None and y is not None}
    front = [name for name, point in complete.items() if not any(_beats(other, point) for other in complete.values())]
    return tuple(sorted(front, key=lambda name: (complete[name], name)))


def _beats(a: tuple[float, float], b: tuple[float, float]) -> bool:
    return a != b and a[0] >= b[0] and a[1] >= b[1]


EDIVAL = Protocol(
    name="edival",
    title="EdiVal-Agent",
    source="EdiVal-Agent: An Object-Centric Framework for Automated, Fine-Grained Evaluation of Multi-Turn Editing",
    rubrics=(add_checks(load_bundled_rubric(files(__package__) / "instruction_following.yaml")),),
    default_mode="tools",
    make_cases=build_cases,
    case_facts=case_facts,
    types=TYPES,
    parts=build_parts(),
    rule_settings=lambda changes: load_published().with_changes(changes),
    edit_score=score_following,
    weighting="edits",
    arithmetic=(
        "EdiVal-IF is the share of edits whose instruction was followed: by rules on a detector's boxes or by an LMM on crops, "
        "as the type has it. Chains, consistency and quality are judged by `editloupe edival`."
    ),
    untouched=UneditedScore(
        criteria={"instruction_following": 0.0},
        why=(
            "The same picture before and after has the same objects, so nothing was added or removed; for the other types it "
            "depends on what the detector and the LMM find in it."
        ),
        not_for=tuple(kind for kind in TYPES if kind not in ("subject_add", "subject_remove")),
    ),
)

PAPER = Paper(EDIVAL)
"""Chains are read, judged and reported by `editloupe edival`."""

"""The record of a protocol, which holds a paper's rubrics and its arithmetic, and functions that change a protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from editloupe.pictures.decode import Album
from editloupe.rubrics.case import Case
from editloupe.rubrics.model import LabelAnswer, PartText, Rubric, TargetCrop, Telling
from editloupe.rubrics.pairs import PairRules
from editloupe.rubrics.rubric_files import load_rubric
from editloupe.types import Edit, Mode, Record, UserError, Verdict

Item = TypeVar("Item")
Choice = Callable[[Edit, Sequence[Rubric]], Rubric | None]
"""Picks one variant of a criterion for an edit, or returns None if the criterion does not apply to the edit."""
EditScoreFunction = Callable[[Edit, Mapping[str, float]], float | None]
"""Computes an edit's score (0 to 100) from its criteria (0 to 100), or returns None if a required criterion is missing."""
OUTPUT, MISSING_OUTPUT = "output", "missing"
"""Field of `Edit.extra`, and its value if the editing model produced no picture."""


CaseFacts = Callable[[Edit, Rubric, Mode], Mapping[str, Any]]
"""Returns the values that an edit's cases depend on, in addition to the rubric's pictures and texts."""


class MissingInput(UserError):
    """An edit lacks something that its protocol or mode needs. The message names it.

    A judge turns this error into `Unjudged` with the reason `missing_input`, unless it is strict.
    """


def choose_first_variant(edit: Edit, variants: Sequence[Rubric]) -> Rubric | None:
    """Return the first variant, so that every edit is asked every criterion."""
    return variants[0]


def find_variant(variants: Sequence[Rubric], *names: str) -> Rubric:
    """Return the variant with the first of these names that a criterion has, or its first variant."""
    by_name = {rubric.variant: rubric for rubric in variants}
    return next((by_name[name] for name in names if name in by_name), variants[0])


def average_of(criteria: Sequence[str]) -> EditScoreFunction:
    """Return a function that scores an edit by the mean of these criteria; None if one of them is missing."""

    def average(edit: Edit, scores: Mapping[str, float]) -> float | None:
        complete = bool(criteria) and set(criteria) <= set(scores)
        return sum(scores[name] for name in criteria) / len(criteria) if complete else None

    return average


def normalize_name(text: str) -> str:
    """Return the letters and digits of a name in lower case, so that spellings can be compared.

    >>> normalize_name("Change-Color"), normalize_name("change_color")
    ('changecolor', 'changecolor')
    """
    return "".join(c for c in text.casefold() if c.isalnum())


def find_type(edit: Edit, names: Mapping[str, str], kind: str, choices: Iterable[str]) -> str:
    """Return the type that decides the questions of an edit: its instruction type, or else its column `task`.

    Args:
        edit: The edit.
        names: The types by their names as `normalize_name` returns them.
        kind: The kind of type for the message, such as "category of the benchmark".
        choices: The names for the message.

    Raises:
        MissingInput: The edit does not name one of the types.
    """
    name = str(edit.instruction_type or edit.extra.get("task") or "").strip()
    if own := names.get(normalize_name(name)):
        return own
    other = f' ("{name}" is not one of them)' if name else ""
    raise MissingInput(
        f"edit {edit.id} does not say which {kind} it is{other}; its instruction type must be one of: {', '.join(choices)}"
    )


def find_or_none(find: Callable[[Edit], Item], edit: Edit) -> Item | None:
    """Return what a function finds in an edit, such as its type, or None if the edit lacks it."""
    try:
        return find(edit)
    except MissingInput:
        return None


def leave_undecided(edit: Edit, rubric: Rubric) -> Verdict | None:
    """Return None, so that the judge decides every criterion."""
    return None


def collect_all_facts(edit: Edit, rubric: Rubric, mode: Mode) -> Mapping[str, Any]:
    """Return all fields of an edit, for papers that do not declare which ones their cases depend on."""
    facts: dict[str, Any] = edit.model_dump(mode="json", include={"instruction_type", "target_boxes", "hint", "extra"})
    return facts


def collect_no_facts(edit: Edit, rubric: Rubric, mode: Mode) -> Mapping[str, Any]:
    """Return nothing, for cases that depend only on the rubric's pictures and texts."""
    return {}


@dataclass(frozen=True)
class UneditedScore:
    """Scores that the protocol's rules imply for an output that is identical to the source."""

    criteria: Mapping[str, float]
    """Score per criterion, 0 to 100. Criteria that depend on the picture are left out."""
    why: str
    """The rule, with its section or table in the paper."""
    score: float | None = None
    """Score of the edit if these criteria decide it; None if the protocol's arithmetic has to compute it."""
    not_for: tuple[str, ...] = ()
    """Instruction types for which the rules do not decide the scores."""


@dataclass(frozen=True)
class Protocol:
    """The protocol of one paper: its rubrics, which of them an edit is asked, and how scores are combined.

    Only the first six fields are required. `protocol_from_folder` fills most of them from a folder of YAML files. Add the
    others only if the paper has a rule for them. A protocol is immutable; use `dataclasses.replace` to change one.
    """

    name: str
    """Name on the command line and in runs: lower-case letters, digits, dashes and underscores."""
    title: str
    """Name as the paper writes it."""
    source: str
    """Citation of the paper."""
    rubrics: tuple[Rubric, ...]
    """At least one rubric per criterion. Variants of a criterion must be adjacent."""
    default_mode: Mode
    """Mode that is used if the user does not choose one."""
    make_cases: Callable[[Edit, Rubric, Mode, Album], list[Case]]
    """Builds the cases of an edit on one rubric. Raises MissingInput or ImageError with a one-sentence message.

    `editloupe.rubrics.case_pictures.build_cases` shows the pictures that the rubric names and is enough for most papers.
    """
    case_facts: CaseFacts | None = None
    """Returns the further values that the cases depend on. They are part of a verdict's key: if one changes, the edit is
    judged again.

    None means no values if `make_cases` is `case_pictures.build_cases`, and all fields of the edit otherwise.
    """
    further_roles: tuple[str, ...] = ()
    """Roles of pictures that `make_cases` uses in addition to those that the rubrics name."""
    types: tuple[str, ...] = ()
    """Instruction types of the benchmark, in the paper's order."""
    type_names: Mapping[str, str] = field(default_factory=dict)
    """Other names of types, normalized by `normalize_name`."""
    families: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Groups of types in the paper's description of its benchmark. They do not affect any score."""
    type_of: Callable[[Edit], str | None] | None = None
    """Returns an edit's type as the paper spells it; raises MissingInput if the edit names an unknown type.

    Needed if questions or scores depend on the type. If None, unknown types are accepted and counted separately.
    """
    choose: Choice = choose_first_variant
    """Picks the variant of a criterion for an edit; raises MissingInput if the edit lacks what the choice depends on."""
    settle: Callable[[Edit, Rubric], Verdict | None] = leave_undecided
    """Returns the verdict if a rule of the paper decides the criterion without a judge, else None."""
    edit_score: EditScoreFunction | None = None
    """Computes an edit's score; None for the mean of its criteria."""
    scores_incomplete_edits: bool = False
    """Whether reports score an edit of which criteria are unjudged by the others, as `edit_score` returns it. Rewards and
    rankings need all criteria."""
    reported: Callable[[Mapping[str, float]], Mapping[str, float]] | None = None
    """Applies the paper's gates to an edit's criteria (0 to 100) before they are reported; None if there are no gates."""
    apart: tuple[str, ...] = ()
    """Manifest fields whose values are never averaged together, such as the language of the instructions."""
    levels: tuple[tuple[str, ...], ...] = ()
    """Groups of types that are averaged before the overall score. A level that lacks one of its types has no score and does
    not enter the overall score. Types in no level are reported separately."""
    weighting: str = "types"
    """What the overall score averages: `types` (or levels, if there are any) or `edits`."""
    arithmetic: str = ""
    """Description of the arithmetic for reports."""
    formulas: Mapping[str, str] = field(default_factory=dict)
    """Formulas for reports, by the name of the score."""
    repeats: int = 1
    """Number of times the paper judges every edit."""
    parts: Mapping[str, PartText] = field(default_factory=dict)
    """Questions that an engine asks about parts of an edit, by name, so that they can be reworded."""
    pairs: PairRules | None = None
    """Rules for preference pairs; None if the paper has none."""
    untouched: UneditedScore | None = None
    """Scores of an output that is identical to the source; None if the paper's rules do not decide them."""
    rule_settings: Callable[[Mapping[str, Any]], Record] | None = None
    """Validates settings of the paper's own rules; raises UserError for a wrong name or value. None if it has no rules."""
    beside: tuple[str, ...] = ()
    """Criteria from user rubrics that are asked in addition to the paper's. They do not enter its scores."""

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The modes that every rubric of the protocol supports."""
        return tuple(mode for mode in ("tools", "oracle", "plain") if all(mode in r.modes for r in self.rubrics))

    @property
    def criteria(self) -> tuple[str, ...]:
        """The criteria, in order."""
        return tuple(dict.fromkeys(rubric.criterion for rubric in self.rubrics))

    def variants(self, criterion: str) -> tuple[Rubric, ...]:
        """Return all variants of a criterion.

        Raises:
            UserError: If the protocol has no such criterion.
        """
        rubrics = tuple(rubric for rubric in self.rubrics if rubric.criterion == criterion)
        if not rubrics:
            raise UserError(f'{self.title} has no criterion "{criterion}"; it has: {", ".join(self.criteria)}')
        return rubrics

    def rubric(self, criterion: str) -> Rubric:
        """Return the first variant of a criterion.

        Raises:
            UserError: If the protocol has no such criterion.
        """
        return self.variants(criterion)[0]

    def select(self, criteria: Sequence[str] | None) -> tuple[Rubric, ...]:
        """Return all variants of some criteria.

        Args:
            criteria: Names of criteria, or a single name. All criteria if empty or None.

        Raises:
            UserError: If the protocol lacks one of the criteria.
        """
        names = dict.fromkeys([criteria] if isinstance(criteria, str) else criteria) if criteria else self.criteria
        return tuple(rubric for name in names for rubric in self.variants(name))

    def rubrics_for(self, edit: Edit, criteria: Sequence[str] | None = None) -> tuple[Rubric, ...]:
        """Return the rubrics that an edit is judged by, at most one per criterion.

        Args:
            edit: The edit.
            criteria: Names of criteria; all criteria if empty or None.

        Raises:
            MissingInput: If the edit lacks what the choice depends on.
            UserError: If the protocol lacks one of the criteria.
        """
        names = dict.fromkeys(criteria) if criteria else self.criteria
        chosen = (self.choose(edit, self.variants(name)) for name in names)
        return tuple(rubric for rubric in chosen if rubric is not None)

    def normalize_type(self, edit: Edit) -> Edit:
        """Return the edit with its instruction type in the paper's spelling. An edit without a type is returned unchanged.

        Raises:
            MissingInput: If the protocol depends on the type and does not have this one.
        """
        if self.type_of is None:
            own = self._spell_type(edit.instruction_type) if edit.instruction_type else None
        else:
            own = self.type_of(edit) if edit.instruction_type or edit.extra.get("task") else None
        return edit if own in (None, edit.instruction_type) else edit.model_copy(update={"instruction_type": own})

    def _spell_type(self, name: str) -> str:
        if name in self.types:
            return name
        spellings = {**self.type_names, **{normalize_name(own): own for own in self.types}}
        return spellings.get(normalize_name(name), name)

    def score_of(self, edit: Edit, scores: Mapping[str, float]) -> float | None:
        """Compute an edit's score, 0 to 100.

        Args:
            edit: The edit.
            scores: Score per criterion, 0 to 100. Criteria in `beside` are ignored.

        Returns:
            The score, or None if a required criterion is missing.
        """
        counted = [name for name in self.criteria if name not in self.beside]
        if self.edit_score is not None:
            own = {name: score for name, score in scores.items() if name in counted}
            if self.scores_incomplete_edits and any(r.criterion not in own for r in self.rubrics_for(edit, counted)):
                return None
            return self.edit_score(edit, own)
        return average_of([rubric.criterion for rubric in self.rubrics_for(edit, counted)])(edit, scores)


def override_tells(protocol: Protocol, tells: Sequence[Telling]) -> Protocol:
    """Return the protocol with `tells` replaced in every rubric."""
    rubrics = tuple(rubric.model_copy(update={"tells": tuple(tells)}) for rubric in protocol.rubrics)
    return replace(protocol, rubrics=rubrics)


def override_crops(protocol: Protocol, crop: TargetCrop) -> Protocol:
    """Return the protocol with `crop` replaced in every mode that shows crops of targets."""
    rubrics = []
    for rubric in protocol.rubrics:
        modes = {
            mode: text.model_copy(update={"crop": crop}) if text.targets == "crops" else text
            for mode, text in rubric.modes.items()
        }
        rubrics.append(rubric.model_copy(update={"modes": modes}))
    return replace(protocol, rubrics=tuple(rubrics))


def drop_our_notes(protocol: Protocol) -> Protocol:
    """Return the protocol without what is not in the paper, in its rubrics and in questions about parts of an edit."""
    rubrics = []
    for rubric in protocol.rubrics:
        texts = {**protocol.parts, **rubric.parts}
        parts = {name: text.without_ours() for name, text in texts.items() if text.ours or name in rubric.parts}
        rubrics.append(rubric.without_ours().model_copy(update={"parts": parts}))
    return replace(protocol, rubrics=tuple(rubrics))


def find_worst_label(rubric: Rubric, labels: Sequence[str]) -> str:
    """Return the worst label of an edit whose targets are judged separately (DLEBench, Section 7.3)."""
    if not isinstance(rubric.answer, LabelAnswer):
        raise TypeError(f"{rubric.criterion} has no labels to take the worst of")
    return rubric.answer.worst(list(labels))


def lower_median(items: Iterable[Item], key: Callable[[Item], float]) -> Item | None:
    """Return the middle item by a key, the lower of two middle ones; None if there are no items.

    >>> lower_median([4, 1, 3, 2], key=float), lower_median([], key=float)
    (2, None)
    """
    ordered = sorted(items, key=key)
    return ordered[(len(ordered) - 1) // 2] if ordered else None


__all__ = [
    "MISSING_OUTPUT",
    "OUTPUT",
    "CaseFacts",
    "Choice",
    "EditScoreFunction",
    "MissingInput",
    "Protocol",
    "UneditedScore",
    "average_of",
    "choose_first_variant",
    "collect_all_facts",
    "collect_no_facts",
    "drop_our_notes",
    "find_worst_label",
    "leave_undecided",
    "load_rubric",
    "lower_median",
    "normalize_name",
    "override_crops",
    "override_tells",
]

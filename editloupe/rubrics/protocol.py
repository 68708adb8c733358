"""What a protocol is: a paper's rubrics, which of them an edit is asked, how an edit becomes cases, and its arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from editloupe.pictures.decode import Album
from editloupe.rubrics.case import Case
from editloupe.rubrics.model import LabelAnswer, PartText, Rubric, TargetCrop, Telling
from editloupe.rubrics.pairs import PairRules
from editloupe.rubrics.rubric_files import load_rubric
from editloupe.types import Edit, Mode, Record, UserError, Verdict

Choice = Callable[[Edit, Sequence[Rubric]], Rubric | None]
"""Picks one of a criterion's variants for an edit; None where the edit is not asked this criterion."""
EditScoreFunction = Callable[[Edit, Mapping[str, float]], float | None]
"""Puts an edit's criteria (0 to 100) into its own score (0 to 100); None where one that it needs is missing."""
OUTPUT, MISSING_OUTPUT = "output", "missing"
"""The field in `Edit.extra`, and its value, by which a reader says that the editing model left no picture."""


CaseFacts = Callable[[Edit, Rubric, Mode], Mapping[str, Any]]
"""Says what of an edit its cases depend on, beside the pictures and texts that the rubric names."""


class MissingInput(UserError):
    """The edit lacks something the mode needs; the sentence says what."""


def choose_first_variant(edit: Edit, variants: Sequence[Rubric]) -> Rubric | None:
    """Ask every edit every criterion, in its first wording."""
    return variants[0]


def normalize_name(text: str) -> str:
    """Return what tells two spellings of a name apart: its letters and digits, without case.

    >>> letters("Change-Color"), letters("change_color")
    ('changecolor', 'changecolor')
    """
    return "".join(c for c in text.casefold() if c.isalnum())


def leave_undecided(edit: Edit, rubric: Rubric) -> Verdict | None:
    """Leave every criterion to the judge."""
    return None


def collect_all_facts(edit: Edit, rubric: Rubric, mode: Mode) -> Mapping[str, Any]:
    """Take everything an edit says for something its cases depend on, as for a paper that does not say."""
    given: dict[str, Any] = edit.model_dump(mode="json", include={"instruction_type", "target_boxes", "hint", "extra"})
    return given


def collect_no_facts(edit: Edit, rubric: Rubric, mode: Mode) -> Mapping[str, Any]:
    """Say that cases are made of the rubric's pictures and texts alone."""
    return {}


@dataclass(frozen=True)
class UneditedScore:
    """What the source itself, handed in as the edited picture, is given by the protocol's own words, where they decide it."""

    criteria: Mapping[str, float]
    """Criterion to score, 0 to 100; what depends on the picture is left out."""
    why: str
    """The rule, with its place in the paper."""
    score: float | None = None
    """The edit's own score, where these criteria alone decide it; None leaves it to the protocol's arithmetic."""
    not_for: tuple[str, ...] = ()
    """Instruction types for which the words leave it open."""


@dataclass(frozen=True)
class Protocol:
    """One paper's protocol."""

    name: str
    title: str
    source: str
    rubrics: tuple[Rubric, ...]
    """Of every criterion at least one; several variants of a criterion stand next to each other."""
    default_mode: Mode
    make_cases: Callable[[Edit, Rubric, Mode, Album], list[Case]]
    """Turns an edit into the cases of one rubric; raises MissingInput or ImageError with one sentence."""
    case_facts: CaseFacts | None = None
    """What else of an edit decides its cases: a verdict is asked for again where it changes, and only then.

    None: nothing, where cases are made of pictures by role; everything the edit says, where the paper makes its own.
    """
    further_roles: tuple[str, ...] = ()
    """Roles of pictures that `make_cases` shows beside those the rubrics name."""
    types: tuple[str, ...] = ()
    """Instruction types of the benchmark, in the paper's order."""
    type_names: Mapping[str, str] = field(default_factory=dict)
    """Further names of types, by their letters (see `normalize_name`)."""
    families: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Types that the paper counts together when it tells what its benchmark holds; they have no part in any score."""
    type_of: Callable[[Edit], str | None] | None = None
    """Returns an edit's type as the paper spells it; raises MissingInput where what it says is none of them. For protocols
    whose questions and arithmetic hang on the type; without it an unknown type is a type of its own."""
    choose: Choice = choose_first_variant
    """Raises MissingInput where the edit does not say what the choice depends on."""
    settle: Callable[[Edit, Rubric], Verdict | None] = leave_undecided
    """Decides a criterion by the paper's rule, where nobody need be asked."""
    edit_score: EditScoreFunction | None = None
    """None: an edit's score is the mean of its criteria."""
    reported: Callable[[Mapping[str, float]], Mapping[str, float]] | None = None
    """Applies the paper's gates: turns an edit's criteria (0 to 100) into those that are reported; None where there are none."""
    apart: tuple[str, ...] = ()
    """Fields of the manifest whose values the paper never puts into one number, such as the instructions' language."""
    levels: tuple[tuple[str, ...], ...] = ()
    """Types that are averaged among themselves first. A level that lacks one of its types has no score and is no part of the
    overall; types in no level are reported apart."""
    weighting: str = "types"
    """What the overall is a mean of: `types` (or levels), or `edits`."""
    arithmetic: str = ""
    """The arithmetic in words."""
    formulas: Mapping[str, str] = field(default_factory=dict)
    """What is computed for what, as formulas to print."""
    repeats: int = 1
    """How often the paper has every edit judged."""
    parts: Mapping[str, PartText] = field(default_factory=dict)
    """Questions about parts of an edit that an engine asks in a rubric's place, by name, so that they can be reworded."""
    pairs: PairRules | None = None
    """How two candidates are set against each other, where the paper does that."""
    untouched: UneditedScore | None = None
    """What an output that is the unedited source scores; None where only a judge can tell."""
    rule_settings: Callable[[Mapping[str, Any]], Record] | None = None
    """Reads what is set about rules of the paper's own; a wrong name or value is the user's mistake. None: it has none."""
    beside: tuple[str, ...] = ()
    """Criteria of the user's own that are asked beside the paper's; they are no part of its arithmetic."""

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The modes every rubric of the protocol has a text for."""
        return tuple(mode for mode in ("tools", "oracle", "plain") if all(mode in r.modes for r in self.rubrics))

    @property
    def criteria(self) -> tuple[str, ...]:
        """The criteria, in order."""
        return tuple(dict.fromkeys(rubric.criterion for rubric in self.rubrics))

    def variants(self, criterion: str) -> tuple[Rubric, ...]:
        """Return all wordings of a criterion; an unknown one is the user's mistake."""
        found = tuple(rubric for rubric in self.rubrics if rubric.criterion == criterion)
        if not found:
            raise UserError(f'{self.title} has no criterion "{criterion}"; it has: {", ".join(self.criteria)}')
        return found

    def rubric(self, criterion: str) -> Rubric:
        """Return the first wording of a criterion; an unknown one is the user's mistake."""
        return self.variants(criterion)[0]

    def select(self, criteria: Sequence[str] | None) -> tuple[Rubric, ...]:
        """Return the rubrics of these criteria, all of them where none is named; a text is the name of one."""
        wanted = dict.fromkeys([criteria] if isinstance(criteria, str) else criteria) if criteria else self.criteria
        return tuple(rubric for name in wanted for rubric in self.variants(name))

    def rubrics_for(self, edit: Edit, criteria: Sequence[str] | None = None) -> tuple[Rubric, ...]:
        """Return the rubrics an edit is asked, one a criterion; raises MissingInput where that cannot be told."""
        wanted = dict.fromkeys(criteria) if criteria else self.criteria
        chosen = (self.choose(edit, self.variants(name)) for name in wanted)
        return tuple(rubric for rubric in chosen if rubric is not None)

    def typed(self, edit: Edit) -> Edit:
        """Return the edit with its type spelt as the paper spells it, since edits are grouped and weighed by that.

        A type that the protocol cannot do with is the user's mistake; an edit that names none is left as it is.
        """
        if self.type_of is None:
            own = self._own_type(edit.instruction_type) if edit.instruction_type else None
        else:
            own = self.type_of(edit) if edit.instruction_type or edit.extra.get("task") else None
        return edit if own in (None, edit.instruction_type) else edit.model_copy(update={"instruction_type": own})

    def _own_type(self, said: str) -> str:
        if said in self.types:
            return said
        by_letters = {**self.type_names, **{normalize_name(name): name for name in self.types}}
        return by_letters.get(normalize_name(said), said)

    def score_of(self, edit: Edit, scores: Mapping[str, float]) -> float | None:
        """Return an edit's own score, 0 to 100, from its criteria's; None where one is missing.

        Criteria that are not the paper's do not count.
        """
        counted = [name for name in self.criteria if name not in self.beside]
        if self.edit_score is not None:
            return self.edit_score(edit, {name: score for name, score in scores.items() if name in counted})
        wanted = [rubric.criterion for rubric in self.rubrics_for(edit, counted)]
        return sum(scores[name] for name in wanted) / len(wanted) if all(name in scores for name in wanted) else None


def override_tells(protocol: Protocol, tells: Sequence[Telling]) -> Protocol:
    """Return the protocol with every judge given this of an edit's own text, whatever its rubrics say."""
    rubrics = tuple(rubric.model_copy(update={"tells": tuple(tells)}) for rubric in protocol.rubrics)
    return replace(protocol, rubrics=rubrics)


def override_crops(protocol: Protocol, crop: TargetCrop) -> Protocol:
    """Return the protocol with crops round targets that show so much, in every mode that shows such crops."""
    rubrics = []
    for rubric in protocol.rubrics:
        modes = {
            mode: text.model_copy(update={"crop": crop}) if text.targets == "crops" else text
            for mode, text in rubric.modes.items()
        }
        rubrics.append(rubric.model_copy(update={"modes": modes}))
    return replace(protocol, rubrics=tuple(rubrics))


def drop_our_notes(protocol: Protocol) -> Protocol:
    """Return the protocol with no more in its rubrics than the paper has."""
    return replace(protocol, rubrics=tuple(rubric.without_ours() for rubric in protocol.rubrics))


def find_worst_label(rubric: Rubric, labels: Sequence[str]) -> str:
    """Return the worst of several targets' labels: each target is judged on its own (DLEBench, Section 7.3)."""
    if not isinstance(rubric.answer, LabelAnswer):
        raise TypeError(f"{rubric.criterion} has no labels to take the worst of")
    return rubric.answer.worst(list(labels))


__all__ = [
    "MISSING_OUTPUT",
    "OUTPUT",
    "CaseFacts",
    "Choice",
    "EditScoreFunction",
    "MissingInput",
    "Protocol",
    "UneditedScore",
    "choose_first_variant",
    "collect_all_facts",
    "collect_no_facts",
    "drop_our_notes",
    "find_worst_label",
    "leave_undecided",
    "load_rubric",
    "normalize_name",
    "override_crops",
    "override_tells",
]

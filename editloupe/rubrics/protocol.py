"""What a protocol is: a paper's rubrics, which of them an edit is asked, how an edit becomes cases, and its arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from editloupe.images import Album
from editloupe.rubrics.case import Case
from editloupe.rubrics.load import load_rubric
from editloupe.rubrics.model import LabelAnswer, Rubric
from editloupe.rubrics.pairs import PairRules
from editloupe.types import Edit, Mode, UserError, Verdict

Choice = Callable[[Edit, Sequence[Rubric]], Rubric | None]
"""Picks one of a criterion's variants for an edit; None where the edit is not asked this criterion."""
EditScore = Callable[[Edit, Mapping[str, float]], float | None]
"""Puts an edit's criteria (0 to 100) into its own score (0 to 100); None where one that it needs is missing."""


class MissingInput(UserError):
    """The edit lacks something the mode needs; the sentence says what."""


def first_variant(edit: Edit, variants: Sequence[Rubric]) -> Rubric | None:
    """Ask every edit every criterion, in its first wording."""
    return variants[0]


def undecided(edit: Edit, rubric: Rubric) -> Verdict | None:
    """Leave every criterion to the judge."""
    return None


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
    types: tuple[str, ...] = ()
    """Instruction types of the benchmark, in the paper's order."""
    choose: Choice = first_variant
    """Raises MissingInput where the edit does not say what the choice depends on."""
    settle: Callable[[Edit, Rubric], Verdict | None] = undecided
    """Decides a criterion by the paper's rule, where nobody need be asked."""
    edit_score: EditScore | None = None
    """None: an edit's score is the mean of its criteria."""
    levels: tuple[tuple[str, ...], ...] = ()
    """Types that are averaged among themselves first; types in none of them are reported apart."""
    weighting: str = "types"
    """What the overall is a mean of: `types` (or levels), or `edits`."""
    arithmetic: str = ""
    """The arithmetic in words."""
    formulas: Mapping[str, str] = field(default_factory=dict)
    """What is computed for what, as formulas to print."""
    repeats: int = 1
    """How often the paper has every edit judged."""
    pairs: PairRules | None = None
    """How two candidates are set against each other, where the paper does that."""
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
        """Return the rubrics of these criteria, all of them where none is named."""
        wanted = dict.fromkeys(criteria) if criteria else self.criteria
        return tuple(rubric for name in wanted for rubric in self.variants(name))

    def rubrics_for(self, edit: Edit, criteria: Sequence[str] | None = None) -> tuple[Rubric, ...]:
        """Return the rubrics an edit is asked, one a criterion; raises MissingInput where that cannot be told."""
        wanted = dict.fromkeys(criteria) if criteria else self.criteria
        chosen = (self.choose(edit, self.variants(name)) for name in wanted)
        return tuple(rubric for rubric in chosen if rubric is not None)

    def score_of(self, edit: Edit, scores: Mapping[str, float]) -> float | None:
        """Return an edit's own score, 0 to 100, from its criteria's; None where one is missing.

        Criteria that are not the paper's do not count.
        """
        counted = [name for name in self.criteria if name not in self.beside]
        if self.edit_score is not None:
            return self.edit_score(edit, {name: score for name, score in scores.items() if name in counted})
        wanted = [rubric.criterion for rubric in self.rubrics_for(edit, counted)]
        return sum(scores[name] for name in wanted) / len(wanted) if all(name in scores for name in wanted) else None


def worst_label(rubric: Rubric, labels: Sequence[str]) -> str:
    """Return the worst of several targets' labels: each target is judged on its own (DLEBench, Section 7.3)."""
    if not isinstance(rubric.answer, LabelAnswer):
        raise TypeError(f"{rubric.criterion} has no labels to take the worst of")
    return rubric.answer.worst(list(labels))


__all__ = [
    "Choice",
    "EditScore",
    "MissingInput",
    "Protocol",
    "first_variant",
    "load_rubric",
    "undecided",
    "worst_label",
]

"""What a judge that asks by a protocol knows of its questions: who is asked what, what is shown, and what scores come of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from editloupe.agent.specs import RULES
from editloupe.judge.described_judge import DescribedJudge
from editloupe.judge.question_facts import shown_of
from editloupe.pictures.memory import PictureSource
from editloupe.rubrics.model import Rubric
from editloupe.rubrics.protocol import MissingInput, Protocol
from editloupe.rubrics.registry import DEFAULT
from editloupe.types import Edit, Judgement, Outcome, Sha, Trace, Verdict


class ProtocolJudge(DescribedJudge):
    """The part of a judge that follows from its protocol alone, whoever answers."""

    _protocol: Protocol
    _rubrics: tuple[Rubric, ...]

    def shown(self, edit: Edit, criterion: str, hashes: Mapping[PictureSource, Sha]) -> str | None:
        """Return the key of what of an edit the judge is shown; None where a picture it needs has no hash."""
        return shown_of(self._protocol, self._rubric_for(edit, criterion), self.mode, edit).key(hashes)

    def criteria_for(self, edit: Edit) -> tuple[str, ...]:
        """Return the criteria this edit is asked; all of them where it does not say what that depends on."""
        try:
            return tuple(rubric.criterion for rubric in self._protocol.rubrics_for(edit, self.criteria))
        except MissingInput:
            return self.criteria

    @property
    def scores_edits(self) -> bool:
        """True where the protocol has a formula that makes one score of an edit's criteria."""
        return self._protocol.edit_score is not None

    def score(self, edit: Edit, verdicts: Sequence[Outcome]) -> float | None:
        """Return the edit's own score by the protocol's formula, 0 to 100; None where a criterion lacks a number."""
        known = {v.criterion: v.score_100 for v in verdicts if isinstance(v, Verdict) and v.score_100 is not None}
        return self._protocol.score_of(edit, known)

    def why_unscorable(self) -> str | None:
        """Explain why this judge leaves every edit unjudged; None if it can judge some of its criteria."""
        from editloupe.agent.rules.judge import knows_rubric  # loads the tools' libraries

        by_engine = self._protocol.parts and self.mode == "tools"
        if set(self.members) != {RULES} or by_engine or any(map(knows_rubric, self._rubrics)):
            return None
        return (
            f"{RULES} judges {DEFAULT.title}'s two criteria only, not {self._protocol.title}; name another judge, or "
            f"{DEFAULT.name} as the protocol"
        )

    def _judgement(self, edit: Edit, verdicts: Sequence[Outcome], traces: Sequence[Trace]) -> Judgement:
        return Judgement(
            edit=edit,
            protocol=self.protocol,
            mode=self.mode,
            judge=self.spec,
            verdicts=tuple(verdicts),
            traces=tuple(traces),
            notes=self.notes,
        )

    def rubric(self, criterion: str) -> Rubric:
        """Return the rubric of a criterion, in its first wording."""
        return self._protocol.rubric(criterion)

    def _rubric_for(self, edit: Edit, criterion: str) -> Rubric:
        try:
            return next(iter(self._protocol.rubrics_for(edit, [criterion])), self._protocol.rubric(criterion))
        except MissingInput:
            return self._protocol.rubric(criterion)

    def rubric_texts(self) -> dict[str, Any]:
        """Return the rubrics that are asked, whole, by name."""
        return {rubric.name: rubric.model_dump(mode="json") for rubric in self._rubrics}

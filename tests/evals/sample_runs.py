"""Runs with made-up verdicts, for tests of what is computed from verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import JudgementRecord
from editloupe.pictures.decode import Album
from editloupe.rubrics.dlebench import DLEBENCH
from editloupe.rubrics.model import LabelAnswer
from editloupe.types import Edit, Judgement, Reason, Trace, Unjudged, Verdict
from tests.evals.samples import write_picture

IF, VC = "instruction_following", "visual_consistency"
IF_LABELS = ("Localization Failure", "Wrong Action", "Over Modification", "Flawless Execution")
VC_LABELS = ("Scene Collapse", "Multiple Anomalies", "Single Anomaly", "Perfect Consistency")
LABELS = {IF: IF_LABELS, VC: VC_LABELS}
Given = int | None | tuple[int | None, ...]
"""A score from 1 to 4, None for unjudged; several for repeats."""


@dataclass(frozen=True)
class Line:
    """One edit with the scores a judge gave it."""

    id: str
    follows: Given = 4
    consistent: Given | str = 4
    """`""` where the criterion was not asked."""
    type: str | None = "Change Color"
    source: str = ""
    """Edits with the same name share a source picture; without one each has its own."""
    human: Mapping[str, Any] = field(default_factory=dict)
    model: str | None = None
    confidence: float | None = None
    boxes: tuple[tuple[int, int, int, int], ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    instruction: str = "Paint the cup red"
    rationale: str = "Seen."


def make_run(
    folder: Path,
    lines: Iterable[Line],
    judge: str = "openai:gpt-5.1",
    mode: str = "tools",
    pictures: bool = False,
    description: Mapping[str, Any] | None = None,
) -> Path:
    """Write a run that holds these lines; with `pictures`, source and edit are kept in it."""
    filings = []
    with Run.write(folder) as run:
        configuration = run.configure(description) if description else None
        for number, line in enumerate(lines):
            answers = {IF: _repeats(line.follows)}
            if not isinstance(line.consistent, str):
                answers[VC] = _repeats(line.consistent)
            files = folder.parent / "pictures"
            source = files / f"{line.source or 'own-' + line.id}.png"
            edited = files / f"{line.id}-edited.png"
            if pictures:
                if not source.exists():
                    write_picture(source, sum(map(ord, source.name)), (120, 80))
                write_picture(edited, number, (120, 80))
            edit = Edit(
                id=line.id,
                source=source,
                edited=edited,
                instruction=line.instruction,
                instruction_type=line.type,
                target_boxes=line.boxes,  # type: ignore[arg-type]
                model=line.model,
                human=dict(line.human),
                extra=dict(line.extra),
            )
            for repeat in range(max(map(len, answers.values()))):
                outcomes = tuple(_outcome(name, given[repeat], line) for name, given in answers.items())
                whole = Judgement(
                    edit=edit,
                    protocol="dlebench",
                    mode=mode,  # type: ignore[arg-type]
                    judge=judge,
                    verdicts=outcomes,
                    traces=(Trace(edit_id=line.id, criterion=IF, protocol="dlebench", mode="tools", judge=judge),),
                )
                album = Album() if pictures else None
                filings.append(JudgementRecord(whole, repeat, album, position=number, configuration=configuration))
        run.save_all(filings)
    return folder


def _repeats(given: Given | str) -> tuple[int | None, ...]:
    assert not isinstance(given, str)
    return given if isinstance(given, tuple) else (given,)


def _outcome(criterion: str, score: int | None, line: Line) -> Verdict | Unjudged:
    if score is None:
        return Unjudged(criterion=criterion, reason=Reason.UNREADABLE, detail="No label was found.")
    answer = DLEBENCH.rubric(criterion).answer
    assert isinstance(answer, LabelAnswer)
    label = LABELS[criterion][score - 1]
    return Verdict(
        criterion=criterion,
        label=label,
        score=answer.score(label),
        score_100=answer.score_100(label),
        rationale=line.rationale,
        confidence=line.confidence,
    )

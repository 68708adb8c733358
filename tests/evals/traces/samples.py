"""Runs whose traces are known to the last call, for tests of what is asked of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import JudgementRecord
from editloupe.pictures.decode import Album
from editloupe.types import (
    Edit,
    Judgement,
    Observation,
    Outcome,
    Reason,
    Step,
    ToolCall,
    Trace,
    Unjudged,
    Usage,
    Verdict,
)
from tests.evals.sample_runs import IF, IF_LABELS
from tests.evals.samples import write_picture

ZOOM, FIND = "zoom_in_image", "localize_differences"
SCORES = {label: score for score, label in enumerate(IF_LABELS, start=1)}


@dataclass(frozen=True)
class Told:
    """One edit, the label a judge gave it, and what it did before."""

    id: str
    label: str | None = "Flawless Execution"
    """None for unjudged."""
    calls: tuple[str, ...] = ()
    """Tools in the order of their calls; with `!` behind the name the call failed, with `*` it was remembered."""
    human: str | None = None
    confidence: float | None = None
    thought: str = "I look."
    seen: str = "A cup."
    repairs: int = 0
    model: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    instruction: str = "Paint the cup red"
    repeat: int = 0
    picture: int | None = None
    """A number of the edited picture, where the run keeps pictures."""


def write_run(folder: Path, told: Iterable[Told], judge: str = "openai:gpt-5.1") -> Path:
    """Write a run, or further edits into one that is there."""
    with Run.write(folder) as run:
        for position, one in enumerate(told):
            run.save_all([_filing(folder, one, position, judge)])
    return folder


def _filing(folder: Path, one: Told, position: int, judge: str) -> JudgementRecord:
    files = folder.parent / "pictures"
    source, edited = files / "source.png", files / f"edited-{one.picture}.png"
    album = None
    if one.picture is not None:
        album = Album()
        album.open(source if source.exists() else write_picture(source, 1))
        album.open(edited if edited.exists() else write_picture(edited, 10 + one.picture))
    edit = Edit(
        id=one.id,
        source=source,
        edited=edited,
        instruction=one.instruction,
        model=one.model,
        human={IF: one.human} if one.human else {},
        extra=dict(one.extra),
    )
    steps = [_call(number, name, one) for number, name in enumerate(one.calls)]
    steps += [Step(index=9, raw="Hm?", problem="There is no answer in it.") for _ in range(one.repairs)]
    steps.append(Step(index=10, thought="That settles it.", answer=one.label, raw=f"I say {one.label}"))
    trace = Trace(
        edit_id=one.id,
        criterion=IF,
        protocol="dlebench",
        mode="tools",
        judge=judge,
        tools=(ZOOM, FIND),
        steps=tuple(steps),
    )
    whole = Judgement(
        edit=edit,
        protocol="dlebench",
        mode="tools",
        judge=judge,
        verdicts=(_outcome(one, len(steps)),),
        traces=(trace,),
    )
    return JudgementRecord(whole, one.repeat, album, position=position)


def _call(number: int, name: str, one: Told) -> Step:
    tool = name.rstrip("!*")
    call = ToolCall(id=f"c{number}", name=tool, parameters={"target_image": "Edited Image"})
    seen = Observation(
        call_id=call.id, tool=tool, text=one.seen, failed=name.endswith("!"), cached=name.endswith("*"), seconds=0.5
    )
    usage = Usage(requests=1, input_tokens=100, output_tokens=10)
    return Step(index=number, thought=one.thought, calls=(call,), observations=(seen,), usage=usage)


def _outcome(one: Told, steps: int) -> Outcome:
    if one.label is None:
        return Unjudged(criterion=IF, reason=Reason.UNREADABLE, detail="No label.", raw="mumbled words", steps=steps)
    score = SCORES[one.label]
    return Verdict(
        criterion=IF,
        label=one.label,
        score=score,
        score_100=(score - 1) / 3 * 100,
        confidence=one.confidence,
        rationale="Because it is so.",
        usage=Usage(requests=steps, input_tokens=300, output_tokens=30),
        steps=steps,
    )

"""A trace made ready to be looked at: what each step asked for and saw, and where in the pictures that was."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from editloupe.rubrics.case import EDITED, SOURCE
from editloupe.types import Box, Observation, Sent, Step, ToolCall, Trace

ROLES = {SOURCE: "source", EDITED: "edited"}
KINDS: Mapping[str, str] = {
    "target": "Target",
    "asked": "Asked for",
    "shown": "Shown to the judge",
    "difference": "Difference found",
    "object": "Object found",
    "text": "Text found",
}
"""What a drawn box stands for."""
MOST_DIFFERENCES = 20


@dataclass(frozen=True)
class Mark:
    """A box in one of the two pictures, in that picture's pixels."""

    picture: str
    box: Box
    kind: str
    step: int | None
    """Position of the step in its trace; None for the targets."""
    side: str = ""
    """Which of two traces the step belongs to, where two are compared."""
    text: str = ""

    def record(self) -> dict[str, Any]:
        """Return the mark as the viewer reads it."""
        return {**vars(self), "box": list(self.box)}


@dataclass(frozen=True)
class CallView:
    """One call and what came back; either may be missing."""

    call: ToolCall | None
    seen: Observation | None

    @property
    def parameters(self) -> str:
        """The call's parameters as one line."""
        given = self.call.parameters if self.call else {}
        return ", ".join(f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in given.items())

    @property
    def pictures(self) -> list[tuple[str, str]]:
        """Hash and caption of every picture that came back."""
        shas = self.seen.pictures if self.seen else ()
        captions = self.seen.captions if self.seen else ()
        return [(sha, captions[n] if n < len(captions) else "picture") for n, sha in enumerate(shas)]


@dataclass(frozen=True)
class SentView:
    """A picture as it went to the judge."""

    sha: str
    name: str
    words: str
    """Its size and form as sent, and whether it was shrunk."""


@dataclass(frozen=True)
class StepView:
    """One step with its calls and boxes."""

    step: Step
    position: int
    calls: tuple[CallView, ...]
    marks: tuple[Mark, ...]
    sent: tuple[SentView, ...] = ()
    """Pictures that went out with the step's request and that no tool of this trace returned."""

    @property
    def records(self) -> list[dict[str, Any]]:
        """The marks as the viewer reads them."""
        return [mark.record() for mark in self.marks]


def kinds_of(steps: Iterable[StepView]) -> set[str]:
    """Return the kinds of boxes that steps have, for the legend."""
    return {mark.kind for step in steps for mark in step.marks}


def steps_of(trace: Trace, pictures: Mapping[str, str], side: str = "") -> tuple[StepView, ...]:
    """Return the steps of a trace; `pictures` are the hashes of the whole pictures by role, which boxes are drawn on."""
    named = roles_of(trace, pictures)
    returned = {sha for step in trace.steps for seen in step.observations for sha in seen.pictures}
    return tuple(step_view(step, position, named, side, returned) for position, step in enumerate(trace.steps))


def step_view(
    step: Step, position: int, named: Mapping[str, str], side: str = "", returned: Collection[str] = ()
) -> StepView:
    """Return one step; `named` maps the judge's picture names to roles, `returned` are pictures of the tools."""
    calls = tuple(_call_views(step))
    marks = [mark for call in calls if call.seen for mark in _marks(call.seen, position, named, side)]
    sent = tuple(SentView(one.sha, one.name, _as_sent(one)) for one in step.sent if one.sha not in returned)
    return StepView(step, position, calls, tuple(marks), sent)


def _as_sent(sent: Sent) -> str:
    shrunk = "" if sent.scale == 1 else f", shrunk from {sent.original_size[0]} × {sent.original_size[1]}"
    return f"{sent.size[0]} × {sent.size[1]} {sent.format}{shrunk}"


def roles_of(trace: Trace, pictures: Mapping[str, str]) -> dict[str, str]:
    """Return which of the judge's picture names stand for a whole picture; crops and masked copies do not."""
    sent = {sent.name: sent.sha for step in trace.steps[:1] for sent in step.sent}
    by_sha = {sha: role for role, sha in pictures.items() if role in ROLES.values()}
    if not sent:
        return dict(ROLES)
    return {name: by_sha[sha] for name, sha in sent.items() if sha in by_sha}


def parting(left: Trace, right: Trace) -> int | None:
    """Return the position of the first step at which two traces do something else; None where they never part.

    Words differ from reply to reply; what counts is which tools were called with what, and the answer.
    """
    for position in range(max(len(left.steps), len(right.steps))):
        acts = [_act(trace.steps[position]) if position < len(trace.steps) else None for trace in (left, right)]
        if acts[0] != acts[1]:
            return position
    return None


def parting_sentence(left: Trace, right: Trace, position: int | None) -> str:
    """Say in words where two traces part."""
    if position is None:
        return "Both made the same calls and gave the same answer."
    said = [_did(trace.steps[position]) if position < len(trace.steps) else "had ended" for trace in (left, right)]
    return f"They part at step {position + 1}: A {said[0]}, B {said[1]}."


def _act(step: Step) -> tuple[Any, ...]:
    calls = [(call.name, json.dumps(dict(call.parameters), sort_keys=True, default=str)) for call in step.calls]
    return calls, step.answer, step.problem is not None


def _did(step: Step) -> str:
    if step.answer is not None:
        return f"answered “{step.answer}”"
    if step.calls:
        return "called " + " and ".join(
            f"{call.name}({', '.join(json.dumps(v, ensure_ascii=False) for v in call.parameters.values())})"
            for call in step.calls
        )
    return "gave a reply that could not be used" if step.problem else "only thought"


def _call_views(step: Step) -> Iterator[CallView]:
    left = {seen.call_id: seen for seen in step.observations}
    for call in step.calls:
        yield CallView(call, left.pop(call.id, None))
    for seen in left.values():
        yield CallView(None, seen)


def _marks(seen: Observation, position: int, named: Mapping[str, str], side: str) -> Iterator[Mark]:
    """Yield the boxes in a tool's data; they are in pixels of the original."""
    data = seen.data
    names = data.get("pictures") or [data.get("picture") or data.get("first")]
    first = str(names[0]) if names else ""
    for kind, entries in (
        ("difference", _entries(data.get("regions"))[:MOST_DIFFERENCES]),
        ("object", _entries(data.get("objects"))),
        ("text", _entries(data.get("lines"))),
    ):
        for number, entry in enumerate(entries, start=1):
            yield from _mark(entry.get("box"), first, kind, _mark_text(kind, number, entry), position, named, side)
    yield from _mark(data.get("box"), first, "shown", seen.tool, position, named, side)
    if data.get("asked") != data.get("box"):
        yield from _mark(data.get("asked"), first, "asked", seen.tool, position, named, side)
    if len(names) > 1:
        yield from _mark(data.get("second_box"), str(names[1]), "shown", seen.tool, position, named, side)


def _mark(
    box: Any, name: str, kind: str, text: str, position: int, named: Mapping[str, str], side: str
) -> Iterator[Mark]:
    if box is None or name not in named:
        return
    try:
        yield Mark(named[name], Box.model_validate(box), kind, position, side, text)
    except ValidationError:
        return


def _entries(value: Any) -> list[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, (list, tuple)) else []


def _mark_text(kind: str, number: int, entry: Mapping[str, Any]) -> str:
    if kind == "text":
        return str(entry.get("text", ""))
    if kind == "object":
        return f"{entry.get('label', 'object')} {entry.get('confidence', '')}".strip()
    return f"difference {number}"

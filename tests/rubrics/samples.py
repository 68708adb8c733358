"""Edits for every protocol, with the pictures their rubrics ask for, and replies a model could give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from editloupe.rubrics.model import Answer, ChecksAnswer, LabelAnswer, MeasuredAnswer, NumberAnswer, TextAnswer
from editloupe.rubrics.protocol import Protocol
from editloupe.types import Edit
from tests.drawn_pictures import save, textured

ROLES = ("annotated", "pose", "golden", "inputs", "references")


def edit_for(folder: Path, kind: str | None = None, **fields: Any) -> Edit:
    """Return an edit with a picture in every role, or only in the roles named."""
    roles = fields.pop("roles", ROLES)
    more = {role: (save(textured(seed=number + 3), folder / f"{role}.png"),) for number, role in enumerate(roles)}
    values: dict[str, Any] = {
        "id": "one",
        "source": save(textured(seed=1), folder / "source.png"),
        "edited": save(textured(seed=2), folder / "edited.png"),
        "instruction": "Put the hat on the taller person.",
        "instruction_type": kind,
        "hint": "The taller person stands on the left.",
        "more_images": more,
    }
    return Edit(**{**values, **fields})


def good_reply(answer: Answer, number: int | None = None, check: str | None = None) -> str:
    """Return a readable reply to a rubric: a number, or for every check the named answer or its first one."""
    if isinstance(answer, TextAnswer):
        return json.dumps({answer.key: "1. the hat is new"})
    if isinstance(answer, LabelAnswer):
        return f"<Start Final Answer>{answer.labels[-1].name}</Start Final Answer>"
    if isinstance(answer, MeasuredAnswer):
        raise AssertionError("no judge is asked")
    reason = {answer.reason_key: "seen"} if answer.reason_key else {}
    if isinstance(answer, NumberAnswer):
        return json.dumps({**reason, answer.key: answer.high if number is None else number})
    if isinstance(answer, ChecksAnswer):
        best = {
            c.key: max((v for v in c.values if c.values[v] is not None), key=lambda v, c=c: c.values[v])
            for c in answer.checks
        }
        given = {c.key: check if check in c.values else best[c.key] for c in answer.checks}
        return json.dumps({**reason, **given})
    return json.dumps({**reason, answer.key: "yes"})


def reply_for(protocol: Protocol, system: str) -> str:
    """Return a good reply to whichever of the protocol's rubrics a system text belongs to."""
    if "List of differences" in system:
        return json.dumps({"differences": "1. the hat on the left is new"})
    for rubric in protocol.rubrics:
        if f"# Criterion: {rubric.title}\n{rubric.question.strip()}" in system:
            return good_reply(rubric.answer)
    raise AssertionError(f"no rubric of {protocol.name} asks this: {system[:200]}")

"""The JSON schema of an answer, for providers that can be held to one."""

from __future__ import annotations

from typing import Any

from editloupe.rubrics.model import Answer, ChecksAnswer, LabelAnswer, NumberAnswer, TextAnswer, YesNoAnswer

REASONING = "step_by_step"
"""The field a model that does not reason by itself writes its reasoning in, before everything else."""


def answer_schema(answer: Answer, written: bool = False) -> dict[str, Any] | None:
    """Return the schema of a rubric's answer, the reason first so that it comes before the decision; None for labels.

    Where reasoning is `written`, it has a field of its own before all others; a text that is read off needs none.

    >>> answer_schema(NumberAnswer(low=1, high=5))["properties"]["score"]
    {'type': 'integer', 'minimum': 1, 'maximum': 5}
    """
    if isinstance(answer, LabelAnswer):
        return None
    properties: dict[str, Any] = {}
    if written and not isinstance(answer, TextAnswer):
        properties[REASONING] = {"type": "string"}
    if not isinstance(answer, TextAnswer) and answer.reason_key:
        properties[answer.reason_key] = {"type": "string"}
    if isinstance(answer, NumberAnswer):
        properties[answer.key] = {"type": "integer", "minimum": answer.low, "maximum": answer.high}
    elif isinstance(answer, ChecksAnswer):
        properties |= {check.key: {"type": "string", "enum": list(check.values)} for check in answer.checks}
    elif isinstance(answer, YesNoAnswer):
        properties[answer.key] = {"type": "string", "enum": ["yes", "no"]}
    else:
        properties[answer.key] = {"type": "string"}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}

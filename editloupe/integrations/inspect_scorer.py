"""A scorer for Inspect tasks whose model edits pictures.

Install the extra `inspect`; `inspect score` finds the scorer as `editloupe/edit_judge`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from inspect_ai.model import ChatMessage
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import TaskState
from pydantic import ValidationError

from editloupe.agent.transport.secrets import redact_url
from editloupe.integrations.chat_messages import first_picture, last_picture, last_words, plain_picture
from editloupe.judge import judge_opener
from editloupe.judge.edit_score import EditScore, score_edit
from editloupe.rubrics.rubric_files import describe_validation_error
from editloupe.types import Edit, Judgement, Mode, Reason, UserError

NO_PICTURE = "the model's output holds no picture"
_INPUT = (Reason.BAD_IMAGE, Reason.MISSING_INPUT)
"""Failures of the sample, not of the judge."""


@scorer(metrics=[mean(), stderr()])
def edit_judge(
    judge: str | None = None,
    protocol: str | None = None,
    mode: Mode | None = None,
    base_url: str | None = None,
    criteria: Sequence[str] | None = None,
    setup: str | None = None,
    source: str | None = None,
    edited: str | None = None,
    instruction: str | None = None,
) -> Scorer:
    """Score edited pictures from 0 to 1 by the protocol's formula, or by the mean of the named criteria.

    By default the source is the first picture of the sample's input, the instruction is the user's last text there, and the
    edited picture is the last one in the model's output. If the messages hold no picture, the metadata fields `source`,
    `edited` and `instruction` are used. A sample that could not be judged is unscored, with the reason.

    Args:
        judge: A spec such as `openai:gpt-5.1`, opened at the first sample.
        protocol: The protocol whose rubrics are asked.
        mode: `plain`, `tools` or `oracle`.
        base_url: The address of the model's server. It must not contain a key.
        criteria: The criteria to judge. Default: all of the protocol.
        setup: A preset, by name or file.
        source: The metadata field with the source picture.
        edited: The metadata field with the edited picture.
        instruction: The metadata field with the instruction.
    """
    if base_url is not None and redact_url(base_url) != base_url:
        raise UserError(
            "Inspect writes a scorer's arguments into its log: keep the key out of base_url, in the environment"
        )
    options = {"protocol": protocol, "mode": mode, "base_url": base_url, "criteria": criteria, "setup": setup}
    open_judge = judge_opener(judge, {name: value for name, value in options.items() if value is not None})

    async def score(state: TaskState, target: Target) -> Score:
        try:
            edit = _edit(state, source, edited, instruction)
        except _NoPicture as missing:
            return Score.unscored(reason="no_response", explanation=str(missing))
        except ValidationError as error:
            return _make_score(EditScore(None, describe_validation_error(error, record="")))
        except UserError as error:
            return _make_score(EditScore(None, str(error)))
        opening = await asyncio.to_thread(open_judge)
        judgement = await opening.ajudge(edit, strict=False)
        return _make_score(score_edit(opening, edit, judgement.verdicts), judgement)

    return score


class _NoPicture(Exception):
    """The model under test made no picture."""


def _make_score(score: EditScore, judgement: Judgement | None = None) -> Score:
    facts = score.facts(judgement)
    if score.score is not None:
        return Score(value=score.score, explanation=score.explanation, metadata=facts)
    reason = "scoring_failed" if score.reason is None or score.reason in _INPUT else "grader_failed"
    return Score.unscored(reason=reason, explanation=score.explanation, metadata=facts)


def _edit(state: TaskState, source: str | None, edited: str | None, instruction: str | None) -> Edit:
    metadata = state.metadata or {}
    messages = [] if isinstance(state.input, str) else [_plain(message) for message in state.input]
    before = _field(metadata, source) if source else first_picture(messages) or metadata.get("source")
    if edited:
        after = _field(metadata, edited)
    else:
        after = last_picture([_plain(state.output.message)]) if state.output.choices else None
        after = after or metadata.get("edited")
    text = _field(metadata, instruction) if instruction else metadata.get("instruction")
    text = text or last_words(state.input if isinstance(state.input, str) else messages)
    if before is None:
        raise UserError("the sample's input holds no source picture")
    if after is None:
        raise _NoPicture(NO_PICTURE)
    if isinstance(before, str) and before.startswith(("http://", "https://")):
        raise UserError("the source picture is a web address, and addresses are not fetched; pass the picture itself")
    return Edit(
        id=str(state.sample_id), source=plain_picture(before), edited=plain_picture(after), instruction=str(text)
    )


def _field(metadata: dict[str, Any], name: str) -> Any:
    if metadata.get(name) is None:
        raise UserError(f'the sample\'s metadata has no "{name}"')
    return metadata[name]


def _plain(message: ChatMessage) -> dict[str, Any]:
    """Return a message as plain text and image parts, without other kinds of content."""
    content = message.content
    if isinstance(content, str):
        return {"role": message.role, "content": content}
    parts: list[dict[str, Any]] = []
    for part in content:
        if part.type == "image":
            parts.append({"type": "image", "image": part.image})
        elif part.type == "text":
            parts.append({"type": "text", "text": part.text})
    return {"role": message.role, "content": parts}

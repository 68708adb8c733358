"""An evaluator for LangSmith and openevals, called with `(inputs, outputs, reference_outputs)`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pydantic import ValidationError

from editloupe.integrations.chat_messages import (
    SOURCES,
    first_field,
    first_picture,
    last_picture,
    last_words,
    plain_picture,
)
from editloupe.judge import Judge, judge_opener
from editloupe.judge.edit_score import EditScore, explain_outcome, score_edit
from editloupe.rubrics.rubric_files import describe_validation_error
from editloupe.types import Edit, Judgement, UserError

Result = dict[str, Any]
"""`key`, `score` (0 to 1, or None), `comment` and `metadata`."""
Take = str | Callable[[Mapping[str, Any]], Any]
"""How to find a part of the edit: a field's name, or a function of the whole example."""
EDITED = ("edited", "edited_image", "image", "images", "output")
INSTRUCTIONS = ("instruction", "prompt", "question", "input")


def edit_evaluator(
    judge: Judge | str | None = None,
    *,
    key: str = "editloupe",
    source: Take | None = None,
    edited: Take | None = None,
    instruction: Take | None = None,
    each_criterion: bool = False,
    asynchronous: bool = False,
    **options: Any,
) -> Callable[..., Result | list[Result]] | Callable[..., Awaitable[Result | list[Result]]]:
    """Return an evaluator that returns `{key, score, comment, metadata}` with a score from 0 to 1.

    An edit that could not be judged has the score None and the reason as the comment. `source`, `edited` and `instruction` are
    field names, or functions of `{"inputs", "outputs", "reference_outputs", "attachments"}`. Without them, the usual field names
    are tried, then the pictures and texts in `messages`.

    Args:
        judge: An open judge, which stays open, or a spec that is opened at the first call.
        key: The name of the result.
        source: The field of the inputs or attachments with the source picture.
        edited: The field of the outputs with the edited picture.
        instruction: The field of the inputs with the instruction.
        each_criterion: Return a list: the score of the edit, then one result per criterion.
        asynchronous: Return a coroutine function.
        options: The keyword arguments of `Judge`, if `judge` is a spec.
    """
    open_judge = judge_opener(judge, options)

    def edit_of(inputs: Any, outputs: Any, reference_outputs: Any, attachments: Any) -> Edit | str:
        example = {
            "inputs": inputs,
            "outputs": outputs,
            "reference_outputs": reference_outputs,
            "attachments": attachments,
        }
        try:
            return _edit(example, source, edited, instruction)
        except ValidationError as error:
            return describe_validation_error(error, record="")
        except (UserError, ValueError) as error:
            return str(error)

    def make_results(used: Judge, judgement: Judgement) -> Result | list[Result]:
        result = _result(key, score_edit(used, judgement.edit, judgement.verdicts), judgement)
        if not each_criterion:
            return result
        by_name = {facts["criterion"]: facts for facts in result["metadata"]["verdicts"]}
        single = [
            {
                "key": f"{key}_{outcome.criterion}",
                "score": by_name[outcome.criterion]["score"],
                "comment": explain_outcome(outcome),
                "metadata": by_name[outcome.criterion],
            }
            for outcome in judgement.verdicts
        ]
        return [result, *single]

    def not_asked(sentence: str) -> Result | list[Result]:
        result = _result(key, EditScore(None, f"unjudged: {sentence}"))
        return [result] if each_criterion else result

    def evaluator(
        inputs: Any = None, outputs: Any = None, reference_outputs: Any = None, attachments: Any = None, **_: Any
    ) -> Result | list[Result]:
        edit = edit_of(inputs, outputs, reference_outputs, attachments)
        if isinstance(edit, str):
            return not_asked(edit)
        used = open_judge()
        return make_results(used, used.judge(edit, strict=False))

    async def evaluator_later(
        inputs: Any = None, outputs: Any = None, reference_outputs: Any = None, attachments: Any = None, **_: Any
    ) -> Result | list[Result]:
        edit = await asyncio.to_thread(edit_of, inputs, outputs, reference_outputs, attachments)
        if isinstance(edit, str):
            return not_asked(edit)
        used = await asyncio.to_thread(open_judge)
        return make_results(used, await used.ajudge(edit, strict=False))

    chosen = evaluator_later if asynchronous else evaluator
    chosen.__name__ = chosen.__qualname__ = key  # what experiments call it
    return chosen


def _result(key: str, score: EditScore, judgement: Judgement | None = None) -> Result:
    return {"key": key, "score": score.score, "comment": score.explanation, "metadata": score.facts(judgement)}


def _edit(example: Mapping[str, Any], source: Take | None, edited: Take | None, instruction: Take | None) -> Edit:
    inputs, outputs = _mapping(example["inputs"]), example["outputs"]
    attached = _mapping(example["attachments"])
    before, text = _take(example, {**attached, **inputs}, source), _take(example, inputs, instruction)
    if before is None:
        candidates = (
            first_field(inputs, SOURCES),
            first_field(attached, SOURCES),
            first_picture(inputs.get("messages")),
        )
        before = next((picture for picture in candidates if picture is not None), None)
    if text is None:
        text = first_field(inputs, INSTRUCTIONS) or last_words(inputs.get("messages") or _text(example["inputs"]))
    after = _take(example, _mapping(outputs), edited)
    if after is None and isinstance(outputs, Mapping):
        named = first_field(outputs, EDITED)
        after = last_picture(outputs.get("messages")) if named is None else named
    elif after is None:
        after = outputs
    parts = {"source picture": plain_picture(before), "edited picture": plain_picture(after), "instruction": text}
    for name, value in parts.items():
        if value is None or (isinstance(value, (str, bytes, list, tuple)) and not value):
            raise UserError(f"there is no {name}")
    return Edit(source=parts["source picture"], edited=parts["edited picture"], instruction=str(text))


def _take(example: Mapping[str, Any], fields: Mapping[str, Any], where: Take | None) -> Any:
    if where is None:
        return None
    value = where(example) if callable(where) else fields.get(where)
    if value is None:
        raise UserError(f'there is no "{where}"' if isinstance(where, str) else "a part of the edit was not found")
    return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}

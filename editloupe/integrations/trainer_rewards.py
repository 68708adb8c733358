"""Reward functions for the trainers TRL and verl.

Rewards are from 0 to 1. An edit that could not be judged has no reward: None for TRL, which skips it; an error or NaN for verl.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

from pydantic import ValidationError

from editloupe.evals.reward.edit_rewards import areward, rewards
from editloupe.integrations.chat_messages import SOURCES, first_field, last_picture, last_words, plain_picture
from editloupe.judge import Judge, judge_opener
from editloupe.judge.edit_score import EditScore, fill_in
from editloupe.rubrics.rubric_files import describe_validation_error
from editloupe.types import Edit, UserError

Row = Mapping[str, Any]
"""One sample of a trainer: the columns of its dataset, `prompt` and `completion`."""
Take = str | Callable[[Row], Any]
"""How to find a part of the edit: a column's name, or a function of the row."""


class NotJudged(Exception):
    """An edit has no reward; the message says why."""


def trl(
    judge: Judge | str | None = None,
    *,
    source: Take | None = None,
    edited: Take | None = None,
    instruction: Take | None = None,
    asynchronous: bool = False,
    concurrency: int = 32,
    name: str = "editloupe",
    **options: Any,
) -> Callable[..., list[float | None]] | Callable[..., Awaitable[list[float | None]]]:
    """Return a function for `reward_funcs` of TRL's trainers: one reward per completion, 0 to 1, or None if not judged.

    `source`, `edited` and `instruction` are columns of the dataset or functions of a row.

    Args:
        judge: An open judge, which stays open, or a spec that is opened at the first call.
        source: The source picture. Default: the column source, source_image, image or images.
        edited: The edited picture. Default: the last picture in the completion, as an image part or a data URL.
        instruction: The instruction. Default: the column instruction, or the user's last text in the prompt.
        asynchronous: Return a coroutine function.
        concurrency: The number of requests in flight, at most.
        name: The function's name, after which TRL names its columns and metrics.
        options: The keyword arguments of `Judge`, if `judge` is a spec.
    """
    open_judge = judge_opener(judge, options)

    def edits(prompts: Sequence[Any], completions: Sequence[Any], columns: Mapping[str, Any]) -> list[Edit | str]:
        rows = _rows(prompts, completions, columns)
        return [_edit(row, source, edited, instruction) for row in rows]

    def log_and_return(scores: list[EditScore], columns: Mapping[str, Any]) -> list[float | None]:
        log_extra, log_metric = columns.get("log_extra"), columns.get("log_metric")
        if callable(log_extra):
            log_extra(f"{name}_why", [score.why or "" for score in scores])
        if callable(log_metric) and scores:
            log_metric(f"{name}/unjudged", sum(score.score is None for score in scores) / len(scores))
        return [score.score for score in scores]

    def reward(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:
        items = edits(prompts, completions, columns)
        return log_and_return(fill_in(items, rewards(_only(items), open_judge(), concurrency=concurrency)), columns)

    async def reward_later(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:
        items, ready = await asyncio.to_thread(lambda: (edits(prompts, completions, columns), open_judge()))
        return log_and_return(fill_in(items, await areward(_only(items), ready, concurrency=concurrency)), columns)

    chosen = reward_later if asynchronous else reward
    chosen.__name__ = chosen.__qualname__ = name  # TRL names its columns and metrics after the function
    return chosen


def verl(
    data_source: Any = None,
    solution_str: str | None = None,
    ground_truth: Any = None,
    extra_info: Mapping[str, Any] | None = None,
    *,
    solution_image: Any = None,
    judge: Judge | str | None = None,
    unjudged: Literal["raise", "nan"] = "raise",
    **options: Any,
) -> dict[str, Any]:
    """Score one sample, as verl's `compute_score`. Return `score` (0 to 1) and `judged` (0 or 1).

    The judge is opened once per process, with the arguments in verl's `reward_kwargs`.

    Args:
        data_source: Not used.
        solution_str: The completion; it may contain the edited picture as a data URL.
        ground_truth: A mapping with fields of the edit, or anything else, which is not used.
        extra_info: The fields of the edit: `source`, `instruction` and, if it is not in the solution, `edited`.
        solution_image: The edited picture.
        judge: An open judge or a spec.
        unjudged: `raise` NotJudged if there is no reward, or return NaN for trainers that skip it.
        options: The keyword arguments of `Judge`.

    Raises:
        NotJudged: If the edit has no reward and `unjudged` is `raise`.
    """
    row = {**_mapping(ground_truth), **_mapping(extra_info), "completion": solution_str or ""}
    if solution_image is not None:
        row["edited"] = solution_image
    edit = _edit(row, None, "edited" if row.get("edited") is not None else None, None)
    open_judge = _shared_opener(judge, {name: value for name, value in options.items() if name not in _VERLS_OWN})
    (result,) = [EditScore(None, edit)] if isinstance(edit, str) else rewards([edit], open_judge())
    if result.score is None:
        if unjudged == "raise":
            raise NotJudged(f"this edit has no reward: {result.why}")
        return {"score": math.nan, "judged": 0.0}
    return {"score": result.score, "judged": 1.0}


_VERLS_OWN = ("reward_router_address", "reward_model_tokenizer")
"""Arguments that verl adds if it runs a reward model of its own."""
_OPENERS: dict[str, Callable[[], Judge]] = {}
"""The judges of `verl` by spec and options, for the lifetime of the process."""
_LOCK = threading.Lock()


def _shared_opener(judge: Judge | str | None, options: Mapping[str, Any]) -> Callable[[], Judge]:
    if isinstance(judge, Judge):
        return judge_opener(judge, options)
    with _LOCK:
        return _OPENERS.setdefault(repr((judge, sorted(options.items()))), judge_opener(judge, options))


def _rows(prompts: Sequence[Any], completions: Sequence[Any], columns: Mapping[str, Any]) -> list[Row]:
    count = len(completions)
    per_sample = {
        name: values
        for name, values in columns.items()
        if isinstance(values, Sequence) and not isinstance(values, (str, bytes)) and len(values) == count
    }
    return [
        {**{name: values[index] for name, values in per_sample.items()}, "prompt": prompt, "completion": completion}
        for index, (prompt, completion) in enumerate(zip(prompts, completions, strict=True))
    ]


def _edit(row: Row, source: Take | None, edited: Take | None, instruction: Take | None) -> Edit | str:
    """Return the edit of a row, or a sentence about what is missing."""
    try:
        before = _take(row, source) if source is not None else first_field(row, SOURCES)
        after = _take(row, edited) if edited is not None else last_picture(row.get("completion"))
        text = (
            _take(row, instruction)
            if instruction is not None
            else row.get("instruction") or last_words(row.get("prompt"))
        )
        before, after = plain_picture(before), plain_picture(after)
        for part, value in (("source picture", before), ("edited picture", after), ("instruction", text)):
            if value is None or (isinstance(value, (str, list, tuple)) and not value):
                return f"there is no {part}"
        return Edit(id="sample", source=before, edited=after, instruction=str(text))
    except ValidationError as error:
        return describe_validation_error(error, record="")
    except (ValueError, UserError) as error:
        return " ".join(str(error).split())[:300]


def _take(row: Row, where: Take) -> Any:
    if callable(where):
        return where(row)
    if where not in row:
        raise UserError(f'the dataset has no column "{where}"')
    return row[where]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _only(items: Sequence[Edit | str]) -> list[Edit]:
    return [item for item in items if isinstance(item, Edit)]

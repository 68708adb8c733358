"""Asks a model until its answer can be read: what was wrong is told it, so often and no more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from editloupe.agent.chat import Chat, ChatRequest
from editloupe.agent.endings import unfinished
from editloupe.agent.messages import correction, text_of
from editloupe.agent.problems import Malformed
from editloupe.types import Usage

T = TypeVar("T")


class Unanswered(Exception):
    """The model gave no usable answer; the sentence says why."""


@dataclass(frozen=True)
class Answered(Generic[T]):
    """What was read, and what it took."""

    value: T
    usage: Usage


async def ask_until_read(
    chat: Chat, request: ChatRequest, read: Callable[[str], T], repair: Callable[[str], str], repairs: int
) -> Answered[T]:
    """Ask until `read` accepts the reply or the repairs are spent; what `read` objects to is told the model.

    `read` raises ValueError or Malformed with a sentence. Raises Unanswered, or ModelFailed and ModelRejected as requests do.
    """
    usage, problem = Usage(), ""
    for _ in range(repairs + 1):
        reply = await chat.reply(request)
        usage += reply.usage
        if reply.facts.declined:
            raise Unanswered(reply.facts.declined.detail)
        cut = unfinished(reply.facts.finish)
        try:
            if cut:
                raise Malformed(cut.problem)
            return Answered(read(text_of(reply.message)), usage)
        except (Malformed, ValueError) as error:
            problem = cut.detail if cut else str(error)
            told = correction(reply.message, repair(str(error)))
            request = replace(request, messages=[*request.messages, reply.message, *told])
    raise Unanswered(f"no usable answer after {repairs + 1} replies: {problem}")

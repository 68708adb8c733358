"""Ask a model a single question, and re-ask with the parse error until its answer can be read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from langchain_core.messages import AnyMessage, HumanMessage, SystemMessage

from editloupe.agent.chat_interface import Chat, ChatRequest
from editloupe.agent.messages import announce_picture, build_correction, text_block, text_of
from editloupe.agent.replies.finish_reasons import find_incomplete
from editloupe.agent.replies.sections import Malformed
from editloupe.pictures.decode import Album, Picture
from editloupe.pictures.encode import EncodingLimits
from editloupe.types import Usage

PICTURE = "Picture"
T = TypeVar("T")


class NoAnswer(Exception):
    """The model gave no usable answer; the sentence says why."""


@dataclass(frozen=True)
class AnswerWithUsage(Generic[T]):
    """A parsed answer and the tokens it took."""

    value: T
    usage: Usage


@dataclass(frozen=True)
class Asker:
    """Asks a model single questions, in words or about a picture."""

    chat: Chat
    name: str = ""
    """The model's name in records."""
    repairs: int = 2
    wire: EncodingLimits = EncodingLimits()

    async def ask(
        self,
        system: str,
        task: str,
        read: Callable[[str], T],
        repair: Callable[[str], str],
        picture: Picture | None = None,
        album: Album | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> AnswerWithUsage[T]:
        """Ask until `read` accepts the reply or the repairs are spent.

        Args:
            system: The system message.
            task: The question.
            read: Reads a reply; raises ValueError or Malformed with a sentence.
            repair: Makes the message that re-asks out of that sentence.
            picture: A picture to show before the question.
            album: The album that holds the picture.
            schema: What replies must conform to, if the provider supports it.

        Raises:
            NoAnswer: No reply could be read, or the model declined.
            ModelFailed: As any request.
        """
        album = album or Album()
        question: list[AnyMessage] = [SystemMessage(system), HumanMessage(task)]
        if picture is not None:
            blocks = await asyncio.to_thread(announce_picture, PICTURE, picture.sha, album, self.wire)
            question = [SystemMessage(system), HumanMessage([*blocks, text_block(task)])]
        enforced = schema if self.chat.profile.structured_output else None
        request = ChatRequest(question, album=album, limits=self.wire, schema=enforced)
        usage, problem = Usage(), ""
        for _ in range(self.repairs + 1):
            reply = await self.chat.reply(request)
            usage += reply.usage
            if reply.facts.refusal:
                raise NoAnswer(reply.facts.refusal.detail)
            cut = find_incomplete(reply.facts.finish)
            try:
                if cut:
                    raise Malformed(cut.problem)
                return AnswerWithUsage(read(text_of(reply.message)), usage)
            except (Malformed, ValueError) as error:
                problem = cut.detail if cut else str(error)
                corrected = build_correction(reply.message, repair(str(error)))
                request = replace(request, messages=[*request.messages, reply.message, *corrected])
        raise NoAnswer(f"no usable answer after {self.repairs + 1} replies: {problem}")

"""One question about one picture that is answered in JSON: asked, read strictly, asked again where it cannot be read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Generic, TypeVar

from langchain_core.messages import AnyMessage, HumanMessage, SystemMessage

from editloupe.agent.answers import Malformed, read_object
from editloupe.agent.chat import Chat, ChatRequest, RetryBudget
from editloupe.agent.endings import unfinished
from editloupe.agent.messages import announced, correction, text_block, text_of
from editloupe.images import Album, Picture, WireLimits
from editloupe.rubrics.case import Case
from editloupe.rubrics.model import ModeText, Rubric, TextAnswer
from editloupe.rubrics.yaml_files import bundled_yaml
from editloupe.types import Edit, Usage

PICTURE = "Picture"
T = TypeVar("T")


class Unanswered(Exception):
    """The model gave no usable answer; the sentence says why."""


@dataclass(frozen=True)
class Answered(Generic[T]):
    """What was read, and what it took."""

    value: T
    usage: Usage


@dataclass(frozen=True)
class Asker:
    """Somebody to ask about pictures."""

    chat: Chat
    wire: WireLimits = WireLimits()
    repairs: int = 2

    async def ask(
        self,
        edit: Edit,
        picture: Picture,
        album: Album,
        system: str,
        task: str,
        read: Callable[[Mapping[str, Any]], T],
        repair: Callable[[str], str],
    ) -> Answered[T]:
        """Ask until `read` accepts the answer or the repairs are spent; what `read` objects to is told the model.

        `read` raises ValueError with a sentence. Raises Unanswered, or ModelFailed and ModelRejected as any request does.
        """
        shown = await asyncio.to_thread(announced, PICTURE, picture.sha, album, self.wire)
        messages: list[AnyMessage] = [SystemMessage(system), HumanMessage([*shown, text_block(task)])]
        case, usage, budget = _case(edit, task, picture), Usage(), RetryBudget()
        problem, cut = "", None
        for _ in range(self.repairs + 1):
            reply = await self.chat.reply(ChatRequest(messages, (), case, album, self.wire, budget=budget))
            usage += reply.usage
            if reply.facts.declined:
                raise Unanswered(reply.facts.declined.detail)
            cut = unfinished(reply.facts.finish)
            try:
                if cut:
                    raise Malformed(cut.problem)
                return Answered(read(read_object(text_of(reply.message))), usage)
            except (Malformed, ValueError) as error:
                problem = str(error)
            messages += [reply.message, *correction(reply.message, repair(problem))]
        raise Unanswered(f"no usable answer after {self.repairs + 1} replies: {cut.detail if cut else problem}")


def _case(edit: Edit, task: str, picture: Picture) -> Case:
    mode = ModeText(setting="one picture", images=(PICTURE,))
    rubric = Rubric(
        protocol="edival",
        criterion="planning",
        title="planning",
        source="EdiVal-Agent, Section O.2",
        question=task,
        answer=TextAnswer(),
        modes={"plain": mode},
    )
    return Case(edit=edit, rubric=rubric, mode="plain", pictures={PICTURE: picture.sha})


@cache
def prompts() -> dict[str, Any]:
    """Return the texts of the listing and the proposals."""
    content: dict[str, Any] = bundled_yaml(files("editloupe.rubrics.edival") / "prompts.yaml")
    return content

"""One question in words that is answered in a set form: asked, read strictly, asked again where it cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from langchain_core.messages import AnyMessage, HumanMessage, SystemMessage

from editloupe.agent.answers import Malformed
from editloupe.agent.chat import Chat, ChatRequest, RetryBudget
from editloupe.agent.endings import unfinished
from editloupe.agent.messages import correction, text_of
from editloupe.images import Album, WireLimits
from editloupe.rubrics.case import Case
from editloupe.rubrics.model import ModeText, Rubric, TextAnswer
from editloupe.types import Edit, Usage

T = TypeVar("T")


class Unanswered(Exception):
    """The model gave no usable answer; the sentence says why."""


@dataclass(frozen=True)
class Answered(Generic[T]):
    """What was read, and what it took."""

    value: T
    usage: Usage


@dataclass(frozen=True)
class TextAsker:
    """Somebody to ask in words alone."""

    chat: Chat
    name: str
    """The model, as records name it."""
    repairs: int = 2

    async def ask(
        self,
        sample_id: str,
        system: str,
        task: str,
        read: Callable[[str], T],
        repair: Callable[[str], str],
        schema: Mapping[str, Any] | None = None,
    ) -> Answered[T]:
        """Ask until `read` accepts the answer or the repairs are spent; what `read` objects to is told the model.

        `read` raises ValueError or Malformed with a sentence. Raises Unanswered, or ModelFailed and ModelRejected as any request.
        """
        messages: list[AnyMessage] = [SystemMessage(system), HumanMessage(task)]
        case, album, usage, budget = _case(sample_id, task), Album(), Usage(), RetryBudget()
        held = schema if self.chat.profile.structured_output else None
        problem = ""
        for _ in range(self.repairs + 1):
            reply = await self.chat.reply(
                ChatRequest(messages, (), case, album, WireLimits(), budget=budget, schema=held)
            )
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
                messages += [reply.message, *correction(reply.message, repair(str(error)))]
        raise Unanswered(f"no usable answer after {self.repairs + 1} replies: {problem}")


def _case(sample_id: str, task: str) -> Case:
    mode = ModeText(setting="words alone", images=())
    rubric = Rubric(
        protocol="making",
        criterion="making",
        title="making",
        source="making a benchmark",
        question=task,
        answer=TextAnswer(),
        modes={"plain": mode},
    )
    edit = Edit(id=sample_id, source=Path("none"), edited=Path("none"), instruction="Make a sample.")
    return Case(edit=edit, rubric=rubric, mode="plain", pictures={})

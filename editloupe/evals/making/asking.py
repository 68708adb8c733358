"""One question in words that is answered in a set form: asked, read strictly, asked again where it cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from langchain_core.messages import AnyMessage, HumanMessage, SystemMessage

from editloupe.agent.asking import Answered, ask_until_read
from editloupe.agent.chat import Chat, ChatRequest
from editloupe.pictures.decode import Album
from editloupe.pictures.encode import WireLimits
from editloupe.rubrics.case import Case
from editloupe.rubrics.model import ModeText, Rubric, TextAnswer
from editloupe.types import Edit

T = TypeVar("T")


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
        held = schema if self.chat.profile.structured_output else None
        messages: list[AnyMessage] = [SystemMessage(system), HumanMessage(task)]
        request = ChatRequest(messages, (), _case(sample_id, task), Album(), WireLimits(), schema=held)
        return await ask_until_read(self.chat, request, read, repair, self.repairs)


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

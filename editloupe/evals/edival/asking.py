"""One question about one picture that is answered in JSON: asked, read strictly, asked again where it cannot be read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

from langchain_core.messages import AnyMessage, HumanMessage, SystemMessage

from editloupe.agent.answers import read_object
from editloupe.agent.asking import Answered, ask_until_read
from editloupe.agent.chat import Chat, ChatRequest
from editloupe.agent.messages import announced, text_block
from editloupe.pictures.decode import Album, Picture
from editloupe.pictures.encode import WireLimits
from editloupe.rubrics.case import Case
from editloupe.rubrics.model import ModeText, Rubric, TextAnswer
from editloupe.rubrics.yaml_files import bundled_yaml
from editloupe.types import Edit

PICTURE = "Picture"
T = TypeVar("T")


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
        request = ChatRequest(messages, (), _case(edit, task, picture), album, self.wire)
        return await ask_until_read(self.chat, request, lambda text: read(read_object(text)), repair, self.repairs)


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

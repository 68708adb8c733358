"""The chats of judges that answer together, as one thing to open, describe and close."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from editloupe.agent.chat import Chat, ChatRequest, Reply
from editloupe.agent.hooks import Replies, Traffic
from editloupe.agent.models import ModelSettings, open_chat
from editloupe.agent.profiles import Profile
from editloupe.agent.specs import RULES
from editloupe.combined.plans import Member, Plan, members_of


class SeveralChats:
    """Holds the chats of several judges; each is asked on its own."""

    def __init__(self, chats: Mapping[Member, Chat]) -> None:
        self._chats = chats

    @property
    def profile(self) -> Profile:
        """That of the first; whoever asks one of them takes its own."""
        return next(iter(self._chats.values())).profile

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know about how any of them was asked."""
        return tuple(dict.fromkeys(note for chat in self._chats.values() for note in chat.notes))

    async def reply(self, request: ChatRequest) -> Reply:
        """Refuse: a request is put to one of them."""
        raise TypeError("judges that answer together are asked one by one")

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await asyncio.gather(*(chat.aclose() for chat in self._chats.values()))

    def drop(self) -> None:
        """Have the connections of all loops closed without waiting for it."""
        for chat in self._chats.values():
            chat.drop()


def open_chats(
    plan: Plan, settings: ModelSettings, replies: Replies | None, traffic: Traffic | None
) -> dict[Member, Chat]:
    """Open everybody a plan may ask; settings of models are nothing to the rules beside them."""
    alone = isinstance(plan, Member)
    return {
        one: open_chat(
            one.spec,
            one.base_url,
            settings if alone or one.spec != RULES else ModelSettings(),
            replies,
            traffic,
        )
        for one in members_of(plan)
    }

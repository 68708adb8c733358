"""Who is asked and how it is said: chat models and their providers, messages, the answer grammar, the embedded judge.

Its public names are imported when they are first used, so that a light part such as `agent.secrets` stays light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from editloupe._util.lazy_names import lazy_names

if TYPE_CHECKING:
    from editloupe.agent.chat_interface import Chat, ChatRequest, Replies, Reply, RetryBudget, RetryPolicy, Watcher
    from editloupe.agent.model_settings import ModelSettings
    from editloupe.agent.open_model import open_chat
    from editloupe.agent.providers.provider import Profile, Provider
    from editloupe.agent.replies.answers import Given, Reading, read
    from editloupe.agent.replies.finish_reasons import Declined, ReplyFacts
    from editloupe.agent.rules.judge import RulesJudge
    from editloupe.agent.transport.errors import ModelFailed, ModelRejected
    from editloupe.agent.transport.rate_limits import OverBudget, Ticket, Traffic

__all__ = [
    "Chat",
    "ChatRequest",
    "Declined",
    "Given",
    "ModelFailed",
    "ModelRejected",
    "ModelSettings",
    "OverBudget",
    "Profile",
    "Provider",
    "Reading",
    "Replies",
    "Reply",
    "ReplyFacts",
    "RetryBudget",
    "RetryPolicy",
    "RulesJudge",
    "Ticket",
    "Traffic",
    "Watcher",
    "open_chat",
    "read",
]

__getattr__, __dir__ = lazy_names(__name__)

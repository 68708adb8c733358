"""Who is asked and how it is said: chat models and their profiles, messages, the answer grammar, the embedded judge.

Public names are imported when they are first used, so that a light part such as `agent.secrets` stays light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from editloupe.lazy_names import lazy_names

if TYPE_CHECKING:
    from editloupe.agent.chat import Chat, Reply, RetryBudget, RetryPolicy
    from editloupe.agent.faults import ModelFailed, ModelRejected
    from editloupe.agent.hooks import Replies, Traffic, Watcher
    from editloupe.agent.models import ModelSettings, open_chat
    from editloupe.agent.profiles import Profile

__all__ = [
    "Chat",
    "ModelFailed",
    "ModelRejected",
    "ModelSettings",
    "Profile",
    "Replies",
    "Reply",
    "RetryBudget",
    "RetryPolicy",
    "Traffic",
    "Watcher",
    "open_chat",
]

__getattr__ = lazy_names(
    __name__,
    {
        **dict.fromkeys(("Chat", "Reply", "RetryBudget", "RetryPolicy"), "chat"),
        **dict.fromkeys(("ModelFailed", "ModelRejected"), "faults"),
        **dict.fromkeys(("Replies", "Traffic", "Watcher"), "hooks"),
        **dict.fromkeys(("ModelSettings", "open_chat"), "models"),
        "Profile": "profiles",
    },
)

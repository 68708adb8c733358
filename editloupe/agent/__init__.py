"""Chat models and their providers, messages, the answer grammar, and the embedded judge.

Public names are imported on first use, so that light modules such as `agent.transport.secrets` stay light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from editloupe._util.lazy_names import lazy_names

if TYPE_CHECKING:
    from editloupe.agent.chat_interface import (
        Chat,
        ChatRequest,
        Reply,
        ReplyStore,
        RetryBudget,
        RetryPolicy,
        StepWatcher,
    )
    from editloupe.agent.model_settings import ModelSettings
    from editloupe.agent.open_model import open_chat
    from editloupe.agent.providers.provider import Profile, Provider
    from editloupe.agent.replies.answers import ParsedAnswer, ParsedReply, parse_reply
    from editloupe.agent.replies.finish_reasons import Refusal, ReplyFacts
    from editloupe.agent.rules.judge import RulesJudge
    from editloupe.agent.transport.errors import ModelFailed, ModelRejected
    from editloupe.agent.transport.rate_limits import OverBudget, RateLimiter, RequestSlot

__all__ = [
    "Chat",
    "ChatRequest",
    "ModelFailed",
    "ModelRejected",
    "ModelSettings",
    "OverBudget",
    "ParsedAnswer",
    "ParsedReply",
    "Profile",
    "Provider",
    "RateLimiter",
    "Refusal",
    "Reply",
    "ReplyFacts",
    "ReplyStore",
    "RequestSlot",
    "RetryBudget",
    "RetryPolicy",
    "RulesJudge",
    "StepWatcher",
    "open_chat",
    "parse_reply",
]

__getattr__, __dir__ = lazy_names(__name__)

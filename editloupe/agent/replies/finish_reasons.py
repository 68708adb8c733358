"""Read how a reply ended, with refusals and incomplete replies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from editloupe.agent.messages import text_of
from editloupe.types import Reason, Served

if TYPE_CHECKING:
    from langchain_core.messages import AIMessage

    from editloupe.agent.providers.provider import Provider

# Proxies pass on the words of their providers, so all words apply to every provider.
FILTERED = ("content_filter", "safety", "prohibited_content", "blocklist", "recitation", "spii", "image_safety")
"""Finish reasons that mean a content filter held back the reply or its rest."""
CUT_OFF = ("length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded")
"""Finish reasons that mean the reply reached the length limit."""
BROKEN_OFF = ("incomplete", "failed", "cancelled", "abort", "aborted", "error", "other", "insufficient_system_resource")
"""Finish reasons that mean the reply ended early for another reason."""
FAILED = ("failed", "error", "insufficient_system_resource")
"""Those of `BROKEN_OFF` that mean the server or the model behind it failed."""


@dataclass(frozen=True)
class Refusal:
    """Why a judge gives no answer, in its own words or its provider's."""

    reason: Reason
    detail: str


@dataclass(frozen=True)
class ReplyFacts:
    """Facts about a reply beyond its message."""

    finish: str = ""
    """The provider's finish reason; empty if it gives none."""
    refusal: Refusal | None = None
    confidence: float | None = None
    """The judge's confidence in its answer, if known."""
    served: Served | None = None
    """The model version and deployment that answered, as reported by the provider."""


@dataclass(frozen=True)
class IncompleteReply:
    """A reply that ended early, so that nothing in it counts as an answer."""

    problem: str
    """The message for the model."""
    detail: str
    """The message for the user."""
    reason: Reason = Reason.TRUNCATED
    """The reason of an edit that gets no other reply."""


def read_reply_facts(message: AIMessage, provider: Provider) -> ReplyFacts:
    """Return the facts about a reply beyond its message, as its provider reports them."""
    finish = provider.finish(message)
    sentence = provider.refusal(message)
    if sentence is None and finish.lower() in FILTERED:
        extent = "a part of the reply" if text_of(message).strip() else "the reply"
        sentence = f"the provider's content filter held {extent} back (finish reason {finish})"
    served = provider.served(message)
    refusal = Refusal(Reason.REFUSED, sentence) if sentence else None
    return ReplyFacts(finish, refusal, served=served if served.summary else None)


def find_incomplete(finish: str) -> IncompleteReply | None:
    """Return why a reply with this finish reason is incomplete; None if it is complete."""
    if finish.lower() in CUT_OFF:
        return IncompleteReply(
            f"Your reply was cut off by the length limit (finish reason: {finish}), so nothing in it counts; "
            "keep your reasoning much shorter and come to the end.",
            f"the judge's reply was cut off by the length limit (finish reason: {finish}); "
            "--max-output-tokens allows longer replies",
        )
    if finish.lower() in BROKEN_OFF:
        return IncompleteReply(
            f"Your reply broke off (finish reason: {finish}), so nothing in it counts.",
            f"the judge's reply broke off (finish reason: {finish})",
            Reason.MODEL_ERROR if finish.lower() in FAILED else Reason.UNREADABLE,
        )
    return None

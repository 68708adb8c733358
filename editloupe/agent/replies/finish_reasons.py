"""How a reply ended: what a judge says beyond its message, and whether what it said is whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from editloupe.agent.messages import text_of
from editloupe.types import Reason, Served

if TYPE_CHECKING:
    from langchain_core.messages import AIMessage

    from editloupe.agent.providers.provider import Provider

# Proxies hand on the words of the providers behind them, so all words are known whoever is asked.
FILTERED = ("content_filter", "safety", "prohibited_content", "blocklist", "recitation", "spii", "image_safety")
"""Finish reasons by which providers say that a filter held the reply back, or the rest of it."""
CUT_OFF = ("length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded")
"""Finish reasons by which providers say that a reply reached the length limit."""
BROKEN_OFF = ("incomplete", "failed", "cancelled", "abort", "aborted", "error", "other", "insufficient_system_resource")
"""Finish reasons by which servers say that a reply ended early for another reason."""


@dataclass(frozen=True)
class Refusal:
    """Why a judge gives no answer, by its own words or its provider's."""

    reason: Reason
    detail: str


@dataclass(frozen=True)
class ReplyFacts:
    """What a judge says beyond its message."""

    finish: str = ""
    """The provider's word for how the reply ended; empty where it says nothing."""
    refusal: Refusal | None = None
    confidence: float | None = None
    """How sure the judge is of its answer, where it knows."""
    served: Served | None = None
    """What the provider says answered."""


@dataclass(frozen=True)
class IncompleteReply:
    """A reply that is not whole, so that nothing in it is an answer."""

    problem: str
    """What the model is told."""
    detail: str
    """What a person is told."""
    truncated: bool = True
    """True where the length limit was reached."""


def read_reply_facts(message: AIMessage, provider: Provider) -> ReplyFacts:
    """Return what a model's reply says beyond its message, in the way of its provider."""
    finish = provider.finish(message)
    sentence = provider.refusal(message)
    if sentence is None and finish.lower() in FILTERED:
        extent = "a part of the reply" if text_of(message).strip() else "the reply"
        sentence = f"the provider's content filter held {extent} back (finish reason {finish})"
    served = provider.served(message)
    refusal = Refusal(Reason.REFUSED, sentence) if sentence else None
    return ReplyFacts(finish, refusal, served=served if served.summary else None)


def find_incomplete(finish: str) -> IncompleteReply | None:
    """Say in what way a reply that ended with this word is not whole; None where it is."""
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
            truncated=False,
        )
    return None

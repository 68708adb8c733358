"""Finish reasons and refusals are read from a reply's metadata."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage

from editloupe.agent.providers.registry import find_provider
from editloupe.agent.replies.finish_reasons import Refusal, find_incomplete, read_reply_facts
from editloupe.types import Reason

OPENAI, GEMINI = find_provider("openai"), find_provider("google_genai")


@pytest.mark.parametrize(
    ("provider", "metadata", "finish"),
    [
        (OPENAI, {"finish_reason": "stop"}, "stop"),
        (OPENAI, {"status": "completed"}, ""),
        (OPENAI, {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "max_output_tokens"),
        (OPENAI, {"status": "failed", "incomplete_details": None}, "failed"),
        (OPENAI, {"finish_reason": "stop", "incomplete_details": "odd"}, "stop"),
        (GEMINI, {"finish_reason": "MAX_TOKENS"}, "MAX_TOKENS"),
        (GEMINI, {}, ""),
    ],
)
def test_how_a_reply_ended_is_read_in_its_providers_way(provider: Any, metadata: dict[str, Any], finish: str) -> None:
    facts = read_reply_facts(AIMessage("", response_metadata=metadata), provider)
    assert (facts.finish, facts.refusal, facts.confidence) == (finish, None, None)


@pytest.mark.parametrize(
    ("provider", "message", "said"),
    [
        (OPENAI, AIMessage("", additional_kwargs={"refusal": "I can't."}), "the model declined to answer: I can't."),
        (OPENAI, AIMessage("", response_metadata={"finish_reason": "content_filter"}), "held the reply back"),
        (OPENAI, AIMessage("So", response_metadata={"finish_reason": "SAFETY"}), "held a part of the reply back"),
        (GEMINI, AIMessage("", response_metadata={"finish_reason": "RECITATION"}), "held the reply back"),
        (GEMINI, AIMessage("", response_metadata={"prompt_feedback": {"block_reason": 1}}), "refused the request"),
    ],
)
def test_a_reply_that_was_declined_says_why(provider: Any, message: AIMessage, said: str) -> None:
    declined = read_reply_facts(message, provider).refusal
    assert isinstance(declined, Refusal)
    assert declined.reason is Reason.REFUSED
    assert said in declined.detail


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("length", Reason.TRUNCATED),
        ("MAX_TOKENS", Reason.TRUNCATED),
        ("failed", Reason.MODEL_ERROR),
        ("incomplete", Reason.UNREADABLE),
        ("stop", None),
        ("", None),
    ],
)
def test_a_reply_that_was_cut_off_or_broke_off_is_not_whole(finish: str, reason: Reason | None) -> None:
    cut = find_incomplete(finish)
    assert (cut.reason if cut else None) == reason

"""Tokens are those a server plausibly reports, else an estimate."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage

from editloupe.agent.transport.usage import count_usage, read_usage


def reply(read: Any, written: Any, cached: Any = 0) -> AIMessage:
    message = AIMessage("x" * 400)
    message.usage_metadata = {  # type: ignore[typeddict-item]
        "input_tokens": read,
        "output_tokens": written,
        "total_tokens": 0,
        "input_token_details": {"cache_read": cached},
    }
    return message


def test_a_believable_report_is_taken_and_nothing_is_estimated() -> None:
    def never() -> int:
        raise AssertionError("an estimate was made")

    usage, estimated = count_usage(reply(700, 30, 500), never)
    assert (usage.requests, usage.input_tokens, usage.output_tokens, usage.cached_tokens) == (1, 700, 30, 500)
    assert not estimated


@pytest.mark.parametrize("absurd", [None, 0, -5, 10.5, 1e300, float("nan"), float("inf"), "12", 10**15, True])
def test_what_cannot_be_believed_is_estimated(absurd: Any) -> None:
    usage, estimated = count_usage(reply(absurd, absurd, absurd), lambda: 2000)
    assert estimated
    assert (usage.input_tokens, usage.output_tokens, usage.cached_tokens) == (2000, 100, 0)


def test_no_report_at_all_is_estimated() -> None:
    usage, estimated = count_usage(AIMessage("x" * 40), lambda: 7)
    assert (usage.input_tokens, usage.output_tokens, estimated) == (7, 10, True)


def test_parts_are_never_more_than_the_whole() -> None:
    assert read_usage(reply(100, 10, 5000)).cached_tokens == 100

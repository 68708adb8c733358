"""Count the tokens of a reply, as reported by its server or as an estimate."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage

from editloupe.agent.messages import PICTURE
from editloupe.pictures.decode import Album
from editloupe.pictures.encode import EncodingLimits
from editloupe.types import Usage

CHARACTERS_PER_TOKEN = 4
PIXELS_PER_TOKEN = 750
"""Anthropic's figure; OpenAI's and Gemini's tiles are similar for pictures of a megapixel."""
SMALLEST_PICTURE = 85
"""OpenAI's minimum for a picture."""
UNSEEN_REPLY = 256
"""Output tokens assumed for a reply that was in progress and never came."""
BELIEVABLE = 20_000_000
"""More tokens than any model reads or writes in one reply."""


def read_usage(message: AIMessage) -> Usage:
    """Return the tokens a reply reports; an implausible number counts as not reported."""
    reported = message.usage_metadata
    if not reported:
        return Usage(requests=1)
    read, written = _count(reported.get("input_tokens")), _count(reported.get("output_tokens"))
    cached = _count((reported.get("input_token_details") or {}).get("cache_read"))
    reasoning = _count((reported.get("output_token_details") or {}).get("reasoning"))
    return Usage(
        requests=1,
        input_tokens=read,
        output_tokens=written,
        cached_tokens=min(cached, read),
        reasoning_tokens=min(reasoning, written),
    )


def count_usage(message: AIMessage, estimate_request: Callable[[], int]) -> tuple[Usage, bool]:
    """Return the tokens of a reply and whether some are estimated.

    Args:
        message: The reply.
        estimate_request: Estimates the input tokens; called only if they are not reported.
    """
    reported = read_usage(message)
    guessed: dict[str, int] = {}
    if reported.input_tokens == 0:
        guessed |= {"input_tokens": estimate_request(), "cached_tokens": 0}
    if reported.output_tokens == 0 and (written := estimate_output(message)):
        guessed |= {"output_tokens": written, "reasoning_tokens": 0}
    return (reported.model_copy(update=guessed), True) if guessed else (reported, False)


def estimate_input(
    messages: Sequence[AnyMessage], tools: Sequence[Mapping[str, Any]], album: Album, limits: EncodingLimits
) -> int:
    """Estimate the tokens of a request from its characters, its tools and the sizes of its pictures as sent."""
    characters, tokens = len(json.dumps([dict(tool) for tool in tools])) if tools else 0, 0
    for message in messages:
        for part in message.content if isinstance(message.content, list) else [message.content]:
            if isinstance(part, dict) and part.get("type") == PICTURE:
                width, height = album[part["sha"]].wire(limits).size
                tokens += max(SMALLEST_PICTURE, math.ceil(width * height / PIXELS_PER_TOKEN))
            else:
                characters += len(str(part.get("text", part))) if isinstance(part, dict) else len(part)
    return tokens + math.ceil(characters / CHARACTERS_PER_TOKEN)


def estimate_output(message: AIMessage) -> int:
    """Estimate the tokens of a reply from its text and calls."""
    text = message.content if isinstance(message.content, str) else json.dumps(message.content, default=str)
    calls = json.dumps([call["args"] for call in message.tool_calls], default=str) if message.tool_calls else ""
    thought = str(message.additional_kwargs.get("reasoning_content") or "")
    return math.ceil((len(text if text != "[]" else "") + len(calls) + len(thought)) / CHARACTERS_PER_TOKEN)


def _count(value: Any) -> int:
    """Return a token count; 0 if it is not a plausible whole number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= BELIEVABLE:
        return 0
    return int(value) if value == int(value) else 0

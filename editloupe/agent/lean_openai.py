"""ChatOpenAI with less work per request; what goes over the wire is the same, byte for byte, but for one name on other servers.

Two steps on the way out look at every block of every message and find nothing to change in ours: langchain-openai asks of
each content block whether it is of a kind it would have to translate, and the openai package walks messages and tool schemas
against its type hints. In a conversation with pictures the two take about as much CPU as all the rest of a request.
"""

from __future__ import annotations

import re
from typing import Any

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_openai import ChatOpenAI

IN_THE_BODY = ("messages", "tools")
"""Fields given as `extra_body` are sent as they are."""
NATIVE = frozenset({"text", "image_url"})
"""Blocks that Chat Completions takes as they are."""
_OPENAI = re.compile(r"(?:.*/)?(?:gpt-(?!oss)|chatgpt|o\d)", re.IGNORECASE)
LIMIT, OLD_LIMIT = "max_completion_tokens", "max_tokens"
"""OpenAI's models take the first; Ollama, LM Studio and others know the second only, and pass over the first in silence."""


class LeanChatOpenAI(ChatOpenAI):
    """Sends the same body as ChatOpenAI; only the way it takes through the clients is shorter."""

    def _get_request_payload(
        self, input_: LanguageModelInput, *, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        if self._use_responses_api({**self._default_params, **kwargs}):
            whole: dict[str, Any] = super()._get_request_payload(input_, stop=stop, **kwargs)
            return whole
        messages = self._convert_input(input_).to_messages()
        light = [m.model_copy(update={"content": ""}) if _is_native(m) else m for m in messages]
        payload: dict[str, Any] = super()._get_request_payload(light, stop=stop, **kwargs)
        for message, sent in zip(messages, payload["messages"], strict=True):
            if _is_native(message):
                sent["content"] = message.content
        if LIMIT in payload and not _OPENAI.match(self.model_name):
            payload[OLD_LIMIT] = payload.pop(LIMIT)
        body = {name: payload.pop(name) for name in IN_THE_BODY if name in payload}
        return {**payload, "messages": [], "extra_body": {**(payload.get("extra_body") or {}), **body}}


def _is_native(message: BaseMessage) -> bool:
    blocks = message.content
    return (
        isinstance(message, HumanMessage)
        and isinstance(blocks, list)
        and all(isinstance(block, dict) and block.get("type") in NATIVE for block in blocks)
    )

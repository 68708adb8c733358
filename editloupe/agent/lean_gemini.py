"""Gemini's chat client as it may be shown to a tracer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_google_genai import ChatGoogleGenerativeAI


class LeanChatGemini(ChatGoogleGenerativeAI):
    """Speaks as ChatGoogleGenerativeAI does; a tracer is told neither the server's address nor how it is reached."""

    if TYPE_CHECKING:  # its settings go by other names than its fields, as in the class above it

        def __init__(self, **kwargs: Any) -> None: ...

    @property
    def lc_secrets(self) -> dict[str, str]:
        """Name what LangChain keeps out of traces: an address may carry a key."""
        return {**super().lc_secrets, "base_url": "GOOGLE_GEMINI_BASE_URL", "client_args": "client_args"}

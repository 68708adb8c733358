"""Gemini's image output, by Google's own client."""

from __future__ import annotations

from typing import Any

from editloupe.agent.providers.provider import ImageClient, ImageReply, Opening
from editloupe.agent.transport.http import trust
from editloupe.types import Usage


def open_image_client(opening: Opening) -> ImageClient:
    """Open a client that sends pictures through the gate."""
    import httpx
    from google.genai import Client
    from google.genai.types import GenerateContentConfig, HttpOptions, Part

    http = httpx.AsyncClient(
        timeout=opening.timeout,
        follow_redirects=False,
        event_hooks=opening.gate.hooks(),
        headers={"Accept-Encoding": "identity"},
        verify=trust(),
    )
    options = HttpOptions(base_url=opening.base_url, httpx_async_client=http, client_args={"verify": trust()})
    client = Client(api_key=opening.key, http_options=options)
    config = GenerateContentConfig(response_modalities=["TEXT", "IMAGE"], **opening.parameters)

    async def edit(picture: bytes, instruction: str) -> ImageReply:
        reply = await client.aio.models.generate_content(
            model=opening.model,
            contents=[Part.from_bytes(data=picture, mime_type="image/png"), Part.from_text(text=instruction)],  # type: ignore[arg-type]
            config=config,
        )
        return _read(reply)

    return ImageClient(edit, http.aclose)


def _read(reply: Any) -> ImageReply:
    """Return the last picture of a reply; the model may show drafts before it."""
    candidate = (reply.candidates or [None])[0]
    parts = (candidate.content.parts if candidate and candidate.content else None) or []
    pictures = [
        part.inline_data.data for part in parts if part.inline_data and part.inline_data.data and not part.thought
    ]
    said = " ".join(part.text for part in parts if part.text and not part.thought)
    blocked = getattr(reply.prompt_feedback, "block_reason", None)
    if not pictures and not said:
        why = blocked or getattr(candidate, "finish_reason", None)
        said = f"it ended with {getattr(why, 'value', why)}" if why else ""
    told = reply.usage_metadata
    usage = Usage(
        requests=1,
        input_tokens=int(getattr(told, "prompt_token_count", 0) or 0),
        output_tokens=int(getattr(told, "candidates_token_count", 0) or 0)
        + int(getattr(told, "thoughts_token_count", 0) or 0),
    )
    return ImageReply(pictures[-1] if pictures else None, usage, said)

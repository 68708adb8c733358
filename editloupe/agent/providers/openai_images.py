"""OpenAI's images edit endpoint, and any server of the same form."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from editloupe.agent.providers.provider import ImageClient, ImageReply, Opening
from editloupe.types import Usage

ALWAYS_BASE64 = "gpt-image"
"""Models of this family take no `response_format`; others give an address unless they are told otherwise."""


def open_image_client(opening: Opening) -> ImageClient:
    """Open a client that sends pictures through the gate."""
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient

    http = DefaultAsyncHttpxClient(
        timeout=opening.timeout,
        follow_redirects=False,
        event_hooks=opening.gate.hooks(),
        headers={"Accept-Encoding": "identity"},
    )
    client = AsyncOpenAI(
        api_key=opening.key, base_url=opening.base_url, max_retries=0, timeout=opening.timeout, http_client=http
    )
    settings = dict(opening.parameters)
    if not opening.model.startswith(ALWAYS_BASE64):
        settings.setdefault("response_format", "b64_json")

    async def edit(picture: bytes, instruction: str) -> ImageReply:
        reply: Any = await client.images.edit(
            model=opening.model, image=("crop.png", picture, "image/png"), prompt=instruction, n=1, **settings
        )
        first = reply.data[0] if reply.data else None
        data = _picture(first)
        said = "" if data or not getattr(first, "url", None) else "it gave an address in place of a picture"
        return ImageReply(data, _usage(reply.usage), said)

    return ImageClient(edit, http.aclose)


def _picture(item: Any) -> bytes | None:
    """Return the file of a picture in base64; an address is not fetched, for it may lie anywhere."""
    text = getattr(item, "b64_json", None)
    url = getattr(item, "url", None)
    if not text and isinstance(url, str) and url.startswith("data:image/"):
        text = url.partition(",")[2]
    if not text:
        return None
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def _usage(told: Any) -> Usage:
    return Usage(
        requests=1,
        input_tokens=int(getattr(told, "input_tokens", 0) or 0),
        output_tokens=int(getattr(told, "output_tokens", 0) or 0),
    )

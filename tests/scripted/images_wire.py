"""OpenAI's images edit endpoint as its service reads, checks and answers it; pictures of either provider's wire."""

from __future__ import annotations

import base64
import json
from email.parser import BytesParser
from typing import Any

from . import openai_wire
from .replies import Answer, Fault, Garbage
from .request import Conversation, Headers, Image, Memory, Message, Request

NAME = "openai"


def form(headers: Headers, raw: bytes) -> dict[str, Any] | None:
    """Return the fields of a multipart body, files in base64; None for a body of another kind."""
    kind = headers.get("content-type", "")
    if not kind.startswith("multipart/form-data"):
        return None
    whole = BytesParser().parsebytes(f"Content-Type: {kind}\r\n\r\n".encode() + raw)
    fields: dict[str, Any] = {}
    for part in whole.get_payload():  # type: ignore[union-attr]
        name = str(part.get_param("name", header="content-disposition"))  # type: ignore[union-attr]
        data: Any = part.get_payload(decode=True)  # type: ignore[union-attr]
        is_file = part.get_filename() is not None  # type: ignore[union-attr]
        fields[name] = base64.b64encode(data).decode() if is_file else data.decode()
    return fields


def read(body: dict[str, Any]) -> Conversation:
    """Read a request: one picture and the prompt."""
    message = Message("user", texts=(body.get("prompt", ""),), images=(Image("image/png", body.get("image", "")),))
    return Conversation(system="", messages=(message,), tools=(), tool_choice=None, temperature=None)


def check(request: Request, memory: Memory) -> Fault | None:
    """Return the refusal of a request without a prompt or without a whole PNG file."""
    if not request.body.get("prompt"):
        return Fault(400, "Missing required parameter: 'prompt'.", param="prompt")
    defect = request.images[0].defect()
    return Fault(400, f"Invalid image file ({defect}).") if defect else None


def write(answer: Answer, request: Request, memory: Memory) -> dict[str, Any] | Fault:
    """Write an answer without a picture: this endpoint has no words."""
    return {"created": 1, "data": []}


def write_stream(answer: Answer, request: Request, memory: Memory) -> list[bytes] | Fault:
    """Refuse: nothing here asks for a stream of pictures."""
    return Fault(400, "Streaming is not scripted for pictures.")


write_fault = openai_wire.write_fault


def picture(data: bytes, request: Request) -> Garbage:
    """Return a reply with a picture in the shape of the request's wire."""
    encoded = base64.b64encode(data).decode()
    if request.provider == NAME:
        body: dict[str, Any] = {
            "created": 1,
            "data": [{"b64_json": encoded}],
            "usage": {
                "input_tokens": 300,
                "output_tokens": 1000,
                "total_tokens": 1300,
                "input_tokens_details": {"image_tokens": 260, "text_tokens": 40},
            },
        }
    else:
        parts = [{"text": "Here it is."}, {"inlineData": {"mimeType": "image/png", "data": encoded}}]
        body = {
            "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {"promptTokenCount": 300, "candidatesTokenCount": 1000, "totalTokenCount": 1300},
        }
    return Garbage(json.dumps(body).encode())

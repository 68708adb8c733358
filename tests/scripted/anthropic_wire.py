"""Anthropic's Messages as its service reads, checks and writes them."""

from __future__ import annotations

import json
import re
from typing import Any

from .replies import Answer, Call, Fault, Usage
from .request import Conversation, Image, Memory, Message, Request, ToolResult

NAME = "anthropic"

_NO_TEMPERATURE = re.compile(r"claude-[a-z]+-(4-[7-9]|[5-9])")
_MANY = 20
_SIDE, _SIDE_OF_MANY = 8000, 2000
_LARGEST, _LARGEST_PICTURE = 32 * 2**20, 5 * 2**20
_USUAL: dict[int, tuple[str, str]] = {
    400: ("Invalid request.", "invalid_request_error"),
    401: ("invalid x-api-key", "authentication_error"),
    403: ("Your API key does not have permission to use the specified resource.", "permission_error"),
    404: ("model: {model}", "not_found_error"),
    413: ("Request exceeds the maximum size", "request_too_large"),
    429: (
        "This request would exceed your organization's rate limit of 30,000 input tokens per minute. For details, refer "
        "to: https://docs.claude.com/en/api/rate-limits.",
        "rate_limit_error",
    ),
    500: ("Internal server error", "api_error"),
    529: ("Overloaded", "overloaded_error"),
}
_QUOTA = (
    "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase "
    "credits."
)
_FINISH = {"stop": "end_turn", "length": "max_tokens", "content_filter": "refusal"}


def read(body: dict[str, Any]) -> Conversation:
    """Read a request."""
    choice = body.get("tool_choice") or {}
    return Conversation(
        system="\n".join(part["text"] for part in _blocks(body.get("system")) if part.get("type") == "text"),
        messages=tuple(_message(message) for message in body.get("messages") or []),
        tools=tuple(tool["name"] for tool in body.get("tools") or []),
        tool_choice=choice.get("name") or choice.get("type"),
        temperature=body.get("temperature"),
    )


def check(request: Request, memory: Memory) -> Fault | None:
    """Return the service's refusal where the request breaks its rules, else None."""
    body = request.body
    if not request.headers.get("anthropic-version"):
        return Fault(400, "anthropic-version: header is required")
    if not isinstance(body.get("max_tokens"), int):
        return Fault(400, "max_tokens: Field required")
    if len(json.dumps(body)) > _LARGEST:
        return Fault(413)
    if body.get("temperature") is not None:
        if _NO_TEMPERATURE.match(request.model):
            return Fault(400, "`temperature` is deprecated for this model.")
        if (body.get("thinking") or {}).get("type") in ("enabled", "adaptive") and body["temperature"] != 1:
            return Fault(400, "`temperature` may only be set to 1 when thinking is enabled.")
    if (body.get("thinking") or {}).get("budget_tokens", 0) >= body["max_tokens"]:
        return Fault(400, "`max_tokens` must be greater than `thinking.budget_tokens`.")
    messages = body.get("messages")
    if not messages:
        return Fault(400, "messages: at least one message is required")
    return _check_schema(body) or _check_turns(messages, memory) or _check_images(messages)


def write(answer: Answer, request: Request, memory: Memory) -> dict[str, Any] | Fault:
    """Write an answer as a message, and remember the signature of the thought sent with it."""
    if answer.finish == "blocked":
        return Fault(400, "Output blocked by content filtering policy")
    content: list[dict[str, Any]] = []
    if answer.signature is not None:
        content.append({"type": "thinking", "thinking": "Let me look closely.", "signature": answer.signature})
        memory.signatures.setdefault("thinking", set()).add(answer.signature)
    text = answer.refusal if answer.text is None else answer.text
    if text is not None:
        content.append({"type": "text", "text": text})
    for place, made in enumerate(answer.calls):
        made_id = made.id or f"toolu_{request.index:08d}_{place}"
        content.append({"type": "tool_use", "id": made_id, "name": made.name, "input": dict(made.params)})
    finish = "tool_use" if answer.finish == "stop" and answer.calls else _FINISH.get(answer.finish, answer.finish)
    return {
        "id": f"msg_{request.index:08d}",
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": content,
        "stop_reason": finish,
        "stop_sequence": None,
        "usage": _usage(answer.usage or Usage(0, 0)),
    }


def write_stream(answer: Answer, request: Request, memory: Memory) -> list[bytes] | Fault:
    """Refuse: nothing here asks for a stream."""
    return Fault(400, "stream: the scripted server does not stream this interface")


def write_fault(fault: Fault, request: Request) -> tuple[int, dict[str, str], dict[str, Any]]:
    """Write an error as the service's status, headers and JSON."""
    message, kind = _USUAL.get(fault.status, ("The request failed.", "api_error"))
    status = fault.status
    if fault.kind == "quota":
        status, message, kind = 400, _QUOTA, "invalid_request_error"
    headers = {"request-id": f"req_{request.index:08d}"}
    if fault.retry_after is not None:
        headers["retry-after"] = f"{fault.retry_after:g}"
    text = fault.message or message.format(model=request.model)
    error = {"type": fault.code or kind, "message": text}
    return status, headers, {"type": "error", "error": error, "request_id": headers["request-id"]}


def _check_schema(body: dict[str, Any]) -> Fault | None:
    schema = ((body.get("output_config") or {}).get("format") or {}).get("schema")
    for name, held in (schema or {}).get("properties", {}).items():
        if unknown := {"minimum", "maximum"} & set(held):
            word = sorted(unknown)[-1]
            return Fault(
                400, f"output_config.format.schema: For 'integer' type, property '{word}' is not supported ({name})"
            )
    return None


def _check_turns(messages: list[dict[str, Any]], memory: Memory) -> Fault | None:
    open_ids: set[str] = set()
    for index, message in enumerate(messages):
        blocks = _blocks(message.get("content"))
        if not blocks:
            return Fault(400, f"messages.{index}: all messages must have non-empty content")
        results = {block["tool_use_id"] for block in blocks if block.get("type") == "tool_result"}
        if missing := open_ids - results:
            return Fault(
                400,
                f"messages.{index - 1}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{', '.join(sorted(missing))}.",
            )
        if results - open_ids:
            return Fault(400, f"messages.{index}: unexpected `tool_use_id` found in `tool_result` blocks")
        open_ids = {block["id"] for block in blocks if block.get("type") == "tool_use"}
        thoughts = [block for block in blocks if block.get("type") == "thinking"]
        known = memory.signatures.get("thinking", set())
        if any(thought.get("signature") not in known for thought in thoughts):
            return Fault(400, f"messages.{index}.content.0: Invalid `signature` in `thinking` block")
        if known and open_ids and not thoughts:
            return Fault(400, f"messages.{index}.content.0.type: Expected `thinking`, but found `tool_use`.")
    return None


def _check_images(messages: list[dict[str, Any]]) -> Fault | None:
    images = [image for message in messages for image in _message(message).images]
    for place, image in enumerate(images):
        where = f"messages.0.content.{place}.image.source.base64"
        if len(image.encoded) > _LARGEST_PICTURE:
            return Fault(
                400, f"{where}: image exceeds 5 MB maximum: {len(image.encoded)} bytes > {_LARGEST_PICTURE} bytes"
            )
        if defect := image.defect():
            return Fault(400, f"{where}.data: Could not process image ({defect})")
        if max(image.pixels) > _SIDE:
            return Fault(
                400, f"{where}.data: At least one of the image dimensions exceed max allowed size: 8000 pixels"
            )
        if len(images) > _MANY and max(image.pixels) > _SIDE_OF_MANY:
            return Fault(
                400,
                f"{where}.data: At least one of the image dimensions exceed max allowed size for many-image requests: "
                "2000 pixels",
            )
    return None


def _blocks(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content or []


def _message(message: dict[str, Any]) -> Message:
    blocks = _blocks(message.get("content"))
    results = tuple(
        ToolResult(b["tool_use_id"], None, "\n".join(part.get("text", "") for part in _blocks(b.get("content"))))
        for b in blocks
        if b.get("type") == "tool_result"
    )
    return Message(
        message["role"],
        texts=tuple(b["text"] for b in blocks if b.get("type") == "text"),
        images=tuple(_image(b["source"]) for b in blocks if b.get("type") == "image"),
        calls=tuple(Call(b["name"], b.get("input") or {}, b["id"]) for b in blocks if b.get("type") == "tool_use"),
        results=results,
    )


def _image(source: dict[str, Any]) -> Image:
    if source.get("type") != "base64":
        return Image("", "", address=str(source.get("url")))
    return Image(source["media_type"], source["data"])


def _usage(usage: Usage) -> dict[str, Any]:
    """Write token counts; what was read from the cache counts beside the input, not within it."""
    return {
        "input_tokens": usage.input - usage.cached,
        "output_tokens": usage.output,
        "cache_read_input_tokens": usage.cached,
        "cache_creation_input_tokens": 0,
        "output_tokens_details": {"thinking_tokens": usage.reasoning},
        "service_tier": "standard",
    }

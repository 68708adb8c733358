"""Ollama's chat interface as its server reads, checks and writes it."""

from __future__ import annotations

from typing import Any

from .replies import Answer, Call, Fault
from .request import Conversation, Image, Memory, Message, Request, ToolResult

NAME = "ollama"

_USUAL: dict[int, str] = {
    400: "invalid request",
    401: "unauthorized",
    404: "model '{model}' not found",
    429: "too many requests",
    500: "llama runner process has terminated: exit status 2",
    503: "server busy, please try again.  maximum pending requests exceeded",
}
_QUOTA = "you (somebody) have reached your weekly usage limit, upgrade for higher limits: https://ollama.com/upgrade"
_MIME = {"iVBO": "image/png", "/9j/": "image/jpeg", "UklG": "image/webp", "R0lG": "image/gif"}


def read(body: dict[str, Any]) -> Conversation:
    """Read a chat request."""
    raw = body.get("messages") or []
    return Conversation(
        system="\n".join(m.get("content") or "" for m in raw if m["role"] == "system"),
        messages=tuple(_message(m) for m in raw if m["role"] != "system"),
        tools=tuple(tool["function"]["name"] for tool in body.get("tools") or []),
        tool_choice=None,
        temperature=(body.get("options") or {}).get("temperature"),
    )


def check(request: Request, memory: Memory) -> Fault | None:
    """Return the server's refusal where the request breaks its rules, else None."""
    body = request.body
    if body.get("stream") is not False:
        return Fault(400, "the scripted server does not stream this interface")
    for message in body.get("messages") or []:
        for image in _images(message):
            if image.defect() in ("base64", "format"):
                return Fault(400, "illegal base64 data at input byte 0")
    return None


def write(answer: Answer, request: Request, memory: Memory) -> dict[str, Any] | Fault:
    """Write an answer as a chat response."""
    if answer.finish == "blocked":
        return Fault(400, "the prompt was blocked")
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or answer.refusal or ""}
    if answer.signature is not None:
        message["thinking"] = "Let me look closely."
    if answer.calls:
        message["tool_calls"] = [{"function": {"name": c.name, "arguments": dict(c.params)}} for c in answer.calls]
    reply = {
        "model": request.model,
        "created_at": "2026-11-01T12:00:00.000000Z",
        "message": message,
        "done_reason": answer.finish,
        "done": True,
        "total_duration": 5_000_000,
    }
    if answer.usage is not None:
        reply |= {"prompt_eval_count": answer.usage.input, "eval_count": answer.usage.output}
    return reply


def write_stream(answer: Answer, request: Request, memory: Memory) -> list[bytes] | Fault:
    """Refuse: nothing here asks for a stream."""
    return Fault(400, "the scripted server does not stream this interface")


def write_fault(fault: Fault, request: Request) -> tuple[int, dict[str, str], dict[str, Any]]:
    """Write an error as the server's status and JSON."""
    text = _QUOTA if fault.kind == "quota" else _USUAL.get(fault.status, "the request failed")
    headers = {} if fault.retry_after is None else {"retry-after": f"{fault.retry_after:g}"}
    return fault.status, headers, {"error": fault.message or text.format(model=request.model)}


def _images(message: dict[str, Any]) -> tuple[Image, ...]:
    return tuple(Image(_MIME.get(encoded[:4], ""), encoded) for encoded in message.get("images") or [])


def _message(message: dict[str, Any]) -> Message:
    text = message.get("content") or ""
    if message["role"] == "tool":
        result = ToolResult(message.get("tool_call_id"), message.get("tool_name"), text)
        return Message("tool", results=(result,))
    made = [one["function"] for one in message.get("tool_calls") or []]
    calls = tuple(Call(one["name"], one["arguments"]) for one in made)
    return Message(message["role"], (text,) if text else (), _images(message), calls)

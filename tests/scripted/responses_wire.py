"""OpenAI's Responses interface as its service reads and writes it; whole replies only, no events."""

from __future__ import annotations

import json
from typing import Any

from . import openai_wire
from .replies import Answer, Call, Fault, Usage
from .request import Conversation, Image, Memory, Message, Request, ToolResult, data_url

NAME = "openai"
write_fault = openai_wire.write_fault

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


def read(body: dict[str, Any]) -> Conversation:
    """Read a request for a response."""
    items = body.get("input") or []
    system = [text for item in items if item.get("role") in ("system", "developer") for text in _texts(item)]
    choice = body.get("tool_choice")
    return Conversation(
        system="\n".join(system),
        messages=tuple(_message(item) for item in items if item.get("role") not in ("system", "developer")),
        tools=tuple(tool["name"] for tool in body.get("tools") or [] if tool.get("type") == "function"),
        tool_choice="any" if choice == "required" else choice,
        temperature=body.get("temperature"),
    )


def check(request: Request, memory: Memory) -> Fault | None:
    """Return OpenAI's refusal where a call has no output or a schema no name, else None."""
    items = request.body.get("input") or []
    called = {item["call_id"] for item in items if item.get("type") == "function_call"}
    given = {item["call_id"] for item in items if item.get("type") == "function_call_output"}
    if called - given:
        return Fault(400, f"No tool output found for function call {sorted(called - given)[0]}.", param="input")
    form = (request.body.get("text") or {}).get("format") or {}
    if form.get("type") == "json_schema" and not form.get("name"):
        return Fault(400, "Missing required parameter: 'text.format.name'.", param="text.format.name")
    return None


def write(answer: Answer, request: Request, memory: Memory) -> dict[str, Any] | Fault:
    """Write an answer as a response."""
    why = _INCOMPLETE.get(answer.finish)
    output: list[dict[str, Any]] = []
    if answer.text is not None:
        text = {"type": "output_text", "text": answer.text, "annotations": []}
        output.append({"type": "message", "id": f"msg_{request.index}", "role": "assistant", "content": [text]})
    for place, call in enumerate(answer.calls):
        name = call.id or f"call_{request.index:08d}_{place}"
        arguments = json.dumps(dict(call.params)) if call.raw is None else call.raw
        output.append({"type": "function_call", "id": f"fc_{name}", "call_id": name, "name": call.name,
                       "arguments": arguments})  # fmt: skip
    status = "incomplete" if why else "completed"
    return {
        "id": f"resp_{request.index:08d}",
        "object": "response",
        "created_at": 1_700_000_000,
        "model": request.model,
        "status": status,
        "incomplete_details": {"reason": why} if why else None,
        "error": None,
        "output": [{**item, "status": status} for item in output],
        "parallel_tool_calls": True,
        "tool_choice": request.body.get("tool_choice", "auto"),
        "tools": request.body.get("tools", []),
        "usage": None if answer.usage is None else _usage(answer.usage),
    }


def write_stream(answer: Answer, request: Request, memory: Memory) -> list[bytes] | Fault:
    """Refuse: nothing here asks for events."""
    return Fault(400, "This server sends no events.", param="stream")


def _texts(item: dict[str, Any]) -> tuple[str, ...]:
    content = item.get("content")
    if isinstance(content, str):
        return (content,)
    return tuple(part["text"] for part in content or [] if part.get("type") in ("input_text", "output_text"))


def _message(item: dict[str, Any]) -> Message:
    if item.get("type") == "function_call":
        return Message("assistant", calls=(Call(item["name"], json.loads(item["arguments"]), item["call_id"]),))
    if item.get("type") == "function_call_output":
        return Message("tool", results=(ToolResult(item["call_id"], None, str(item["output"])),))
    parts = item.get("content") if isinstance(item.get("content"), list) else []
    images: list[Image] = [data_url(p["image_url"], p.get("detail")) for p in parts if p.get("type") == "input_image"]
    return Message(item.get("role", "user"), _texts(item), tuple(images))


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input,
        "output_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
    }

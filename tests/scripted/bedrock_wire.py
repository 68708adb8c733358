"""Bedrock's Converse as its service reads, checks and writes it."""

from __future__ import annotations

from typing import Any

from .replies import Answer, Call, Fault, Usage
from .request import Conversation, Image, Memory, Message, Request, ToolResult

NAME = "bedrock"

_USUAL: dict[int, tuple[str, str]] = {
    400: ("The request is not valid.", "ValidationException"),
    401: ("The security token included in the request is invalid.", "UnrecognizedClientException"),
    404: ("Could not resolve the foundation model from the model identifier: {model}", "ResourceNotFoundException"),
    429: ("Too many requests, please wait before trying again.", "ThrottlingException"),
    500: ("The system encountered an unexpected error during processing.", "InternalServerException"),
    503: ("Bedrock is unable to process your request.", "ServiceUnavailableException"),
}
_FINISH = {"stop": "end_turn", "length": "max_tokens", "content_filter": "content_filtered"}
_LARGEST_PICTURE = 3_932_160


def read(body: dict[str, Any]) -> Conversation:
    """Read a request."""
    config = body.get("toolConfig") or {}
    choice = next(iter(config.get("toolChoice") or {}), None)
    return Conversation(
        system="\n".join(block["text"] for block in body.get("system") or [] if "text" in block),
        messages=tuple(_message(message) for message in body.get("messages") or []),
        tools=tuple(tool["toolSpec"]["name"] for tool in config.get("tools") or []),
        tool_choice=choice,
        temperature=(body.get("inferenceConfig") or {}).get("temperature"),
    )


def check(request: Request, memory: Memory) -> Fault | None:
    """Return the service's refusal where the request breaks its rules, else None."""
    messages = request.body.get("messages") or []
    open_ids: set[str] = set()
    for message in messages:
        results = {b["toolResult"]["toolUseId"] for b in message["content"] if "toolResult" in b}
        if results != open_ids:
            return Fault(400, "Expected toolResult blocks for the following Ids: " + ", ".join(sorted(open_ids)))
        open_ids = {b["toolUse"]["toolUseId"] for b in message["content"] if "toolUse" in b}
        if (open_ids or results) and not request.body.get("toolConfig"):
            return Fault(400, "The toolConfig field must be defined when using toolUse and toolResult content blocks.")
        for image in _message(message).images:
            if image.defect():
                return Fault(400, "Could not process image")
            if image.size > _LARGEST_PICTURE:
                return Fault(400, "The model returned the following errors: image exceeds 3.75 MB maximum")
    return None


def write(answer: Answer, request: Request, memory: Memory) -> dict[str, Any] | Fault:
    """Write an answer as a Converse response."""
    if answer.finish == "blocked":
        return Fault(400, "Output blocked by content filtering policy")
    content: list[dict[str, Any]] = []
    if answer.signature is not None:
        text = {"text": "Let me look closely.", "signature": answer.signature}
        content.append({"reasoningContent": {"reasoningText": text}})
    said = answer.refusal if answer.text is None else answer.text
    if said is not None:
        content.append({"text": said})
    for place, made in enumerate(answer.calls):
        made_id = made.id or f"tooluse_{request.index:08d}_{place}"
        content.append({"toolUse": {"toolUseId": made_id, "name": made.name, "input": dict(made.params)}})
    finish = "tool_use" if answer.finish == "stop" and answer.calls else _FINISH.get(answer.finish, answer.finish)
    usage = answer.usage or Usage(0, 0)
    return {
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": finish,
        "usage": {
            "inputTokens": usage.input,
            "outputTokens": usage.output,
            "totalTokens": usage.input + usage.output,
        },
        "metrics": {"latencyMs": 5},
    }


def write_stream(answer: Answer, request: Request, memory: Memory) -> list[bytes] | Fault:
    """Refuse: nothing here asks for a stream."""
    return Fault(400, "the scripted server does not stream this interface")


def write_fault(fault: Fault, request: Request) -> tuple[int, dict[str, str], dict[str, Any]]:
    """Write an error as the service's status, headers and JSON."""
    message, kind = _USUAL.get(fault.status, ("The request failed.", "InternalServerException"))
    headers = {"x-amzn-errortype": fault.code or kind, "x-amzn-requestid": f"req-{request.index:08d}"}
    if fault.retry_after is not None:
        headers["retry-after"] = f"{fault.retry_after:g}"
    status = 403 if fault.kind == "wrong_key" else fault.status
    return status, headers, {"message": fault.message or message.format(model=request.model)}


def _message(message: dict[str, Any]) -> Message:
    blocks = message.get("content") or []
    images = tuple(
        Image(f"image/{b['image']['format']}", b["image"]["source"]["bytes"]) for b in blocks if "image" in b
    )
    calls = tuple(
        Call(b["toolUse"]["name"], b["toolUse"]["input"], b["toolUse"]["toolUseId"]) for b in blocks if "toolUse" in b
    )
    results = tuple(
        ToolResult(
            b["toolResult"]["toolUseId"], None, "\n".join(str(p.get("text", "")) for p in b["toolResult"]["content"])
        )
        for b in blocks
        if "toolResult" in b
    )
    return Message(message["role"], tuple(b["text"] for b in blocks if "text" in b), images, calls, results)

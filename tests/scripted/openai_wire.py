"""OpenAI Chat Completions as its service reads, checks and writes it."""

from __future__ import annotations

import json
import re
from typing import Any

from .replies import Answer, Call, Fault, Usage
from .request import Conversation, Image, Memory, Message, Request, ToolResult, data_url

NAME = "openai"

_REASONING = re.compile(r"^(gpt-5|o1|o3|o4)")
_UNSUPPORTED = (
    "You uploaded an unsupported image. Please make sure your image has of one the following formats: "
    "['png', 'jpeg', 'gif', 'webp']."
)
_USUAL: dict[int, tuple[str, str, str | None]] = {
    400: ("Invalid request.", "invalid_request_error", None),
    401: (
        "Incorrect API key provided: {key}. You can find your API key at https://platform.openai.com/account/api-keys.",
        "invalid_request_error",
        "invalid_api_key",
    ),
    403: ("You are not allowed to sample from this model.", "invalid_request_error", None),
    404: (
        "The model `{model}` does not exist or you do not have access to it.",
        "invalid_request_error",
        "model_not_found",
    ),
    429: (
        "Rate limit reached for {model} in organization org-scripted on tokens per min (TPM): Limit 30000, Used 30000, "
        "Requested 1000. Please try again in {wait}s. Visit https://platform.openai.com/account/rate-limits "
        "to learn more.",
        "tokens",
        "rate_limit_exceeded",
    ),
    500: ("The server had an error while processing your request. Sorry about that!", "server_error", None),
    503: ("The engine is currently overloaded, please try again later", "server_error", None),
}
_QUOTA = "You exceeded your current quota, please check your plan and billing details."


def read(body: dict[str, Any]) -> Conversation:
    """Read a chat completion request."""
    raw = body.get("messages") or []
    system = "\n".join(text for m in raw if m.get("role") in ("system", "developer") for text in _texts(m))
    choice = body.get("tool_choice")
    if isinstance(choice, dict):
        choice = choice["function"]["name"]
    return Conversation(
        system=system,
        messages=tuple(_message(m) for m in raw if m.get("role") not in ("system", "developer")),
        tools=tuple(tool["function"]["name"] for tool in body.get("tools") or [] if "function" in tool),
        tool_choice="any" if choice == "required" else choice,
        temperature=body.get("temperature"),
    )


def check(request: Request, memory: Memory) -> Fault | None:
    """Return OpenAI's refusal where the request breaks its rules, else None."""
    body = request.body
    temperature = body.get("temperature", 1)
    reasons = _REASONING.match(request.model) and "chat" not in request.model and body.get("reasoning_effort") != "none"
    if reasons and temperature != 1:
        return Fault(
            400,
            f"Unsupported value: 'temperature' does not support {temperature} with this model. "
            "Only the default (1) value is supported.",
            param="temperature",
            code="unsupported_value",
        )
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        text = "Invalid 'messages': empty array. Expected an array with minimum length 1."
        return Fault(400, text, param="messages", code="empty_array")
    return _check_parts(messages) or _check_order(messages) or _check_images(messages)


def write(answer: Answer, request: Request, memory: Memory) -> dict[str, Any] | Fault:
    """Write an answer as a chat completion."""
    if answer.finish == "blocked":
        return _blocked()
    message: dict[str, Any] = {"role": "assistant", "content": answer.text, "refusal": answer.refusal}
    if answer.calls:
        message["tool_calls"] = _tool_calls(answer, request)
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(answer)}
    told = {"model": answer.served or request.model, "system_fingerprint": answer.fingerprint}
    completion = {**_head(request, "chat.completion"), **told, "choices": [choice]}
    return completion if answer.usage is None else {**completion, "usage": _usage(answer.usage)}


def write_stream(answer: Answer, request: Request, memory: Memory) -> list[bytes] | Fault:
    """Write an answer as the events of a streamed chat completion."""
    if answer.finish == "blocked":
        return _blocked()
    head = _head(request, "chat.completion.chunk")
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": "", "refusal": None}]
    text = answer.text or ""
    half = len(text) // 2
    deltas += [{"content": piece} for piece in (text[:half], text[half:]) if piece]
    for index, tool_call in enumerate(_tool_calls(answer, request)):
        function = tool_call["function"]
        deltas.append({"tool_calls": [{**tool_call, "index": index, "function": {**function, "arguments": ""}}]})
        deltas.append({"tool_calls": [{"index": index, "function": {"arguments": function["arguments"]}}]})
    chunks = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": _finish(answer)}]})
    if answer.usage is not None and (request.body.get("stream_options") or {}).get("include_usage"):
        chunks.append({**head, "choices": [], "usage": _usage(answer.usage)})
    return [b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks] + [b"data: [DONE]\n\n"]


def write_fault(fault: Fault, request: Request) -> tuple[int, dict[str, str], dict[str, Any]]:
    """Write an error as OpenAI's status, headers and JSON."""
    message, kind, code = _USUAL.get(fault.status, ("The request failed.", "api_error", None))
    if fault.kind == "quota":
        message, kind, code = _QUOTA, "insufficient_quota", "insufficient_quota"
    key = request.headers.get("authorization", "").removeprefix("Bearer ")
    wait = 1 if fault.retry_after is None else fault.retry_after
    text = fault.message or message.format(model=request.model, key=_masked(key), wait=wait)
    if fault.message is not None:
        code = fault.code
    headers = {"x-request-id": f"req_{request.index:08d}"}
    if fault.retry_after is not None:
        headers["retry-after"] = f"{fault.retry_after:g}"
        headers["retry-after-ms"] = f"{fault.retry_after * 1000:g}"
    error = {"message": text, "type": kind, "param": fault.param, "code": fault.code or code}
    return fault.status, headers, {"error": error}


def _check_parts(messages: list[dict[str, Any]]) -> Fault | None:
    for index, message in enumerate(messages):
        for place, part in enumerate(_parts(message)):
            if not isinstance(part, dict):
                where = f"messages[{index}].content[{place}]"
                text = f"Invalid type for '{where}': expected an object, but got a string instead."
                return Fault(400, text, param=where, code="invalid_type")
    return None


def _check_order(messages: list[dict[str, Any]]) -> Fault | None:
    open_ids: list[str] = []
    answerable: set[str] = set()
    for index, message in enumerate(messages):
        role = message.get("role")
        if role == "tool":
            if message.get("tool_call_id") not in answerable:
                return Fault(
                    400,
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message "
                    "with 'tool_calls'.",
                    param=f"messages.[{index}].role",
                )
            open_ids = [i for i in open_ids if i != message["tool_call_id"]]
            continue
        if open_ids:
            return _unanswered(open_ids, index)
        open_ids = [c["id"] for c in message.get("tool_calls") or []] if role == "assistant" else []
        answerable = set(open_ids)
    return _unanswered(open_ids, len(messages)) if open_ids else None


def _unanswered(ids: list[str], index: int) -> Fault:
    return Fault(
        400,
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
        f"The following tool_call_ids did not have response messages: {', '.join(ids)}",
        param=f"messages.[{index}].role",
    )


def _check_images(messages: list[dict[str, Any]]) -> Fault | None:
    for index, message in enumerate(messages):
        images = _images(message)
        if images and message["role"] != "user":
            return Fault(
                400,
                f"Invalid 'messages[{index}]'. Image URLs are only allowed for messages with role 'user', "
                f"but this message with role '{message['role']}' contains an image URL.",
                param=f"messages[{index}]",
                code="invalid_value",
            )
        for image in images:
            # An address outside would have to be fetched by the service; nothing in the tests leaves this machine.
            if image.address is not None:
                return Fault(400, f"Error while downloading {image.address[:80]}.", code="invalid_image_url")
            defect = image.defect()
            if defect == "base64":
                return Fault(400, "Invalid base64 image_url.", code="invalid_base64_image_url")
            # The service goes by the bytes: a wrong mime type in the data URL alone is let pass.
            if defect == "format":
                return Fault(400, _UNSUPPORTED, code="invalid_image_format")
    return None


def _blocked() -> Fault:
    return Fault(
        400,
        "Invalid prompt: your prompt was flagged as potentially violating our usage policy. "
        "Please try again with a different prompt.",
        code="invalid_prompt",
    )


def _parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content or []


def _texts(message: dict[str, Any]) -> tuple[str, ...]:
    return tuple(part["text"] for part in _parts(message) if part.get("type") == "text")


def _images(message: dict[str, Any]) -> tuple[Image, ...]:
    found = [part["image_url"] for part in _parts(message) if part.get("type") == "image_url"]
    return tuple(data_url(image["url"], image.get("detail")) for image in found)


def _message(message: dict[str, Any]) -> Message:
    texts = _texts(message)
    if message["role"] == "tool":
        result = ToolResult(message.get("tool_call_id"), message.get("name"), "\n".join(texts))
        return Message("tool", images=_images(message), results=(result,))
    calls = tuple(_call(made) for made in message.get("tool_calls") or [])
    return Message(message["role"], texts, _images(message), calls)


def _call(made: dict[str, Any]) -> Call:
    name, arguments = made["function"]["name"], made["function"]["arguments"]
    try:
        return Call(name, json.loads(arguments), made["id"])
    except ValueError:
        return Call(name, {}, made["id"], raw=arguments)


def _head(request: Request, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{request.index:08d}", "object": kind, "created": 1_700_000_000, "model": request.model,
            "service_tier": "default", "system_fingerprint": None}  # fmt: skip


def _tool_calls(answer: Answer, request: Request) -> list[dict[str, Any]]:
    return [
        {
            "id": c.id or f"call_{request.index:08d}_{place}",
            "type": "function",
            "function": {"name": c.name, "arguments": json.dumps(dict(c.params)) if c.raw is None else c.raw},
        }
        for place, c in enumerate(answer.calls)
    ]


def _finish(answer: Answer) -> str:
    return "tool_calls" if answer.finish == "stop" and answer.calls else answer.finish


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning, "audio_tokens": 0},
    }


def _masked(key: str) -> str:
    return key if len(key) < 8 else f"{key[:3]}{'*' * 8}{key[-4:]}"

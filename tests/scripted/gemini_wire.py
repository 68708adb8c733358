"""Gemini's generateContent as its service reads, checks and writes it."""

from __future__ import annotations

import json
import re
from typing import Any

from .replies import Answer, Call, Fault, Usage
from .request import Conversation, Image, Memory, Message, Request, ToolResult

NAME = "gemini"

_FINISH = {"stop": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}
_REPORT = "Please retry or report in https://developers.generativeai.google/guide/troubleshooting"
_USUAL: dict[int, tuple[str, str]] = {
    400: ("Request contains an invalid argument.", "INVALID_ARGUMENT"),
    401: ("Request had invalid authentication credentials. Expected OAuth 2 access token.", "UNAUTHENTICATED"),
    403: ("The caller does not have permission", "PERMISSION_DENIED"),
    404: (
        "models/{model} is not found for API version v1beta, or is not supported for generateContent. "
        "Call ListModels to see the list of available models and their supported methods.",
        "NOT_FOUND",
    ),
    429: (
        "You exceeded your current quota, please check your plan and billing details. "
        "For more information on this error, head to: https://ai.google.dev/gemini-api/docs/rate-limits.",
        "RESOURCE_EXHAUSTED",
    ),
    500: (f"An internal error has occurred. {_REPORT}", "INTERNAL"),
    503: ("The model is overloaded. Please try again later.", "UNAVAILABLE"),
    504: ("The request timed out. Please try again.", "DEADLINE_EXCEEDED"),
}
_RPC = "type.googleapis.com/google.rpc."


def read(body: dict[str, Any]) -> Conversation:
    """Read a generateContent request."""
    config = _get(_get(body, "toolConfig"), "functionCallingConfig")
    allowed = _get(config, "allowedFunctionNames", [])
    mode = _get(config, "mode", "").lower() or None
    declared = [d for tool in body.get("tools") or [] for d in _get(tool, "functionDeclarations", [])]
    return Conversation(
        system="\n".join(part["text"] for part in _parts(_get(body, "systemInstruction")) if "text" in part),
        messages=tuple(_message(content) for content in body.get("contents") or []),
        tools=tuple(declaration["name"] for declaration in declared),
        tool_choice=allowed[0] if mode == "any" and len(allowed) == 1 and len(declared) > 1 else mode,
        temperature=_get(body, "generationConfig").get("temperature"),
    )


def check(request: Request, memory: Memory) -> Fault | None:
    """Return Gemini's refusal where the request breaks its rules, else None."""
    contents = request.body.get("contents")
    if not contents:
        return Fault(400, "* GenerateContentRequest.contents: contents is not specified\n")
    return _check_turns(contents) or _check_signatures(contents, memory) or _check_images(contents)


def write(answer: Answer, request: Request, memory: Memory) -> dict[str, Any] | Fault:
    """Write an answer as a GenerateContentResponse, and remember the thought signature sent with it."""
    tail: dict[str, Any] = {"modelVersion": answer.served or request.model, "responseId": f"resp{request.index:08d}"}
    if answer.usage is not None:
        tail["usageMetadata"] = _usage(answer.usage, answer.finish)
    if answer.finish == "blocked":
        return {"promptFeedback": {"blockReason": "SAFETY"}, **tail}
    candidate: dict[str, Any] = {"content": {"role": "model"}, "finishReason": _finish(answer), "index": 0}
    parts = _answer_parts(answer, request, memory)
    if parts:
        candidate["content"]["parts"] = parts
    if answer.finish == "content_filter":
        rating = {"category": "HARM_CATEGORY_DANGEROUS_CONTENT", "probability": "HIGH", "blocked": True}
        candidate["safetyRatings"] = [rating]
    return {"candidates": [candidate], **tail}


def write_stream(answer: Answer, request: Request, memory: Memory) -> list[bytes] | Fault:
    """Write an answer as the events of streamGenerateContent: one a part, the last with the finish reason."""
    whole = write(answer, request, memory)
    assert isinstance(whole, dict)
    parts = whole["candidates"][0]["content"].get("parts", []) if "candidates" in whole else []
    events: list[dict[str, Any]] = []
    for part in parts[:-1]:
        candidate = {"content": {"role": "model", "parts": [part]}, "index": 0}
        events.append({"candidates": [candidate], "modelVersion": request.model})
    if parts:
        whole["candidates"][0]["content"]["parts"] = parts[-1:]
    return [b"data: " + json.dumps(event).encode() + b"\r\n\r\n" for event in [*events, whole]]


def write_fault(fault: Fault, request: Request) -> tuple[int, dict[str, str], dict[str, Any]]:
    """Write an error as Gemini's status and JSON; how long to wait stands in its details, not in a header."""
    if fault.kind == "wrong_key":
        info = {"@type": f"{_RPC}ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com",
                "metadata": {"service": "generativelanguage.googleapis.com"}}  # fmt: skip
        text = "API key not valid. Please pass a valid API key."
        return 400, {}, {"error": {"code": 400, "message": text, "status": "INVALID_ARGUMENT", "details": [info]}}
    message, status = _USUAL.get(fault.status, ("The request failed.", "UNKNOWN"))
    error: dict[str, Any] = {
        "code": fault.status,
        "message": fault.message or message.format(model=request.model),
        "status": fault.code or status,
    }
    details: list[dict[str, Any]] = []
    if fault.status == 429:
        period = "Day" if fault.kind == "quota" else "Minute"
        violation = {
            "quotaMetric": "generativelanguage.googleapis.com/generate_content_free_tier_requests",
            "quotaId": f"GenerateRequestsPer{period}PerProjectPerModel-FreeTier",
            "quotaDimensions": {"location": "global", "model": request.model},
            "quotaValue": "10",
        }
        details.append({"@type": f"{_RPC}QuotaFailure", "violations": [violation]})
    if fault.retry_after is not None:
        details.append({"@type": f"{_RPC}RetryInfo", "retryDelay": f"{fault.retry_after:g}s"})
    return fault.status, {}, {"error": {**error, "details": details} if details else error}


def _check_turns(contents: list[dict[str, Any]]) -> Fault | None:
    calls = 0
    for content in contents:
        responses = len(_each(content, "functionResponse"))
        if responses and not calls:
            return Fault(400, "Please ensure that function response turn comes immediately after a function call turn.")
        if responses != calls:
            return Fault(
                400,
                "Please ensure that the number of function response parts is equal to the number of "
                "function call parts of the function call turn.",
            )
        calls = len(_each(content, "functionCall"))
    if calls:
        return Fault(
            400,
            "Please ensure that function call turn comes immediately after a user turn or after a function response "
            "turn.",
        )
    return None


def _check_signatures(contents: list[dict[str, Any]], memory: Memory) -> Fault | None:
    for position, content in enumerate(contents, start=1):
        first = next((part for part in _parts(content) if _get(part, "functionCall")), None)
        if first is None:
            continue
        made = _get(first, "functionCall")
        sent = memory.signatures.get(_signed(made["name"], made.get("args") or {}))
        # Stricter than the service, which also takes the sentinel that LangChain puts in place of a lost signature:
        # a test is to see the loss.
        if sent and _plain_base64(_get(first, "thoughtSignature", "")) not in sent:
            return Fault(
                400,
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to "
                "work correctly, and missing thought_signature may lead to degraded model performance. Additional "
                f"data, function call `default_api:{made['name']}` , position {position}. Please refer to "
                "https://ai.google.dev/gemini-api/docs/thought-signatures for more details.",
            )
    return None


def _check_images(contents: list[dict[str, Any]]) -> Fault | None:
    for at, content in enumerate(contents):
        for place, part in enumerate(_parts(content)):
            if not (inline := _get(part, "inlineData")):
                continue
            image = _image(inline)
            defect = image.defect()
            if defect == "base64":
                where = f"contents[{at}].parts[{place}].inline_data.data"
                text = f"Invalid value at '{where}' (TYPE_BYTES), Base64 decoding failed for \"{image.encoded[:40]}\""
                return Fault(400, text)
            if defect == "format":
                return Fault(400, f"Unable to process input image. {_REPORT}")
    return None


def _get(mapping: dict[str, Any], name: str, default: Any = None) -> Any:
    """Look up a field under its camelCase or snake_case name: the service takes both, and the SDK mixes them."""
    for spelling in (name, re.sub("[A-Z]", lambda capital: "_" + capital.group().lower(), name)):
        if mapping.get(spelling) is not None:
            return mapping[spelling]
    return {} if default is None else default


def _parts(content: dict[str, Any]) -> list[dict[str, Any]]:
    return content.get("parts") or []


def _each(content: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [found for part in _parts(content) if (found := _get(part, kind))]


def _plain_base64(text: str) -> str:
    """Undo the URL-safe alphabet, in which the SDK writes bytes; the service reads both."""
    return text.replace("-", "+").replace("_", "/")


def _image(inline: dict[str, Any]) -> Image:
    return Image(mime=_get(inline, "mimeType", ""), encoded=_plain_base64(inline["data"]))


def _message(content: dict[str, Any]) -> Message:
    responses = _each(content, "functionResponse")
    role = "assistant" if content.get("role") == "model" else "tool" if responses else "user"
    return Message(
        role,
        texts=tuple(part["text"] for part in _parts(content) if "text" in part and not part.get("thought")),
        images=tuple(_image(inline) for inline in _each(content, "inlineData")),
        calls=tuple(Call(c["name"], c.get("args") or {}, c.get("id")) for c in _each(content, "functionCall")),
        results=tuple(ToolResult(r.get("id"), r["name"], _result_text(r.get("response"))) for r in responses),
    )


def _result_text(response: Any) -> str:
    if isinstance(response, dict) and set(response) <= {"output", "result"}:
        response = next(iter(response.values()), "")
    return response if isinstance(response, str) else json.dumps(response)


def _answer_parts(answer: Answer, request: Request, memory: Memory) -> list[dict[str, Any]]:
    text = answer.refusal if answer.text is None else answer.text
    parts: list[dict[str, Any]] = [] if text is None else [{"text": text}]
    for place, c in enumerate(c for c in answer.calls if c.raw is None):
        function = {"name": c.name, "args": dict(c.params)}
        part: dict[str, Any] = {"functionCall": function if c.id is None else {**function, "id": c.id}}
        if place == 0 and answer.signature is not None:
            part["thoughtSignature"] = answer.signature
            memory.signatures.setdefault(_signed(c.name, dict(c.params)), set()).add(answer.signature)
        parts.append(part)
    return parts


def _signed(name: str, args: dict[str, Any]) -> str:
    return json.dumps([name, args], sort_keys=True)


def _finish(answer: Answer) -> str:
    if any(c.raw is not None for c in answer.calls):
        return "MALFORMED_FUNCTION_CALL"
    return _FINISH.get(answer.finish, answer.finish)


def _usage(usage: Usage, finish: str) -> dict[str, Any]:
    """Write token counts; Gemini counts thoughts beside the candidates' tokens, not among them."""
    counts = {"promptTokenCount": usage.input, "totalTokenCount": usage.input + usage.output}
    if finish != "blocked":
        counts["candidatesTokenCount"] = usage.output - usage.reasoning
    if usage.cached:
        counts["cachedContentTokenCount"] = usage.cached
    if usage.reasoning:
        counts["thoughtsTokenCount"] = usage.reasoning
    return counts

"""The raw request and reply behind one step, put together from what the run kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from editloupe.evals.runs.store import Run
from editloupe.types import Step, Trace

Block = dict[str, Any]


def request_of(trace: Trace, position: int) -> list[Block]:
    """Return the conversation up to a step, message by message; pictures stand as name, hash and size.

    The run keeps the texts as they were sent and the pictures by hash; a picture's bytes are not repeated here.
    """
    shown = list(trace.steps[: position + 1])
    pictures = [_picture(sent.name, sent.sha, sent.size, sent.format) for step in shown[:1] for sent in step.sent]
    system, task = (*trace.prompt, "", "")[:2]
    messages: list[Block] = [{"role": "system", "content": system}, {"role": "user", "content": [task, *pictures]}]
    for step, following in pairwise(shown):
        messages += _exchange(step, following)
    return messages


def reply_of(run: Run, trace: Trace, position: int) -> Any:
    """Return the reply of a step: the provider's whole message where the run kept it, else its text."""
    step = trace.steps[position]
    for kept in run.replies_of(trace.edit_id).values():
        message = kept.get("message", {})
        if _is_reply_of(message.get("data", {}), step):
            return kept
    calls = [{"name": call.name, "parameters": dict(call.parameters)} for call in step.calls]
    return {"text": step.raw, **({"calls": calls} if calls else {})}


def _exchange(step: Step, following: Step) -> Iterator[Block]:
    reply: Block = {"role": "assistant", "content": step.raw}
    if step.calls:
        reply["calls"] = [{"id": c.id, "name": c.name, "parameters": dict(c.parameters)} for c in step.calls]
    yield reply
    for seen in step.observations:
        yield {"role": "tool", "call_id": seen.call_id, "name": seen.tool, "content": seen.text}
    if step.problem:
        yield {"role": "user", "content": step.problem}
    if following.sent:
        yield {"role": "user", "content": [_picture(s.name, s.sha, s.size, s.format) for s in following.sent]}


def _picture(name: str, sha: str, size: tuple[int, int], format: str) -> Block:
    return {"picture": name, "sha": sha, "size": list(size), "format": format}


def _is_reply_of(data: Mapping[str, Any], step: Step) -> bool:
    names = [str(call.get("name")) for call in data.get("tool_calls") or ()]
    calls = [call.name for call in step.calls]
    same_calls = names == calls and [dict(c.get("args") or {}) for c in data.get("tool_calls") or ()] == [
        dict(call.parameters) for call in step.calls
    ]
    return _text(data.get("content", "")) == step.raw and (same_calls or not names)


def _text(content: str | Sequence[Any]) -> str:
    if isinstance(content, str):
        return content
    texts = (part if isinstance(part, str) else part.get("text", "") for part in content if _has_text(part))
    return "\n".join(str(text) for text in texts)


def _has_text(part: Any) -> bool:
    return isinstance(part, str) or (isinstance(part, Mapping) and part.get("type") == "text")

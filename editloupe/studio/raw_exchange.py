"""The raw request and reply behind one step, as the run kept them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from editloupe.asked_messages import AskedMessage
from editloupe.evals.runs.store import Run
from editloupe.types import Sent, Step, Trace

Block = dict[str, Any]
EARLIER = "This run keeps no requests; this one is put together from the trace, without the words of repairs and further stages."


def request_of(trace: Trace, position: int) -> list[Block]:
    """Return the conversation up to a step, message by message: the texts as they were sent, pictures by name, hash and size.

    A trace of an earlier version keeps no requests: of these it is put together as far as it goes, which `note_of` says.
    """
    if not trace.steps[position].asked:
        return _put_together(trace, position)
    opened = (place for place in range(position, -1, -1) if _opens(trace.steps[place]))
    first = next(opened, 0)
    messages: list[Block] = []
    for place in range(first, position + 1):
        step = trace.steps[place]
        sizes = {one.sha: one for earlier in trace.steps[first : place + 1] for one in earlier.sent}
        for asked in step.asked:
            if asked.role == "assistant":
                messages += [_reply(trace.steps[place - 1])] if place else []
            else:
                messages.append(_message(asked, trace.prompt, sizes))
    return messages


def note_of(trace: Trace, position: int) -> str | None:
    """Say what a reader must know of a request that is shown; None where it is what was sent."""
    return None if trace.steps[position].asked else EARLIER


def reply_of(run: Run, trace: Trace, position: int) -> Any:
    """Return the reply of a step: the provider's whole message where the run kept it, else its text."""
    step = trace.steps[position]
    if step.reply_key:
        if kept := run.reply(step.reply_key):
            return kept
    else:
        for other in run.replies_of(trace.edit_id).values():
            if _is_reply_of(other.get("message", {}).get("data", {}), step):
                return other
    calls = [{"name": call.name, "parameters": dict(call.parameters)} for call in step.calls]
    return {"text": step.raw, **({"calls": calls} if calls else {})}


def _opens(step: Step) -> bool:
    """True where a conversation begins: rubrics of two stages have two in one trace."""
    return bool(step.asked) and step.asked[0].role == "system"


def _message(asked: AskedMessage, prompt: Sequence[str], sizes: Mapping[str, Sent]) -> Block:
    parts: list[Any] = []
    if asked.prompt is not None:
        parts.append(prompt[asked.prompt] if asked.prompt < len(prompt) else "")
    for part in asked.content:
        if isinstance(part, str):
            parts.append(part)
        elif part.sha in sizes:
            one = sizes[part.sha]
            parts.append(_picture(part.picture, part.sha, one.size, one.format))
        else:
            parts.append({"picture": part.picture, "sha": part.sha})
    whole = parts[0] if len(parts) == 1 and isinstance(parts[0], str) else parts
    about = {"call_id": asked.call_id, "name": asked.name} if asked.role == "tool" else {}
    return {"role": asked.role, **about, "content": whole}


def _reply(step: Step) -> Block:
    reply: Block = {"role": "assistant", "content": step.raw}
    if step.calls:
        reply["calls"] = [{"id": c.id, "name": c.name, "parameters": dict(c.parameters)} for c in step.calls]
    return reply


def _put_together(trace: Trace, position: int) -> list[Block]:
    shown = list(trace.steps[: position + 1])
    pictures = [_picture(sent.name, sent.sha, sent.size, sent.format) for step in shown[:1] for sent in step.sent]
    system, task = (*trace.prompt, "", "")[:2]
    messages: list[Block] = [{"role": "system", "content": system}, {"role": "user", "content": [task, *pictures]}]
    for step, following in pairwise(shown):
        messages += _exchange(step, following)
    return messages


def _exchange(step: Step, following: Step) -> Iterator[Block]:
    yield _reply(step)
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

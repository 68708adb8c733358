"""The raw request and reply behind one step, as the run kept them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from editloupe.evals.runs.step_replies import reply_behind
from editloupe.evals.runs.store import Run
from editloupe.types import AskedMessage, Sent, Step, Trace

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
    if found := reply_behind(run, trace.edit_id, step):
        return found.kept
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

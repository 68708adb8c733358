"""Replies that a trace holds, as messages again: for going on from a step of a conversation that has ended."""

from __future__ import annotations

import json
from collections.abc import Sequence

from langchain_core.messages import AIMessage
from langchain_core.messages import ToolCall as LangChainCall

from editloupe.agent.messages import text_of
from editloupe.types import Step, ToolCall

WRITTEN = "text_"
"""How the ids begin of calls that stand in the text of a reply (`agent/calls.py`)."""
_CLIENTS_OWN = ("tool_calls", "function_call")
"""Where clients repeat the calls of a reply; the message's own calls decide."""


def message_of(step: Step, native: bool) -> AIMessage:
    """Return the reply of a step in a form every provider takes; without `native`, its calls are written in the text.

    >>> step = Step(index=0, raw="I zoom.", calls=(ToolCall(id="c1", name="zoom", parameters={"x": 1}),))
    >>> message_of(step, native=False).content
    'I zoom.\\n<tool_call>\\n{"name": "zoom", "parameters": {"x": 1}}\\n</tool_call>'
    """
    functions = [call for call in step.calls if not call.id.startswith(WRITTEN)]
    if native:
        return AIMessage(step.raw, tool_calls=_functions(functions))
    return AIMessage(_with_calls(step.raw, functions))


def same_reply(message: AIMessage, step: Step) -> bool:
    """True where a kept message is the reply that a step was read from: the same words, and the same calls by their ids.

    Two criteria often begin with the same words and the same call; a conversation that goes on needs its own ids.
    """
    functions = [call for call in step.calls if not call.id.startswith(WRITTEN)]
    if text_of(message) != step.raw:
        return False
    return not step.calls or (
        len(message.tool_calls) == len(functions) and all(map(_same, message.tool_calls, functions))
    )


def _same(said: LangChainCall, call: ToolCall) -> bool:
    """True where a call of a message is that of a step; a provider that gives no ids leaves them out of it."""
    return (said.get("id") or call.id, said["name"], dict(said["args"])) == (call.id, call.name, dict(call.parameters))


def changed_message(message: AIMessage, step: Step, thought: str | None, calls: Sequence[ToolCall]) -> AIMessage:
    """Return the reply with another thought or other parameters of its calls; an answer it gave is left out.

    What a provider needs beside the text to go on, such as the signatures of thoughts, stays.
    """
    functions = [call for call in calls if not call.id.startswith(WRITTEN)]
    content = changed_text(step, thought, calls)
    others = {name: value for name, value in message.additional_kwargs.items() if name not in _CLIENTS_OWN}
    if message.tool_calls:
        return AIMessage(content, tool_calls=_functions(functions), additional_kwargs=others)
    return AIMessage(_with_calls(content, functions), additional_kwargs=others)


def changed_text(step: Step, thought: str | None, calls: Sequence[ToolCall]) -> str:
    """Return the text of a reply with another thought or other parameters of the calls that stand in it.

    >>> changed_text(Step(index=0, raw="I zoom.", thought="I zoom."), "I doubt it.", ())
    '<Start Thinking>I doubt it.</Start Thinking>'
    """
    written = [call for call in calls if call.id.startswith(WRITTEN)]
    if thought is None and not written:
        return step.raw
    return _with_calls(f"<Start Thinking>{thought or step.thought}</Start Thinking>", written)


def _functions(calls: Sequence[ToolCall]) -> list[dict[str, object]]:
    return [{"name": call.name, "args": dict(call.parameters), "id": call.id, "type": "tool_call"} for call in calls]


def _with_calls(text: str, calls: Sequence[ToolCall]) -> str:
    """Return a text with calls behind it, as the text protocol writes them."""
    if not calls:
        return text
    lines = [json.dumps({"name": call.name, "parameters": dict(call.parameters)}, ensure_ascii=False) for call in calls]
    block = "\n".join(("<tool_call>", *lines, "</tool_call>"))
    return f"{text}\n{block}" if text else block

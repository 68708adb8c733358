"""Finds the kept reply that a step of a trace was read from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, messages_from_dict

from editloupe.agent.replayed import same_reply
from editloupe.evals.runs.readback import read_reply
from editloupe.evals.runs.store import Run
from editloupe.types import Step


@dataclass(frozen=True)
class StepReply:
    """A reply as the run keeps it, and its message."""

    kept: Mapping[str, Any]
    message: AIMessage


def reply_behind(run: Run, edit_id: str, step: Step) -> StepReply | None:
    """Return the reply a step was read from, None where the run does not hold it.

    The step knows the request it answers. A request may have been answered more than once, by a unit that was asked anew or
    by forks, and traces of earlier versions do not name theirs: of several replies it is the one with the step's words and calls.
    """
    for key, kept in _candidates(run, edit_id, step):
        with run.damage.reading("kept replies", key[:12]):
            (message,) = messages_from_dict([dict(kept["message"])])
            if isinstance(message, AIMessage) and same_reply(message, step):
                return StepReply(kept, message)
    return None


def _candidates(run: Run, edit_id: str, step: Step) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if not step.reply_key:
        yield from run.replies_of(edit_id).items()
        return
    query = "SELECT key, reply FROM replies WHERE key = ? OR (key > ? AND key < ?) ORDER BY key"
    with run.reader() as reader:
        rows = reader.connection.execute(query, (step.reply_key, f"{step.reply_key}#", f"{step.reply_key}$")).fetchall()
    for key, text in rows:
        if (reply := read_reply(run.damage, key, text)) is not None:
            yield key, reply

"""Read traces and kept replies back from their rows, and find the reply that a step was read from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from editloupe._util.json_safe import MARK, fits, storable
from editloupe.evals.runs.damage import Damage
from editloupe.types import Step, Trace

if TYPE_CHECKING:
    from langchain_core.messages import AIMessage

    from editloupe.evals.runs.store import Run

LOST = f"{MARK} (this text is missing from the run)"


def read_trace(
    damage: Damage, edit_id: str, head: Any, steps: Iterable[tuple[int, Any]], text_of: Callable[[str], str | None]
) -> Trace | None:
    """Return a trace; a step or a text that cannot be read is named among its notes."""
    found: list[Step] = []
    notes: list[str] = []
    for position, text in steps:
        before = len(found)
        with damage.reading("steps", f"{edit_id}, step {position + 1}"):
            found.append(Step.model_validate_json(text))
        if len(found) == before:
            notes.append(f"step {position + 1} cannot be read: the run is damaged")
    with damage.reading("traces", edit_id):
        facts = dict(json.loads(head))
        texts = [text_of(str(sha)) for sha in facts["prompt"]]
        if None in texts:
            damage.add("texts of prompts", edit_id)
            notes.append("a text of the prompt is missing: the run is damaged")
        prompt = tuple(LOST if text is None else text for text in texts)
        return Trace(**{**facts, "prompt": prompt, "steps": tuple(found), "notes": (*facts.get("notes", ()), *notes)})
    return None


def read_reply(damage: Damage, key: str, text: Any) -> dict[str, Any] | None:
    """Return a kept reply; None where it cannot be read, so that this one request is asked again."""
    with damage.reading("kept replies", key[:12]):
        found = dict(json.loads(text))
        return found if fits(found) else dict(storable(found))
    return None


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
    from langchain_core.messages import AIMessage, messages_from_dict  # takes long to load

    from editloupe.agent.replies.replayed import same_reply

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

"""Model replies kept in the run by the exact request, so that nothing is paid for twice, not even after `kill -9`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import messages_from_dict

from editloupe.evals.runs.store import Run
from editloupe.types import Usage


@dataclass(frozen=True)
class Work:
    """What the current task is judging."""

    edit_id: str
    tries: int = 1


_WORK: ContextVar[Work | None] = ContextVar("editloupe_work", default=None)


@contextmanager
def working_on(work: Work) -> Iterator[None]:
    """Say what this task and the tasks it starts are judging."""
    token = _WORK.set(work)
    try:
        yield
    finally:
        _WORK.reset(token)


def current_work() -> Work | None:
    """Return what the current task is judging."""
    return _WORK.get()


def reply_key(key: str) -> str:
    """Return the key a reply is kept under: a unit that is asked anew must not be given its old replies."""
    work = _WORK.get()
    return key if work is None or work.tries == 1 else f"{key}#{work.tries}"


class KeptReplies:
    """The replies of one run; a reply is on disk before anything is decided from it."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def get(self, key: str) -> Mapping[str, Any] | None:
        """Return the reply kept for this request, if any; one that is no reply any more is noted and asked for again."""
        reply = self._run.reply(reply_key(key))
        if reply is not None:
            with self._run.damage.reading("kept replies", key[:12]):
                messages_from_dict([dict(reply["message"])])
                Usage.model_validate(reply["usage"])
                float(reply.get("seconds", 0.0))
                return reply
        return None

    def put(self, key: str, reply: Mapping[str, Any]) -> None:
        """Keep a reply."""
        work = _WORK.get()
        self._run.keep_reply(reply_key(key), reply, work.edit_id if work else None)

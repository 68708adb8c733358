"""Keep model replies by the exact request, so that nothing is paid for twice, not even after `kill -9`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.messages import messages_from_dict

from editloupe._util.files import file_name, make_folder, whole_file
from editloupe._util.json_safe import fits, storable
from editloupe.agent.transport.secrets import Secrets
from editloupe.evals.runs.store import Run
from editloupe.types import Usage

FOLDER = ".replies"


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


class KeptWhileUnderWay:
    """Replies as files, one folder a picture, below the folder that is being written."""

    def __init__(self, out: Path) -> None:
        self._folder = out / FOLDER
        self._without_secrets = Secrets()

    def get(self, key: str) -> Mapping[str, Any] | None:
        """Return the reply kept for this request, if any."""
        try:
            found: Mapping[str, Any] = json.loads(self._path(key).read_text("utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        return found if fits(found) else storable(found)

    def put(self, key: str, reply: Mapping[str, Any]) -> None:
        """Keep a reply; it is on disk when this returns."""
        text = json.dumps(reply if fits(reply) else storable(reply), default=str)
        path = self._path(key)
        make_folder(path.parent)
        with whole_file(path) as part:
            part.write_bytes(self._without_secrets(text).encode())

    def drop(self, name: str) -> None:
        """Let go of a picture's replies."""
        shutil.rmtree(self._folder / file_name(name), ignore_errors=True)
        if self._folder.is_dir() and not any(self._folder.iterdir()):
            self._folder.rmdir()

    def _path(self, key: str) -> Path:
        work = current_work()
        return self._folder / (file_name(work.edit_id) if work else "") / f"{key}.json"

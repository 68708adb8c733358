"""Store model replies by request, and work through items with a bounded number under way.

A reply is on disk before anything is decided from it, so that nothing is paid for twice, not even after `kill -9`.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from langchain_core.messages import messages_from_dict

from editloupe._util.files import atomic_write, make_folder, safe_file_name
from editloupe._util.json_safe import is_json_safe, sanitize
from editloupe.agent.asker import NoAnswer
from editloupe.agent.transport.errors import ModelFailed
from editloupe.agent.transport.rate_limits import OverBudget
from editloupe.agent.transport.secrets import Secrets
from editloupe.evals.runs.store import Run
from editloupe.pictures.pixels import ImageError
from editloupe.tools.contract import ToolError
from editloupe.types import Usage

FOLDER = ".replies"


@dataclass(frozen=True)
class Work:
    """The edit or item that the current task works on."""

    edit_id: str
    tries: int = 1


_WORK: ContextVar[Work | None] = ContextVar("editloupe_work", default=None)


@contextmanager
def working_on(work: Work) -> Iterator[None]:
    """Set the work of this task, and of tasks it starts, for the block."""
    token = _WORK.set(work)
    try:
        yield
    finally:
        _WORK.reset(token)


def current_work() -> Work | None:
    """Return the work of the current task."""
    return _WORK.get()


def reply_key(key: str) -> str:
    """Return the key of a stored reply. It contains the try, so that a unit that is asked again does not get old replies."""
    work = _WORK.get()
    return key if work is None or work.tries == 1 else f"{key}#{work.tries}"


class StoredReplies:
    """The replies of a run."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def get(self, key: str) -> Mapping[str, Any] | None:
        """Return the stored reply to a request. A damaged one is noted and counts as missing."""
        reply = self._run.find_reply(reply_key(key))
        if reply is not None:
            with self._run.damage.reading("kept replies", key[:12]):
                messages_from_dict([dict(reply["message"])])
                Usage.model_validate(reply["usage"])
                float(reply.get("seconds", 0.0))
                return reply
        return None

    def put(self, key: str, reply: Mapping[str, Any]) -> None:
        """Store a reply."""
        work = _WORK.get()
        self._run.keep_reply(reply_key(key), reply, work.edit_id if work else None)


class TemporaryReplies:
    """Replies as files in an output folder, one folder per item, until the item is done."""

    def __init__(self, out: Path) -> None:
        self._folder = out / FOLDER
        self._without_secrets = Secrets()

    def get(self, key: str) -> Mapping[str, Any] | None:
        """Return the stored reply to a request, if any."""
        try:
            reply: Mapping[str, Any] = json.loads(self._path(key).read_text("utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        return reply if is_json_safe(reply) else sanitize(reply)

    def put(self, key: str, reply: Mapping[str, Any]) -> None:
        """Store a reply; it is on disk when this returns."""
        text = json.dumps(reply if is_json_safe(reply) else sanitize(reply), default=str)
        path = self._path(key)
        make_folder(path.parent)
        with atomic_write(path) as part:
            part.write_bytes(self._without_secrets(text).encode())

    def drop(self, name: str) -> None:
        """Delete the replies of an item."""
        shutil.rmtree(self._folder / safe_file_name(name), ignore_errors=True)
        if self._folder.is_dir() and not any(self._folder.iterdir()):
            self._folder.rmdir()

    def _path(self, key: str) -> Path:
        work = current_work()
        return self._folder / (safe_file_name(work.edit_id) if work else "") / f"{key}.json"


class NamedItem(Protocol):
    """An item with a name."""

    @property
    def id(self) -> str:
        """The item's name."""


T = TypeVar("T", bound=NamedItem)


@dataclass
class ItemTally:
    """Counts of the items of one stage."""

    stage: str
    total: int = 0
    made: int = 0
    held: int = 0
    """Done by an earlier command."""
    waiting: int = 0
    """Waiting for people, or for a model that was not named."""
    left_out: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    """By id, why items failed that the same command tries again: a server was down, a cap was reached."""
    stopped: str | None = None
    """Why no more items were begun."""
    note: str | None = None
    """A remark on the items for the user."""

    @property
    def done(self) -> int:
        """How many items are settled."""
        return self.made + self.held + self.waiting + len(self.left_out) + len(self.failed)


Tick = Callable[[ItemTally], None]


def ignore_tally(tally: ItemTally) -> None:
    """Ignore a tally."""


async def work_through(
    items: Iterable[T],
    do: Callable[[T], Awaitable[bool | None]],
    tally: ItemTally,
    concurrency: int = 8,
    tick: Tick = ignore_tally,
    kept: TemporaryReplies | None = None,
    give_up: Callable[[T, str], None] | None = None,
) -> None:
    """Process all items. An item that fails does not stop the others.

    Args:
        items: What to do.
        do: Does an item and writes what it made; returns False if that was there already.
        tally: Counts what became of the items.
        concurrency: How many items are under way at a time.
        tick: Called after every item.
        kept: Stores replies while an item is under way. They are deleted when the item is done or its model gave no usable
            answer. If the server failed they stay for the next time.
        give_up: Records why an item is left out, if its picture or the model's answers cannot be used. Without it such an
            item counts as failed, and the same command tries it again.
    """
    remaining = iter(items)

    async def process(item: T) -> None:
        settled = True
        try:
            with working_on(Work(item.id)):
                is_new = await do(item)
            if is_new is False:
                tally.held += 1
            else:
                tally.made += 1
        except (NoAnswer, ImageError) as error:
            why = " ".join(str(error).split())
            if give_up is None:
                tally.failed[item.id], settled = why, isinstance(error, NoAnswer)
            else:
                tally.left_out[item.id] = why
                give_up(item, why)
        except OverBudget as error:
            tally.stopped, settled = tally.stopped or str(error), False
            tally.failed[item.id] = tally.stopped
        except (ModelFailed, ToolError) as error:
            tally.failed[item.id], settled = " ".join(str(error).split()), False
        if kept and settled:
            kept.drop(item.id)
        tick(tally)

    async def worker() -> None:
        for item in remaining:
            if tally.stopped:
                tally.failed[item.id] = tally.stopped
                continue
            await process(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(worker())

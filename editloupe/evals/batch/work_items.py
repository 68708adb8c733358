"""Keep model replies by the exact request, so that nothing is paid for twice, not even after `kill -9`."""

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

from editloupe._util.files import file_name, make_folder, whole_file
from editloupe._util.json_safe import fits, storable
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


class StoredReplies:
    """The replies of one run; a reply is on disk before anything is decided from it."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def get(self, key: str) -> Mapping[str, Any] | None:
        """Return the reply kept for this request, if any; one that is no reply any more is noted and asked for again."""
        reply = self._run.find_reply(reply_key(key))
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


class TemporaryReplies:
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


class NamedItem(Protocol):
    """An item with a name of its own."""

    @property
    def id(self) -> str:
        """The item's name."""


T = TypeVar("T", bound=NamedItem)


@dataclass
class ItemTally:
    """What became of the items of one stage."""

    stage: str
    total: int = 0
    made: int = 0
    held: int = 0
    """Done before."""
    waiting: int = 0
    """For people, or for a model that was not named."""
    left_out: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    """Tried again by the same command: a server was down, the cap was reached."""
    stopped: str | None = None
    """Why no more were begun."""
    note: str | None = None
    """What somebody should know about them."""

    @property
    def done(self) -> int:
        """How many are settled."""
        return self.made + self.held + self.waiting + len(self.left_out) + len(self.failed)


Tick = Callable[[ItemTally], None]


def ignore_tally(tally: ItemTally) -> None:
    """Watch nothing."""


async def work_through(
    items: Iterable[T],
    do: Callable[[T], Awaitable[bool | None]],
    tally: ItemTally,
    concurrency: int = 8,
    tick: Tick = ignore_tally,
    kept: TemporaryReplies | None = None,
    give_up: Callable[[T, str], None] | None = None,
) -> None:
    """Do all items. At most `concurrency` are begun before others end, so that a stop leaves little behind.

    Args:
        items: What to do.
        do: Does an item and writes what it made; returns False if that was there already.
        tally: Counts what became of the items.
        concurrency: How many items are under way at one time.
        tick: Called after every item.
        kept: Where replies are kept while an item is under way. They are dropped when the item is done or its model gave no
            usable answer; a server that was down leaves them for the next time.
        give_up: Writes down why an item goes no further, if its picture or the model's answers cannot be used. Without it
            such an item counts as failed and the same command tries it again.
    """
    left = iter(items)

    async def one(item: T) -> None:
        settled = True
        try:
            with working_on(Work(item.id)):
                made = await do(item)
            if made is False:
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
        for item in left:
            if tally.stopped:
                tally.failed[item.id] = tally.stopped
                continue
            await one(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(worker())

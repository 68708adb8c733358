"""Write judgements into a run from a background thread, or a single one outside a batch."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import NamedTuple, TypeVar

from editloupe.evals.runs.edit_rows import find_same_edit, hash_content, stored_model
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import JudgementRecord
from editloupe.judge.base_judge import BaseJudge
from editloupe.judge.question_key import QuestionKey
from editloupe.pictures.decode import Album
from editloupe.pictures.memory import PictureSource
from editloupe.pictures.pixels import ImageError
from editloupe.types import Judgement, Sha

T = TypeVar("T")
TOGETHER = 32
"""Most judgements of one transaction."""
CHECKPOINT_EVERY = 10.0
"""Seconds between two checkpoints of the write-ahead log."""
_Entry = tuple[JudgementRecord, asyncio.AbstractEventLoop, "asyncio.Future[frozenset[str]]"]


class Writer:
    """Writes judgements in a background thread; `keep` returns when they are on disk.

    After the first failed write nothing more is written: every pending and later `keep` raises that failure.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._failure: BaseException | None = None
        self._entries: queue.SimpleQueue[_Entry | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="editloupe-writer", daemon=True)
        self._thread.start()

    @property
    def failure(self) -> BaseException | None:
        """The error of the first failed write, if any."""
        return self._failure

    async def keep(self, record: JudgementRecord) -> frozenset[str]:
        """Write a judgement and return the criteria whose older verdict was kept.

        Raises:
            BaseException: The error of the first failed write; a UserError if the user can correct it.
        """
        loop = asyncio.get_running_loop()
        written: asyncio.Future[frozenset[str]] = loop.create_future()
        self._entries.put((record, loop, written))
        return await written

    def close(self) -> None:
        """Write pending judgements and end the thread."""
        self._entries.put(None)
        self._thread.join()

    def _work(self) -> None:
        checked, open_ = time.monotonic(), True
        while open_:
            entries, open_ = self._next()
            if entries:
                not_replaced = self._attempt(partial(self._run.save_all, [record for record, _, _ in entries]))
                self._settle(entries, not_replaced or [frozenset()] * len(entries))
            if time.monotonic() - checked > CHECKPOINT_EVERY:
                self._attempt(self._run.checkpoint)
                checked = time.monotonic()

    def _attempt(self, writing: Callable[[], T]) -> T | None:
        """Write, unless an earlier write failed; store a failure for all who wait."""
        if self._failure is None:
            try:
                return writing()
            except BaseException as error:
                self._failure = error
        return None

    def _next(self) -> tuple[list[_Entry], bool]:
        entries: list[_Entry] = []
        try:
            entry = self._entries.get(timeout=CHECKPOINT_EVERY)
            while True:
                if entry is None:
                    return entries, False
                entries.append(entry)
                if len(entries) >= TOGETHER:
                    return entries, True
                entry = self._entries.get_nowait()
        except queue.Empty:
            return entries, True

    def _settle(self, entries: list[_Entry], not_replaced: list[frozenset[str]]) -> None:
        for (_, loop, written), criteria in zip(entries, not_replaced, strict=True):
            with suppress(RuntimeError):  # the event loop has ended
                loop.call_soon_threadsafe(_settle, written, criteria, self._failure)


def _settle(written: asyncio.Future[frozenset[str]], criteria: frozenset[str], error: BaseException | None) -> None:
    if written.done():
        return
    if error is None:
        written.set_result(criteria)
    else:
        written.set_exception(error)


class StoredAs(NamedTuple):
    """What identifies a stored judgement in its run."""

    name: str
    """The edit's unique name; differs from its id if another edit has the same id."""
    repeat: int


def save_judgement(run: Run, judge: BaseJudge, judgement: Judgement, album: Album) -> StoredAs:
    """Store a single judgement and return the name and repeat it is stored as."""
    configuration = run.configure(judge.describe(), judge.question_specs())
    edit, hashes = judgement.edit, _hashes(judgement, album)
    questions = {
        outcome.criterion: judge.question_key(edit, outcome.criterion, hashes) for outcome in judgement.verdicts
    }
    repeat = _next_repeat(run, questions.values())
    run.save_all([JudgementRecord(judgement, repeat, album, questions=questions, configuration=configuration)])
    with run.reader() as reader:
        records = reader.edits_with_id(edit.id)
    same = find_same_edit(records, stored_model(edit), hash_content(edit, hashes))
    return StoredAs(same.name if same is not None else edit.id, repeat)


def _hashes(judgement: Judgement, album: Album) -> dict[PictureSource, Sha]:
    hashes: dict[PictureSource, Sha] = {}
    for path in judgement.edit.paths:
        with suppress(ImageError):
            hashes[path] = album.open(path).sha
    return hashes


def _next_repeat(run: Run, questions: Iterable[QuestionKey]) -> int:
    with run.reader() as reader:
        return max(reader.next_repeat(question) for question in questions)

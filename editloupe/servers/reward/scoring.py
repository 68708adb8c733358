"""Edits to scores: each judged once, so many at a time, within a deadline; what cannot be taken on is sent away at once."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from editloupe._util.json_safe import content_key
from editloupe.agent.transport.rate_limits import with_request_limit
from editloupe.judge import Judge
from editloupe.judge.base_judge import edits_at_once
from editloupe.judge.edit_score import EditScore, score_edit
from editloupe.pictures.decode import Album
from editloupe.servers.reward.kept_run import KeptRun
from editloupe.servers.reward.metrics import Metrics
from editloupe.servers.reward.settings import RewardServerSettings
from editloupe.types import Edit, Outcome, Unjudged, UserError, Verdict

LONGEST_WAIT = 60
"""Seconds a client is told to wait at most."""
STOPPED = "the server was stopped before this edit was judged"


class Busy(Exception):
    """There is no room for these edits at the moment."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"the server has as many edits as it takes on; come back in {seconds} s")
        self.seconds = seconds


class TooMany(Exception):
    """A request holds more edits than there will ever be room for."""


class OutOfOrder(Exception):
    """The server cannot go on, for a reason told in the sentence."""


@dataclass
class _UnderWay:
    task: asyncio.Task[EditScore] = field(init=False)
    waiting: int = 0
    begun: bool = False


def counted() -> Metrics:
    """Return what a scorer counts."""
    return Metrics(
        {
            "requests_total": "Requests, by dialect and status code.",
            "edits_total": "Edits asked for, by what became of them: judged, known, unjudged, late.",
            "unjudged_total": "Criteria that were left unjudged, by reason.",
            "model_requests_total": "Requests to the model.",
            "tokens_total": "Tokens, by kind.",
        },
        {"judge_seconds": "Seconds one edit was judged, waiting for its turn not counted."},
    )


@dataclass
class EditScorer:
    """Judges edits for many requests at one time; used on one event loop."""

    judge: Judge
    settings: RewardServerSettings = RewardServerSettings()
    run: KeptRun | None = None
    metrics: Metrics = field(default_factory=counted)
    broken: str | None = None
    """Why nothing more is judged: what is paid for must be kept."""

    def __post_init__(self) -> None:
        self._under_way: dict[str, _UnderWay] = {}
        self._known: OrderedDict[str, EditScore] = OrderedDict()
        self._limited = with_request_limit(self.settings.concurrency)
        self._places = asyncio.Semaphore(
            edits_at_once(self.judge.spec, len(self.judge.criteria), self.settings.concurrency)
        )
        self._stopped = False
        self.metrics.gauge("pending_edits", "Edits taken on and not done.", lambda: len(self._under_way))
        self.metrics.gauge("remembered_edits", "Scores kept in memory.", lambda: len(self._known))

    @property
    def version(self) -> str:
        """A name of how edits are judged here: the same judge, questions and settings have the same."""
        return content_key({"asked": sorted(one.key for one in self.judge.asked())})[:16]

    @property
    def names(self) -> tuple[str, ...]:
        """The rewards that can be asked for: the edit's own score, and every criterion."""
        return ("editloupe", *self.judge.criteria)

    async def score(self, edits: Sequence[Edit]) -> list[EditScore]:
        """Return what every edit comes to, in their order; the same edit is judged once, however often it stands there.

        Raises Busy, TooMany or OutOfOrder before anything is judged.
        """
        keys = [edit_key(edit) for edit in edits]
        known = self._recall(keys)  # copied, because the edits judged now may take their places in memory
        new = {key: edit for key, edit in zip(keys, edits, strict=True) if key not in known}
        self._check({key: edit for key, edit in new.items() if key not in self._under_way})
        entries: dict[str, _UnderWay] = {}
        shared = {key for key in new if key in self._under_way}
        for key, edit in new.items():
            entries[key] = entry = self._under_way.get(key) or self._begin(key, edit)
            entry.waiting += 1
        try:
            if entries:
                await asyncio.wait([entry.task for entry in entries.values()], timeout=self.settings.deadline)
        finally:
            for key, entry in entries.items():
                self._leave(key, entry)
        return self._answers(keys, known, entries, shared)

    def _recall(self, keys: Sequence[str]) -> dict[str, EditScore]:
        """Return the scores in memory of these edits, and note that they were used."""
        known = {key: self._known[key] for key in keys if key in self._known}
        for key in known:
            self._known.move_to_end(key)
        return known

    def _check(self, new: Mapping[str, Edit]) -> None:
        if self.broken or self._stopped:
            raise OutOfOrder(self.broken or "the server is ending")
        if len(new) > self.settings.queue:
            raise TooMany(f"a request holds at most {self.settings.queue} edits, not {len(new)}")
        if len(self._under_way) + len(new) > self.settings.queue:
            raise Busy(self._wait())

    def _wait(self) -> int:
        """Return in how many seconds there should be room, by how long edits took so far."""
        each = self.metrics.mean("judge_seconds") or 1.0
        return max(1, min(LONGEST_WAIT, round(each * len(self._under_way) / self.settings.concurrency)))

    def _begin(self, key: str, edit: Edit) -> _UnderWay:
        entry = _UnderWay()
        entry.task = asyncio.create_task(self._judge(entry, edit), context=self._limited.copy())
        entry.task.add_done_callback(lambda done: self._ended(key, entry))
        self._under_way[key] = entry
        return entry

    def _leave(self, key: str, entry: _UnderWay) -> None:
        """Stop waiting for an edit; one that nobody waits for any more is judged only where that has begun."""
        entry.waiting -= 1
        if not entry.waiting and not entry.begun:
            self._forget(key, entry)
            entry.task.cancel()

    def _forget(self, key: str, entry: _UnderWay) -> None:
        if self._under_way.get(key) is entry:
            del self._under_way[key]

    def _ended(self, key: str, entry: _UnderWay) -> None:
        self._forget(key, entry)
        task = entry.task
        if task.cancelled() or task.exception() is not None or task.result().score is None:
            return  # what was not judged may be judged another time
        self._known[key] = replace(task.result(), known=True)
        self._known.move_to_end(key)
        while len(self._known) > self.settings.remember:
            self._known.popitem(last=False)

    def _answers(
        self,
        keys: Sequence[str],
        known: Mapping[str, EditScore],
        entries: Mapping[str, _UnderWay],
        shared: set[str],
    ) -> list[EditScore]:
        found: list[EditScore] = []
        seen: set[str] = set()
        for key in keys:
            answer = _result(entries[key].task, self.settings.deadline) if key in entries else known[key]
            if key in entries and answer.score is not None and (key in seen or key in shared):
                answer = replace(answer, known=True)
            seen.add(key)
            late = key in entries and not entries[key].task.done()
            self.metrics.count("edits_total", outcome="late" if late else _kind(answer))
            found.append(answer)
        return found

    async def _judge(self, entry: _UnderWay, edit: Edit) -> EditScore:
        async with self._places:
            entry.begun = True
            started = time.perf_counter()
            try:
                return await self._judged(edit)
            except UserError as error:  # a wrong key, an unknown model: no edit will be judged
                return EditScore(None, str(error))
            finally:
                self.metrics.observe("judge_seconds", time.perf_counter() - started)

    async def _judged(self, edit: Edit) -> EditScore:
        held: Mapping[str, Verdict] = {} if self.run is None else await self.run.held(edit)
        missing = [name for name in self.judge.criteria_for(edit) if name not in held] if held else None
        if held and not missing:
            return replace(score_edit(self.judge, edit, tuple(held.values())), known=True)
        album = Album()
        try:
            judgement = await self.judge.ajudge(edit, criteria=missing, strict=False, album=album)
            if self.run is not None:
                try:
                    await self.run.save(judgement, album)
                except UserError as error:
                    self.broken = str(error)
                    print(f"editloupe: {error}", file=sys.stderr, flush=True)
        finally:
            album.clear()
        self._count(judgement.verdicts)
        verdicts = {**held, **{one.criterion: one for one in judgement.verdicts}}
        return score_edit(self.judge, edit, tuple(verdicts[name] for name in self.judge.criteria if name in verdicts))

    def _count(self, verdicts: tuple[Outcome, ...]) -> None:
        for one in verdicts:
            if isinstance(one, Unjudged):
                self.metrics.count("unjudged_total", reason=one.reason.value)
            self.metrics.count("model_requests_total", one.usage.requests)
            self.metrics.count("tokens_total", one.usage.input_tokens, kind="input")
            self.metrics.count("tokens_total", one.usage.output_tokens, kind="output")

    async def stop(self) -> None:
        """Take nothing more on, give what is begun a little time, and answer for the rest that it was not judged."""
        self._stopped = True
        tasks = [entry.task for entry in self._under_way.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=self.settings.grace)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def edit_key(edit: Edit) -> str:
    """Return what makes two edits the same question: pictures by their hashes, texts, boxes, and no name."""
    return content_key(edit.model_dump(mode="json", exclude={"id", "model", "human"}))


def _result(task: asyncio.Task[EditScore], deadline: float) -> EditScore:
    if not task.done():
        return EditScore(None, f"this edit was not judged within {deadline:g} s")
    if task.cancelled():
        return EditScore(None, STOPPED)
    if (error := task.exception()) is not None:
        return EditScore(None, f"judging failed: {type(error).__name__}")
    return task.result()


def _kind(answer: EditScore) -> str:
    return "unjudged" if answer.score is None else "known" if answer.known else "judged"

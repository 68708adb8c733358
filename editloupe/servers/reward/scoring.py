"""Score edits for the reward server, and count them as metrics in the Prometheus text format.

Each edit is judged once, with limited concurrency and within a deadline. Requests that do not fit into the queue are
refused at once.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from editloupe._util.hashing import content_key
from editloupe.agent.transport.rate_limits import with_request_limit
from editloupe.evals.runs.find_answers import find_verdict
from editloupe.evals.runs.prices import price_of_members
from editloupe.evals.runs.reader import RunReader
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import JudgementRecord
from editloupe.evals.runs.writer import CHECKPOINT_EVERY
from editloupe.judge import Judge
from editloupe.judge.base_judge import edits_at_once
from editloupe.judge.edit_score import EditScore, score_edit
from editloupe.judge.question_key import QuestionKey
from editloupe.pictures.decode import Album, hash_file
from editloupe.pictures.memory import PictureSource
from editloupe.pictures.pixels import ImageError
from editloupe.servers.reward.settings import RewardServerSettings
from editloupe.types import Edit, Judgement, Outcome, Sha, Unjudged, UserError, Verdict

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 300.0)
"""Upper ends of the histogram of seconds."""
PREFIX = "editloupe_"


class Metrics:
    """Metrics of a server. Every name is declared once with its help text."""

    def __init__(self, counters: Mapping[str, str], histograms: Mapping[str, str]) -> None:
        self._helps = {**counters, **histograms}
        self._counters: dict[str, dict[tuple[tuple[str, str], ...], float]] = {name: {} for name in counters}
        self._histograms = {name: ([0] * (len(BUCKETS) + 1), [0.0]) for name in histograms}
        self._gauges: dict[str, tuple[str, Callable[[], float]]] = {}
        self._lock = threading.Lock()

    def count(self, name: str, by: float = 1, **labels: str) -> None:
        """Add to a counter."""
        series, key = self._counters[name], tuple(sorted(labels.items()))
        with self._lock:
            series[key] = series.get(key, 0) + by

    def observe(self, name: str, seconds: float) -> None:
        """Add a duration to a histogram."""
        counts, total = self._histograms[name]
        with self._lock:
            counts[bisect_left(BUCKETS, seconds)] += 1
            total[0] += seconds

    def gauge(self, name: str, explanation: str, value: Callable[[], float]) -> None:
        """Register a gauge that is read whenever the metrics are."""
        self._gauges[name] = explanation, value

    def value(self, name: str, **labels: str) -> float:
        """Return a counter's value."""
        return self._counters[name].get(tuple(sorted(labels.items())), 0)

    def mean(self, name: str) -> float | None:
        """Return the mean of a histogram; None if nothing was observed."""
        counts, total = self._histograms[name]
        return total[0] / number if (number := sum(counts)) else None

    def text(self) -> str:
        """Return all metrics, one line per value."""
        with self._lock:
            return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        for name, series in self._counters.items():
            yield from _head(name, self._helps[name], "counter")
            for key, value in sorted(series.items()):
                yield f"{PREFIX}{name}{_labels(key)} {value:g}"
        for name, (counts, total) in self._histograms.items():
            yield from _head(name, self._helps[name], "histogram")
            below = 0
            for end, count in zip((*map(str, BUCKETS), "+Inf"), counts, strict=True):
                below += count
                yield f'{PREFIX}{name}_bucket{{le="{end}"}} {below}'
            yield f"{PREFIX}{name}_sum {total[0]:g}"
            yield f"{PREFIX}{name}_count {below}"
        for name, (explanation, read) in self._gauges.items():
            yield from _head(name, explanation, "gauge")
            yield f"{PREFIX}{name} {read():g}"


def _head(name: str, explanation: str, kind: str) -> Iterator[str]:
    yield f"# HELP {PREFIX}{name} {explanation}"
    yield f"# TYPE {PREFIX}{name} {kind}"


def _labels(key: tuple[tuple[str, str], ...]) -> str:
    r"""Format labels after a metric name.

    >>> _labels((("why", 'a "b"'),))
    '{why="a \\"b\\""}'
    """
    escapes = {"\\": r"\\", '"': r"\"", "\n": r"\n"}
    pairs = (f'{name}="{"".join(escapes.get(letter, letter) for letter in value)}"' for name, value in key)
    return f"{{{','.join(pairs)}}}" if key else ""


T = TypeVar("T")


class JudgementRun:
    """A run that stores judgements and returns stored verdicts, including those of earlier sessions."""

    def __init__(self, folder: Path, judge: Judge) -> None:
        self._judge = judge
        self._run = Run.write(folder)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="editloupe-run")
        self._reader: RunReader | None = None
        self._checkpointed = time.monotonic()
        self._price = price_of_members(judge.members)
        try:
            self._configuration = self._run.configure(judge.describe(), judge.question_specs())
        except BaseException:
            self.close()
            raise

    async def find_stored(self, edit: Edit) -> dict[str, Verdict]:
        """Return stored verdicts on an edit by criterion, if the question was exactly the same."""
        return await self._run_in_thread(lambda: self._find_stored(edit))

    async def save(self, judgement: Judgement, album: Album) -> None:
        """Store a judgement with traces and pictures; raise UserError if that fails."""
        await self._run_in_thread(lambda: self._save(judgement, album))

    def close(self) -> None:
        """Finish pending writes and release the folder. Idempotent."""
        self._thread.shutdown(wait=True)
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        self._run.close()

    async def _run_in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _find_stored(self, edit: Edit) -> dict[str, Verdict]:
        if self._reader is None:
            self._reader = self._run.reader()
        verdicts: dict[str, Verdict] = {}
        for criterion, question in self._questions(edit).items():
            if (verdict := find_verdict(self._reader, question)) is not None:
                verdicts[criterion] = verdict.model_copy(update={"criterion": criterion})
        return verdicts

    def _save(self, judgement: Judgement, album: Album) -> None:
        questions = self._questions(judgement.edit)
        price = self._price
        record = JudgementRecord(
            judgement, 0, album, questions=questions, configuration=self._configuration, price=price
        )
        self._run.save_all([record])
        for outcome in judgement.verdicts:
            cost = price.outcome_cost(outcome) if price else None
            self._run.add_spending(self._judge.spec, outcome.usage, cost)
        if time.monotonic() - self._checkpointed > CHECKPOINT_EVERY:
            self._run.checkpoint()
            self._checkpointed = time.monotonic()

    def _questions(self, edit: Edit) -> dict[str, QuestionKey]:
        hashes: dict[PictureSource, Sha] = {}
        for source in edit.paths:
            try:
                hashes[source] = hash_file(source)
            except ImageError:
                continue
        judge = self._judge
        return {criterion: judge.question_key(edit, criterion, hashes) for criterion in judge.criteria_for(edit)}


LONGEST_WAIT = 60
"""Upper limit of the `Retry-After` header in seconds."""
STOPPED = "the server was stopped before this edit was judged"


class Busy(Exception):
    """The queue is full at the moment."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"the queue of the server is full; try again in {seconds} s")
        self.seconds = seconds


class TooMany(Exception):
    """A request has more edits than the queue can ever hold."""


class OutOfOrder(Exception):
    """The server cannot judge any more edits."""


@dataclass
class _PendingEdit:
    task: asyncio.Task[EditScore] = field(init=False)
    waiting: int = 0
    begun: bool = False


def build_metrics() -> Metrics:
    """Return the metrics of a scorer."""
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
    """Judges edits for concurrent requests. Must be used on one event loop."""

    judge: Judge
    settings: RewardServerSettings = RewardServerSettings()
    run: JudgementRun | None = None
    metrics: Metrics = field(default_factory=build_metrics)
    broken: str | None = None
    """Why judging has stopped, such as a full disk: verdicts that cannot be stored would be paid for and lost."""

    def __post_init__(self) -> None:
        self._pending: dict[str, _PendingEdit] = {}
        self._remembered: OrderedDict[str, EditScore] = OrderedDict()
        self._limited = with_request_limit(self.settings.concurrency)
        self._slots = asyncio.Semaphore(
            edits_at_once(self.judge.spec, len(self.judge.criteria), self.settings.concurrency)
        )
        self._stopped = False
        self.metrics.gauge("pending_edits", "Edits taken on and not done.", lambda: len(self._pending))
        self.metrics.gauge("remembered_edits", "Scores kept in memory.", lambda: len(self._remembered))

    @property
    def version(self) -> str:
        """Identifies the judge, its questions and settings."""
        return content_key({"asked": sorted(question.key for question in self.judge.question_specs())})[:16]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the rewards: the edit's score, then every criterion."""
        return ("editloupe", *self.judge.criteria)

    def rewards(self, scored: Sequence[EditScore]) -> list[float | None]:
        """Return the scores as a trainer's list; an unjudged edit is None, or the value that was chosen for it."""
        return [self.settings.unjudged if each.score is None else each.score for each in scored]

    async def score(self, edits: Sequence[Edit]) -> list[EditScore]:
        """Score edits, in their order. An edit that occurs several times is judged once.

        Args:
            edits: The edits of one request.

        Raises:
            Busy: The queue is full at the moment.
            TooMany: The request is larger than the queue.
            OutOfOrder: The server has stopped judging.
        """
        keys = [edit_key(edit) for edit in edits]
        recalled = self._recall(keys)  # copied, because edits judged now may evict them
        new = {key: edit for key, edit in zip(keys, edits, strict=True) if key not in recalled}
        self._check({key: edit for key, edit in new.items() if key not in self._pending})
        entries: dict[str, _PendingEdit] = {}
        shared = {key for key in new if key in self._pending}
        for key, edit in new.items():
            entries[key] = entry = self._pending.get(key) or self._begin(key, edit)
            entry.waiting += 1
        try:
            if entries:
                await asyncio.wait([entry.task for entry in entries.values()], timeout=self.settings.deadline)
        finally:
            for key, entry in entries.items():
                self._leave(key, entry)
        return self._answers(keys, recalled, entries, shared)

    def _recall(self, keys: Sequence[str]) -> dict[str, EditScore]:
        """Return the remembered scores of these edits and mark them as recently used."""
        recalled = {key: self._remembered[key] for key in keys if key in self._remembered}
        for key in recalled:
            self._remembered.move_to_end(key)
        return recalled

    def _check(self, new: Mapping[str, Edit]) -> None:
        if self.broken or self._stopped:
            raise OutOfOrder(self.broken or "the server is shutting down")
        if len(new) > self.settings.queue:
            raise TooMany(f"a request holds at most {self.settings.queue} edits, not {len(new)}")
        if len(self._pending) + len(new) > self.settings.queue:
            raise Busy(self._estimate_wait())

    def _estimate_wait(self) -> int:
        """Estimate the seconds until the queue has room, from the mean judging time."""
        each = self.metrics.mean("judge_seconds") or 1.0
        return max(1, min(LONGEST_WAIT, round(each * len(self._pending) / self.settings.concurrency)))

    def _begin(self, key: str, edit: Edit) -> _PendingEdit:
        entry = _PendingEdit()
        entry.task = asyncio.create_task(self._judge_in_turn(entry, edit), context=self._limited.copy())
        entry.task.add_done_callback(lambda done: self._remember(key, entry))
        self._pending[key] = entry
        return entry

    def _leave(self, key: str, entry: _PendingEdit) -> None:
        """Stop waiting for an edit. If no request waits for it and it has not begun, it is not judged."""
        entry.waiting -= 1
        if not entry.waiting and not entry.begun:
            self._forget(key, entry)
            entry.task.cancel()

    def _forget(self, key: str, entry: _PendingEdit) -> None:
        if self._pending.get(key) is entry:
            del self._pending[key]

    def _remember(self, key: str, entry: _PendingEdit) -> None:
        self._forget(key, entry)
        task = entry.task
        if task.cancelled() or task.exception() is not None or task.result().score is None:
            return  # an unjudged edit may be judged later
        self._remembered[key] = replace(task.result(), known=True)
        self._remembered.move_to_end(key)
        while len(self._remembered) > self.settings.remember:
            self._remembered.popitem(last=False)

    def _answers(
        self,
        keys: Sequence[str],
        recalled: Mapping[str, EditScore],
        entries: Mapping[str, _PendingEdit],
        shared: set[str],
    ) -> list[EditScore]:
        answers: list[EditScore] = []
        seen: set[str] = set()
        for key in keys:
            answer = _task_result(entries[key].task, self.settings.deadline) if key in entries else recalled[key]
            if key in entries and answer.score is not None and (key in seen or key in shared):
                answer = replace(answer, known=True)
            seen.add(key)
            late = key in entries and not entries[key].task.done()
            self.metrics.count("edits_total", outcome="late" if late else _outcome_name(answer))
            answers.append(answer)
        return answers

    async def _judge_in_turn(self, entry: _PendingEdit, edit: Edit) -> EditScore:
        async with self._slots:
            entry.begun = True
            started = time.perf_counter()
            try:
                return await self._score_edit(edit)
            except UserError as error:  # for example a wrong key or an unknown model
                return EditScore(None, str(error))
            finally:
                self.metrics.observe("judge_seconds", time.perf_counter() - started)

    async def _score_edit(self, edit: Edit) -> EditScore:
        stored: Mapping[str, Verdict] = {} if self.run is None else await self.run.find_stored(edit)
        missing = [name for name in self.judge.criteria_for(edit) if name not in stored] if stored else None
        if stored and not missing:
            return replace(score_edit(self.judge, edit, tuple(stored.values())), known=True)
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
        verdicts = {**stored, **{outcome.criterion: outcome for outcome in judgement.verdicts}}
        return score_edit(self.judge, edit, tuple(verdicts[name] for name in self.judge.criteria if name in verdicts))

    def _count(self, verdicts: tuple[Outcome, ...]) -> None:
        for outcome in verdicts:
            if isinstance(outcome, Unjudged):
                self.metrics.count("unjudged_total", reason=outcome.reason.value)
            self.metrics.count("model_requests_total", outcome.usage.requests)
            self.metrics.count("tokens_total", outcome.usage.input_tokens, kind="input")
            self.metrics.count("tokens_total", outcome.usage.output_tokens, kind="output")

    async def stop(self) -> None:
        """Refuse new edits, give pending ones a short time, and report the rest as not judged."""
        self._stopped = True
        tasks = [entry.task for entry in self._pending.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=self.settings.grace)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def edit_key(edit: Edit) -> str:
    """Return a key of the contents of an edit: picture hashes, texts and boxes, without id and model."""
    return content_key(edit.model_dump(mode="json", exclude={"id", "model", "human"}))


def _task_result(task: asyncio.Task[EditScore], deadline: float) -> EditScore:
    if not task.done():
        return EditScore(None, f"this edit was not judged within {deadline:g} s")
    if task.cancelled():
        return EditScore(None, STOPPED)
    if (error := task.exception()) is not None:
        return EditScore(None, f"judging failed: {type(error).__name__}")
    return task.result()


def _outcome_name(answer: EditScore) -> str:
    return "unjudged" if answer.score is None else "known" if answer.known else "judged"

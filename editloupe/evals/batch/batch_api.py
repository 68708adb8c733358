"""Judge through a provider's batch interface, at half the price and within a day.

This is for judges that ask once per unit and use no tools. A session goes over the edits in rounds. In a round, every unit whose
reply is there is judged and written. The requests of the others are put into files. The files are sent and their jobs polled.
When a job is over, the next round begins.

Every request has a key computed from the content of its JSON body. It is staged in a file, sent with that file, and answered by
a line of the results; a table in the run's folder records its state. A submission that the provider did not confirm is looked
up by its mark.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from editloupe._util.text import number_of
from editloupe.agent.spec_names import RULES
from editloupe.agent.transport.batch_files import (
    MOST_BYTES,
    MOST_REQUESTS,
    BatchFiles,
    BatchRefused,
    BatchState,
    NoReply,
    find_job,
    new_mark,
)
from editloupe.agent.transport.errors import clean
from editloupe.agent.transport.rate_limits import Deferred, OverBudget
from editloupe.evals.batch.local_executor import JobResult, judge_job, select_outcomes, share_cores
from editloupe.evals.batch.planner import Job
from editloupe.evals.batch.stopping import StopControl
from editloupe.evals.batch.traffic import EstimateUsage, Limits, Spending
from editloupe.evals.runs.damage import raise_unwritable
from editloupe.evals.runs.prices import Price
from editloupe.judge import Judge
from editloupe.judge.base_judge import BaseJudge
from editloupe.types import Judgement, Outcome, Reason, Unjudged, Usage, UserError

if TYPE_CHECKING:
    from editloupe.agent.providers.provider import Opening, Provider

FOLDER = "batch-api"
DEFERRED = "sent in a file; its reply is not there yet"
UNIT: ContextVar[tuple[str, Usage]] = ContextVar("editloupe_batch_unit", default=("", Usage()))
"""The repeat and try of a unit, which distinguish requests with the same body, and its estimated tokens."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (
    mark TEXT PRIMARY KEY, spec TEXT, path TEXT, remote TEXT, state TEXT, requests INTEGER,
    tokens_in INTEGER, tokens_out INTEGER);
CREATE TABLE IF NOT EXISTS requests (key TEXT PRIMARY KEY, mark TEXT, status INTEGER, body BLOB);
CREATE INDEX IF NOT EXISTS by_job ON requests (mark);
"""
HALF = 0.5
"""Share of the usual price that both providers charge for batches."""
FIRST_POLL, LONGEST_POLL = 5.0, 300.0
CAPACITY = 16
"""Edits read and encoded at a time."""
PATIENCE = 20
"""Polls in a row that may fail temporarily."""


def request_key(unit: str, path: str, body: bytes) -> str:
    """Return the key of a request; another order of the fields of its JSON body does not change it.

    >>> request_key("0", "/v1", b'{"a": 1, "b": 2}') == request_key("0", "/v1", b'{"b":2,"a":1}')
    True
    """
    content = json.dumps(json.loads(body), sort_keys=True).encode()
    return hashlib.sha256(b"\0".join((unit.encode(), path.encode(), content))).hexdigest()[:40]


class BatchApiQueue:
    """Takes requests instead of the network, and returns the replies that are there. Belongs to one session on a run."""

    def __init__(self, run: Path, room: Callable[[Usage], str | None] = lambda usage: None) -> None:
        self._folder = run / FOLDER
        self._connection: _Connection | None = None
        self.room = room
        """Returns why the run's caps do not allow the requests under way and this usage more; None if they do."""
        self.files: BatchFiles | None = None
        self.spec = ""
        self._failure: UserError | None = None
        """The failed write after which nothing more is staged."""
        self._staging: tuple[str, str, Any] | None = None
        self._staged = self._bytes = 0

    @property
    def _db(self) -> sqlite3.Connection:
        if self._connection is None:
            with raise_unwritable(self._folder):
                self._folder.mkdir(parents=True, exist_ok=True)
                self._connection = sqlite3.connect(
                    self._folder / "requests.sqlite", isolation_level=None, check_same_thread=False, factory=_Connection
                )
                self._connection.folder = self._folder
                self._connection.executescript(f"PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; {_SCHEMA}")
        return self._connection

    def take_over(self, provider: Provider, opening: Opening, spec: str) -> None:
        """Have a client's requests come to this queue."""
        if provider.batches is None:
            raise UserError(f"EditLoupe knows no batch interface of {spec}; omit --executor batch-api")
        if self.files is None:
            self.files, self.spec = provider.batches(opening), spec

    async def answer(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Return the reply to a request; put a new request into the next file.

        Raises:
            Deferred: The reply is not there yet.
            NoReply: The provider did not answer the request.
            OverBudget: A cap does not allow another request.
        """
        unit, expected = UNIT.get()
        key = request_key(unit, path, body)
        if self._failure:
            raise Deferred(DEFERRED)
        row = self._db.execute("SELECT status, body FROM requests WHERE key = ?", (key,)).fetchone()
        if row is None:
            try:
                with raise_unwritable(self._folder):
                    self._stage(key, path, body, expected)
            except UserError as error:  # the client would take it for an error of the network; `submit` raises it
                self._failure = error
            raise Deferred(DEFERRED)
        status, reply = row
        if status is None:
            raise Deferred(DEFERRED)
        if status == 0 or status in (408, 429) or status >= 500:
            detail = clean(bytes(reply).decode("utf-8", "replace"))
            raise NoReply(f"{self.spec} did not answer in its batch: {detail}", expired="expired" in detail)
        return int(status), bytes(reply)

    def _stage(self, key: str, path: str, body: bytes, expected: Usage) -> None:
        assert self.files is not None
        if why := self.room(self.estimate_under_way() + expected):
            raise OverBudget(why)
        line = self.files.line(key, path, body)
        if len(line) > MOST_BYTES:
            raise NoReply(f"the request has {len(line)} bytes, more than a file may have")
        full = self._staged >= MOST_REQUESTS or self._bytes + len(line) > MOST_BYTES
        if self._staging is None or full or self._staging[1] != path:
            self._close_file()
            mark = new_mark()
            facts = (mark, self.spec, path, "staged")
            self._db.execute("INSERT INTO jobs VALUES (?, ?, ?, NULL, ?, 0, 0, 0)", facts)
            self._staging = (mark, path, self._file(mark).open("wb"))
        mark, _, file = self._staging
        file.write(line)
        self._staged, self._bytes = self._staged + 1, self._bytes + len(line)
        self._db.execute("INSERT INTO requests VALUES (?, ?, NULL, NULL)", (key, mark))
        counted = (expected.input_tokens, expected.output_tokens, mark)
        self._db.execute(
            "UPDATE jobs SET requests = requests + 1, tokens_in = tokens_in + ?, tokens_out = tokens_out + ? WHERE mark = ?",
            counted,
        )

    def estimate_under_way(self) -> Usage:
        """Return the estimated usage of the requests under way."""
        query = "SELECT coalesce(sum(tokens_in), 0), coalesce(sum(tokens_out), 0), coalesce(sum(requests), 0) FROM jobs"
        read, written, requests = self._db.execute(f"{query} WHERE state != 'over'").fetchone()
        return Usage(requests=requests, input_tokens=read, output_tokens=written)

    def begin(self) -> None:
        """Delete requests that a killed session had only staged, and errors that earlier sessions stored."""
        self._delete([mark for (mark,) in self._db.execute("SELECT mark FROM jobs WHERE state = 'staged'").fetchall()])
        self._db.execute("DELETE FROM requests WHERE status IS NOT NULL AND status != 200")

    async def recover(self) -> None:
        """Look up files whose submission was not confirmed; delete those that the provider does not know, to send them again."""
        assert self.files is not None
        rows = self._db.execute(
            "SELECT mark FROM jobs WHERE state = 'submitting' AND spec = ?", (self.spec,)
        ).fetchall()
        for (mark,) in rows:
            if remote := await find_job(self.files, mark):
                self._sent(mark, remote)
            else:
                self._delete([mark])

    async def submit(self) -> list[str]:
        """Send every staged file; return the names of the jobs.

        Raises:
            UserError: A request could not be staged. Nothing was sent; the next session stages it again.
        """
        assert self.files is not None
        if self._failure:
            raise self._failure
        self._close_file()
        rows = self._db.execute("SELECT mark, path FROM jobs WHERE state = 'staged' ORDER BY rowid").fetchall()
        names = []
        for mark, path in rows:
            self._db.execute("UPDATE jobs SET state = 'submitting' WHERE mark = ?", (mark,))
            try:
                names.append(await self.files.submit(mark, path, self._file(mark)))
            except BatchRefused as error:
                if not error.passing:  # else the provider may have accepted it: the next session looks it up
                    self._delete([mark])
                raise
            self._sent(mark, names[-1])
        return names

    def _sent(self, mark: str, remote: str) -> None:
        """Note that the provider has a file. The file is deleted first: no later session would look for it."""
        self._file(mark).unlink(missing_ok=True)
        self._db.execute("UPDATE jobs SET state = 'sent', remote = ? WHERE mark = ?", (remote, mark))

    def under_way(self) -> list[tuple[str, str]]:
        """Return the mark and the name of every unfinished job of this judge."""
        query = "SELECT mark, remote FROM jobs WHERE state = 'sent' AND spec = ? ORDER BY rowid"
        return [(str(mark), str(remote)) for mark, remote in self._db.execute(query, (self.spec,))]

    async def collect(self, mark: str, remote: str) -> BatchState:
        """Poll a job; if it is over, store its results."""
        assert self.files is not None
        state = await self.files.state(remote)
        if not state.over:
            return state
        for number, name in enumerate(state.results):
            file = self._folder / f"{mark}.{number}.results"
            try:
                with raise_unwritable(self._folder):
                    await self.files.download(name, file)
                self._store_results(mark, file)
            finally:
                file.unlink(missing_ok=True)
        reason = f"the provider gave no reply to it ({state.sentence})".encode()
        with _transaction(self._db):
            self._db.execute(
                "UPDATE requests SET status = 0, body = ? WHERE mark = ? AND status IS NULL", (reason, mark)
            )
            self._db.execute("UPDATE jobs SET state = 'over' WHERE mark = ?", (mark,))
        return state

    def _store_results(self, mark: str, file: Path) -> None:
        """Store every line of a results file; skip lines that cannot be read."""
        assert self.files is not None
        with file.open("rb") as lines, _transaction(self._db):
            for line in lines:
                try:
                    result = self.files.result(line) if line.strip() else None
                except ValueError:
                    continue
                if result:
                    facts = (result.status, result.body, result.key, mark)
                    self._db.execute("UPDATE requests SET status = ?, body = ? WHERE key = ? AND mark = ?", facts)

    def _file(self, mark: str) -> Path:
        return self._folder / f"{mark}.jsonl"

    def _delete(self, marks: list[str]) -> None:
        for mark in marks:  # the job last: the next session continues a deletion that was stopped
            self._file(mark).unlink(missing_ok=True)
            self._db.execute("DELETE FROM requests WHERE mark = ? AND status IS NULL", (mark,))
            self._db.execute("DELETE FROM jobs WHERE mark = ?", (mark,))

    def _close_file(self) -> None:
        staging, self._staging, self._staged, self._bytes = self._staging, None, 0, 0
        if staging:
            with raise_unwritable(self._folder):
                staging[2].close()

    async def aclose(self) -> None:
        """Close everything. The next session deletes what was staged and not sent."""
        with suppress(UserError):  # what is staged and not sent is deleted anyway
            self._close_file()
        if self._connection:
            self._connection.close()
        if self.files:
            await self.files.aclose()


class _Connection(sqlite3.Connection):
    """A connection whose failed statements are raised as UserError."""

    folder = Path()

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        """Execute a statement."""
        with raise_unwritable(self.folder):
            return super().execute(*arguments)


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Run a transaction; outside of it the connection commits every statement by itself."""
    db.execute("BEGIN")
    try:
        yield
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def half_price(price: Price | None) -> Price | None:
    """Return the price through a batch interface."""
    if price is None:
        return None
    cached = None if price.cached is None else price.cached * HALF
    return Price(input=price.input * HALF, output=price.output * HALF, cached=cached)


def check_batch_judge(judge: BaseJudge) -> None:
    """Raise UserError if a judge asks more than once per unit, uses tools, or is a panel: a file holds single requests."""
    several = any("stage" in spec.facts or "parts" in spec.facts for spec in judge.question_specs())
    if not isinstance(judge, Judge) or judge.mode != "plain" or judge.uses_tools or several:
        raise UserError(
            "--executor batch-api judges with one reply per unit: it needs --mode plain and a protocol that asks once; "
            "omit it to judge in a conversation"
        )
    if len(judge.members) > 1:
        raise UserError("--executor batch-api asks one model; omit it for panels and cascades")
    if judge.spec == RULES:
        raise UserError("--executor batch-api needs a model; the built-in judge `rules` sends no requests")


def build_budget_check(limits: Limits, spending: Spending, price: Price | None) -> Callable[[Usage], str | None]:
    """Return a function that says why the caps do not allow this usage more; it returns None if they do."""

    def why(expected: Usage) -> str | None:
        usage = spending.usage + expected
        tokens, cap = usage.input_tokens + usage.output_tokens, limits.max_tokens
        if cap is not None and tokens > cap:
            return f"the cap of {cap} tokens leaves no room for more requests in files (about {tokens} with those under way)"
        cost = (spending.cost or 0.0) + (price.cost(expected) if price else 0.0)
        if limits.max_cost is not None and cost > limits.max_cost:
            return (
                f"the cap of ${limits.max_cost:g} leaves no room for more requests in files "
                f"(about ${cost:.4f} with those under way)"
            )
        return None

    return why


class BatchApiExecutor:
    """Judges the units whose replies are there, and stages the requests of the others."""

    capacity = CAPACITY

    def __init__(self, judge: BaseJudge, estimate: EstimateUsage) -> None:
        share_cores()
        self._judge, self._estimate = judge, estimate

    async def judge(self, job: Job) -> JobResult:
        """Judge the criteria of a job whose replies are there."""
        expected = self._estimate(job)
        each = max(1, len(job.criteria))
        share = Usage(input_tokens=expected.input_tokens // each, output_tokens=expected.output_tokens // each)
        token = UNIT.set((f"{job.repeat} {job.tries}", share))
        try:
            result = await judge_job(self._judge, job, None)
        finally:
            UNIT.reset(token)
        return JobResult(result.job, without_deferred(result.judgement), result.album)

    def stop(self, sentence: str) -> None:
        """Do nothing: no request is under way."""

    async def close(self) -> None:
        """Do nothing: the caller closes the judge."""


def without_deferred(judgement: Judgement) -> Judgement:
    """Return a judgement without the criteria whose replies are still to come."""

    def is_deferred(outcome: Outcome) -> bool:
        return isinstance(outcome, Unjudged) and outcome.reason == Reason.BUDGET and outcome.detail == DEFERRED

    return select_outcomes(judgement, lambda outcome: not is_deferred(outcome))


async def judge_in_rounds(
    queue: BatchApiQueue,
    judge_missing: Callable[[], Awaitable[None]],
    stop: StopControl,
    say: Callable[[str], None],
    first_poll: float = FIRST_POLL,
) -> None:
    """Judge in rounds until no batch job is under way. At a stop the jobs stay with the provider; say how to continue."""
    await queue.recover()
    if waiting := queue.under_way():
        say(f"continuing with {number_of(len(waiting), 'batch job')}: {', '.join(name for _, name in waiting)}")
    while True:
        await judge_missing()
        if not stop.requests:
            for name in await queue.submit():
                say(f"submitted as batch job {name}; the provider answers within 24 hours")
        if not queue.under_way():
            return
        if not await _wait_for_job(queue, stop, say, first_poll):
            assert queue.files is not None
            for _, name in queue.under_way():
                say(
                    f"batch job {name} continues at the provider; the same command continues with it, and this cancels it: "
                    f"{queue.files.how_to_cancel(name)}"
                )
            return


async def _wait_for_job(queue: BatchApiQueue, stop: StopControl, say: Callable[[str], None], first_poll: float) -> bool:
    """Wait until a job is over and its results are stored; return False if the user wants to stop."""
    pause, failures, states = first_poll, 0, dict[str, str]()
    while not stop.requests:
        for mark, name in queue.under_way():
            try:
                state = await queue.collect(mark, name)
                failures = 0
            except BatchRefused as error:
                failures += 1
                if not error.passing or failures > PATIENCE:
                    raise
                continue
            if states.get(name) != state.sentence:
                states[name] = state.sentence
                say(f"batch job {name}: {state.sentence}")
            if state.over:
                return True
        await _wait(stop, pause)
        pause = min(LONGEST_POLL, pause * 1.5)
    return False


async def _wait(stop: StopControl, seconds: float) -> None:
    """Wait for these seconds, or until the user wants to stop."""
    left = seconds
    while left > 0 and not stop.requests:
        await asyncio.sleep(min(0.2, left))
        left -= 0.2

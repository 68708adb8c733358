"""Judges edits in the background and streams the events to the page."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
import traceback
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from editloupe.evals.runs.writer import StoredAs
from editloupe.judge import Judge
from editloupe.pictures.decode import Album
from editloupe.servers.studio.judging.requests import JudgeRequest
from editloupe.servers.studio.judging.uploads import Uploads
from editloupe.servers.studio.traces.trace_view import find_roles
from editloupe.types import Edit, Judgement, Step, Trace, UserError

MOST_AT_ONCE = 4
REMEMBERED = 50
"""Finished jobs whose events can still be read."""
HEARTBEAT = 15.0
"""Seconds of silence after which a comment is sent, so that proxies keep the connection."""


@dataclass
class LiveJob:
    """An edit being judged. All events are kept, so that a reloaded page misses none."""

    request: JudgeRequest
    clean: Callable[[Any], Any]
    """Redacts API keys: a server may echo one in a reply or an error."""
    id: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    finished: bool = False
    task: asyncio.Task[None] | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self, kind: str, **data: Any) -> None:
        """Add an event and wake the streams."""
        self.events.append((kind, self.clean(data)))
        self._wake()

    def end(self) -> None:
        """End the streams."""
        self.finished = True
        self.tell("end")

    async def follow(self, after: int = 0) -> AsyncIterator[str]:
        """Yield the events from a position on as server-sent events, as they happen."""
        position = after
        while True:
            changed = self._changed
            for kind, data in self.events[position:]:
                position += 1
                yield f"id: {position}\nevent: {kind}\ndata: {json.dumps(data)}\n\n"
            if self.finished and position >= len(self.events):
                return
            if position >= len(self.events):
                try:
                    await asyncio.wait_for(changed.wait(), HEARTBEAT)
                except TimeoutError:
                    yield ": still here\n\n"

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


@dataclass(frozen=True)
class Renderer:
    """Renders steps and verdicts to HTML, which the page inserts."""

    step: Callable[[Trace, Step, dict[str, str]], str]
    """Takes a trace, its step, and the roles of the two whole pictures by the judge's names for them."""
    verdicts: Callable[[Judgement, StoredAs], str]


class LiveJobs:
    """All jobs of this program."""

    def __init__(
        self,
        render: Renderer,
        uploads: Uploads,
        save: Callable[[Judge, Judgement, Album], StoredAs],
        clean: Callable[[Any], Any],
        longest: float,
    ) -> None:
        self._render = render
        self._uploads = uploads
        self._save = save
        self._clean = clean
        self._longest = longest
        self._jobs: dict[str, LiveJob] = {}
        self._closed = False

    def get(self, key: str) -> LiveJob | None:
        """Return a job by its key."""
        return self._jobs.get(key)

    def check_room(self) -> None:
        """Raise UserError if too many edits are being judged already."""
        if self._closed:
            raise UserError("the studio is ending")
        if sum(not job.finished for job in self._jobs.values()) >= MOST_AT_ONCE:
            raise UserError(f"{MOST_AT_ONCE} edits are being judged already; stop one or wait")

    def start(self, request: JudgeRequest, judge: Judge, edit: Edit) -> LiveJob:
        """Begin judging; the judge is closed when that ends. Raise UserError if too many edits are being judged already."""
        self.check_room()
        for old in [key for key, job in self._jobs.items() if job.finished][: -REMEMBERED or None]:
            del self._jobs[old]
        job = LiveJob(request, self._clean)
        self._jobs[job.id] = job
        job.task = asyncio.create_task(self._work(job, judge, edit))
        return job

    def stop(self, job: LiveJob) -> None:
        """Stop judging; the steps so far stay on the page."""
        if job.task and not job.finished:
            job.task.cancel()

    async def close(self) -> None:
        """Stop all jobs and end their streams."""
        self._closed = True
        tasks = [job.task for job in self._jobs.values() if job.task and not job.task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(self, job: LiveJob, judge: Judge, edit: Edit) -> None:
        request = job.request
        try:
            with self._uploads.held((request.source, request.edited, request.reference)):
                await self._judge(job, judge, edit, {"source": request.source, "edited": request.edited})
        except asyncio.CancelledError:
            job.tell("stopped", sentence="Stopped. What was seen until then stays here; nothing was kept.")
        except TimeoutError:
            minutes = max(1, round(self._longest / 60))
            job.tell("failed", sentence=f"This took longer than {minutes} min and was stopped; nothing was kept.")
        except UserError as error:
            job.tell("failed", sentence=str(error))
        except Exception as error:  # the page shows that judging has failed
            job.tell("failed", sentence=f"Something went wrong inside the studio ({type(error).__name__}).")
            print(self._clean(traceback.format_exc()), file=sys.stderr)
        finally:
            job.end()
            await judge.aclose()

    async def _judge(self, job: LiveJob, judge: Judge, edit: Edit, shas: dict[str, str]) -> None:
        album = Album()
        steps: asyncio.Queue[tuple[Trace, Step] | None] = asyncio.Queue()
        showing = asyncio.create_task(self._show(job, steps, album, shas))
        try:
            job.tell("begun", judge=judge.spec, mode=judge.mode, notes=list(judge.notes))
            async with asyncio.timeout(self._longest):
                judgement = await judge.ajudge(edit, watcher=_StepQueue(steps), strict=True, album=album)
                steps.put_nowait(None)
                await showing
            stored = await asyncio.to_thread(self._save, judge, judgement, album)
            job.tell("verdicts", html=self._render.verdicts(judgement, stored))
        finally:
            showing.cancel()
            await asyncio.gather(showing, return_exceptions=True)

    async def _show(
        self, job: LiveJob, steps: asyncio.Queue[tuple[Trace, Step] | None], album: Album, shas: dict[str, str]
    ) -> None:
        """Send the steps to the page in their order, each after its pictures were stored."""
        roles: dict[tuple[str, int | None, str], dict[str, str]] = {}
        while (entry := await steps.get()) is not None:
            trace, step = entry
            track = (trace.criterion, trace.target, trace.part)
            if track not in roles:
                roles[track] = find_roles(trace.model_copy(update={"steps": (step,)}), shas)
            pictures = [sha for seen in step.observations for sha in seen.pictures] + [sent.sha for sent in step.sent]
            await asyncio.to_thread(self._keep, pictures, album)
            html = self._render.step(trace, step, roles[track])
            part = f"{trace.part}: {trace.judge}" if trace.part else ""
            job.tell("step", criterion=trace.criterion, target=trace.target, part=part, html=html)

    def _keep(self, shas: list[str], album: Album) -> None:
        for sha in shas:
            self._uploads.show(album[sha])


@dataclass(frozen=True)
class _StepQueue:
    """A watcher that passes steps on."""

    steps: asyncio.Queue[tuple[Trace, Step] | None]

    def step(self, trace: Trace, step: Step) -> None:
        """Pass a step on."""
        self.steps.put_nowait((trace, step))

"""Judging on a Ray cluster: workers judge, the driver alone writes the run, a lost worker's jobs are done elsewhere."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import uuid
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

from editloupe.evals.batch.local_executor import JobResult
from editloupe.evals.batch.planner import Job
from editloupe.evals.batch.ray_actors import (
    JudgeWorker,
    Switchboard,
    VisionModels,
    build_shared_settings,
    has_heavy_models,
)
from editloupe.evals.batch.stopping import restore_signal_handlers
from editloupe.evals.batch.traffic import Limits, TrafficControl
from editloupe.evals.runs.store import Run
from editloupe.judge.base_judge import BaseJudge, edits_at_once
from editloupe.types import UserError

TIMES = 8
"""How often a job is given to a worker before the run ends; with the waits in between, about a minute."""
TAKE_BACK_EVERY = 0.01
"""Seconds in which Ray may have the signals while it connects or leaves."""
LAST_NEWS = 3.0
"""Seconds the workers' last messages are waited for when a session ends."""
REST = 10.0
"""Seconds a lost worker gets nothing while others are there: it is being restarted."""
_PROC = Path("/proc")


def import_ray() -> Any:
    """Return the package; one sentence where it is missing."""
    try:
        import ray  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        raise UserError("--executor ray needs Ray: pip install 'editloupe[ray]'") from None
    return ray


class Cluster:
    """A connection to Ray, and the cluster itself where it was begun for this.

    It is begun in a thread of its own: on the main thread Ray would take SIGTERM for itself, and the processes of a local
    cluster end with the thread that began them.
    """

    def __init__(self) -> None:
        self.ray = import_ray()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="editloupe-ray")
        self._began = False
        self._local = False

    async def connect(self, address: str | None) -> None:
        """Use the cluster at this address, or begin one on this machine; one in use already is used as it is."""
        if self.ray.is_initialized():
            return
        self._began, self._local = True, address is None
        try:
            connecting = asyncio.get_running_loop().run_in_executor(self._thread, self._connect, address)
            await _with_our_signal_handlers(connecting)
        except Exception as error:  # Ray raises many kinds where a cluster cannot be reached
            await self.close()
            where = f"the Ray cluster at {address}" if address else "a Ray cluster on this machine"
            raise UserError(f"{where} could not be used: {' '.join(str(error).split())[:300]}") from None

    def _connect(self, address: str | None) -> None:
        logging.getLogger("ray._private.worker").setLevel(logging.ERROR)  # it warns of the thread
        self.ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level="error")

    async def close(self) -> None:
        """Leave the cluster; one that was begun here has no process left after this."""
        if self._began:
            leaving = asyncio.get_running_loop().run_in_executor(self._thread, self._shutdown)
            await _with_our_signal_handlers(leaving)
        self._thread.shutdown(wait=False)

    def _shutdown(self) -> None:
        begun_here = _ray_processes() if self._local else {}
        self.ray.shutdown()
        kill_processes(begun_here)  # its agents notice only after some twenty seconds that what they served is gone


async def _with_our_signal_handlers(work: asyncio.Future[None]) -> None:
    """Wait for a connection to begin or end, and take SIGTERM back at once when Ray's native part has changed its handler.

    When it connects it sets one that ends the process with a stack trace, when it leaves it sets the system's own, and it
    cannot be told not to. While it holds the interpreter nothing can be taken back: a SIGTERM in that moment ends the
    process in Ray's way.
    """
    while not work.done():
        with restore_signal_handlers():
            await asyncio.wait([work], timeout=TAKE_BACK_EVERY)
    await work


def _ray_processes() -> dict[int, str]:
    """Return the processes of a cluster below this process, by number, with their commands."""
    commands = {pid: read_command(pid) for pid in find_descendants()}
    return {pid: command for pid, command in commands.items() if "ray::" in command or "/ray/" in command}


class RayExecutor:
    """Judges on a cluster: an existing one by its address, or one on this machine."""

    @classmethod
    async def open(
        cls,
        run: Run,
        open_judge: Callable[..., BaseJudge],
        judge: BaseJudge,
        traffic: TrafficControl,
        *,
        address: str | None = None,
        workers: int | None = None,
        deadline: float | None = None,
    ) -> RayExecutor:
        """Connect to the cluster and start the workers."""
        cluster = Cluster()
        await cluster.connect(address)
        try:
            return cls(cluster, run, open_judge, judge, traffic, workers, deadline)
        except BaseException:
            await cluster.close()
            raise

    def __init__(
        self,
        cluster: Cluster,
        run: Run,
        open_judge: Callable[..., BaseJudge],
        judge: BaseJudge,
        traffic: TrafficControl,
        workers: int | None,
        deadline: float | None,
    ) -> None:
        self._cluster, self._ray = cluster, cluster.ray
        self._run, self._traffic = run, traffic
        count = workers or max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        limits: Limits = traffic.limits.share(count)
        capped = traffic.limits.max_cost is not None or traffic.limits.max_tokens is not None
        self.capacity = max(count, edits_at_once(judge.spec, len(judge.criteria), traffic.limits.concurrency))
        # Workers find the actors they report to by name: Ray warns on the terminal of a handle given to a constructor.
        session = uuid.uuid4().hex
        # Every request may have a few messages waiting, and the driver's own question must always get through.
        waiting = 1_000 + 4 * traffic.limits.concurrency
        switchboard = self._ray.remote(
            num_cpus=0, max_restarts=-1, max_concurrency=waiting, name=f"editloupe-switchboard-{session}"
        )
        self._switchboard, self._filed = switchboard(Switchboard).remote(traffic.spending), 0
        self.vision = self._vision(judge, f"editloupe-vision-{session}")
        worker = self._ray.remote(num_cpus=1, max_restarts=-1, max_concurrency=max(100, self.capacity))(JudgeWorker)
        self.workers = [
            worker.remote(open_judge, limits, deadline, session, self.vision is not None, capped) for _ in range(count)
        ]
        self._load: Counter[int] = Counter(dict.fromkeys(range(count), 0))
        self._rests_until: dict[int, float] = dict.fromkeys(range(count), 0.0)
        self._news = asyncio.create_task(self._listen())

    def _vision(self, judge: BaseJudge, name: str) -> Any:
        """Return the actor with the heavy models, on a GPU where the cluster has one; None where there are none."""
        if not (judge.uses_tools and has_heavy_models(judge.toolbox)):
            return None
        gpus = min(1, int(self._ray.cluster_resources().get("GPU", 0)))
        actor = self._ray.remote(num_cpus=0, num_gpus=gpus, max_restarts=-1, max_task_retries=-1, name=name)
        return actor(VisionModels).remote(build_shared_settings(judge.toolbox))

    async def judge(self, job: Job) -> JobResult:
        """Give a job to the worker with the least to do; where that one is lost, to another."""
        for attempt in range(TIMES):
            number = min(self._load, key=lambda n: (monotonic() < self._rests_until[n], self._load[n]))
            self._load[number] += 1
            try:
                kept = self._run.replies_of(job.edit.id)
                judgement, pictures = await self._unless_failed(self.workers[number].judge.remote(job, kept))
                return JobResult(job, judgement, pictures)
            except self._ray.exceptions.RayTaskError as error:
                raise error.cause if isinstance(error.cause, Exception) else error from None
            except self._ray.exceptions.RayError:
                self._rests_until[number] = monotonic() + REST
                await asyncio.sleep(min(16.0, 0.25 * 2**attempt))
                with suppress(self._ray.exceptions.RayError):
                    await self._take_news(wait=False)
            finally:
                self._load[number] -= 1
        raise UserError(
            f"edit {job.edit.id} was given to {TIMES} workers and every one was lost; see the cluster's logs"
        )

    async def _unless_failed(self, answer: Awaitable[Any]) -> Any:
        """Wait for a worker; raises at once what ended the listening, for then nothing can be kept any more."""
        asked = asyncio.ensure_future(answer)
        asked.add_done_callback(lambda task: task.cancelled() or task.exception())  # heard, also where nobody waits now
        try:
            await asyncio.wait({asked, self._news}, return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                await self._news
            return await asked
        finally:
            asked.cancel()

    async def _listen(self) -> None:
        """File what the workers tell until the session ends; where that cannot be done, they are told to stop."""
        while True:
            try:
                await self._take_news()
            except self._ray.exceptions.RayError:
                await asyncio.sleep(0.5)
            except Exception as error:
                self.stop(str(error))
                raise

    async def _take_news(self, wait: bool = True) -> None:
        """File what the workers tell: replies are kept, tokens are counted, a cap that is reached stops everybody."""
        for number, message in await self._switchboard.take.remote(self._filed, wait):
            if number <= self._filed:  # handed over to two who asked at once
                continue
            if message[0] == "reply":
                self._run.keep_reply(*message[1:])
            elif message[0] == "paid":
                self._traffic.count(*message[1:])
            elif message[0] == "refused":
                self._traffic.refuse(None)
            elif message[0] == "paused":
                self._traffic.pause_requests(*message[1:])
            self._filed = number
        if why := self._traffic.spending.why_full():
            self.stop(why)

    def stop(self, sentence: str) -> None:
        """Tell every worker to send no further request; one that is gone sends none."""
        for worker in self.workers:
            with suppress(Exception):  # Ray raises a bare one where the session is being closed
                worker.stop.remote(sentence)

    async def close(self) -> None:
        """File the last news and let go of the workers; a cluster that was there before stays."""
        self._news.cancel()
        await asyncio.gather(self._news, return_exceptions=True)
        try:
            with suppress(self._ray.exceptions.RayError, TimeoutError):
                async with asyncio.timeout(LAST_NEWS):
                    await self._take_news(wait=False)
            for actor in (*self.workers, self._switchboard, self.vision):
                if actor is not None:
                    self._ray.kill(actor)
        finally:
            await self._cluster.close()


def find_descendants(pid: int | None = None) -> list[int]:
    """Return the processes below one, this one by default; none where the system does not list them under /proc."""
    children: dict[int, list[int]] = defaultdict(list)
    for folder in _PROC.iterdir() if _PROC.is_dir() else ():
        if folder.name.isdigit():
            with suppress(OSError, ValueError, IndexError):  # it ended while we looked
                # "pid (name) state parent …"; a name may hold spaces and brackets of its own
                parent = int((folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1])
                children[parent].append(int(folder.name))
    found: list[int] = []
    waiting = [os.getpid() if pid is None else pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def read_command(pid: int) -> str:
    """Return a process's command line; empty where it has ended."""
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return ""


def kill_processes(commands: Mapping[int, str]) -> None:
    """Kill these processes; one that has ended, or whose number belongs to another command meanwhile, is passed over."""
    for pid, command in commands.items():
        if command and read_command(pid) == command:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)

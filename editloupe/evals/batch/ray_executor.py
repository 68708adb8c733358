"""Judge on a Ray cluster. The driver alone writes the run, and jobs of a lost worker go to another one."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import signal
import uuid
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any

from editloupe._util.text import one_line
from editloupe.agent.transport.secrets import redact_text
from editloupe.evals.batch.local_executor import JobResult, build_unjudged
from editloupe.evals.batch.planner import Job
from editloupe.evals.batch.ray_actors import (
    JudgeWorker,
    Switchboard,
    VisionModels,
    build_shared_settings,
    has_heavy_models,
    plan_vision,
)
from editloupe.evals.batch.stopping import restore_signal_handlers
from editloupe.evals.batch.traffic import Limits, TrafficControl
from editloupe.evals.runs.run_folder import JudgementPictures
from editloupe.evals.runs.store import Run
from editloupe.judge.base_judge import BaseJudge, edits_at_once
from editloupe.tools.settings import ToolSettings
from editloupe.types import Reason, UserError

TIMES = 8
"""How often a job is given to a worker that can be reached before the batch ends."""
PATIENCE = 300.0
"""Seconds in which a job can reach no worker before the batch ends. On a busy machine a restart takes more than a minute."""
MOST_LOST = 3
"""Workers that are lost with a job before its edit is unjudged. The last one has no other job, so no other edit is to blame."""
RESTORE_EVERY = 0.01
"""Seconds between two restorations of the signal handlers while Ray connects or shuts down."""
LAST_MESSAGES = 3.0
"""Seconds to wait for the workers' last messages at the end."""
REST = 10.0
"""Seconds in which a lost worker gets no job if there are others, because it is being restarted."""
VISION_CALLS = 64
"""Searches and enlargements that an actor with vision models has at a time. Most of them wait for a forward pass."""
_PROC = Path("/proc")


def import_ray() -> Any:
    """Import Ray; raise UserError if it is not installed."""
    try:
        import ray  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        raise UserError("--executor ray needs Ray: pip install '.[ray]'") from None
    return ray


class Cluster:
    """A connection to Ray, and the local cluster if it was started here.

    It is started in a thread of its own: on the main thread Ray would handle SIGTERM itself, and the processes of a local
    cluster end with the thread that started them.
    """

    def __init__(self) -> None:
        self.ray = import_ray()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="editloupe-ray")
        self._started = False
        self._local = False

    async def connect(self, address: str | None) -> None:
        """Use the cluster at this address, or start a local one; if this process is connected already, use that."""
        if self.ray.is_initialized():
            return
        self._started, self._local = True, address is None
        try:
            connecting = asyncio.get_running_loop().run_in_executor(self._thread, self._connect, address)
            await _with_our_signal_handlers(connecting)
        except Exception as error:  # Ray raises many kinds if a cluster cannot be reached
            await self.close()
            where = f"the Ray cluster at {address}" if address else "a Ray cluster on this machine"
            raise UserError(f"{where} could not be used: {' '.join(str(error).split())[:300]}") from None

    def _connect(self, address: str | None) -> None:
        logging.getLogger("ray._private.worker").setLevel(logging.ERROR)  # it warns about the thread
        self.ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level="error")

    async def close(self) -> None:
        """Disconnect; end all processes of a cluster that was started here."""
        if self._started:
            leaving = asyncio.get_running_loop().run_in_executor(self._thread, self._shutdown)
            await _with_our_signal_handlers(leaving)
        self._thread.shutdown(wait=False)

    def _shutdown(self) -> None:
        started_here = _ray_processes() if self._local else {}
        self.ray.shutdown()
        kill_processes(started_here)  # its agents would notice the end only after some twenty seconds


async def _with_our_signal_handlers(work: asyncio.Future[None]) -> None:
    """Wait while Ray connects or shuts down, and keep restoring our signal handlers.

    Ray's native part sets a SIGTERM handler of its own, and there is no option against it. While it holds the interpreter
    nothing can be restored: a SIGTERM at that moment ends the process in Ray's way.
    """
    while not work.done():
        with restore_signal_handlers():
            await asyncio.wait([work], timeout=RESTORE_EVERY)
    await work


def _ray_processes() -> dict[int, str]:
    """Return the Ray processes below this process: their ids and commands."""
    commands = {pid: read_command(pid) for pid in find_descendants()}
    return {pid: command for pid, command in commands.items() if "ray::" in command or "/ray/" in command}


def _check_sendable(ray: Any, open_judge: Callable[..., BaseJudge], spec: str) -> None:
    """Refuse a function that cannot be sent to the workers, such as one that holds a chat model with open connections."""
    try:
        ray.cloudpickle.dumps(open_judge)
    except Exception as error:  # whatever an object raises while it is pickled
        why = redact_text(one_line(f"{type(error).__name__}: {error}"))
        raise UserError(
            f"{spec} cannot be sent to Ray's workers ({why}); create its model inside the function that opens the judge"
        ) from None


class RayExecutor:
    """Judges on a Ray cluster: an existing one, or a local one."""

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
        """Connect to the cluster and start the workers.

        Raises:
            UserError: If the judge cannot be opened by the workers.
        """
        if problem := judge.why_only_here():
            raise UserError(problem)
        cluster = Cluster()
        _check_sendable(cluster.ray, open_judge, judge.spec)
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
        self._run, self._judge, self._traffic = run, judge, traffic
        count = workers or max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        limits: Limits = traffic.limits.share(count)
        capped = traffic.limits.max_cost is not None or traffic.limits.max_tokens is not None
        self.capacity = max(count, edits_at_once(judge.spec, len(judge.criteria), traffic.limits.concurrency))
        # Workers find the actors by name: Ray prints a warning if a handle is passed to a constructor.
        session = uuid.uuid4().hex
        # Every request may have a few messages waiting, and the driver's own call must always get through.
        waiting = 1_000 + 4 * traffic.limits.concurrency
        switchboard = self._ray.remote(
            num_cpus=0,
            max_restarts=-1,
            max_concurrency=waiting,
            name=f"editloupe-switchboard-{session}",
            scheduling_strategy=self._on_own_node(),
        )
        self._switchboard, self._filed = switchboard(Switchboard).remote(traffic.spending), 0
        tools = build_shared_settings(judge.toolbox)
        self.vision = self._start_vision(judge, tools, session)
        worker = self._ray.remote(num_cpus=1, max_restarts=-1, max_concurrency=max(100, self.capacity))(JudgeWorker)
        self.workers = [
            worker.remote(open_judge, limits, deadline, session, tools, len(self.vision), capped) for _ in range(count)
        ]
        self._load: Counter[int] = Counter(dict.fromkeys(range(count), 0))
        self._rests_until: dict[int, float] = dict.fromkeys(range(count), 0.0)
        self._reserved: set[int] = set()
        self._released = asyncio.Condition()
        """Notified when a worker has a job less."""
        self._listening = asyncio.create_task(self._listen())

    def _on_own_node(self) -> Any:
        """Return the strategy that places an actor on the driver's machine, so that it is not lost with another one."""
        from ray.util.scheduling_strategies import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
            NodeAffinitySchedulingStrategy,
        )

        return NodeAffinitySchedulingStrategy(self._ray.get_runtime_context().get_node_id(), soft=True)

    def _start_vision(self, judge: BaseJudge, settings: ToolSettings, session: str) -> list[Any]:
        """Start the actors with the heavy models, one per free GPU, or one; return none if the judge uses no such model."""
        if not (judge.uses_tools and has_heavy_models(judge.toolbox)):
            return []
        gpus = int(self._ray.cluster_resources().get("GPU", 0)) and max(
            1, int(self._ray.available_resources().get("GPU", 0))
        )
        started = []
        for number, options in enumerate(plan_vision(settings.device, gpus)):
            name = f"editloupe-vision-{session}-{number}"
            actor = self._ray.remote(
                num_cpus=0, max_restarts=-1, max_task_retries=-1, max_concurrency=VISION_CALLS, name=name, **options
            )
            started.append(actor(VisionModels).remote(settings))
        return started

    async def judge(self, job: Job) -> JobResult:
        """Give a job to the least busy worker; if that one is lost, to another.

        An edit that was on `MOST_LOST` lost workers, the last time alone, is unjudged.
        """
        lost, attempt, tries, waited = 0, 0, 0, 0.0
        while tries < TIMES and waited < PATIENCE:
            async with self._take_worker(alone=lost == MOST_LOST - 1) as number:
                worker, reached, began = self.workers[number], False, monotonic()
                try:
                    if lost:
                        await self._wait_for(worker.process.remote())  # one that is being restarted is not lost again
                    reached = True
                    replies = self._run.replies_of(job.edit.id)
                    judgement, pictures = await self._wait_for(worker.judge.remote(job, replies))
                    return JobResult(job, judgement, pictures)
                except self._ray.exceptions.RayTaskError as error:
                    if not self._is_lost(error.cause):
                        raise error.cause if isinstance(error.cause, Exception) else error from None
                    self._rests_until[number] = monotonic() + REST
                except self._ray.exceptions.RayError as error:
                    self._rests_until[number] = monotonic() + REST
                    if getattr(error, "actor_init_failed", False):
                        self._give_up(number, str(error))
                    lost += reached
            if lost == MOST_LOST:
                return self._leave_unjudged(job)
            pause = min(16.0, 0.25 * 2**attempt)
            attempt += 1
            tries, waited = (tries + 1, 0.0) if reached else (tries, waited + monotonic() - began + pause)
            await asyncio.sleep(pause)
            with suppress(self._ray.exceptions.RayError):
                await self._handle_messages(wait=False)
        raise UserError(
            f"no Ray worker could be reached for edit {job.edit.id} in {attempt} attempts; see the cluster's logs"
        )

    @asynccontextmanager
    async def _take_worker(self, alone: bool) -> AsyncIterator[int]:
        """Choose the least busy worker; with `alone`, wait until it has no other job, and let it have none."""
        number = -1
        try:
            async with self._released:
                await self._released.wait_for(lambda: bool(self._free_workers()) and not (alone and self._reserved))
                number = min(self._free_workers(), key=lambda n: (monotonic() < self._rests_until[n], self._load[n]))
                self._load[number] += 1
                if alone:
                    self._reserved.add(number)
                    await self._released.wait_for(lambda: self._load[number] == 1)
            yield number
        finally:
            async with self._released:
                if number >= 0:
                    self._load[number] -= 1
                if alone:
                    self._reserved.discard(number)
                self._released.notify_all()

    def _free_workers(self) -> list[int]:
        """Return the workers that could start and that no job has alone."""
        return [n for n, until in self._rests_until.items() if until < math.inf and n not in self._reserved]

    def _leave_unjudged(self, job: Job) -> JobResult:
        sentence = f"{MOST_LOST} Ray workers were lost while they judged this edit, the last one with no other edit"
        return JobResult(job, build_unjudged(self._judge, job, Reason.INTERNAL, sentence), JudgementPictures())

    def _is_lost(self, error: object) -> bool:
        """Return whether the error of a job is that another actor was lost, such as the switchboard."""
        return isinstance(error, self._ray.exceptions.RayError)

    def _give_up(self, number: int, message: str) -> None:
        """Give no further job to a worker that raised an error on its start; Ray does not start it again.

        Raises:
            UserError: It was the last one.
        """
        self._rests_until[number] = math.inf
        if all(until == math.inf for until in self._rests_until.values()):
            reason = message.rstrip().rpartition("\n")[2].rpartition("UserError: ")[2]  # the last line of a traceback
            raise UserError(f"no Ray worker could start: {reason}")

    async def _wait_for(self, answer: Awaitable[Any]) -> Any:
        """Wait for a worker; raise at once if listening has failed, because then nothing can be stored."""
        task = asyncio.ensure_future(answer)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # mark the exception as retrieved
        try:
            await asyncio.wait({task, self._listening}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                await self._listening
            return await task
        finally:
            task.cancel()

    async def _listen(self) -> None:
        """Store the workers' messages until the session ends; if that fails, stop the workers."""
        while True:
            try:
                await self._handle_messages()
            except self._ray.exceptions.RayError:
                await asyncio.sleep(0.5)
            except Exception as error:
                self.stop(str(error))
                raise

    async def _handle_messages(self, wait: bool = True) -> None:
        """Handle the workers' messages: store replies, count tokens, and stop all workers if a cap is reached."""
        for number, message in await self._switchboard.take.remote(self._filed, wait):
            if number <= self._filed:  # returned to two calls at the same time
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
        """Have every worker send no further request."""
        for worker in self.workers:
            with suppress(Exception):  # Ray raises a plain Exception while the session is being closed
                worker.stop.remote(sentence)

    async def close(self) -> None:
        """Store the last messages and end the workers. A cluster that existed before stays."""
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)
        try:
            with suppress(self._ray.exceptions.RayError, TimeoutError):
                async with asyncio.timeout(LAST_MESSAGES):
                    await self._handle_messages(wait=False)
            for actor in (*self.workers, self._switchboard, *self.vision):
                self._ray.kill(actor)
        finally:
            await self._cluster.close()


def find_descendants(pid: int | None = None) -> list[int]:
    """Return the ids of the processes below a process, by default this one; empty on systems without /proc."""
    children: dict[int, list[int]] = defaultdict(list)
    for folder in _PROC.iterdir() if _PROC.is_dir() else ():
        if folder.name.isdigit():
            with suppress(OSError, ValueError, IndexError):  # it ended while we looked
                # "pid (name) state parent …"; a name may hold spaces and brackets of its own
                parent = int((folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1])
                children[parent].append(int(folder.name))
    descendants: list[int] = []
    waiting = [os.getpid() if pid is None else pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        descendants += below
        waiting += below
    return descendants


def read_command(pid: int) -> str:
    """Return a process's command line; empty if it has ended."""
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return ""


def kill_processes(commands: Mapping[int, str]) -> None:
    """Kill these processes, unless they have ended or their id belongs to another command by now."""
    for pid, command in commands.items():
        if command and read_command(pid) == command:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)

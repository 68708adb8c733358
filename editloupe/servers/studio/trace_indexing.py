"""Large runs are indexed in the background, while a page says how far it is."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from editloupe.evals.runs.damage import raise_run_damaged
from editloupe.evals.runs.store import Run
from editloupe.evals.traces.index_update import count_unread, open_index
from editloupe.servers.studio.library import OpenRun
from editloupe.types import UserError

AT_ONCE = 4000
"""Verdicts that are indexed while a page is waited for; more of them are done in the background."""


class _Stopped(Exception):
    """The studio closes."""


@dataclass
class _Job:
    thread: threading.Thread | None = None
    done: int = 0
    whole: int = 0
    fault: str = ""
    ended: bool = field(default=False)


class TraceIndexing:
    """Builds indexes, one thread a run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[str, _Job] = {}
        self._closing = False

    def progress(self, one: OpenRun) -> tuple[int, int] | None:
        """Return how many verdicts of how many are indexed, None where a page can be answered at once."""
        with self._lock:
            job = self._jobs.get(one.key)
            if job is None:
                with raise_run_damaged(one.name):
                    left = count_unread(one.run)
                if left <= AT_ONCE:
                    return None
                job = self._jobs[one.key] = _Job(whole=left)
                job.thread = threading.Thread(target=self._build, args=(one, job), daemon=True)
                job.thread.start()
            if job.ended:
                # Kept once: a run that can only be indexed in memory would otherwise be waited for again and again.
                if job.fault:
                    del self._jobs[one.key]
                    raise UserError(job.fault)
                return None
            return job.done, job.whole

    def close(self) -> None:
        """Stop what is being built; what is indexed so far stays."""
        with self._lock:
            self._closing = True
            threads = [job.thread for job in self._jobs.values() if job.thread]
        for thread in threads:
            thread.join(20)

    def _build(self, one: OpenRun, job: _Job) -> None:
        def told(done: int, whole: int) -> None:
            job.done, job.whole = done, whole
            if self._closing:
                raise _Stopped

        try:
            with raise_run_damaged(one.name), Run.open(one.run.folder) as run, open_index(run, told):
                pass
        except _Stopped:
            pass
        except UserError as error:
            job.fault = str(error)
        finally:
            job.ended = True

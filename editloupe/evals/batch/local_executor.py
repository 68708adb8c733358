"""Define the interface of executors, and judge jobs in this process."""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import cv2

from editloupe.agent.spec_names import RULES
from editloupe.agent.transport.errors import clean
from editloupe.evals.batch.planner import Job
from editloupe.evals.batch.work_items import Work, working_on
from editloupe.evals.runs.run_folder import JudgementPictures
from editloupe.judge.base_judge import BaseJudge, edits_at_once
from editloupe.pictures.decode import Album
from editloupe.tools.compare.process_pool import ComparisonPool
from editloupe.types import Judgement, Outcome, Reason, Unjudged, UserError

_M_MMAP_THRESHOLD = -3
"""The number of this option in glibc's `malloc.h`."""
LARGE_BUFFER = 2**18
"""Bytes; an encoded picture of a megapixel has about as many."""


@dataclass(frozen=True)
class JobResult:
    """A job's judgement and its pictures."""

    job: Job
    judgement: Judgement
    album: Album | JudgementPictures


class Executor(Protocol):
    """Interface of an executor, which judges jobs."""

    @property
    def capacity(self) -> int:
        """How many jobs to give it at a time."""

    async def judge(self, job: Job) -> JobResult:
        """Judge one job; raise UserError only if every other job would fail as well (a wrong key)."""

    def stop(self, sentence: str) -> None:
        """Send no further request."""

    async def close(self) -> None:
        """Free all resources."""


class LocalExecutor:
    """Judges in this process."""

    def __init__(self, judge: BaseJudge, concurrency: int, deadline: float | None = None) -> None:
        share_cores()
        map_large_buffers()
        self._judge = judge
        self._deadline = deadline
        self._pool = compare_in_pool(judge)
        self.capacity = edits_at_once(judge.spec, len(judge.criteria), concurrency)

    async def judge(self, job: Job) -> JobResult:
        """Judge one job, within the deadline."""
        return await judge_job(self._judge, job, self._deadline)

    def stop(self, sentence: str) -> None:
        """Do nothing: the traffic control stops requests."""

    async def close(self) -> None:
        """End the comparison processes. The caller closes the judge."""
        if self._pool:
            await asyncio.to_thread(self._pool.close)


def share_cores() -> None:
    """Turn OpenCV's threads off: with many edits under way they cost a third more CPU and gain nothing."""
    cv2.setNumThreads(1)


def map_large_buffers() -> None:
    """Have glibc return every buffer of a picture to the system when it is freed.

    By default the limit for this rises to 32 MB with the first such buffer. Files, encoded copies and crops then come from the
    heaps of a dozen threads, which fragment: 30 to 70 MB of a batch with 32 requests under way were free and not returned.
    """
    if sys.platform == "linux" and (set_option := getattr(ctypes.CDLL(None), "mallopt", None)):
        set_option(_M_MMAP_THRESHOLD, LARGE_BUFFER)


def compare_in_pool(judge: BaseJudge) -> ComparisonPool | None:
    """Have the judge's pictures compared in other processes, at most one per core and eight."""
    if judge.spec == RULES or not judge.uses_tools:
        return None
    pool = ComparisonPool(min(8, os.cpu_count() or 1))
    judge.toolbox.use_comparer(pool)
    return pool


async def judge_job(judge: BaseJudge, job: Job, deadline: float | None) -> JobResult:
    """Judge a job. A failure of this edit becomes an outcome and does not end the run."""
    album = Album(job.hashes)
    with working_on(Work(job.edit.id, job.tries)):
        try:
            async with asyncio.timeout(deadline):
                judgement = await judge.ajudge(
                    job.edit, criteria=job.criteria, repeat=job.repeat, strict=False, album=album
                )
        except TimeoutError:
            sentence = f"the edit was not judged within its deadline of {deadline:g} s"
            judgement = build_unjudged(judge, job, Reason.TIMEOUT, sentence)
        except UserError:
            raise
        except Exception as error:  # any judge may fail on one edit; the run goes on and the outcome says why
            sentence = f"judging failed: {type(error).__name__}: {clean(str(error))}"
            judgement = build_unjudged(judge, job, Reason.INTERNAL, sentence)
    return JobResult(job, judgement, album)


def select_outcomes(judgement: Judgement, condition: Callable[[Outcome], bool]) -> Judgement:
    """Return a judgement with only some of its outcomes, and their traces."""
    outcomes = tuple(filter(condition, judgement.verdicts))
    criteria = {outcome.criterion for outcome in outcomes}
    traces = tuple(trace for trace in judgement.traces if trace.criterion in criteria)
    return judgement.model_copy(update={"verdicts": outcomes, "traces": traces})


def build_unjudged(judge: BaseJudge, job: Job, reason: Reason, sentence: str) -> Judgement:
    """Return a judgement that leaves every criterion of a job unjudged, for the same reason."""
    verdicts = tuple(Unjudged(criterion=name, reason=reason, detail=sentence) for name in job.criteria)
    return Judgement(edit=job.edit, protocol=judge.protocol, mode=judge.mode, judge=judge.spec, verdicts=verdicts)

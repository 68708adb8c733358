"""The studio's state, which all routes share."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, replace
from typing import Any, cast
from urllib.parse import urlencode

from fastapi import Request
from starlette.exceptions import HTTPException

from editloupe.agent.transport.secrets import Secrets
from editloupe.evals.runs.writer import StoredAs, save_judgement
from editloupe.judge import Judge
from editloupe.pictures.decode import Album
from editloupe.servers.studio.charts import ChartCache
from editloupe.servers.studio.judging.live import LiveJobs, Renderer
from editloupe.servers.studio.judging.requests import ForkJobs
from editloupe.servers.studio.judging.uploads import Uploads
from editloupe.servers.studio.picture_cache import DecodingThreads, PictureCache
from editloupe.servers.studio.render import Pages
from editloupe.servers.studio.run_catalog import OpenRun, RunCatalog
from editloupe.servers.studio.settings import StudioSettings
from editloupe.servers.studio.traces.trace_pages import TraceIndexing
from editloupe.servers.studio.traces.trace_view import build_step
from editloupe.servers.studio.work_folders import MakingFolders, PairFiles, split_folders
from editloupe.types import Judgement, Step, Trace


@dataclass(frozen=True)
class Studio:
    """The studio: its runs, pictures, jobs and pages."""

    settings: StudioSettings
    catalog: RunCatalog
    uploads: Uploads
    budget: DecodingThreads
    picture_cache: PictureCache
    pages: Pages
    jobs: LiveJobs
    forks: ForkJobs
    charts: ChartCache
    indexing: TraceIndexing
    making: MakingFolders
    pairs: PairFiles

    @classmethod
    def open(cls, settings: StudioSettings) -> Studio:
        """Open the runs and create the studio."""
        pairs = PairFiles(settings.pairs, settings.allow_outside)
        runs, benchmarks = split_folders(settings.runs)
        making = MakingFolders(benchmarks)
        catalog, budget, secrets = RunCatalog(replace(settings, runs=runs)), DecodingThreads(), Secrets()
        try:
            uploads = Uploads(budget)
        except BaseException:
            catalog.close()
            raise
        picture_cache = PictureCache(lambda: [*catalog.folders(), *making.pictures, uploads.shown], budget)
        pages = Pages({"settings": settings, "making": bool(benchmarks), "size_of": picture_cache.size}, secrets)
        saver = _Saver(catalog)
        render = Renderer(
            step=lambda trace, step, roles: _step(pages, trace, step, roles),
            verdicts=lambda judgement, stored: _verdicts(pages, catalog, judgement, stored),
        )
        jobs = LiveJobs(render, uploads, saver.save, secrets.in_value, settings.longest)
        charts, indexing = ChartCache(), TraceIndexing()
        return cls(
            settings, catalog, uploads, budget, picture_cache, pages, jobs, ForkJobs(), charts, indexing, making, pairs
        )

    async def end(self) -> None:
        """Stop all jobs; their pages get an event."""
        await asyncio.gather(asyncio.to_thread(self.forks.close), self.jobs.close())

    def close(self) -> None:
        """Close the runs and remove temporary files; closing again does nothing."""
        self.forks.close()
        self.budget.close()
        self.indexing.close()
        self.catalog.close()
        self.uploads.close()

    def leave(self) -> None:
        """Remove temporary files without waiting for requests, just before the process is ended."""
        self.catalog.remove_temporary()
        self.uploads.close()

    def run(self, key: str) -> OpenRun:
        """Return a run by its key; raise a 404 error if there is none."""
        open_run = self.catalog.get(key)
        if open_run is None:
            raise HTTPException(404, "There is no such run here.")
        return open_run


def studio_of(request: Request) -> Studio:
    """Return the studio a request is for."""
    return cast(Studio, request.app.state.studio)


class _Saver:
    """Stores judgements in the run of the Judge page; an edit that is judged again gets a further repeat."""

    def __init__(self, catalog: RunCatalog) -> None:
        self._catalog = catalog
        self._lock = threading.Lock()

    def save(self, judge: Judge, judgement: Judgement, album: Album) -> StoredAs:
        """Store a judgement and return its name and repeat."""
        with self._lock:
            return save_judgement(self._catalog.writer(), judge, judgement, album)


def _step(pages: Pages, trace: Trace, step: Step, roles: dict[str, str]) -> str:
    side = f"{trace.criterion}-{trace.target}"
    return pages.text("parts/step.html", view=build_step(step, step.index, roles, side), raw_link=None, parted=False)


def _verdicts(pages: Pages, catalog: RunCatalog, judgement: Judgement, stored: StoredAs) -> str:
    run: Any = catalog.judged_here()
    links = {}
    for unit in run.units(stored.name):  # of several ways to ask, the last one is this judgement's
        if (unit.judge, unit.mode, unit.repeat) == (judgement.judge, judgement.mode, stored.repeat):
            values = {"edit": unit.name, "criterion": unit.criterion, "repeat": stored.repeat}
            values["configuration"] = run.configuration_of(unit)
            links[unit.criterion] = f"/runs/{run.key}/trace?{urlencode(values)}"
    return pages.text("parts/verdicts.html", judgement=judgement, links=links)

"""The run a server keeps its judgements in: written by one thread, and asked before the judge is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from editloupe.evals.runs.find_answers import find_verdict
from editloupe.evals.runs.reader import RunReader
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import Filing
from editloupe.judge import Judge
from editloupe.judge.question_key import Question
from editloupe.pictures.decode import Album, hash_file
from editloupe.pictures.memory import PictureSource
from editloupe.pictures.pixels import ImageError
from editloupe.types import Edit, Judgement, Sha, Verdict

T = TypeVar("T")


class KeptRun:
    """A run that takes judgements as they come; verdicts it holds, also from an earlier start, are used again."""

    def __init__(self, folder: Path, judge: Judge) -> None:
        self._judge = judge
        self._run = Run.write(folder)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="editloupe-run")
        self._reader: RunReader | None = None
        try:
            self._configuration = self._run.configure(judge.describe(), judge.asked())
        except BaseException:
            self.close()
            raise

    async def held(self, edit: Edit) -> dict[str, Verdict]:
        """Return the verdicts that the run holds of an edit asked in exactly this way, by criterion."""
        return await self._do(lambda: self._held(edit))

    async def save(self, judgement: Judgement, album: Album) -> None:
        """Keep a judgement with its traces and pictures; raises UserError where that cannot be written."""
        await self._do(lambda: self._save(judgement, album))

    def close(self) -> None:
        """Write what is under way to its end and let go of the folder; closing again does nothing."""
        self._thread.shutdown(wait=True)
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        self._run.close()

    async def _do(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _held(self, edit: Edit) -> dict[str, Verdict]:
        if self._reader is None:
            self._reader = self._run.reader()
        verdicts: dict[str, Verdict] = {}
        for criterion, question in self._questions(edit).items():
            if (verdict := find_verdict(self._reader, question)) is not None:
                verdicts[criterion] = verdict.model_copy(update={"criterion": criterion})
        return verdicts

    def _save(self, judgement: Judgement, album: Album) -> None:
        questions = self._questions(judgement.edit)
        filing = Filing(judgement, 0, album, questions=questions, configuration=self._configuration)
        self._run.save_all([filing])

    def _questions(self, edit: Edit) -> dict[str, Question]:
        hashes: dict[PictureSource, Sha] = {}
        for source in edit.paths:
            try:
                hashes[source] = hash_file(source)
            except ImageError:
                continue
        judge = self._judge
        return {criterion: judge.question_key(edit, criterion, hashes) for criterion in judge.criteria_for(edit)}

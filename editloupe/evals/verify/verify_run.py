"""Check the verdicts of a run, edit by edit, and store the results next to it.

Pictures are opened only for verdicts whose words and pictures were not checked before. Labels and scores are never changed.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from editloupe._util.files import safe_file_name
from editloupe._util.hashing import content_key
from editloupe._util.loop_thread import LoopThread
from editloupe.agent.asker import NoAnswer
from editloupe.agent.transport.errors import ModelFailed
from editloupe.evals.runs.claim_store import ClaimCounts, ClaimStore
from editloupe.evals.runs.edit_rows import StoredEdit
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import Unit
from editloupe.judge.claims import claim_checks, claim_patterns
from editloupe.judge.claims.claim_model import ModelExtractor
from editloupe.judge.claims.claim_records import Claim, ClaimState, Statement
from editloupe.judge.claims.pixel_facts import Instruments, PairFacts
from editloupe.judge.claims.verdict_claims import SpokenVerdict, check_words, read_words
from editloupe.pictures.decode import Album, Picture
from editloupe.pictures.pixels import ImageError, Pixels
from editloupe.tools.drawing import join_side_by_side
from editloupe.tools.geometry import enclose_boxes
from editloupe.types import Box, Edit, Verdict

MISSING, NO_EXTRACTION = "a picture is missing or damaged", "the model gave no list of claims"
AHEAD = 2
"""Edits per thread that wait to be stored."""


class CheckedVerdict(NamedTuple):
    """A verdict with the counts of its claims, or the reason why it was not checked."""

    unit: Unit
    edit: StoredEdit
    counts: ClaimCounts | None
    """None if it was not checked."""
    why: str = ""
    fresh: bool = False
    """Whether it was checked just now."""


@dataclass
class Verifier:
    """Checks the verdicts of a run.

    Args:
        run: The run, open for reading.
        store: The results.
        instruments: The text reader and the detector.
        extractor: A model that is asked for further claims; None reads claims by patterns only.
        concurrency: Edits that are checked at a time; by default the number of processors, at most 4.
    """

    run: Run
    store: ClaimStore
    instruments: Instruments = field(default_factory=Instruments)
    extractor: ModelExtractor | None = None
    concurrency: int | None = None

    def __post_init__(self) -> None:
        self._loop = LoopThread("editloupe-verify")
        self.asked = self.extractor.name if self.extractor else ""
        """The model that is asked for claims; empty without one."""
        versions = (claim_patterns.VERSION, claim_checks.VERSION, self.instruments.fingerprint, self.asked)
        self.setup = content_key(list(versions))[:16]
        """Identifies the extractor, the thresholds and what this machine can measure."""

    def verify(self, questions: Collection[str]) -> Iterator[CheckedVerdict]:
        """Yield every verdict that answers one of these questions, checked now or before, in the manifest's order.

        What was checked is stored before it is yielded, so a caller may stop at any time.
        """
        workers = self.concurrency or min(4, os.cpu_count() or 1)
        pool = ThreadPoolExecutor(workers, "editloupe-verify")
        waiting: deque[Future[list[CheckedVerdict]]] = deque()
        try:
            answers = (unit for unit in self.run.units() if unit.asked in questions)
            for name, group in groupby(answers, lambda unit: unit.name):
                edit = self.run.edit(name)
                # Traces are read here: the run's connection serves one thread.
                units = [(unit, self._look_up(unit, edit) or self._read_words(unit, edit)) for unit in group]
                waiting.append(pool.submit(self._check_edit, edit, units))
                while len(waiting) > AHEAD * workers or (waiting and waiting[0].done()):
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _look_up(self, unit: Unit, edit: StoredEdit) -> CheckedVerdict | None:
        """Return a verdict that need not be checked; None if it must be."""
        if not isinstance(unit.outcome, Verdict):
            return CheckedVerdict(unit, edit, None, unit.outcome.reason.value)
        counts = self.store.find_counts(unit, self.setup)
        return None if counts is None else CheckedVerdict(unit, edit, counts)

    def _read_words(self, unit: Unit, edit: StoredEdit) -> SpokenVerdict:
        assert isinstance(unit.outcome, Verdict)
        traces = self.run.load_trace(unit.name, unit.criterion, unit.repeat, unit.asked)
        return read_words(unit.outcome, traces, next(iter(edit.pictures.get("source", ())), ""))

    def _check_edit(
        self, edit: StoredEdit, units: Sequence[tuple[Unit, CheckedVerdict | SpokenVerdict]]
    ) -> list[CheckedVerdict]:
        """Check the verdicts of one edit that were not checked before; the pictures are opened once, if at all."""
        album = Album()
        facts: PairFacts | None = None
        verdicts: list[CheckedVerdict] = []
        try:
            for unit, words in units:
                if isinstance(words, CheckedVerdict):
                    verdicts.append(words)
                    continue
                key = self._key(unit, edit, words)
                record = self.store.record(key)
                try:
                    if record is None:
                        facts = facts or self._open(edit, album)
                        more = self._find_more if self.extractor else None
                        record = check_words(words, unit.criterion, edit.edit, facts, more).to_json()
                except (ImageError, OSError):
                    verdicts.append(CheckedVerdict(unit, edit, None, MISSING))
                except (NoAnswer, ModelFailed):
                    verdicts.append(CheckedVerdict(unit, edit, None, NO_EXTRACTION))
                else:
                    self.store.put(unit, (self.setup, self.asked), key, words.tools, record)
                    verdicts.append(CheckedVerdict(unit, edit, self.store.find_counts(unit, self.setup), fresh=True))
            return verdicts
        finally:
            album.clear()

    def _key(self, unit: Unit, edit: StoredEdit, words: SpokenVerdict) -> str:
        """Return the hash of everything that the check depends on."""
        pictures = [edit.pictures.get(role) or _stamp(getattr(edit.edit, role)) for role in ("source", "edited")]
        boxes = [list(box) for box in edit.edit.target_boxes]
        texts = [[part.label, part.target, *map(list, part.statements)] for part in words.parts]
        return content_key([self.setup, unit.criterion, edit.edit.instruction, boxes, pictures, texts])

    def _find_more(self, statements: Sequence[Statement], edit: Edit) -> Sequence[Claim]:
        assert self.extractor is not None
        return self._loop.run(self.extractor.extract(statements, edit))

    def _open(self, edit: StoredEdit, album: Album) -> PairFacts:
        source, edited = (self.open_picture(edit, role, album) for role in ("source", "edited"))
        return PairFacts(source.pixels, edited.pixels, self.instruments)

    def cut_evidence(self, verdict: CheckedVerdict, record: Mapping[str, Any]) -> Iterator[tuple[str, Pixels]]:
        """Yield a picture for each contradicted claim, source left and edit right, with a name for its file.

        Claims about the whole picture show both pictures whole. Nothing is yielded if a picture is missing.
        """
        contradicted = [
            (number, claim)
            for number, claim in enumerate(record["claims"], 1)
            if claim["state"] == ClaimState.CONTRADICTED
        ]
        album = Album()
        try:
            if not contradicted:
                return
            facts = self._open(verdict.edit, album)
            whole_picture = [[0, 0, *facts.size]]
            for number, claim in contradicted:
                boxes = [Box.model_validate(box) for box in claim["evidence"]["boxes"] or whole_picture]
                name = f"{verdict.unit.name}.{verdict.unit.criterion}.{verdict.unit.repeat}.{number}"
                yield safe_file_name(name), join_side_by_side(*facts.crop(enclose_boxes(boxes)))
        except (ImageError, OSError):
            return
        finally:
            album.clear()

    def open_picture(self, edit: StoredEdit, role: str, album: Album) -> Picture:
        """Return the run's copy of a picture, or the manifest's file if it still has the same content.

        Raises:
            ImageError: There is neither.
        """
        sha = next(iter(edit.pictures.get(role, ())), None)
        if sha is not None and (file := self.run.pictures.find(sha)) is not None:
            return album.open(file)
        picture = album.open(getattr(edit.edit, role))
        if sha is not None and picture.sha != sha:
            raise ImageError(f"the {role} picture of {edit.name} has changed since it was judged")
        return picture


def _stamp(path: Any) -> list[Any]:
    """Return what identifies the state of a file, for runs that do not know the hashes of their pictures."""
    with suppress(OSError, TypeError):
        about = Path(path).stat()
        return [str(path), about.st_size, about.st_mtime_ns]
    return [str(path)]

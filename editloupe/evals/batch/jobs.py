"""What is left to do: the units of a manifest that the run does not hold yet, as jobs of one edit each."""

from __future__ import annotations

import hashlib
import itertools
import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from editloupe.agent.refusals import refused_by_server
from editloupe.evals.batch.batch_judge import BatchJudge
from editloupe.evals.runs.store import Run
from editloupe.files import check_file
from editloupe.images import ImageError
from editloupe.storable import fits, storable, storable_text
from editloupe.types import Edit, Reason, Sha

SERVER = frozenset({Reason.MODEL_ERROR, Reason.TIMEOUT, Reason.SERVER_REFUSED})
"""Reasons that lie with the server: units that end so tell nothing about the edit or the judge."""
FAILED = SERVER | {Reason.BUDGET, Reason.BAD_IMAGE, Reason.MISSING_INPUT}
"""Reasons that say nothing about the judge's reply: the same command again tries these units again.

The others (an unreadable answer, one cut off by the length limit, no answer, a refusal of this very content…) are what the
judge gave; only `--retry-unjudged` asks anew.
"""


@dataclass(frozen=True)
class Job:
    """One edit, one repeat, and the criteria that are missing."""

    edit: Edit
    position: int
    repeat: int
    criteria: tuple[str, ...]
    tries: int = 1
    keys: dict[str, str] = field(default_factory=dict)
    quick: str | None = None
    hashes: Mapping[Path, Sha] = field(default_factory=dict)
    """Of the pictures, as they went into the keys."""


class Known(NamedTuple):
    """What the run holds of a unit."""

    key: str | None
    quick: str | None
    tries: int
    status: str
    reason: str | None
    refusal: str | None = None
    """The whole outcome where its reason is a refusal."""

    @property
    def failed(self) -> bool:
        """True where the unit failed for a reason that is neither in the edit nor in the judge's reply."""
        if self.reason != Reason.REFUSED:
            return self.reason in FAILED
        try:
            return refused_by_server(str(json.loads(self.refusal or "{}").get("detail")))
        except (ValueError, AttributeError):
            return False


class Planner:
    """Turns edits into jobs; used from one thread at a time, and closed by any once that one is done."""

    def __init__(
        self, run: Run, judge: BatchJudge, configuration: str, repeats: int = 1, retry_unjudged: bool = False
    ) -> None:
        self._judge = judge
        self._configuration = configuration
        self._repeats = repeats
        self._retry_unjudged = retry_unjudged
        self._reader: sqlite3.Connection = run.reader()
        self._turn = threading.Lock()
        self.held = 0
        """Units that were found judged, or unjudged and not to be tried again."""
        self.held_unjudged = 0

    def units_of(self, edits: Iterable[Edit]) -> int:
        """Return how many units these edits have together."""
        return sum(len(self._judge.criteria_for(edit)) for edit in edits) * self._repeats

    def jobs(self, edits: Iterable[tuple[int, Edit]]) -> Iterator[Job]:
        """Yield the jobs of these edits, in order; what the run holds under the same key is passed over."""
        for position, edit in edits:
            yield from self._jobs_of(position, edit)

    def some(self, jobs: Iterator[Job], count: int) -> list[Job]:
        """Take the next few jobs; `close` waits until they are there."""
        with self._turn:
            return list(itertools.islice(jobs, count))

    def _jobs_of(self, position: int, edit: Edit) -> Iterator[Job]:
        known = self._known(edit.id)
        quick = self._quick(edit)
        hashes: dict[Path, Sha] = {}
        for repeat in range(self._repeats):
            missing: dict[int, list[str]] = {}
            keys: dict[str, str] = {}
            for criterion in self._judge.criteria_for(edit):
                held = known.get((criterion, repeat))
                same = held is not None and quick is not None and held.quick == quick
                tries = self._tries(held) if held is not None and same else 1
                if tries:  # what is judged is filed under the hash of what the judge is shown, not under a file's date
                    if key := self._key(edit, criterion, repeat, hashes):
                        keys[criterion] = key
                        same = held is not None and held.key == key
                    tries = self._tries(held) if held is not None and same else 1
                if tries:
                    missing.setdefault(tries, []).append(criterion)
                else:
                    self.held += 1
                    self.held_unjudged += held is not None and held.status != "judged"
            for tries, criteria in missing.items():
                known_keys = {name: keys[name] for name in criteria if name in keys}
                yield Job(edit, position, repeat, tuple(criteria), tries, known_keys, quick, hashes)

    def _tries(self, held: Known) -> int:
        """Return which try a unit with the same key is due for; 0 where it is done."""
        if held.status == "judged":
            return 0
        if held.failed:
            return held.tries
        return held.tries + 1 if self._retry_unjudged else 0

    def _known(self, edit_id: str) -> dict[tuple[str, int], Known]:
        query = (
            "SELECT criterion, repeat, key, quick, tries, status, reason, "
            "CASE reason WHEN 'request_refused' THEN outcome END FROM units WHERE edit_id = ?"
        )
        return {(row[0], row[1]): Known(*row[2:]) for row in self._reader.execute(query, (storable_text(edit_id),))}

    def _key(self, edit: Edit, criterion: str, repeat: int, hashes: dict[Path, Sha]) -> str | None:
        try:
            return self._judge.unit_key(edit, criterion, repeat, hashes)
        except ImageError:
            return None

    def _quick(self, edit: Edit) -> str | None:
        """Return a fingerprint that needs no reading of pictures: the row, the files' sizes and times, the judge."""
        try:
            stats = [(str(path), check_file(path)) for path in edit.paths]
        except OSError:
            return None
        files = [(path, found.st_size, found.st_mtime_ns) for path, found in stats]
        row = edit.model_dump(mode="json") if fits(dict(edit)) else storable(edit)
        facts = json.dumps([self._configuration, row, files], sort_keys=True)
        return hashlib.sha256(facts.encode("utf-8", "replace")).hexdigest()[:32]

    def close(self) -> None:
        """Let go of the file, once nobody reads it: a connection closed under a reading thread ends the whole process."""
        with self._turn:
            self._reader.close()

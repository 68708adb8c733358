"""Where forks are kept: a table of their own in a run's file, which no verdict, score or table of the run ever reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from editloupe._util.json_safe import record_json
from editloupe.evals.forks.records import Fork
from editloupe.evals.runs.run_folder import encode_file
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import timestamp
from editloupe.pictures.decode import Album
from editloupe.types import Sha, Trace, UserError


def keep_fork(run: Run, fork: Fork, album: Album) -> Fork:
    """Write a fork with its pictures and return it with its number."""
    wanted = {sha for shas in fork.pictures.values() for sha in shas}
    for trace in (fork.trace, fork.parent.trace):
        wanted |= shown_in(trace)
    for sha in wanted:
        if sha in album and sha not in run.pictures:
            suffix, data = encode_file(album[sha])
            run.pictures.keep_bytes(sha, suffix, data)
    kept = fork.model_copy(update={"kept_at": timestamp()})

    def record(number: int) -> str:
        nonlocal kept
        kept = kept.model_copy(update={"number": number})
        return record_json(kept)

    run.keep_fork(fork.edit.id, fork.parent.edit, fork.parent.criterion, fork.identity, record)
    return kept


def made_before(run: Run, identity: str) -> int:
    """Return how often a fork was made already."""
    with run.reader() as reader:
        return reader.count_forks(identity)


def forks_of(run: Run | str | Path, edit: str | None = None, criterion: str | None = None) -> list[Fork]:
    """Return the forks a run holds, of all edits or of one by its name or id, in the order they were made."""
    if not isinstance(run, Run):
        with Run.open(run) as opened:
            return forks_of(opened, edit, criterion)
    with run.reader() as reader:
        records = reader.fork_records(edit)
    found = []
    for number, text in records:
        with run.damage.reading("forks", str(number)):
            found.append(Fork.model_validate_json(text, context="kept"))
    return [fork for fork in found if criterion in (None, fork.parent.criterion)]


def fork_numbered(run: Run, number: int) -> Fork:
    """Return one fork; an unknown number is the user's mistake."""
    known = f"{number}" if number.bit_length() < 63 else "0"
    with run.reader() as reader:
        records, count = reader.fork_records(number=known), reader.count_forks()
    for _, text in records:
        with run.damage.reading("forks", str(number)):
            return Fork.model_validate_json(text, context="kept")
    have = f"it has {count}, counted from 1" if count else "it has none"
    raise UserError(f"the run {run.folder.name} has no fork {number}; {have}")


def shown_in(trace: Trace) -> set[Sha]:
    """Return the hashes of all pictures a trace speaks of."""
    sent = {one.sha for step in trace.steps for one in step.sent}
    return sent | {sha for step in trace.steps for seen in step.observations for sha in seen.pictures}


class ForkReplies:
    """The replies of one fork, kept under its own name: a fork that was stopped goes on without paying twice."""

    def __init__(self, edit_id: str) -> None:
        self._edit_id = edit_id
        self._run: Run | None = None
        self._name = ""

    def keep_in(self, run: Run, name: str) -> None:
        """Say where replies are kept and what the fork is called, before anything is asked."""
        self._run, self._name = run, name

    def get(self, key: str) -> Mapping[str, Any] | None:
        """Return the reply kept for a request of this fork."""
        return self._run.find_reply(f"{key}#{self._name}") if self._run else None

    def put(self, key: str, reply: Mapping[str, Any]) -> None:
        """Keep a reply."""
        if self._run:
            self._run.keep_reply(f"{key}#{self._name}", reply, self._edit_id)

"""What people say about the verdicts of a run, by the rule that `editloupe agree` goes by, in the index."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from editloupe.evals.analysis.consensus import consensus_of, counting_scores
from editloupe.evals.analysis.label_merge import merged
from editloupe.evals.analysis.label_rows import LabelReader, Named, label_files
from editloupe.evals.runs.readback import recorded_rubrics
from editloupe.evals.runs.store import Run
from editloupe.evals.traces.index_store import recall, remember, stamp
from editloupe.rubrics.model import Answer
from editloupe.rubrics.registry import known_protocol
from editloupe.types import UserError

_ANSWER: TypeAdapter[Answer] = TypeAdapter(Answer)
_INSERT = "INSERT OR REPLACE INTO {}people VALUES (?, ?, ?, ?, ?, ?, ?)"


def take_people(
    index: sqlite3.Connection, run: Run, files: Iterable[str | Path] = (), studio: Path | None = None
) -> list[str]:
    """Bring the labels of people up to date and return what a reader should know about them.

    Labels of the manifest and of the run's own file are kept in the index; where others are named (`files`, or the
    file the `studio` writes), the labels are this connection's alone.
    """
    named = [Path(file) for file in files]
    found = label_files(run.folder, studio, named)
    marks = [recall(index, "state"), [str(path) for path in found], stamp(*found)]
    own = not named and (studio is None or studio.resolve().parent == run.folder.resolve())
    if own and (kept := recall(index, "people")) is not None and kept["marks"] == marks:
        return [str(note) for note in kept["notes"]]
    rows, notes = _labels(index, run, found)
    if own:
        index.execute("BEGIN IMMEDIATE")
        index.execute("DELETE FROM people")
        index.executemany(_INSERT.format(""), rows)
        remember(index, "people", {"marks": marks, "notes": notes})
        index.execute("COMMIT")
    else:
        index.execute("DROP TABLE IF EXISTS temp.people")
        index.execute(
            "CREATE TEMP TABLE people (edit INTEGER, criterion, protocol, label, score, place, people, "
            "PRIMARY KEY (edit, criterion, protocol)) WITHOUT ROWID"
        )
        index.executemany(_INSERT.format("temp."), rows)
    return notes


def _labels(index: sqlite3.Connection, run: Run, files: dict[Path, str]) -> tuple[list[tuple[Any, ...]], list[str]]:
    human = index.execute("SELECT name, human, rater FROM edits WHERE human <> '{}'").fetchall()
    if not human and not files:
        return [], []
    edits = index.execute("SELECT edit, name, edit_id, model FROM edits").fetchall()
    numbers = {row["name"]: row["edit"] for row in edits}
    named = [Named(row["name"], row["edit_id"], row["model"]) for row in edits]
    rows: list[tuple[Any, ...]] = []
    notes: dict[str, None] = {}
    for protocol, answers in _asked(index, run).items():
        reader = LabelReader(named, answers, lambda error: notes.setdefault(f"A label does not count: {error}"))
        sources = [reader.manifest((row["name"], json.loads(row["human"]), row["rater"]) for row in human)]
        for path, origin in files.items():
            told: list[str] = []
            try:
                sources.append(reader.file(path, told, origin))
            except UserError as error:
                notes.setdefault(str(error))
            notes.update(dict.fromkeys(told))
        given, settled, more = merged(sources)
        notes.update(dict.fromkeys(more))
        for name, criterion in dict.fromkeys((*given, *settled)):
            place = name, criterion
            scores = counting_scores(given.get(place, {}).values(), settled.get(place))
            if one := consensus_of(answers[criterion], scores):
                rows.append((numbers[name], criterion, protocol, one.label, one.score, one.place, one.count))
    return rows, list(notes)


def _asked(index: sqlite3.Connection, run: Run) -> dict[str, dict[str, Answer | None]]:
    """Return what was asked: protocols, their criteria, and the kind of answer each takes."""
    about = run.about()
    found: dict[str, dict[str, Answer | None]] = {}
    for protocol, criterion in index.execute("SELECT DISTINCT protocol, criterion FROM verdicts ORDER BY 1, 2"):
        found.setdefault(protocol, {})[criterion] = None
    for protocol, answers in found.items():
        wordings = recorded_rubrics(about, protocol)
        known = known_protocol(protocol)
        for criterion in answers:
            if known and criterion in known.criteria:
                wordings.setdefault(criterion, known.rubric(criterion).model_dump(mode="json"))
            try:
                answers[criterion] = _ANSWER.validate_python(wordings[criterion]["answer"])
            except (KeyError, ValidationError):
                answers[criterion] = None
    return found

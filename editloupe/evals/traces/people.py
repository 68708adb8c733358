"""What people say about the verdicts of a run, by the rule that `editloupe agree` goes by, in the index."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from editloupe.evals.labels.files import Named, label_files
from editloupe.evals.labels.human import known_answers, merge_labels_of_run
from editloupe.evals.runs.store import Run
from editloupe.evals.traces.index_store import recall, remember, stamp

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
    asked = index.execute("SELECT DISTINCT protocol, criterion FROM verdicts ORDER BY 1, 2").fetchall()
    labels = merge_labels_of_run(
        [Named(row["name"], row["edit_id"], row["model"]) for row in edits],
        known_answers(run.about(), map(tuple, asked)),
        [(row["name"], json.loads(row["human"]), row["rater"]) for row in human],
        files,
    )
    numbers = {row["name"]: row["edit"] for row in edits}
    rows = [
        (numbers[name], criterion, protocol, agreed.label, agreed.score, agreed.place, agreed.count)
        for name, criterion, protocol, agreed in labels.consensus()
    ]
    return rows, [*(f"A label does not count: {fault}" for fault in labels.faults), *labels.notes]

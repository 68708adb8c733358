"""What a run holds, in a few figures: edits by model, configurations, verdicts, money and room on the disk."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from pydantic import Field

from editloupe.evals.runs import configurations, schema
from editloupe.evals.runs.standing import standing_of
from editloupe.evals.runs.store import FILE, Run
from editloupe.types import Record, Usage


class ConfigurationInfo(Record):
    """One way in which a run was judged."""

    name: str
    judge: str
    protocol: str
    mode: str
    differs: str = ""
    """What tells it from an earlier one with the same judge, protocol and mode."""
    criteria: tuple[str, ...]
    judged: int
    unjudged: int
    not_yet: int
    """Units it was to judge and that have no outcome yet."""
    repeats: int


class RunInfo(Record):
    """What a run holds."""

    folder: str
    schema_version: int
    created: str | None
    edits: int
    models: dict[str, int] = Field(default_factory=dict)
    """Edits by editing model; those that name none are not in it."""
    configurations: tuple[ConfigurationInfo, ...] = ()
    usage: Usage
    cost: float | None
    """US dollars; None where a price is not known."""
    pictures: int
    picture_bytes: int
    file_bytes: int


def run_info(folder: Path) -> RunInfo:
    """Return what a run holds."""
    with Run.open(folder) as run, closing(run.reader()) as reader:
        usage, cost = run.spent()
        models = (
            "SELECT CAST(model AS TEXT), count(*) FROM edits WHERE model IS NOT NULL GROUP BY model ORDER BY min(edit)"
        )
        places = run.pictures.folder.glob("[0-9a-f][0-9a-f]/*") if run.pictures.folder.is_dir() else ()
        sizes = [path.stat().st_size for path in places if path.is_file()]
        return RunInfo(
            folder=str(folder),
            schema_version=schema.version_of(reader),
            created=run.about().get("created"),
            edits=reader.execute("SELECT count(*) FROM edits").fetchone()[0],
            models={str(name): count for name, count in reader.execute(models)},
            configurations=tuple(_of(run, reader, one) for one in configurations.held(reader)),
            usage=usage,
            cost=cost,
            pictures=len(sizes),
            picture_bytes=sum(sizes),
            file_bytes=(folder / FILE).stat().st_size,
        )


def _of(run: Run, reader: sqlite3.Connection, one: configurations.Configuration) -> ConfigurationInfo:
    query = (
        "SELECT CAST(criterion AS TEXT), count(DISTINCT repeat) FROM verdicts "
        "WHERE asked IN (SELECT asked FROM configurations WHERE configuration = ?) GROUP BY criterion ORDER BY min(answer)"
    )
    rows = reader.execute(query, (one.name,)).fetchall()
    standing = standing_of(run, reader, one)
    return ConfigurationInfo(
        name=one.name,
        judge=one.judge,
        differs=one.differs,
        protocol=one.protocol,
        mode=one.mode,
        criteria=tuple(str(row[0]) for row in rows),
        judged=standing.judged,
        unjudged=standing.unjudged,
        not_yet=standing.not_yet,
        repeats=max((row[1] for row in rows), default=0),
    )

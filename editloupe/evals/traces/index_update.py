"""Brings the index of a run up to date.

The rows for the table of edits are cheap: edits, verdicts, configurations, and one cell per edit and criterion that sums up
the repeats. Reading the steps of all traces takes longer, so it is left to the first search. Both read only what was added
to the run since the last update, also while another process writes it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

from editloupe._util.json_safe import sanitize_text
from editloupe.evals.labels.files import EditName
from editloupe.evals.labels.human import (
    LabelFiles,
    RunLabels,
    check_not_empty,
    find_answers,
    list_files,
    merge_run_labels,
)
from editloupe.evals.labels.label_files import LabelFile, list_label_files
from editloupe.evals.runs.damage import UNREADABLE
from editloupe.evals.runs.edit_rows import EditRecord
from editloupe.evals.runs.reader import RunReader
from editloupe.evals.runs.run_folder import ABOUT
from editloupe.evals.runs.run_folder import FILE as RUN_FILE
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.summary import count_completion, measure_clock_seconds
from editloupe.evals.traces.filter_sql import separate_words
from editloupe.evals.traces.index_file import (
    EDIT_COLUMNS,
    PEOPLE_COLUMNS,
    VERDICT_COLUMNS,
    connect,
    make_tables,
    recall,
    remember,
    stamp,
    writing,
)

Item = TypeVar("Item")
CHUNK = 500
"""Rows read, and written, at a time."""
Progress = Callable[[int, int], None]
"""Called with the number of verdicts whose steps are indexed, and of all verdicts."""
DAMAGED = "The record of this edit cannot be read."
_CELLS = """
INSERT INTO cells SELECT
    v.edit, a.configuration, v.criterion, min(v.protocol), CASE WHEN max(v.status = 'judged') THEN 'judged' ELSE 'unjudged' END,
    max(v.label), max(v.score), max(v.score_100), avg(v.confidence), substr(min(printf('%09d', v.repeat) || v.reason), 10),
    count(*), coalesce(min(v.label) <> max(v.label) OR min(v.score) <> max(v.score), 0), sum(v.steps), sum(v.seconds), sum(v.cost)
FROM temp.changed c CROSS JOIN verdicts v ON v.edit = c.edit JOIN asked a ON a.asked = v.asked
GROUP BY v.edit, a.configuration, v.criterion
"""
"""One cell per edit, configuration and criterion."""
_MEDIANS = """
UPDATE cells SET (label, score, place) = (
    SELECT label, score, score_100 FROM (
        SELECT v.label, v.score, v.score_100, count(*) OVER () AS verdicts,
            row_number() OVER (ORDER BY coalesce(v.score, 0), v.repeat) AS rank
        FROM verdicts v JOIN asked a ON a.asked = v.asked
        WHERE v.edit = cells.edit AND a.configuration = cells.configuration AND v.criterion = cells.criterion
            AND v.status = 'judged'
    ) WHERE rank = (verdicts + 1) / 2
) WHERE repeats > 1 AND edit IN (SELECT edit FROM temp.changed)
"""
"""A cell of several repeats has their lower median verdict, as the agreement takes it."""
_TWINS = """
UPDATE verdicts SET twin = EXISTS (
    SELECT 1 FROM verdicts AS first WHERE first.unit = verdicts.unit AND first.edit = verdicts.edit
        AND first.repeat = verdicts.repeat AND first.answer < verdicts.answer
) WHERE edit IN (SELECT edit FROM temp.changed)
"""
"""A verdict that answers a second question of its edit is found only once."""


@contextmanager
def open_index(
    run: Run, progress: Progress | None = None, fill_more: Callable[[sqlite3.Connection], object] | None = None
) -> Iterator[sqlite3.Connection]:
    """Yield a connection to a run's index that is up to date, with the steps of all traces.

    Args:
        run: The run.
        progress: Called while the index is built.
        fill_more: Writes further tables of the index. If the disk is too full for them, the index is made elsewhere.
    """

    def fill(index: sqlite3.Connection) -> None:
        _update(index, run, progress)
        if fill_more is not None:
            fill_more(index)

    with closing(connect(run.folder, fill)) as index:
        for (place,) in index.execute("SELECT place FROM lost ORDER BY unit, place"):
            run.damage.add("steps", place)
        yield index


def count_unread(run: Run) -> int:
    """Return the number of verdicts whose steps are not in the run's index yet."""
    with closing(connect(run.folder, lambda _: None)) as index, run.reader() as source:
        return source.count_answers(after=recall(index, "steps") or 0)


def _update(index: sqlite3.Connection, run: Run, progress: Progress | None) -> None:
    if _has_rows(index, _stamp(run), scan=True) and not _next_verdicts(index):
        return
    with run.reader() as source:
        update_rows(index, run, source, scan=True)
        while _take_steps(index, source):
            if progress is not None:
                read = "SELECT count(*), coalesce(sum(answer <= ?), 0) FROM verdicts"
                total, done = index.execute(read, (recall(index, "steps"),)).fetchone()
                progress(done, total)


# Rows


def _stamp(run: Run) -> list[list[int] | None]:
    return stamp(run.folder / RUN_FILE, run.folder / f"{RUN_FILE}-wal", run.folder / ABOUT)


def _has_rows(index: sqlite3.Connection, now: list[list[int] | None], scan: bool) -> bool:
    return recall(index, "rows") == now and (not scan or recall(index, "scanned") == now)


def update_rows(
    index: sqlite3.Connection, run: Run, source: RunReader, *, scan: bool = False, force: bool = False
) -> None:
    """Bring edits, verdicts, configurations and cells up to date; the meta value `state` changes if anything did.

    Rows and position are read in one snapshot: verdicts that are committed meanwhile come with the next update.

    Args:
        index: The index.
        run: The run.
        source: A reader of the run.
        scan: Also look for edits whose record changed although nothing new was judged. This reads all edits.
        force: Do it even if the run's files look unchanged.
    """
    now = _stamp(run)
    if not force and _has_rows(index, now, scan):
        return
    with writing(index), source.snapshot():
        removed = _forget_other_answers(index, source, run)
        is_empty = recall(index, "last") is None
        answered = _take_answers(index, source)
        removed |= _drop_removed_answers(index, source)
        read_all = scan or is_empty or bool(removed)
        edits_changed = _scan_edits(index, source) if read_all else _take_edits(index, source, answered)
        configurations_changed, asked_differently = _take_configurations(index, run, source)
        changed = removed | answered | asked_differently
        _make_cells(index, changed)
        if changed or edits_changed or configurations_changed:
            remember(index, "state", int(recall(index, "state") or 0) + 1)
        remember(index, "run", _identity(run))
        remember(index, "rows", now)
        if read_all:
            remember(index, "scanned", now)


def _identity(run: Run) -> list[Any]:
    about = run.about()
    return [about.get("schema"), about.get("created")]


def _forget_other_answers(index: sqlite3.Connection, source: RunReader, run: Run) -> set[int]:
    """Drop the rows of another run, and answers whose numbers were assigned again; return the edits of these answers."""
    last = recall(index, "last")
    if last is None:
        return set()
    if recall(index, "run") != _identity(run):
        state = recall(index, "state")
        remember(index, "stale", True)
        make_tables(index)
        remember(index, "state", state)
        return set()
    mark = source.answer_mark(last[0])
    if last == [0, 0, 0, ""] or (mark is not None and list(mark) == last):
        return set()
    marks = {mark.answer: tuple(mark) for mark in source.answer_marks(last[0])}
    same: list[Any] = [0, 0, 0, ""]
    for row in index.execute("SELECT answer, edit, unit, finished_at FROM verdicts ORDER BY answer"):
        if row[0] in marks and marks[row[0]] != tuple(row):
            break
        same = list(row)
    dropped = _delete_answers(index, "answer > ?", [(same[0],)])
    remember(index, "last", same)
    remember(index, "steps", min(same[0], recall(index, "steps") or 0))
    return dropped


def _delete_answers(index: sqlite3.Connection, test: str, values: Sequence[tuple[int]]) -> set[int]:
    """Delete verdicts and return the edits they were about."""
    edits = {
        edit
        for value in values
        for (edit,) in index.execute(f"SELECT edit FROM verdicts WHERE {test}", value).fetchall()
    }
    index.executemany(f"DELETE FROM verdicts WHERE {test}", values)
    return edits


def _take_answers(index: sqlite3.Connection, source: RunReader) -> set[int]:
    """Read the verdicts that are new, and return their edits."""
    before = recall(index, "last") or [0, 0, 0, ""]
    last, edits = before, set[int]()
    insert = f"INSERT OR REPLACE INTO verdicts ({', '.join(VERDICT_COLUMNS)}) VALUES ({', '.join('?' * len(VERDICT_COLUMNS))})"
    while rows := source.verdict_records(last[0], CHUNK):
        units = {row.unit for row in rows}
        # A unit that was judged again has another verdict on every edit it answers.
        earlier = source.verdict_records_of(list(units), before[0]) if before[0] else []
        index.executemany(insert, (*earlier, *rows))
        edits.update(row.edit for row in (*earlier, *rows))
        last = list(rows[-1].mark)
    remember(index, "last", last)
    return edits


def _drop_removed_answers(index: sqlite3.Connection, source: RunReader) -> set[int]:
    """Delete what the run no longer holds, and return the edits it was about."""
    if index.execute("SELECT count(*) FROM verdicts").fetchone()[0] == source.count_answers():
        return set()
    present = source.answer_numbers()
    removed = [(row[0],) for row in index.execute("SELECT answer FROM verdicts") if row[0] not in present]
    return _delete_answers(index, "answer = ?", removed)


def _take_edits(index: sqlite3.Connection, source: RunReader, answered: set[int]) -> bool:
    """Read the edits that were added or answered; True if there are any."""
    last: int = recall(index, "last_edit") or 0
    numbers = sorted(answered.union(source.edits_after(last)))
    columns: set[str] = set()
    for some in _chunks(numbers):
        _put_edits(index, [_edit_row(row, _crc(row), columns) for row in source.edit_records(some)])
    _put_columns(index, columns)
    remember(index, "last_edit", max((last, *numbers)))
    return bool(numbers)


def _scan_edits(index: sqlite3.Connection, source: RunReader) -> bool:
    """Read all edits and keep those that are new or changed; True if there are any, or if some were removed."""
    known_marks = dict(index.execute("SELECT edit, crc FROM edits").fetchall())
    columns: set[str] = set()
    last, changed = 0, False
    for some in _chunks(source.edit_records()):
        marked = [(row, _crc(row)) for row in some]
        fresh = [_edit_row(row, crc, columns) for row, crc in marked if known_marks.pop(row.edit, None) != crc]
        changed = changed or bool(fresh)
        _put_edits(index, fresh)
        last = max(last, *(row.edit for row in some))
    index.executemany("DELETE FROM edits WHERE edit = ?", [(edit,) for edit in known_marks])
    _put_columns(index, columns)
    remember(index, "last_edit", last)
    return changed or bool(known_marks)


def _chunks(items: Iterable[Item]) -> Iterator[list[Item]]:
    source = iter(items)
    while some := list(islice(source, CHUNK)):
        yield some


def _put_edits(index: sqlite3.Connection, rows: Iterable[tuple[Any, ...]]) -> None:
    index.executemany(f"INSERT OR REPLACE INTO edits VALUES ({', '.join('?' * len(EDIT_COLUMNS))})", rows)


def _put_columns(index: sqlite3.Connection, columns: Iterable[str]) -> None:
    index.executemany("INSERT OR IGNORE INTO columns VALUES (?)", [(sanitize_text(name),) for name in columns])


def _crc(row: EditRecord) -> int:
    return crc32("\x1f".join(map(str, row)).encode("utf-8", "replace"))


def _edit_row(row: EditRecord, crc: int, columns: set[str]) -> tuple[Any, ...]:
    """Return an edit's row, and add the names of its own columns. An edit whose record is damaged keeps its place."""
    try:
        facts: dict[str, Any] = json.loads(row.facts)
        extra = dict(facts.get("extra") or {})
        human = {
            name: [labels] if isinstance(labels, str) else list(map(str, labels))
            for name, labels in (facts.get("human") or {}).items()
        }
        pictures = {
            role: str(shas[0]) for role, shas in json.loads(row.pictures).items() if isinstance(shas, list) and shas
        }
        instruction = facts["instruction"]
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError):
        facts, extra, human, pictures, instruction = {}, {}, {}, {}, None
    columns.update(map(str, extra))
    if facts.get("hint") is not None:
        extra.setdefault("hint", facts["hint"])
        columns.add("hint")
    rater = extra.get("rater", extra.get("annotator"))
    texts = [_plain(value) for value in (instruction, facts.get("instruction_type"), facts.get("turn"))]
    search = (row.name, texts[0] or DAMAGED, texts[1], row.model)
    return (
        *row[:6],
        *texts,
        json.dumps(extra) if extra else "{}",
        json.dumps(human) if human else "{}",
        _plain(None if rater is None else str(rater)),
        _plain(pictures.get("source")),
        _plain(pictures.get("edited")),
        "\n".join(str(text) for text in search if text).casefold(),
        crc,
    )


def _take_configurations(index: sqlite3.Connection, run: Run, source: RunReader) -> tuple[bool, set[int]]:
    """Read the configurations and their questions.

    Returns:
        Whether they changed, and the edits with answers to questions that now belong to other configurations.
    """
    configurations = source.configurations()
    rows = [
        (
            place,
            sanitize_text(configuration.name),
            sanitize_text(configuration.title),
            configuration.units,
            count_completion(run, source, configuration).describe(),
            measure_clock_seconds(source, configuration.name),
        )
        for place, configuration in enumerate(configurations)
    ]
    changed = rows != list(map(tuple, index.execute("SELECT * FROM configurations ORDER BY place")))
    index.execute("DELETE FROM configurations")
    index.executemany("INSERT INTO configurations VALUES (?, ?, ?, ?, ?, ?)", rows)
    names = {configuration.name for configuration in configurations}
    pairs = {(asked, sanitize_text(name)) for name, asked in source.questions_by_configuration() if name in names}
    before = set(map(tuple, index.execute("SELECT asked, configuration FROM asked")))
    index.execute("DELETE FROM asked")
    index.executemany("INSERT INTO asked VALUES (?, ?)", pairs)
    edits: set[int] = set()
    for asked in {asked for asked, _ in pairs ^ before}:
        edits.update(edit for (edit,) in index.execute("SELECT edit FROM verdicts WHERE asked = ?", (asked,)))
    return changed, edits


def _make_cells(index: sqlite3.Connection, edits: set[int]) -> None:
    """Make the cells of edits again, and mark verdicts that answer a second question of their edit."""
    index.execute("CREATE TEMP TABLE IF NOT EXISTS changed (edit INTEGER PRIMARY KEY)")
    index.execute("DELETE FROM temp.changed")
    index.executemany("INSERT INTO temp.changed VALUES (?)", [(edit,) for edit in edits])
    index.execute("DELETE FROM cells WHERE edit IN (SELECT edit FROM temp.changed)")
    index.execute(_CELLS)
    index.execute(_MEDIANS)
    index.execute(_TWINS)
    index.execute("DELETE FROM temp.changed")


def _plain(value: Any) -> Any:
    """Return a value that SQLite can store."""
    if value is None or isinstance(value, (int, float)):
        return value
    return sanitize_text(value if isinstance(value, str) else str(value))


# Steps


@dataclass
class ToolCount:
    """Calls of one tool in one verdict."""

    calls: int = 0
    failed: int = 0
    cached: int = 0
    seconds: float = 0.0
    input_tokens: float = 0.0
    output_tokens: float = 0.0
    """Of the replies that called it, split evenly between the calls of a reply."""


@dataclass
class StepFacts:
    """The steps of a verdict summed up: turns, repairs, calls per tool, and words for full-text search."""

    turns: int = 0
    repairs: int = 0
    tools: dict[str, ToolCount] = field(default_factory=dict)
    words: dict[str, list[str]] = field(
        default_factory=lambda: {"thought": [], "called": [], "observed": [], "replied": []}
    )
    lost: list[int] = field(default_factory=list)
    """Positions of steps that cannot be read."""

    def add(self, text: str) -> None:
        """Add a step, as the JSON of the run; raise one of UNREADABLE if it is not a step."""
        step: Mapping[str, Any] = json.loads(text)
        calls, observations = step.get("calls") or (), step.get("observations") or ()
        if step.get("problem"):
            self.repairs += 1
        else:
            self.turns += 1
        usage = step.get("usage") or {}
        tools = [str(observation.get("tool")) for observation in observations]
        for call in calls:
            self._add_words("called", call.get("name"), json.dumps(call.get("parameters"), ensure_ascii=False))
        for tool, observation in zip(tools, observations, strict=True):
            count = self.tools.setdefault(tool, ToolCount())
            count.calls += 1
            count.failed += bool(observation.get("failed"))
            count.cached += bool(observation.get("cached"))
            count.seconds += float(observation.get("seconds") or 0)
            count.input_tokens += float(usage.get("input_tokens") or 0) / len(tools)
            count.output_tokens += float(usage.get("output_tokens") or 0) / len(tools)
            self._add_words("observed", observation.get("text"), *(observation.get("captions") or ()))
        self._add_words("thought", step.get("thought"))
        self._add_words("replied", step.get("raw"), step.get("answer"))

    def _add_words(self, column: str, *texts: Any) -> None:
        self.words[column] += [str(text) for text in texts if text]

    def texts(self) -> tuple[str, ...]:
        """Return the text of each column, as it is searched."""
        return tuple(separate_words("\n".join(parts)) for parts in self.words.values())

    def counts(self) -> Iterable[tuple[Any, ...]]:
        """Yield each tool with its counts."""
        for tool, count in self.tools.items():
            tokens = round(count.input_tokens), round(count.output_tokens)
            yield (tool, count.calls, count.failed, count.cached, count.seconds, *tokens)


def _next_verdicts(index: sqlite3.Connection) -> list[tuple[int, int]]:
    """Return number and unit of the next verdicts whose steps were not read."""
    query = "SELECT answer, unit FROM verdicts WHERE answer > ? ORDER BY answer LIMIT ?"
    return [(row[0], row[1]) for row in index.execute(query, (recall(index, "steps") or 0, CHUNK))]


def _take_steps(index: sqlite3.Connection, source: RunReader) -> bool:
    """Read the steps of the next verdicts; False if all were read."""
    with writing(index), source.snapshot():
        verdicts = _next_verdicts(index)
        if not verdicts:
            return False
        units = list(dict.fromkeys(unit for _, unit in verdicts))
        facts = _read_steps(source, units)
        rationales: dict[int, str | None] = {}
        for unit, rationale, raw in source.unit_texts(units):
            rationales[unit] = _plain(rationale)
            if raw:
                facts[unit].words["replied"].append(str(raw))
        _put_facts(index, facts, rationales)
        offered = [(tools,) for tools in source.tools_offered(units)]
        index.executemany("INSERT OR IGNORE INTO offered VALUES (?)", offered)
        remember(index, "steps", verdicts[-1][0])
        return True


def _read_steps(source: RunReader, units: Sequence[int]) -> dict[int, StepFacts]:
    facts = {unit: StepFacts() for unit in units}
    for unit, position, step in source.steps_of(units):
        try:
            facts[unit].add(step)
        except UNREADABLE:
            facts[unit].lost.append(position)
    return facts


def _put_facts(index: sqlite3.Connection, facts: Mapping[int, StepFacts], rationales: Mapping[int, str | None]) -> None:
    """Write the facts of units. The words of a unit that is judged again get a new entry; the old one is not used any more."""
    first = int(recall(index, "entry") or 0) + 1
    entries = dict(zip(facts, range(first, first + len(facts)), strict=True))
    for table in ("tool_counts", "lost"):
        index.executemany(f"DELETE FROM {table} WHERE unit = ?", [(unit,) for unit in facts])
    index.executemany(
        "INSERT INTO tool_counts VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [(unit, *count) for unit, own in facts.items() for count in own.counts()],
    )
    index.executemany(
        "INSERT OR IGNORE INTO lost VALUES (?, ?)",
        [(unit, f"verdict {unit}, step {position + 1}") for unit, own in facts.items() for position in own.lost],
    )
    index.executemany(
        "INSERT OR REPLACE INTO units VALUES (?, ?, ?, ?, ?)",
        [(unit, entries[unit], own.turns, own.repairs, rationales.get(unit)) for unit, own in facts.items()],
    )
    index.executemany(
        "INSERT INTO words (rowid, thought, called, observed, replied) VALUES (?, ?, ?, ?, ?)",
        [(entries[unit], *map(sanitize_text, own.texts())) for unit, own in facts.items()],
    )
    remember(index, "entry", first + len(facts) - 1)


# Labels of people


@dataclass(frozen=True)
class IndexedLabels:
    """What is known about the labels in the table `people`."""

    marks: list[Any]
    """Identify the state of the index and of the label files."""
    faults: tuple[str, ...] = ()
    """Labels that do not count, and why."""
    notes: tuple[str, ...] = ()
    """What a reader should know about the labels."""


def update_people(
    index: sqlite3.Connection,
    run: Run,
    files: LabelFiles = None,
    studio: Path | None = None,
    before: IndexedLabels | None = None,
) -> IndexedLabels:
    """Bring the labels of people up to date.

    The labels of the manifest and of the run's own label file are kept in the index. If other files are used, the labels are
    in a temporary table of this connection.

    Args:
        index: The index.
        run: The run.
        files: Further label files.
        studio: The file the studio writes; None for the one in the run's folder.
        before: What the last call on this connection returned.
    """
    further = list_files(files)
    label_files = list_label_files(run.folder, studio, further)
    paths = [file.path for file in label_files]
    marks = [recall(index, "state"), [str(path) for path in paths], stamp(*paths)]
    own = not further and (studio is None or studio.resolve().parent == run.folder.resolve())
    if before is not None and before.marks == marks and not own:
        return before
    stored = recall(index, "people") if own else None
    if stored is not None and stored["marks"] == marks:
        return IndexedLabels(marks, tuple(stored["faults"]), tuple(stored["notes"]))
    labels = merge_people(index, run, label_files, by_picture=bool(further))
    check_not_empty(labels.by_protocol.values(), further)
    numbers = dict(index.execute("SELECT name, edit FROM edits").fetchall()) if labels.by_protocol else {}
    rows = [
        (numbers[name], criterion, protocol, agreed.label, agreed.score, agreed.place, agreed.count)
        for name, criterion, protocol, agreed in labels.consensus()
    ]
    with writing(index):
        if own:
            index.execute("DELETE FROM people")
            remember(index, "people", {"marks": marks, "faults": labels.faults, "notes": labels.notes})
        else:
            index.execute("DROP TABLE IF EXISTS temp.people")
            index.execute(f"CREATE TEMP TABLE people {PEOPLE_COLUMNS}")
        index.executemany("INSERT OR REPLACE INTO people VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    return IndexedLabels(marks, labels.faults, labels.notes)


def merge_people(
    index: sqlite3.Connection, run: Run, files: Sequence[LabelFile], by_picture: bool = False
) -> RunLabels:
    """Merge the labels of the manifest and of label files, by the rule that `editloupe agree` uses.

    Args:
        index: The index.
        run: The run.
        files: The label files.
        by_picture: Whether labels may name an edit by the file name of a picture, which reads all edits of the run.
    """
    human = index.execute("SELECT name, human, rater FROM edits WHERE human <> '{}'").fetchall()
    if not human and not files:
        return RunLabels()
    criteria = index.execute("SELECT DISTINCT protocol, criterion FROM verdicts ORDER BY 1, 2").fetchall()
    rows = index.execute("SELECT name, edit_id, model FROM edits")
    return merge_run_labels(
        [EditName.of(stored.name, stored.edit) for stored in run.edits()]
        if by_picture
        else [EditName(*row) for row in rows],
        find_answers(run.about(), map(tuple, criteria)),
        [(row["name"], json.loads(row["human"]), row["rater"]) for row in human],
        files,
    )


def read_consensus(index: sqlite3.Connection, name: str) -> dict[str, str]:
    """Return the consensus of people on an edit, per criterion."""
    query = "SELECT criterion, label FROM people JOIN edits USING (edit) WHERE name = ?"
    return {str(row[0]): str(row[1]) for row in index.execute(query, (name,))}

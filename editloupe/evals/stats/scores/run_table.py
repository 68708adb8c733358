"""Read a run as a table of its edits, in the manifest's order, with their units by criterion and repeat."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from editloupe._util.text import number_of
from editloupe.agent.spec_names import RULES
from editloupe.evals.manifests.cases import case_key
from editloupe.evals.runs.configurations import (
    ALL,
    Configuration,
    find_newest,
    format_list,
    is_imported,
    match_configurations,
    planned_repeats,
    read_answer_kind,
    rubric_records,
)
from editloupe.evals.runs.edit_rows import StoredEdit
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.summary import expected_units, find_judged_elsewhere
from editloupe.evals.stats.intervals import Bools, Floats, Ints, number_keys
from editloupe.evals.stats.scores.run_units import (
    RunUnit,
    ScoreArrays,
    UnitColumns,
    build_score_arrays,
    gather_units,
    read_units,
)
from editloupe.rubrics.model import Answer, LabelAnswer, MeasuredAnswer
from editloupe.rubrics.registry import OWN, find_protocol
from editloupe.rubrics.tables import NO_MODEL
from editloupe.types import Edit, Record, Served, UserError

BASELINE_NOTE = (
    "Judged by rules, a rule-based baseline that decides from measured pixels and is not a multimodal model; "
    "its scores are not to be read as people's."
)
IMPORTED_NOTE = (
    "The verdicts were made elsewhere and imported; there are no traces, and how they were made is not known."
)
_SERVED: TypeAdapter[tuple[Served, ...]] = TypeAdapter(tuple[Served, ...])
EDIT_FIELDS = ("id", "instruction", "instruction_type", "model", "turn", "hint")
"""Fields of edits that a report can group by, in addition to the columns of the manifest."""


def get_field(edit: Edit, name: str) -> Any:
    """Return a field of an edit or a column of its manifest line, None if it has none."""
    value = getattr(edit, name) if name in EDIT_FIELDS else edit.extra.get(name)
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)


class ServedVersion(Record):
    """One version of a judge's model, and the number of verdicts from it."""

    served: Served
    verdicts: int


@dataclass(frozen=True)
class RunRow:
    """One edit of a run with its units, by criterion, repeats in order."""

    edit: Edit
    pictures: Mapping[str, list[str]]
    """Content hashes by role, if the run kept the pictures."""
    units: Mapping[str, tuple[RunUnit, ...]]
    name: str = ""
    """Unique in the run. Ids are not, if the run has several models' pictures."""

    @property
    def model(self) -> str:
        """The editing model, in the words of a table."""
        return self.edit.model or NO_MODEL

    @property
    def case(self) -> tuple[Any, ...]:
        """Identifies the case, which the outputs of two editing models share; by content hashes if the run has them."""
        return case_key(self.edit, self.pictures)

    @property
    def case_id(self) -> str:
        """The edit's id without the editing model's name, which readers of some benchmarks put before it."""
        return self.edit.id.removeprefix(f"{self.edit.model}/")

    @property
    def source(self) -> str:
        """Identifies the source image: its content hash, or its path if the run has no hash."""
        return shas[0] if (shas := self.pictures.get("source")) else str(self.edit.source)

    def field(self, name: str) -> Any:
        """Return a field of the edit or of its manifest line, None if it has none."""
        return get_field(self.edit, name)


@dataclass(frozen=True)
class RunTable:
    """The edits of a run with their units, for one protocol and configuration.

    Args:
        name: Name of the run.
        folder: Folder of the run.
        protocol: The protocol.
        rows: The edits with their units.
        about: Contents of run.json.
        notes: Notes for readers: what could not be read, and which configuration was taken if there are several.
        configuration: Name of the configuration.
        waiting: Edits of the manifest without any unit yet.
        differs: How the configuration differs from an earlier one with the same judge, protocol and mode.
        short_name: What names the configuration in `--configuration`; empty if the run has only one.
        whole: The table from which these rows were taken; its arrays are used again.
    """

    name: str
    folder: Path
    protocol: str
    rows: tuple[RunRow, ...]
    about: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    configuration: str = ""
    waiting: tuple[Edit, ...] = ()
    differs: str = ""
    short_name: str = ""
    whole: RunTable | None = field(default=None, repr=False, compare=False)

    @property
    def entry(self) -> Mapping[str, Any]:
        """What run.json records of the configuration; empty if it records nothing."""
        entries = self.about.get("configurations", ())
        return next((entry for entry in entries if entry.get("name") == self.configuration), {})

    @cached_property
    def criteria(self) -> tuple[str, ...]:
        """The criteria that were asked, in the protocol's order."""
        present = dict.fromkeys(kind.criterion for kind in self.unit_columns.counts)
        protocol = find_protocol(self.protocol)
        order = list(protocol.criteria) if protocol else []
        return tuple(sorted(present, key=lambda name: order.index(name) if name in order else len(order)))

    @cached_property
    def own(self) -> tuple[str, ...]:
        """The user's own criteria that were asked in addition to the protocol's; not part of the protocol's scores."""
        if self.protocol == OWN:
            return ()
        return tuple(name for name in self.criteria if self.rubrics.get(name, {}).get("protocol") == OWN)

    @property
    def titles(self) -> dict[str, str]:
        """Criteria to their titles; the user's own are marked."""
        return {name: self.title_of(name) + (" (own)" if name in self.own else "") for name in self.criteria}

    @cached_property
    def models(self) -> tuple[str, ...]:
        """The editing models, in the order in which they first occur."""
        return tuple(dict.fromkeys(row.model for row in self.rows))

    def with_rows(self, rows: Iterable[RunRow]) -> RunTable:
        """Return the table with these rows instead."""
        return replace(self, rows=tuple(rows), whole=self.whole or self)

    def with_waiting(self, waiting: Iterable[Edit]) -> RunTable:
        """Return the table with these edits as those that have no unit yet."""
        return replace(self, waiting=tuple(waiting))

    def of_model(self, model: str) -> RunTable:
        """Return the part of one editing model."""
        rows = (row for row in self.rows if row.model == model)
        return self.with_rows(rows).with_waiting(edit for edit in self.waiting if (edit.model or NO_MODEL) == model)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The fields that edits can be grouped by: fields of edits with values, and all further columns of the manifest."""
        fields = [name for name in EDIT_FIELDS if any(getattr(row.edit, name) is not None for row in self.rows)]
        return (*fields, *dict.fromkeys(name for row in self.rows for name in row.edit.extra))

    @cached_property
    def repeats(self) -> tuple[int, ...]:
        """The repeats that occur, in order."""
        return tuple(np.unique(self.unit_columns.repeat).tolist())

    @property
    def units(self) -> Iterator[RunUnit]:
        """All units, in the order of the rows."""
        return self.unit_columns.units()

    @property
    def unit_columns(self) -> UnitColumns:
        """All units as columns, in the order of the rows."""
        return self._gathered[0]

    @cached_property
    def _gathered(self) -> tuple[UnitColumns, Ints]:
        return gather_units(row.units for row in self.rows)

    @cached_property
    def judges(self) -> tuple[str, ...]:
        """The judges that gave the verdicts; usually one."""
        return tuple(dict.fromkeys(kind.judge for kind in self.unit_columns.counts))

    @cached_property
    def modes(self) -> tuple[str, ...]:
        """The modes of the verdicts; usually one."""
        return tuple(dict.fromkeys(kind.mode for kind in self.unit_columns.counts))

    @property
    def title(self) -> str:
        """Judge, protocol and mode in a few words, and how the configuration differs from another one of these."""
        mode = "imported" if self.imported else f"{' + '.join(self.modes)} mode"
        parts = (" + ".join(self.judges), self.protocol, mode, self.differs)
        return " · ".join(filter(None, parts))

    @property
    def imported(self) -> bool:
        """Whether the verdicts were made elsewhere, so that their mode is not known."""
        return is_imported(self.about, self.configuration)

    @cached_property
    def versions(self) -> tuple[ServedVersion, ...]:
        """The model versions reported by the providers; empty if they reported none."""
        return count_served_versions([self.unit_columns])

    @property
    def by_rules(self) -> bool:
        """Whether the rule-based judge gave some of the verdicts. Measured criteria are not a judge's."""
        asked = any(not isinstance(self.answer(name), MeasuredAnswer) for name in self.criteria)
        return asked and any(judge.split(":")[0] == RULES for judge in self.judges)

    @cached_property
    def rubrics(self) -> Mapping[str, Mapping[str, Any]]:
        """The record of each criterion's rubric: from run.json, else from this version of the package."""
        if self.whole is not None:
            return self.whole.rubrics
        return rubric_records(self.about, self.protocol)

    def answer(self, criterion: str) -> Answer | None:
        """Return the kind of answer a criterion takes, None if its rubric is neither recorded nor known."""
        return read_answer_kind(self.rubrics.get(criterion, {}))

    def labels(self, criterion: str) -> tuple[str, ...]:
        """Return the labels of a label criterion, worst first; none for the other kinds."""
        answer = self.answer(criterion)
        if not isinstance(answer, LabelAnswer):
            return ()
        return tuple(label.name for label in sorted(answer.labels, key=lambda label: label.score))

    def title_of(self, criterion: str) -> str:
        """Return a criterion's title."""
        return str(self.rubrics.get(criterion, {}).get("title") or criterion.replace("_", " ").capitalize())

    @cached_property
    def numbers(self) -> ScoreArrays:
        """All scores and states at once, rows × repeats × criteria."""
        if (origin := self._taken) is not None:
            parent, positions = origin
            repeats = [parent.repeats.index(repeat) for repeat in self.repeats]
            return parent.numbers.at(positions, repeats, [parent.criteria.index(name) for name in self.criteria])
        arrays = build_score_arrays(*self._gathered, self.repeats, self.criteria)
        return replace(arrays, score_100=self.apply_gates(arrays.score_100))

    @cached_property
    def asked(self) -> Bools:
        """Rows × criteria: whether an edit has a unit of a criterion, judged or not."""
        is_asked = np.zeros((len(self.rows), len(self.criteria)), bool)
        for position, name in enumerate(self.criteria):
            is_asked[self.row_of_unit[self.unit_columns.asks(name)], position] = True
        return is_asked

    @cached_property
    def targeted(self) -> Ints:
        """The positions of rows whose edit has target boxes."""
        return np.array([position for position, row in enumerate(self.rows) if row.edit.target_boxes], np.int64)

    @property
    def row_of_unit(self) -> Ints:
        """Which row each of the units belongs to."""
        return np.asarray(np.repeat(np.arange(len(self.rows)), self._gathered[1]))

    @cached_property
    def _taken(self) -> tuple[RunTable, Ints] | None:
        """The table these rows were taken from, and their positions in it; None without such a table."""
        if self.whole is None:
            return None
        positions_of = self.whole.places
        positions = np.array([positions_of.get(id(row), -1) for row in self.rows], np.int64)
        return None if (positions < 0).any() else (self.whole, positions)

    @cached_property
    def places(self) -> Mapping[int, int]:
        """The position of each row, by the row's identity."""
        return {id(row): position for position, row in enumerate(self.rows)}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The name of every row's edit."""
        return tuple(row.name for row in self.rows)

    @cached_property
    def sources(self) -> Ints:
        """The source image of every row, by number, in the order in which they first occur."""
        if (origin := self._taken) is not None:
            parent, positions = origin
            return number_keys(parent.sources[positions])
        return number_keys([row.source for row in self.rows])

    def apply_gates(self, values: Floats) -> Floats:
        """Return rows × repeats × criteria of scores (0 to 100) with the gates of the protocol applied."""
        protocol = find_protocol(self.protocol)
        if protocol is None or protocol.reported is None:
            return values
        values = values.copy()
        for number, is_asked in enumerate(self.asked):
            for repeat in range(values.shape[1]):
                scores = {c: float(v) for c, v in zip(self.criteria, values[number, repeat], strict=True) if v == v}
                gated = protocol.reported(scores)
                for position, criterion in enumerate(self.criteria):
                    if is_asked[position] and gated.get(criterion) != scores.get(criterion):
                        values[number, repeat, position] = gated.get(criterion, np.nan)
        return values

    def scores(self, criterion: str, unit_score: str = "score_100") -> Floats:
        """Return rows × repeats of scores, NaN without a verdict or a number.

        `score_100` is as the paper reports it, gates applied; `score` is the judge's own, on the rubric's scale.
        """
        values = self.numbers.score if unit_score == "score" else self.numbers.score_100
        return values[..., self.criteria.index(criterion)]

    def states(self, criterion: str) -> tuple[Floats, Floats]:
        """Return rows × repeats of 0 and 1: which units were judged, which were asked and ended unjudged."""
        position = self.criteria.index(criterion)
        return self.numbers.judged[..., position], self.numbers.unjudged[..., position]

    def expected(self, criteria: Collection[str] | None = None, repeats: int | None = None) -> int:
        """Return the number of units there should be for some criteria, including edits that were not judged yet."""
        names = set(self.criteria if criteria is None else criteria)
        planned = planned_repeats(self.about, self.configuration) or (len(self.repeats) if repeats is None else repeats)
        own = [position for position, name in enumerate(self.criteria) if name in names]
        units = (self.numbers.judged + self.numbers.unjudged)[..., own].sum(axis=1)
        expected = expected_units(
            self.protocol,
            names,
            edits=len(self.rows),
            answered=int(self.asked[:, own].sum()),
            waiting=len(self.waiting),
            waiting_edits=self.waiting,
            repeats=planned,
        )
        return expected + int(np.maximum(units - planned, 0).sum())


def count_served_versions(units: Iterable[UnitColumns]) -> tuple[ServedVersion, ...]:
    """Return the model versions that served these units, the most frequent first; empty if the run did not record them."""
    counts: Counter[str] = Counter()
    for columns in units:
        for kind, count in columns.counts.items():
            if kind.served:
                counts[kind.served] += count
    return parse_versions(counts)


def parse_versions(counts: Mapping[str, int]) -> tuple[ServedVersion, ...]:
    """Parse and count model versions, from the recorded JSON text to the number of verdicts that have it."""
    totals: Counter[Served] = Counter()
    for text, count in counts.items():
        try:
            versions = _SERVED.validate_json(text)
        except ValidationError:  # damage in this part only; the verdict itself could be read
            continue
        for served in versions:
            totals[served] += count
    return tuple(ServedVersion(served=served, verdicts=count) for served, count in totals.most_common())


def format_version_notes(versions: Iterable[ServedVersion]) -> tuple[str, ...]:
    """Name the models of a proxy's fallbacks, and the versions of every judge that was served in several.

    >>> versions = [ServedVersion(served=Served(judge="openai:m", model=m), verdicts=n) for m, n in (("m-1", 90), ("m-2", 10))]
    >>> format_version_notes(versions)
    ('openai:m was served in 2 versions: m-1 (90 verdicts) and m-2 (10 verdicts); scores may differ with them.',)
    """
    by_judge: dict[str, list[ServedVersion]] = {}
    fallbacks: Counter[tuple[str, str]] = Counter()
    for version in versions:
        by_judge.setdefault(version.served.judge, []).append(version)
        if version.served.fallback:
            fallbacks[version.served.judge, version.served.fallback] += version.verdicts
    return (
        *(
            f"{judge}: {number_of(count, 'verdict')} by a fallback: {model}."
            for (judge, model), count in fallbacks.items()
        ),
        *(_format_versions(judge, several) for judge, several in by_judge.items() if len(several) > 1),
    )


def _format_versions(judge: str, versions: Sequence[ServedVersion]) -> str:
    parts = [f"{version.served.summary} ({number_of(version.verdicts, 'verdict')})" for version in versions]
    text = f"{', '.join(parts[:-1])} and {parts[-1]}"
    return f"{judge} was served in {len(versions)} versions: {text}; scores may differ with them."


def find_warnings(*tables: RunTable) -> tuple[str, ...]:
    """Return warnings: verdicts of the rule-based judge, and judges that were served in several versions."""
    versions = tables[0].versions if len(tables) == 1 else count_served_versions(table.unit_columns for table in tables)
    return (*((BASELINE_NOTE,) if any(table.by_rules for table in tables) else ()), *format_version_notes(versions))


def read_run_table(
    run: Run | RunTable | str | Path, protocol: str | None = None, configuration: str | None = None
) -> RunTable:
    """Read a run into a table. A table is returned as it is.

    Args:
        run: The run, its folder, or a table.
        protocol: The protocol, if the run holds several.
        configuration: The configuration (its short name, judge or mode), if the run holds several. By default the newest.

    Raises:
        UserError: The run cannot be read, has no such configuration, or holds several protocols and none is named.
    """
    if isinstance(run, RunTable):
        return run
    if not isinstance(run, Run):
        with Run.open(run) as opened:
            return read_run_table(opened, protocol, configuration)
    with pause_collection():
        chosen, notes = choose_configuration(run, protocol, configuration)
        table = _read(run, chosen)
        return replace(table, notes=(*table.notes, *notes))


@contextmanager
def pause_collection() -> Iterator[None]:
    """Pause the cyclic garbage collector while many records are read. A collector that is switched off stays off.

    Every collection walks through all records read so far, and none of them is garbage. Together with `gc.freeze` after it,
    this saves `report` on 20 000 edits by 5 models a fifth of its time (`benchmarks/report.py`).
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def read_configuration_table(run: Run, name: str, for_means: bool = False) -> RunTable | None:
    """Read one configuration of a run by its whole name; None if it has no units yet.

    Args:
        run: The run.
        name: The configuration's name.
        for_means: Keep only the fields of edits that the means of criteria need, to save memory.
    """
    with run.reader() as reader:
        configuration = reader.find_configuration(name)
    return None if configuration is None else _read(run, configuration, for_means)


class _EditShortener:
    """Reduces edits to the fields that the means of criteria need, and stores equal ones once, to save memory.

    If the protocol scores whole edits, they are not reduced.
    """

    def __init__(self, protocol: str) -> None:
        rules = find_protocol(protocol)
        self._needs_whole = rules is not None and rules.edit_score is not None
        self._apart = rules.apart if rules else ()
        self._short: dict[tuple[str, ...], StoredEdit] = {}

    def __call__(self, stored: StoredEdit) -> StoredEdit:
        """Return the edit with nothing but its model, its type and the fields that the paper reports separately."""
        if self._needs_whole:
            return stored
        edit = stored.edit
        columns = {name: edit.extra[name] for name in self._apart if name in edit.extra}
        names = [name for name in ("model", "instruction_type", *self._apart) if name in Edit.model_fields]
        fields: dict[str, Any] = {name: getattr(edit, name) for name in names}
        key = repr(fields), repr(columns)
        if (short := self._short.get(key)) is None:
            bare = Edit.model_construct(source=Path(), edited=Path(), instruction="", extra=columns, **fields)
            short = self._short[key] = StoredEdit(bare, {}, "")
        return short


def _read(run: Run, chosen: Configuration, for_means: bool = False) -> RunTable:
    rows, waiting = _rows(run, chosen, _EditShortener(chosen.protocol) if for_means else None)
    if not rows:
        raise UserError(f"the run {run.folder.name} holds no edit that can be read. {' '.join(run.damage.sentences())}")
    name, about = run.folder.resolve().name, run.about()
    short_name = chosen.short_name if len(about.get("configurations", ())) > 1 else ""
    notes = run.damage.sentences() + ((IMPORTED_NOTE,) if is_imported(about, chosen.name) else ())
    return RunTable(
        name, run.folder, chosen.protocol, rows, about, notes, chosen.name, waiting, chosen.differs, short_name
    )


def _rows(
    run: Run, chosen: Configuration, shorten: _EditShortener | None
) -> tuple[tuple[RunRow, ...], tuple[Edit, ...]]:
    """Return the edits with their units, and the edits without any."""
    by_edit = read_units(run, chosen.name)
    rows, waiting = [], []
    for stored in run.edits():
        if (units := by_edit.pop(stored.name, None)) is not None:
            edit, pictures, name = stored if shorten is None else shorten(stored)
            rows.append(RunRow(edit, pictures, units, name))
        else:
            waiting.append((stored.name, stored.edit))
    elsewhere = set[str]()
    if waiting:
        with run.reader() as reader:
            elsewhere = find_judged_elsewhere(reader, chosen)
    return tuple(rows), tuple(edit for name, edit in waiting if name not in elsewhere)


def read_run_tables(folder: Path, protocol: str | None = None, configuration: str | None = None) -> list[RunTable]:
    """Read a run into one table, or into one per configuration if `configuration` is `all`.

    With `all`, the name of a table contains the short name of its configuration.

    Args:
        folder: The run's folder.
        protocol: The protocol, if the run holds several.
        configuration: The configuration (its short name, judge or mode), or `all`. By default the newest.

    Raises:
        UserError: The run cannot be read, has no such configuration, or holds several protocols and none is named.
    """
    if configuration != ALL:
        return [read_run_table(folder, protocol, configuration)]
    with Run.open(folder) as run:
        newest, _ = choose_configuration(run, protocol)
        every = run.configurations(newest.protocol)
        with pause_collection():
            tables = [_read(run, own) for own in every]
        if len(every) == 1:
            return tables
        return [
            replace(table, name=f"{table.name} · {own.short_name}") for table, own in zip(tables, every, strict=True)
        ]


def choose_configuration(
    run: Run, protocol: str | None = None, configuration: str | None = None
) -> tuple[Configuration, tuple[str, ...]]:
    """Return the configuration that protocol and configuration name; the newest one if several fit.

    Args:
        run: The run.
        protocol: The protocol, if the run holds several.
        configuration: A short name such as `gpt-5.1/tools`, a judge, a mode, or the start of a configuration's whole name.

    Returns:
        The configuration, and a sentence on the choice if several fit.

    Raises:
        UserError: No configuration fits, or those that fit are of several protocols.
    """
    configurations, name = run.configurations(), run.folder.name
    if not configurations:
        damage = " ".join(run.damage.sentences())
        raise UserError(f"the run {name} holds no verdicts {f'that can be read. {damage}' if damage else 'yet'}")
    protocols = list(dict.fromkeys(candidate.protocol for candidate in configurations))
    if protocol is not None and protocol not in protocols:
        raise UserError(f"the run {name} holds no verdicts of {protocol}; it has {' and '.join(protocols)}")
    candidates = [candidate for candidate in configurations if protocol in (None, candidate.protocol)]
    if configuration is not None:
        candidates = match_configurations(candidates, configuration)
    if not candidates:
        raise UserError(f'the run {name} has no configuration "{configuration}"; it has: {format_list(configurations)}')
    if len({candidate.protocol for candidate in candidates}) > 1:
        raise UserError(f"the run {name} holds verdicts of {' and '.join(protocols)}; name one with --protocol")
    newest = find_newest(candidates)
    others = format_list(candidate for candidate in candidates if candidate is not newest)
    note = (
        f"The run {name} was judged in several ways; this is the newest, {format_list([newest])}. "
        f"Choose with --configuration: {others}."
    )
    return newest, (note,) if others else ()

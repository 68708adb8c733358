"""Figures of a run: units judged and still expected, reasons, tokens, cost, models, and what each of several judges did."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, TypeAdapter, ValidationError

from editloupe._util.text import number_of
from editloupe.evals.runs import schema
from editloupe.evals.runs.configurations import Configuration, planned_repeats
from editloupe.evals.runs.prices import PanelPrice, Price
from editloupe.evals.runs.reader import OF_CONFIGURATION, RunReader
from editloupe.evals.runs.run_folder import FILE
from editloupe.evals.runs.store import Run
from editloupe.rubrics.protocol import Protocol, first_variant
from editloupe.rubrics.registry import known_protocol
from editloupe.types import Edit, Opinion, Record, Usage, UserError

_USAGE = tuple(Usage.model_fields)
_OPINIONS: TypeAdapter[tuple[Opinion, ...]] = TypeAdapter(tuple[Opinion, ...])


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
    with Run.open(folder) as run, run.reader() as reader:
        usage, cost = run.read_spending()
        models = (
            "SELECT CAST(model AS TEXT), count(*) FROM edits WHERE model IS NOT NULL GROUP BY model ORDER BY min(edit)"
        )
        places = run.pictures.folder.glob("[0-9a-f][0-9a-f]/*") if run.pictures.folder.is_dir() else ()
        sizes = [path.stat().st_size for path in places if path.is_file()]
        return RunInfo(
            folder=str(folder),
            schema_version=schema.read_version(reader.connection),
            created=run.about().get("created"),
            edits=reader.connection.execute("SELECT count(*) FROM edits").fetchone()[0],
            models={str(name): count for name, count in reader.connection.execute(models)},
            configurations=tuple(_configuration_info(run, reader, known) for known in reader.configurations()),
            usage=usage,
            cost=cost,
            pictures=len(sizes),
            picture_bytes=sum(sizes),
            file_bytes=(folder / FILE).stat().st_size,
        )


def _configuration_info(run: Run, reader: RunReader, configuration: Configuration) -> ConfigurationInfo:
    query = (
        f"SELECT CAST(criterion AS TEXT), count(DISTINCT repeat) FROM verdicts WHERE {OF_CONFIGURATION} "
        "GROUP BY criterion ORDER BY min(answer)"
    )
    rows = reader.connection.execute(query, (configuration.name,)).fetchall()
    standing = count_completion(run, reader, configuration)
    return ConfigurationInfo(
        name=configuration.name,
        judge=configuration.judge,
        differs=configuration.differs,
        protocol=configuration.protocol,
        mode=configuration.mode,
        criteria=tuple(str(row[0]) for row in rows),
        judged=standing.judged,
        unjudged=standing.unjudged,
        not_yet=standing.not_yet,
        repeats=max((row[1] for row in rows), default=0),
    )


# Units that should be there


@dataclass(frozen=True)
class Completion:
    """What of one configuration's units is there."""

    judged: int
    unjudged: int
    expected: int
    """Units there should be: of every edit the run knows, in every repeat that was asked for."""
    edits: int
    """Edits with an outcome, whole or in part."""

    @property
    def not_yet(self) -> int:
        """Units without an outcome."""
        return max(0, self.expected - self.judged - self.unjudged)

    def describe(self) -> str:
        """Say how far the run has got, in a few words; nothing where it is complete.

        >>> Standing(judged=90, unjudged=2, expected=240, edits=23).describe()
        '92 of 240 judged, 148 not yet'
        """
        done = self.judged + self.unjudged
        return f"{done} of {self.expected} judged, {self.not_yet} not yet" if self.not_yet else ""


def count_completion(run: Run, reader: RunReader, configuration: Configuration) -> Completion:
    """Count what a configuration of a run has judged and what it was to judge."""
    query = (
        "SELECT count(*), total(status = 'judged'), count(DISTINCT criterion), max(repeat) FROM verdicts "
        f"WHERE {OF_CONFIGURATION} GROUP BY edit"
    )
    units = judged = answered = edits = 0
    repeats = planned_repeats(run.about(), configuration.name)
    for count, good, criteria, last in reader.connection.execute(query, (configuration.name,)):
        units, judged, answered, edits = units + count, judged + int(good), answered + criteria, edits + 1
        repeats = max(repeats, int(last) + 1)
    asked = f"SELECT DISTINCT criterion FROM verdicts WHERE {OF_CONFIGURATION}"
    names = {str(name) for (name,) in reader.connection.execute(asked, (configuration.name,))}
    waiting = _waiting(reader, configuration)
    expected = expected_units(
        configuration.protocol,
        names,
        edits=edits,
        answered=answered,
        waiting=len(waiting),
        waiting_edits=(kept.edit for kept in run.edits() if kept.name in waiting),
        repeats=repeats,
    )
    return Completion(judged, units - judged, max(units, expected), edits)


def expected_units(
    protocol: str,
    criteria: Collection[str],
    *,
    edits: int,
    answered: int,
    waiting: int,
    waiting_edits: Iterable[Edit],
    repeats: int,
) -> int:
    """Return how many units of some criteria there should be, those not judged yet included.

    Args:
        protocol: The protocol's name.
        criteria: The criteria that are counted.
        edits: How many edits have an outcome.
        answered: How many pairs of an edit and one of the criteria have an outcome.
        waiting: How many edits have none.
        waiting_edits: These edits; read only if the protocol does not ask every edit every criterion.
        repeats: How often every edit is judged.
    """
    known = known_protocol(protocol)
    if known is not None and known.choose is first_variant:
        return len(criteria) * (edits + waiting) * repeats
    if known is None:
        return (answered + len(criteria) * waiting) * repeats
    wanted = set(criteria)
    further = sum(len(_asked_criteria(known, edit, wanted)) for edit in waiting_edits) if waiting else 0
    return (answered + further) * repeats


def _asked_criteria(protocol: Protocol, edit: Edit, wanted: set[str]) -> set[str]:
    """Return which of these criteria an edit is asked; those that are not the protocol's are asked of every edit."""
    try:
        asked = {rubric.criterion for rubric in protocol.rubrics_for(edit)}
    except UserError:
        return wanted
    return wanted & asked | wanted.difference(protocol.criteria)


def find_judged_elsewhere(reader: RunReader, configuration: Configuration) -> set[str]:
    """Return the names of edits judged by another protocol: it is not known whether this one is to judge them too."""
    others = (other for other in reader.configurations() if other.protocol != configuration.protocol)
    return set().union(*(reader.names_judged_by(other.name) for other in others))


def _waiting(reader: RunReader, configuration: Configuration) -> set[str]:
    """Return the names of edits without an outcome, but not of those that only another protocol judged."""
    query = f"SELECT name FROM edits WHERE edit NOT IN (SELECT edit FROM answers WHERE {OF_CONFIGURATION})"
    names = {str(name) for (name,) in reader.connection.execute(query, (configuration.name,))}
    return names - find_judged_elsewhere(reader, configuration) if names else names


# Time


def clock_seconds(spans: Iterable[tuple[float, float]]) -> float:
    """Return how long something was under way, where several things may be at once and nothing for a while.

    >>> clock_seconds([(0.0, 10.0), (5.0, 12.0), (100.0, 101.0)])
    13.0
    """
    whole, end = 0.0, float("-inf")
    for begun, ended in sorted(spans):
        whole += max(0.0, ended - max(begun, end))
        end = max(end, ended)
    return whole


def measure_clock_seconds(reader: RunReader, configuration: str) -> float:
    """Return how many seconds on the clock a configuration's verdicts took; they are judged side by side."""
    query = (
        "SELECT CAST(strftime('%s', finished_at) AS REAL), seconds FROM units WHERE unit IN "
        f"(SELECT unit FROM answers WHERE {OF_CONFIGURATION})"
    )
    rows = reader.connection.execute(query, (configuration,))
    return clock_seconds((end - took, end) for end, took in rows if end is not None and isinstance(took, (int, float)))


# Reasons and tokens


def count_unjudged(run: Run, configuration: str) -> dict[str, tuple[int, str]]:
    """Return how many units are unjudged by reason, with the name of one edit each."""
    query = (
        f"SELECT CAST(reason AS TEXT), count(*), CAST(min(name) AS TEXT) FROM verdicts WHERE {OF_CONFIGURATION} "
        "AND status = 'unjudged' GROUP BY reason ORDER BY 2 DESC"
    )
    with run.reader() as reader:
        rows = reader.connection.execute(query, (configuration,))
        return {str(reason): (count, str(example)) for reason, count, example in rows}


def count_unjudged_edits(run: Run, configuration: str, reason: str) -> int:
    """Return how many edits have a unit that is unjudged for this reason."""
    query = f"SELECT count(DISTINCT name) FROM verdicts WHERE {OF_CONFIGURATION} AND status = 'unjudged' AND reason = ?"
    with run.reader() as reader:
        return int(reader.connection.execute(query, (configuration, str(reason))).fetchone()[0])


def mean_usage(run: Run, judge: str, mode: str) -> dict[str, tuple[dict[str, float], int]]:
    """Return the mean tokens of this judge's units by criterion, with how many there are."""
    means = ", ".join(f"avg({name})" for name in _USAGE)
    query = f"SELECT criterion, count(*), {means} FROM units WHERE judge = ? AND mode = ? GROUP BY criterion"
    with run.reader() as reader:
        rows = reader.connection.execute(query, (judge, mode)).fetchall()
    return {row[0]: (dict(zip(_USAGE, row[2:], strict=True)), row[1]) for row in rows}


# Judges that answered together


class StageCount(Record):
    """One stage of a cascade, or one member of a panel."""

    part: str
    judge: str
    asked: int = 0
    """Units it was asked about."""
    kept: int = 0
    """Units whose outcome is its own; in a panel, those in which its answer stood."""
    unjudged: int = 0
    """Units on which it gave no verdict."""
    usage: Usage = Usage()
    cost: float | None = 0.0
    """None where a price is not known."""

    @property
    def line(self) -> str:
        """All of it in a line."""
        tokens = self.usage.input_tokens + self.usage.output_tokens
        cost = "cost unknown" if self.cost is None else f"${self.cost:.4f}"
        spent = f"; {self.usage.requests} requests, {tokens} tokens, {cost}" if self.usage.requests else ""
        left = f", {self.unjudged} unjudged" if self.unjudged else ""
        what = "kept" if self.part.startswith("stage") else "gave the answer that stands in"
        return f"{self.part}, {self.judge}: asked about {self.asked} units, {what} {self.kept}{left}{spent}"


def count_stages(run: Run, configuration: str, price: Price | None) -> tuple[StageCount, ...]:
    """Count what each judge did, by stage or member; empty for a judge that answers alone."""
    found: dict[tuple[str, str], StageCount] = {}
    for opinions in _each(run, configuration):
        for one in opinions:
            place = (one.part, one.judge)
            known = found.get(place) or StageCount(part=one.part, judge=one.judge)
            cost = _cost(one, price)
            found[place] = StageCount(
                part=one.part,
                judge=one.judge,
                asked=known.asked + one.asked,
                kept=known.kept + one.kept,
                unjudged=known.unjudged + (one.asked and one.reason is not None),
                usage=known.usage + one.usage,
                cost=None if cost is None or known.cost is None else round(known.cost + cost, 9),
            )
    return tuple(sorted(found.values(), key=lambda one: (len(one.part), one.part)))


def describe_silent_members(run: Run, configuration: str) -> tuple[str, ...]:
    """Say which members of a panel gave no verdict on units that the others decided."""
    query = (
        "SELECT CAST(json_extract(said.value, '$.judge') AS TEXT), count(*), "
        "CAST(min(json_extract(said.value, '$.reason')) AS TEXT) FROM units, json_each(units.outcome, '$.opinions') AS said "
        f"WHERE {OF_CONFIGURATION} AND status = 'judged' "
        "AND json_valid(outcome) AND json_extract(said.value, '$.part') LIKE 'member%' "
        "AND json_extract(said.value, '$.reason') IS NOT NULL GROUP BY 1 ORDER BY 2 DESC, 1"
    )
    with run.reader() as reader:
        return tuple(
            f"{judge} gave no verdict on {number_of(count, 'unit')} ({reason}); there the other judges of the panel decided."
            for judge, count, reason in reader.connection.execute(query, (configuration,))
        )


def _each(run: Run, configuration: str) -> Iterator[Sequence[Opinion]]:
    query = (
        f"SELECT json_extract(outcome, '$.opinions') FROM units WHERE {OF_CONFIGURATION} AND json_valid(outcome) "
        "AND json_extract(outcome, '$.opinions') IS NOT NULL"
    )
    with run.reader() as reader:
        for (text,) in reader.connection.execute(query, (configuration,)):
            try:
                yield _OPINIONS.validate_json(text)
            except ValidationError:  # damage; the readers of verdicts tell of it
                continue


def _cost(one: Opinion, price: Price | None) -> float | None:
    if price is None:
        return None
    return price.opinion_cost(one) if isinstance(price, PanelPrice) else price.cost(one.usage, one.judge)


def stage_counts_as_json(counts: Sequence[StageCount]) -> list[Mapping[str, object]]:
    """Return the counts as plain JSON holds them."""
    return [json.loads(one.model_dump_json()) for one in counts]

"""Count the units, reasons, tokens and cost of a run, and the share of each judge of a panel."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, TypeAdapter, ValidationError

from editloupe._util.text import number_of
from editloupe.evals.runs import schema
from editloupe.evals.runs.configurations import Configuration, is_imported, planned_repeats
from editloupe.evals.runs.prices import PanelPrice, Price
from editloupe.evals.runs.reader import OF_CONFIGURATION, RunReader
from editloupe.evals.runs.run_folder import FILE
from editloupe.evals.runs.store import Run
from editloupe.rubrics.protocol import Protocol, choose_first_variant
from editloupe.rubrics.registry import find_protocol
from editloupe.types import Edit, Opinion, Record, Usage, UserError

_USAGE = tuple(Usage.model_fields)
_OPINIONS: TypeAdapter[tuple[Opinion, ...]] = TypeAdapter(tuple[Opinion, ...])


class ConfigurationInfo(Record):
    """A configuration of a run with its counts."""

    name: str
    short_name: str
    """Names it in `--configuration`, such as `gpt-5.1/tools`."""
    last_used: str
    """When its latest unit was judged."""
    judge: str
    protocol: str
    mode: str
    differs: str = ""
    """How it differs from an earlier one with the same judge, protocol and mode."""
    criteria: tuple[str, ...]
    judged: int
    unjudged: int
    not_yet: int
    """Units without an outcome yet."""
    repeats: int
    imported: bool = Field(default=False, exclude_if=lambda value: not value)
    """Whether the verdicts were made elsewhere, so that their mode is not known."""


class RunInfo(Record):
    """Counts of a run."""

    folder: str
    schema_version: int
    created: str | None
    edits: int
    models: dict[str, int] = Field(default_factory=dict)
    """Number of edits per editing model, without edits that name none."""
    configurations: tuple[ConfigurationInfo, ...] = ()
    usage: Usage
    cost: float | None
    """US dollars; None if a price is not known."""
    pictures: int
    picture_bytes: int
    picture_bytes_estimated: bool = False
    """Whether only some of the pictures were measured."""
    file_bytes: int


def run_info(folder: Path) -> RunInfo:
    """Count what a run contains."""
    with Run.open(folder) as run, run.reader() as reader:
        usage, cost = run.read_spending()
        models = reader.connection.execute("SELECT model FROM edits WHERE model IS NOT NULL ORDER BY edit")
        pictures, picture_bytes, is_estimate = run.pictures.measure()
        return RunInfo(
            folder=str(folder),
            schema_version=schema.read_version(reader.connection),
            created=run.about().get("created"),
            edits=reader.connection.execute("SELECT count(*) FROM edits").fetchone()[0],
            models=Counter(str(name) for (name,) in models),
            configurations=tuple(
                _configuration_info(run, reader, configuration) for configuration in reader.configurations()
            ),
            usage=usage,
            cost=cost,
            pictures=pictures,
            picture_bytes=picture_bytes,
            picture_bytes_estimated=is_estimate,
            file_bytes=(folder / FILE).stat().st_size,
        )


def _configuration_info(run: Run, reader: RunReader, configuration: Configuration) -> ConfigurationInfo:
    repeats: dict[str, set[int]] = {}
    for criterion, repeat in _find_repeats(reader, configuration):
        repeats.setdefault(criterion, set()).add(repeat)
    completion = count_completion(run, reader, configuration)
    return ConfigurationInfo(
        name=configuration.name,
        short_name=configuration.short_name,
        last_used=configuration.last_used,
        judge=configuration.judge,
        differs=configuration.differs,
        protocol=configuration.protocol,
        mode=configuration.mode,
        criteria=tuple(repeats),
        judged=completion.judged,
        unjudged=completion.unjudged,
        not_yet=completion.not_yet,
        repeats=max(map(len, repeats.values()), default=0),
        imported=is_imported(run.about(), configuration.name),
    )


def _find_repeats(reader: RunReader, configuration: Configuration) -> list[tuple[str, int]]:
    """Return every pair of a criterion and a repeat with answers; criteria in the order of their first answer."""
    query = (
        "SELECT CAST(criterion AS TEXT), repeat FROM (SELECT DISTINCT asked, repeat FROM answers "
        f"WHERE {OF_CONFIGURATION}) AS own JOIN asked USING (asked) ORDER BY "
        "(SELECT answer FROM answers WHERE answers.asked = own.asked ORDER BY answer LIMIT 1)"
    )
    return [
        (str(criterion), int(repeat)) for criterion, repeat in reader.connection.execute(query, (configuration.name,))
    ]


# Completion


@dataclass(frozen=True)
class Completion:
    """How much of a configuration's units is judged."""

    judged: int
    unjudged: int
    expected: int
    """Units of every edit of the run in every repeat that was last asked for, and units of further repeats."""
    edits: int
    """Edits with at least one outcome."""

    @property
    def not_yet(self) -> int:
        """Units without an outcome."""
        return max(0, self.expected - self.judged - self.unjudged)

    def describe(self) -> str:
        """Return the progress in a few words; empty if it is complete.

        >>> Completion(judged=90, unjudged=2, expected=240, edits=23).describe()
        '92 of 240 judged, 148 not yet'
        """
        done = self.judged + self.unjudged
        return f"{done} of {self.expected} judged, {self.not_yet} not yet" if self.not_yet else ""


def count_completion(run: Run, reader: RunReader, configuration: Configuration) -> Completion:
    """Count the units that a configuration has judged, and those it is expected to judge."""
    values = (configuration.name,)
    query = "SELECT count(DISTINCT criterion) < count(*) FROM asked JOIN configurations USING (asked) WHERE configuration = ?"
    has_variants = reader.connection.execute(query, values).fetchone()[0]
    column = "criterion" if has_variants else "asked"  # the latter is in an index
    query = (
        f"SELECT total(units), count(*), total(criteria) FROM (SELECT count(*) AS units, count(DISTINCT {column}) AS criteria "
        f"FROM answers WHERE {OF_CONFIGURATION} GROUP BY edit)"
    )
    units, edits, answered = map(int, reader.connection.execute(query, values).fetchone())
    query = f"SELECT count(*) FROM answers WHERE {OF_CONFIGURATION} AND unit IN (SELECT unit FROM units WHERE status <> 'judged')"
    unjudged = int(reader.connection.execute(query, values).fetchone()[0])
    asked_repeats = _find_repeats(reader, configuration)
    names = {criterion for criterion, _ in asked_repeats}
    repeats = planned_repeats(run.about(), configuration.name) or max(
        (repeat + 1 for _, repeat in asked_repeats), default=1
    )
    query = (
        f"SELECT total(units - ?) FROM (SELECT count(*) AS units FROM answers WHERE {OF_CONFIGURATION} "
        f"GROUP BY edit, {column}) WHERE units > ?"
    )
    further = int(reader.connection.execute(query, (repeats, *values, repeats)).fetchone()[0])
    total = int(reader.connection.execute("SELECT count(*) FROM edits").fetchone()[0])
    waiting = _find_waiting(reader, configuration) if edits < total else set()
    expected = expected_units(
        configuration.protocol,
        names,
        edits=edits,
        answered=answered,
        waiting=len(waiting),
        waiting_edits=(stored.edit for stored in run.edits() if stored.name in waiting),
        repeats=repeats,
    )
    return Completion(units - unjudged, unjudged, max(units, expected + further), edits)


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
    """Return how many units of some criteria there should be, including those not judged yet.

    Args:
        protocol: The protocol's name.
        criteria: The criteria that are counted.
        edits: How many edits have an outcome.
        answered: How many pairs of an edit and one of the criteria have an outcome.
        waiting: How many edits have none.
        waiting_edits: These edits; read only if the protocol does not ask every edit every criterion.
        repeats: How often every edit is judged.
    """
    own = find_protocol(protocol)
    if own is not None and own.choose is choose_first_variant:
        return len(criteria) * (edits + waiting) * repeats
    if own is None:
        return (answered + len(criteria) * waiting) * repeats
    names = set(criteria)
    further = sum(len(_applicable_criteria(own, edit, names)) for edit in waiting_edits) if waiting else 0
    return (answered + further) * repeats


def _applicable_criteria(protocol: Protocol, edit: Edit, criteria: set[str]) -> set[str]:
    """Return which of these criteria apply to an edit; criteria that are not the protocol's apply to every edit."""
    try:
        own = {rubric.criterion for rubric in protocol.rubrics_for(edit)}
    except UserError:
        return criteria
    return criteria & own | criteria.difference(protocol.criteria)


def find_judged_elsewhere(reader: RunReader, configuration: Configuration) -> set[str]:
    """Return the names of edits judged by another protocol, which this configuration need not judge."""
    configurations = (other for other in reader.configurations() if other.protocol != configuration.protocol)
    return set().union(*(reader.names_judged_by(other.name) for other in configurations))


def _find_waiting(reader: RunReader, configuration: Configuration) -> set[str]:
    """Return the names of edits without an outcome, except those that another protocol judged."""
    query = f"SELECT name FROM edits WHERE edit NOT IN (SELECT edit FROM answers WHERE {OF_CONFIGURATION})"
    names = {str(name) for (name,) in reader.connection.execute(query, (configuration.name,))}
    return names - find_judged_elsewhere(reader, configuration) if names else names


# Time


def clock_seconds(spans: Iterable[tuple[float, float]]) -> float:
    """Return the total length of time spans that may overlap and have gaps.

    >>> clock_seconds([(0.0, 10.0), (5.0, 12.0), (100.0, 101.0)])
    13.0
    """
    total, end = 0.0, float("-inf")
    for begun, ended in sorted(spans):
        total += max(0.0, ended - max(begun, end))
        end = max(end, ended)
    return total


def measure_clock_seconds(reader: RunReader, configuration: str) -> float:
    """Return the wall-clock seconds in which a configuration's units were judged; they are judged concurrently."""
    query = (
        "SELECT CAST(strftime('%s', finished_at) AS REAL), seconds FROM units WHERE unit IN "
        f"(SELECT unit FROM answers WHERE {OF_CONFIGURATION})"
    )
    rows = reader.connection.execute(query, (configuration,))
    return clock_seconds((end - took, end) for end, took in rows if end is not None and isinstance(took, (int, float)))


# Reasons and tokens


def count_unjudged(run: Run, configuration: str) -> dict[str, tuple[int, str]]:
    """Return by reason how many units are unjudged, and the name of one such edit."""
    query = (
        f"SELECT CAST(reason AS TEXT), count(*), CAST(min(name) AS TEXT) FROM verdicts WHERE {OF_CONFIGURATION} "
        "AND status = 'unjudged' GROUP BY reason ORDER BY 2 DESC"
    )
    with run.reader() as reader:
        rows = reader.connection.execute(query, (configuration,))
        return {str(reason): (count, str(example)) for reason, count, example in rows}


def count_unjudged_edits(run: Run, configuration: str, reason: str) -> int:
    """Return how many edits have a unit that is unjudged for a reason."""
    query = f"SELECT count(DISTINCT name) FROM verdicts WHERE {OF_CONFIGURATION} AND status = 'unjudged' AND reason = ?"
    with run.reader() as reader:
        return int(reader.connection.execute(query, (configuration, str(reason))).fetchone()[0])


def mean_usage(run: Run, judge: str, mode: str) -> dict[str, tuple[dict[str, float], int]]:
    """Return by criterion the mean tokens of a judge's units, and how many units there are."""
    means = ", ".join(f"avg({name})" for name in _USAGE)
    query = f"SELECT criterion, count(*), {means} FROM units WHERE judge = ? AND mode = ? GROUP BY criterion"
    with run.reader() as reader:
        rows = reader.connection.execute(query, (judge, mode)).fetchall()
    return {row[0]: (dict(zip(_USAGE, row[2:], strict=True)), row[1]) for row in rows}


# Panels and cascades


class StageCount(Record):
    """Counts of one stage of a cascade, or of one member of a panel."""

    part: str
    judge: str
    asked: int = 0
    """Units it was asked about."""
    kept: int = 0
    """Units whose outcome is its own; in a panel, units with its answer as the outcome."""
    unjudged: int = 0
    """Units on which it gave no verdict."""
    usage: Usage = Usage()
    cost: float | None = 0.0
    """None if a price is not known."""

    @property
    def line(self) -> str:
        """All counts in one line."""
        tokens = self.usage.input_tokens + self.usage.output_tokens
        cost = "cost unknown" if self.cost is None else f"${self.cost:.4f}"
        spent = f"; {self.usage.requests} requests, {tokens} tokens, {cost}" if self.usage.requests else ""
        unjudged = f", {self.unjudged} unjudged" if self.unjudged else ""
        share = "kept" if self.part.startswith("stage") else "gave the final answer in"
        return f"{self.part}, {self.judge}: asked about {self.asked} units, {share} {self.kept}{unjudged}{spent}"


def count_stages(run: Run, configuration: str, price: Price | None) -> tuple[StageCount, ...]:
    """Count the units, tokens and cost of each stage or member; empty for a single judge."""
    counts: dict[tuple[str, str], StageCount] = {}
    for opinions in _read_opinions(run, configuration):
        for opinion in opinions:
            key = (opinion.part, opinion.judge)
            count = counts.get(key) or StageCount(part=opinion.part, judge=opinion.judge)
            cost = _cost(opinion, price)
            counts[key] = StageCount(
                part=opinion.part,
                judge=opinion.judge,
                asked=count.asked + opinion.asked,
                kept=count.kept + opinion.kept,
                unjudged=count.unjudged + (opinion.asked and opinion.reason is not None),
                usage=count.usage + opinion.usage,
                cost=None if cost is None or count.cost is None else round(count.cost + cost, 9),
            )
    return tuple(sorted(counts.values(), key=lambda count: (len(count.part), count.part)))


def describe_silent_members(run: Run, configuration: str) -> tuple[str, ...]:
    """Return sentences on panel members that gave no verdict on units that the others decided."""
    query = (
        "SELECT CAST(json_extract(said.value, '$.judge') AS TEXT), count(*), "
        "CAST(min(json_extract(said.value, '$.reason')) AS TEXT) FROM units, json_each(units.outcome, '$.opinions') AS said "
        f"WHERE {OF_CONFIGURATION} AND status = 'judged' "
        "AND json_valid(outcome) AND json_extract(said.value, '$.part') LIKE 'member%' "
        "AND json_extract(said.value, '$.reason') IS NOT NULL GROUP BY 1 ORDER BY 2 DESC, 1"
    )
    with run.reader() as reader:
        return tuple(
            f"{judge} gave no verdict on {number_of(count, 'unit')} ({reason}); the other judges of the panel decided these."
            for judge, count, reason in reader.connection.execute(query, (configuration,))
        )


def _read_opinions(run: Run, configuration: str) -> Iterator[Sequence[Opinion]]:
    query = (
        f"SELECT json_extract(outcome, '$.opinions') FROM units WHERE {OF_CONFIGURATION} AND json_valid(outcome) "
        "AND json_extract(outcome, '$.opinions') IS NOT NULL"
    )
    with run.reader() as reader:
        for (text,) in reader.connection.execute(query, (configuration,)):
            try:
                yield _OPINIONS.validate_json(text)
            except ValidationError:  # damage, which readers of verdicts report
                continue


def _cost(opinion: Opinion, price: Price | None) -> float | None:
    if price is None:
        return None
    return price.opinion_cost(opinion) if isinstance(price, PanelPrice) else price.cost(opinion.usage, opinion.judge)


def stage_counts_as_json(counts: Sequence[StageCount]) -> list[Mapping[str, object]]:
    """Return the counts as JSON values."""
    return [json.loads(count.model_dump_json()) for count in counts]

"""The configurations of a run, in its tables and in run.json. A configuration is a set of questions of one judge."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from editloupe._util.hashing import content_key
from editloupe._util.json_safe import sanitize_text
from editloupe._util.text import number_of
from editloupe.agent.transport.secrets import Secrets
from editloupe.evals.runs.schema import VERSION
from editloupe.judge.question_key import QuestionSpec, describe_changes
from editloupe.rubrics.model import Answer
from editloupe.types import UserError

ALL = "all"
"""In place of a configuration's name: all of them."""
MOST_LISTED = 8
"""Configurations that a sentence names."""
PLANNED = "planned_repeats"
IMPORTED = "imported"
"""Marks a configuration whose verdicts were made elsewhere."""
_PROVIDER = re.compile(r"^\w+:(?=\S+$)")
"""The provider of a single model's name, such as `openai:`; the names of panels contain spaces."""
_ANSWER: TypeAdapter[Answer] = TypeAdapter(Answer)


@dataclass(frozen=True)
class Configuration:
    """A judge with its mode, protocol and settings that judged a part of a run."""

    name: str
    judge: str
    mode: str
    protocol: str
    units: int
    """Verdicts and unjudged units."""
    last_used: str = ""
    """When its latest unit was judged."""
    short_name: str = ""
    """The judge's model and the mode, such as `gpt-5.1/oracle`, or `gpt-5.1/oracle#2`. Unique in the run."""
    differs: str = ""
    """How it differs from an earlier one with the same judge, protocol and mode."""

    @property
    def day(self) -> str:
        """The date of its latest unit."""
        return self.last_used[:10]

    @property
    def title(self) -> str:
        """Judge, protocol and mode, and how it differs from others with the same ones."""
        return " · ".join(filter(None, (self.judge, self.protocol, f"{self.mode} mode", self.differs)))


def find_name(connection: sqlite3.Connection, specs: Sequence[QuestionSpec]) -> str:
    """Return the name of the configuration these questions belong to: one that asks nothing differently, or a new one."""
    return find_name_by_keys(connection, [(question.criterion, question.key) for question in specs])


def find_name_by_keys(
    connection: sqlite3.Connection, questions: Sequence[tuple[str, str]], preferred: str | None = None
) -> str:
    """Do the same for pairs of a criterion and a question key; use a preferred name for a new one if it is free."""
    new: dict[str, set[str]] = {}
    for criterion, key in questions:
        new.setdefault(criterion, set()).add(key)
    query = "SELECT configuration, criterion, asked FROM configurations JOIN asked USING (asked) ORDER BY configurations.rowid"
    by_name: dict[str, dict[str, set[str]]] = {}
    for name, criterion, key in connection.execute(query):
        by_name.setdefault(name, {}).setdefault(criterion, set()).add(key)
    for name, own in by_name.items():
        shared = own.keys() & new.keys()
        if shared and all(own[criterion] == new[criterion] for criterion in shared):
            return name
    if preferred is not None and preferred not in by_name:
        return preferred
    return content_key({"asked": sorted(key for _, key in questions)})[:16]


def add_questions(connection: sqlite3.Connection, clean: Secrets, specs: Sequence[QuestionSpec], name: str) -> None:
    """Store questions as those of a configuration."""
    for question in specs:
        facts = clean(sanitize_text(json.dumps(question.facts, sort_keys=True, ensure_ascii=False, default=str)))
        connection.execute(
            "INSERT OR IGNORE INTO asked (asked, criterion, facts) VALUES (?, ?, ?)",
            (question.key, sanitize_text(question.criterion), facts),
        )
        link_question(connection, name, question.key)


def link_question(connection: sqlite3.Connection, name: str, key: str) -> None:
    """Add a stored question to a configuration."""
    connection.execute("INSERT OR IGNORE INTO configurations (configuration, asked) VALUES (?, ?)", (name, key))


def list_configurations(connection: sqlite3.Connection, protocol: str | None = None) -> list[Configuration]:
    """Return the configurations that have answers, in the order of first use.

    A configuration whose verdicts are all used by another one is left out.
    """
    # Rows of `units` are long. These queries read indexes instead; an older run without them is read in full.
    query = (
        "SELECT own.name, judge, mode, protocol, own.held, (SELECT finished_at FROM units WHERE EXISTS "
        "(SELECT 1 FROM answers JOIN configurations USING (asked) WHERE unit = units.unit AND configuration = own.name) "
        "ORDER BY finished_at DESC LIMIT 1) FROM "
        "(SELECT configuration AS name, sum(count) AS held, min(first) AS first FROM configurations "
        "JOIN (SELECT asked, count(*) AS count, min(unit) AS first FROM answers GROUP BY asked) USING (asked) "
        "GROUP BY configuration) AS own JOIN units ON units.unit = own.first ORDER BY own.first"
    )
    every = [
        Configuration(str(name), str(judge), str(mode), str(own), count, str(last or ""))
        for name, judge, mode, own, count, last in connection.execute(query)
    ]
    remaining = list(every)
    for configuration in every if len(every) > 1 else ():
        if any(_covers(connection, other, configuration) for other in remaining if other is not configuration):
            remaining.remove(configuration)
    described = _set_short_names(_describe_differences(connection, remaining))
    return [configuration for configuration in described if protocol in (None, configuration.protocol)]


def _set_short_names(configurations: Sequence[Configuration]) -> list[Configuration]:
    """Set the short names: the model without its provider, and the mode; later ones of the same name get a number."""
    counts: Counter[str] = Counter()
    renamed = []
    for own in configurations:
        base = f"{_PROVIDER.sub('', own.judge)}/{own.mode}"
        counts[base] += 1
        renamed.append(replace(own, short_name=base if counts[base] == 1 else f"{base}#{counts[base]}"))
    return renamed


def match_configurations(configurations: Sequence[Configuration], text: str) -> list[Configuration]:
    """Return the configurations that a text names: by the short name, else by the judge, the mode or the start of the name."""
    exact = [own for own in configurations if text in (own.short_name, own.name)]
    return exact or [
        own for own in configurations if text in (own.judge, own.mode) or (text and own.name.startswith(text))
    ]


def find_newest(configurations: Sequence[Configuration]) -> Configuration:
    """Return the configuration that judged last; of those with the same time, the one that began last."""
    return max(reversed(configurations), key=lambda own: own.last_used)


def format_list(configurations: Iterable[Configuration]) -> str:
    """List configurations in a sentence: short name, how it differs, units and date."""
    every = list(configurations)
    parts = []
    for own in every[:MOST_LISTED]:
        facts = filter(None, (own.differs, number_of(own.units, "unit"), own.day))
        parts.append(f"{own.short_name} ({', '.join(facts)})")
    more = len(every) - MOST_LISTED
    return "; ".join(parts) + (f"; and {more} more, see `editloupe run info`" if more > 0 else "")


def _describe_differences(
    connection: sqlite3.Connection, configurations: Sequence[Configuration]
) -> list[Configuration]:
    """Set `differs` of configurations that share a title with an earlier one."""
    first: dict[str, Configuration] = {}
    described = []
    for own in configurations:
        other = first.setdefault(own.title, own)
        described.append(own if other is own else replace(own, differs=_difference(connection, other, own)))
    return described


def _difference(connection: sqlite3.Connection, old: Configuration, new: Configuration) -> str:
    query = (
        "SELECT criterion, facts FROM configurations JOIN asked USING (asked) WHERE configuration = ? ORDER BY asked"
    )
    facts: list[dict[str, Any]] = []
    for name in (old.name, new.name):
        facts.append({})
        for criterion, text in connection.execute(query, (name,)):
            with suppress(ValueError, RecursionError):
                facts[-1].setdefault(str(criterion), json.loads(text))
    shared = [criterion for criterion in facts[1] if criterion in facts[0]]
    differences = dict.fromkeys(
        change for criterion in shared for change in describe_changes(facts[0][criterion], facts[1][criterion])
    )
    return ", ".join(differences) or f"configuration {new.name[:6]}"


def _covers(connection: sqlite3.Connection, other: Configuration, own: Configuration) -> bool:
    """Return whether all answers of a configuration are answers of another one by the same units."""
    query = (
        "SELECT 1 FROM answers AS own JOIN configurations AS c ON c.asked = own.asked AND c.configuration = ? "
        "WHERE NOT EXISTS (SELECT 1 FROM configurations AS d JOIN answers AS too ON too.asked = d.asked "
        "AND too.edit = own.edit AND too.repeat = own.repeat WHERE d.configuration = ? AND too.unit = own.unit) LIMIT 1"
    )
    if (own.judge, own.mode, own.protocol) != (other.judge, other.mode, other.protocol) or own.units > other.units:
        return False
    return connection.execute(query, (own.name, other.name)).fetchone() is None


def add_description(about: dict[str, Any], name: str, description: Mapping[str, Any], now: str) -> bool:
    """Add a judge's description to run.json, or new criteria to an existing one; return whether anything changed."""
    entry = next((entry for entry in about["configurations"] if entry["name"] == name), None)
    if entry is None:
        about["configurations"].append({"name": name, "first_used": now, **description})
        return True
    rubrics = {**description.get("rubrics", {}), **entry.get("rubrics", {})}
    criteria = list(dict.fromkeys((*entry.get("criteria", ()), *description.get("criteria", ()))))
    if (rubrics, criteria) == (entry.get("rubrics", {}), list(entry.get("criteria", ()))):
        return False
    entry |= {"rubrics": rubrics, "criteria": criteria}
    return True


def note_planned_repeats(about: dict[str, Any], name: str, repeats: int) -> bool:
    """Note in run.json how often a configuration is to judge every edit; return whether anything changed."""
    for entry in about["configurations"]:
        if entry["name"] == name and entry.get(PLANNED) != repeats:
            entry[PLANNED] = repeats
            return True
    return False


def planned_repeats(about: Mapping[str, Any], name: str) -> int:
    """Return how often a configuration is to judge every edit; 0 if that is not noted."""
    for entry in about.get("configurations", ()):
        if entry.get("name") == name and isinstance(entry.get(PLANNED), int):
            return int(entry[PLANNED])
    return 0


def is_imported(about: Mapping[str, Any], name: str | None = None) -> bool:
    """Return whether the verdicts of a run, or of one of its configurations, were made elsewhere and imported."""
    return any(entry.get(IMPORTED) for entry in about.get("configurations", ()) if name in (None, entry.get("name")))


def check_has_traces(about: Mapping[str, Any], folder: Path) -> None:
    """Raise UserError if the verdicts of a run were imported: such verdicts have no traces."""
    if is_imported(about):
        raise UserError(
            f"{folder} holds imported verdicts, which have no traces; report, agree and compare can use them"
        )


def check_same_origin(about: Mapping[str, Any], description: Mapping[str, Any], folder: Path) -> None:
    """Raise UserError if a judge would write into a run of imported verdicts, or an import into a run that was judged here."""
    if about.get("configurations") and is_imported(about) != bool(description.get(IMPORTED)):
        verdicts = "imported verdicts" if is_imported(about) else "verdicts that were judged here"
        raise UserError(
            f"{folder} holds {verdicts}; judged and imported verdicts are kept apart, so name another folder"
        )


def add_descriptions(about: dict[str, Any], entries: Iterable[Mapping[str, Any]]) -> bool:
    """Add missing configurations of another run's run.json; return whether anything changed."""
    names = {entry["name"] for entry in about["configurations"]}
    added = [dict(entry) for entry in entries if entry["name"] not in names]
    about["configurations"] += added
    return bool(added)


class UnreadableRunJson(UserError):
    """run.json is missing or damaged."""


def read_about(path: Path) -> dict[str, Any]:
    """Read run.json.

    Raises:
        UnreadableRunJson: The file is missing or damaged.
        UserError: Another version of EditLoupe wrote it.
    """
    try:
        about = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UnreadableRunJson(f"{path} cannot be read ({error.strerror or error})") from None
    except (ValueError, RecursionError) as error:
        raise UnreadableRunJson(f"{path} is damaged ({' '.join(str(error).split())})") from None
    entries = about.get("configurations") if isinstance(about, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) and "name" in entry for entry in entries):
        raise UnreadableRunJson(f"{path} is damaged (it is not the description of a run)")
    if about.get("schema", VERSION) != VERSION:
        raise UserError(f"{path} has schema version {about['schema']}, this EditLoupe reads version {VERSION}")
    return dict(about)


def recorded_rubrics(about: Mapping[str, Any], protocol: str | None = None) -> dict[str, Mapping[str, Any]]:
    """Return the rubrics recorded in run.json by criterion, each in its first wording; all, or those of a protocol."""
    recorded: dict[str, Mapping[str, Any]] = {}
    for rubric in list_recorded_rubrics(about, protocol):
        recorded.setdefault(str(rubric["criterion"]), rubric)
    return recorded


def list_recorded_rubrics(
    about: Mapping[str, Any], protocol: str | None = None, configuration: str | None = None
) -> Iterator[Mapping[str, Any]]:
    """Yield the rubrics recorded in run.json in all their wordings; all, or those of a protocol or a configuration."""
    for entry in about.get("configurations", ()):
        if protocol in (None, entry.get("protocol")) and configuration in (None, entry.get("name")):
            rubrics = entry.get("rubrics", {})
            for rubric in rubrics.values() if isinstance(rubrics, Mapping) else ():
                if isinstance(rubric, Mapping) and "criterion" in rubric:
                    yield rubric


def rubric_records(about: Mapping[str, Any], protocol: str) -> dict[str, Mapping[str, Any]]:
    """Return the rubrics of a protocol by criterion: as recorded in run.json, else as in this version."""
    from editloupe.rubrics.registry import find_protocol  # the store loads without the rubrics

    records = recorded_rubrics(about, protocol)
    current = find_protocol(protocol)
    if current:
        for criterion in current.criteria:
            records.setdefault(criterion, current.rubric(criterion).model_dump(mode="json"))
    return records


def read_answer_kind(rubric: Mapping[str, Any]) -> Answer | None:
    """Return the kind of answer of a recorded rubric; None if it cannot be read."""
    try:
        return _ANSWER.validate_python(rubric["answer"])
    except (KeyError, ValidationError):
        return None

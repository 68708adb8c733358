"""The configurations of a run, in its tables and in run.json: sets of questions one judge asked in one way."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from editloupe._util.json_safe import content_key, storable_text
from editloupe.agent.transport.secrets import Secrets
from editloupe.evals.runs.schema import VERSION
from editloupe.judge.question_key import QuestionSpec, describe_changes
from editloupe.rubrics.model import Answer
from editloupe.types import UserError

PLANNED = "planned_repeats"
_ANSWER: TypeAdapter[Answer] = TypeAdapter(Answer)


@dataclass(frozen=True)
class Configuration:
    """What judged a part of a run."""

    name: str
    judge: str
    mode: str
    protocol: str
    units: int
    """Verdicts, and units left unjudged."""
    differs: str = ""
    """What tells it from an earlier one of the run with the same judge, protocol and mode."""

    @property
    def title(self) -> str:
        """Judge, protocol and mode in a few words, and what tells it from another one of these."""
        return " · ".join(filter(None, (self.judge, self.protocol, f"{self.mode} mode", self.differs)))


def find_name(connection: sqlite3.Connection, asked: Sequence[QuestionSpec]) -> str:
    """Return the name of the configuration these questions belong to: one here that asks nothing otherwise, or a new one."""
    return find_name_by_keys(connection, [(question.criterion, question.key) for question in asked])


def find_name_by_keys(
    connection: sqlite3.Connection, asked: Sequence[tuple[str, str]], preferred: str | None = None
) -> str:
    """Do the same for criteria with the keys of their questions; a preferred name is taken where it is free."""
    wanted: dict[str, set[str]] = {}
    for criterion, key in asked:
        wanted.setdefault(criterion, set()).add(key)
    query = "SELECT configuration, criterion, asked FROM configurations JOIN asked USING (asked) ORDER BY configurations.rowid"
    known: dict[str, dict[str, set[str]]] = {}
    for name, criterion, key in connection.execute(query):
        known.setdefault(name, {}).setdefault(criterion, set()).add(key)
    for name, here in known.items():
        shared = here.keys() & wanted.keys()
        if shared and all(here[criterion] == wanted[criterion] for criterion in shared):
            return name
    if preferred is not None and preferred not in known:
        return preferred
    return content_key({"asked": sorted(key for _, key in asked)})[:16]


def add_questions(connection: sqlite3.Connection, clean: Secrets, asked: Sequence[QuestionSpec], name: str) -> None:
    """Keep questions, as those of a configuration."""
    for question in asked:
        facts = clean(storable_text(json.dumps(question.facts, sort_keys=True, ensure_ascii=False, default=str)))
        connection.execute(
            "INSERT OR IGNORE INTO asked (asked, criterion, facts) VALUES (?, ?, ?)",
            (question.key, storable_text(question.criterion), facts),
        )
        link_question(connection, name, question.key)


def link_question(connection: sqlite3.Connection, name: str, asked: str) -> None:
    """Have a question belong to a configuration."""
    connection.execute("INSERT OR IGNORE INTO configurations (configuration, asked) VALUES (?, ?)", (name, asked))


def list_configurations(connection: sqlite3.Connection, protocol: str | None = None) -> list[Configuration]:
    """Return the configurations that answer something, first used first.

    One whose every verdict another one uses as well is not listed: to show it would show the same again.
    """
    query = (
        "SELECT own.name, judge, mode, protocol, own.held FROM "
        "(SELECT configuration AS name, sum(count) AS held, min(first) AS first FROM configurations "
        "JOIN (SELECT answers.asked, count(*) AS count, min(answers.unit) AS first FROM answers "
        "JOIN units ON units.unit = answers.unit GROUP BY answers.asked) USING (asked) GROUP BY configuration) AS own "
        "JOIN units ON units.unit = own.first ORDER BY own.first"
    )
    rows = connection.execute(query)
    found = [Configuration(str(name), str(judge), str(mode), str(own), count) for name, judge, mode, own, count in rows]
    found = [one for one in found if protocol in (None, one.protocol)]
    left = list(found)
    for one in found if len(found) > 1 else ():
        if any(_covers(connection, other, one) for other in left if other is not one):
            left.remove(one)
    return _told_apart(connection, left)


def _told_apart(connection: sqlite3.Connection, found: Sequence[Configuration]) -> list[Configuration]:
    """Have configurations of one title say what each asks otherwise than the first of them."""
    first: dict[str, Configuration] = {}
    told = []
    for one in found:
        other = first.setdefault(one.title, one)
        told.append(one if other is one else replace(one, differs=_difference(connection, other, one)))
    return told


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
    found = dict.fromkeys(
        what for criterion in shared for what in describe_changes(facts[0][criterion], facts[1][criterion])
    )
    return ", ".join(found) or f"configuration {new.name[:6]}"


def _covers(connection: sqlite3.Connection, other: Configuration, one: Configuration) -> bool:
    """True where everything one configuration answers is answered by the same units in another."""
    query = (
        "SELECT 1 FROM answers AS own JOIN configurations AS c ON c.asked = own.asked AND c.configuration = ? "
        "WHERE NOT EXISTS (SELECT 1 FROM configurations AS d JOIN answers AS too ON too.asked = d.asked "
        "AND too.edit = own.edit AND too.repeat = own.repeat WHERE d.configuration = ? AND too.unit = own.unit) LIMIT 1"
    )
    if (one.judge, one.mode, one.protocol) != (other.judge, other.mode, other.protocol):
        return False
    return connection.execute(query, (one.name, other.name)).fetchone() is None


def add_description(about: dict[str, Any], name: str, description: Mapping[str, Any], now: str) -> bool:
    """Add a description to run.json; to one that is there, what it has not asked before. False where nothing is added."""
    known = next((one for one in about["configurations"] if one["name"] == name), None)
    if known is None:
        about["configurations"].append({"name": name, "first_used": now, **description})
        return True
    rubrics = {**description.get("rubrics", {}), **known.get("rubrics", {})}
    criteria = list(dict.fromkeys((*known.get("criteria", ()), *description.get("criteria", ()))))
    if (rubrics, criteria) == (known.get("rubrics", {}), list(known.get("criteria", ()))):
        return False
    known |= {"rubrics": rubrics, "criteria": criteria}
    return True


def note_planned_repeats(about: dict[str, Any], name: str, repeats: int) -> bool:
    """Note in run.json how often a configuration is to judge every edit; False where that is noted already."""
    for one in about["configurations"]:
        if one["name"] == name and one.get(PLANNED) != repeats:
            one[PLANNED] = repeats
            return True
    return False


def planned_repeats(about: Mapping[str, Any], name: str) -> int:
    """Return how often a configuration was to judge every edit, 0 where nobody noted it."""
    for one in about.get("configurations", ()):
        if one.get("name") == name and isinstance(one.get(PLANNED), int):
            return int(one[PLANNED])
    return 0


def add_descriptions(about: dict[str, Any], known: Iterable[Mapping[str, Any]]) -> bool:
    """Add descriptions of another run's configurations to run.json where they are not there yet."""
    names = {one["name"] for one in about["configurations"]}
    added = [dict(one) for one in known if one["name"] not in names]
    about["configurations"] += added
    return bool(added)


class UnreadableRunJson(UserError):
    """run.json is missing or damaged."""


def read_about(path: Path) -> dict[str, Any]:
    """Read run.json; raises Unreadable where it is not what this program wrote, UserError where a later version did."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UnreadableRunJson(f"{path} cannot be read ({error.strerror or error})") from None
    except (ValueError, RecursionError) as error:
        raise UnreadableRunJson(f"{path} is damaged ({' '.join(str(error).split())})") from None
    known = found.get("configurations") if isinstance(found, dict) else None
    if not isinstance(known, list) or not all(isinstance(one, dict) and "name" in one for one in known):
        raise UnreadableRunJson(f"{path} is damaged (it is not the description of a run)")
    if found.get("schema", VERSION) != VERSION:
        raise UserError(f"{path} has schema version {found['schema']}, this EditLoupe reads version {VERSION}")
    return dict(found)


def recorded_rubrics(about: Mapping[str, Any], protocol: str | None = None) -> dict[str, Mapping[str, Any]]:
    """Return the rubrics run.json records, by criterion, each in its first wording; all, or those asked with a protocol."""
    found: dict[str, Mapping[str, Any]] = {}
    for one in about.get("configurations", ()):
        rubrics = one.get("rubrics", {}) if protocol in (None, one.get("protocol")) else {}
        for rubric in rubrics.values() if isinstance(rubrics, Mapping) else ():
            if isinstance(rubric, Mapping) and "criterion" in rubric:
                found.setdefault(str(rubric["criterion"]), rubric)
    return found


def rubric_records(about: Mapping[str, Any], protocol: str) -> dict[str, Mapping[str, Any]]:
    """Return the rubrics of a protocol by criterion: as run.json records them, else as this version has them."""
    from editloupe.rubrics.registry import known_protocol  # the store loads without the rubrics

    records = recorded_rubrics(about, protocol)
    known = known_protocol(protocol)
    if known:
        for criterion in known.criteria:
            records.setdefault(criterion, known.rubric(criterion).model_dump(mode="json"))
    return records


def read_answer_kind(rubric: Mapping[str, Any]) -> Answer | None:
    """Return the kind of answer of a rubric as runs record it, None where that cannot be read."""
    try:
        return _ANSWER.validate_python(rubric["answer"])
    except (KeyError, ValidationError):
        return None

"""The units of a run: judgements turned into rows, written once per question and input, and read back."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import TypeAdapter

from editloupe._util.json_safe import (
    MARK,
    content_key,
    finite_number,
    fits,
    record_json,
    storable,
    storable_text,
    whole_number,
)
from editloupe.agent.transport.secrets import Secrets
from editloupe.evals.runs.damage import Damage
from editloupe.evals.runs.edit_rows import NewEdit, hash_content
from editloupe.evals.runs.prices import Price
from editloupe.evals.runs.run_folder import JudgementPictures, PictureFolder, collect_pictures
from editloupe.evals.runs.schema import UNIT_COLUMNS
from editloupe.judge.question_key import QuestionKey, QuestionSpec
from editloupe.pictures.decode import Album
from editloupe.pictures.memory import PictureSource
from editloupe.types import Edit, Judgement, Mode, Outcome, Record, Step, Trace, Usage, Verdict

if TYPE_CHECKING:
    from langchain_core.messages import AIMessage

    from editloupe.evals.runs.store import Run


_OUTCOME: TypeAdapter[Outcome] = TypeAdapter(Outcome)
_NAMES = ", ".join(UNIT_COLUMNS)
_VALUES = ", ".join(f":{name}" for name in UNIT_COLUMNS)
_SET = ", ".join(f"{name} = :{name}" for name in UNIT_COLUMNS)
ANSWER = "INSERT OR REPLACE INTO answers (edit, criterion, asked, repeat, unit, shown) VALUES (?, ?, ?, ?, ?, ?)"
"""A row that changes gets a new, higher number, by which readers see what is new."""
_ANSWERS = "SELECT edit, criterion, asked, repeat, unit, shown FROM answers WHERE unit = ?"
LOST = f"{MARK} (this text is missing from the run)"


class Unit(Record):
    """What one edit was answered on one criterion in one repeat, as the run holds it."""

    name: str
    """The edit's name, unique in the run."""
    edit_id: str
    model: str | None
    """The editing model."""
    criterion: str
    repeat: int
    asked: str
    """How the criterion was put to the judge: a row of the table `asked`."""
    shown: str | None
    """What of the edit the judge was shown, as a hash; None where a picture could not be read or the writer did not say."""
    tries: int
    configuration: str | None
    """Which entry of run.json judged it first."""
    protocol: str
    mode: Mode
    judge: str
    outcome: Outcome
    cost: float | None
    seconds: float
    finished_at: str

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Unit:
        """Read a row of the view `verdicts`."""
        values = {name: row[name] for name in cls.model_fields if name != "outcome"}
        return cls(**values, outcome=_OUTCOME.validate_json(row["outcome"]))


@dataclass(frozen=True)
class JudgementRows:
    """A judgement as rows, made before the transaction begins."""

    entry: NewEdit
    units: list[dict[str, Any]]
    texts: list[str]
    traces: Mapping[str, list[tuple[tuple[Any, ...], list[tuple[float, str]]]]]
    """By criterion: the columns of `traces`, and the steps."""
    old_verdicts: Mapping[str, int] = field(default_factory=dict)
    passing: Collection[str] = ()


@dataclass(frozen=True)
class JudgementRecord:
    """A judgement on its way into a run."""

    judgement: Judgement
    repeat: int = 0
    album: Album | JudgementPictures | None = None
    """Where the pictures are that the traces speak of; without it none are kept."""
    position: int | None = None
    questions: Mapping[str, QuestionKey] = field(default_factory=dict)
    """What was asked, by criterion; without it nobody can tell later whether the same is asked again."""
    tries: Mapping[str, int] = field(default_factory=dict)
    """How often each criterion was asked anew, this time included."""
    configuration: str | None = None
    price: Price | None = None
    edit: int | None = None
    """The edit's number in the run; without it the edit is enrolled."""
    also: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Further edits that a criterion's unit answers."""
    old_verdicts: Mapping[str, int] = field(default_factory=dict)
    """By criterion, the unit whose verdict answers the question already and is kept if this outcome is unjudged."""
    passing: Collection[str] = ()
    """Criteria that ended unjudged for a reason that says nothing about the judge's reply."""

    def build_rows(self, folder: PictureFolder, clean: Secrets) -> JudgementRows:
        """Write the pictures and return the rows."""
        edit, album = self.judgement.edit, self.album
        kept = (
            collect_pictures(self.judgement, album, folder)
            if isinstance(album, Album)
            else album or JudgementPictures()
        )
        kept.write(folder)
        return JudgementRows(
            entry=NewEdit(edit, self.position, hash_content(edit, hashes_by_path(edit, kept.roles)), {}, kept.roles),
            units=[self._unit(outcome, clean) for outcome in self.judgement.verdicts],
            texts=[_text(text, clean) for text in {text for trace in self.judgement.traces for text in trace.prompt}],
            traces={
                outcome.criterion: [self._trace(trace, clean) for trace in self._traces(outcome)]
                for outcome in self.judgement.verdicts
            },
            old_verdicts=self.old_verdicts,
            passing=self.passing,
        )

    def _traces(self, outcome: Outcome) -> list[Trace]:
        return [trace for trace in self.judgement.traces if trace.criterion == outcome.criterion]

    def _unit(self, outcome: Outcome, clean: Secrets) -> dict[str, Any]:
        judged = outcome if isinstance(outcome, Verdict) else None
        criterion, usage, traces = outcome.criterion, outcome.usage, self._traces(outcome)
        question = self.questions.get(criterion) or QuestionKey(self._unknown(criterion).key, None)
        used = sorted({seen.tool for trace in traces for step in trace.steps for seen in step.observations})
        return {
            "criterion": storable_text(criterion),
            "asked": question.asked,
            "shown": question.shown,
            "repeat": self.repeat,
            "used": _text(json.dumps(used), clean),
            "tries": self.tries.get(criterion, 1),
            "configuration": self.configuration,
            "protocol": storable_text(self.judgement.protocol),
            "mode": self.judgement.mode,
            "judge": storable_text(self.judgement.judge),
            "status": outcome.status,
            "label": storable_text(judged.label) if judged and judged.label is not None else None,
            "score": finite_number(judged.score) if judged else None,
            "score_100": finite_number(judged.score_100) if judged else None,
            "reason": None if isinstance(outcome, Verdict) else outcome.reason.value,
            "steps": outcome.steps,
            **{name: whole_number(getattr(usage, name)) for name in Usage.model_fields},
            "cost": finite_number(self.price.outcome_cost(outcome)) if self.price else None,
            "seconds": max((_duration(trace.seconds) for trace in traces), default=0.0),
            "outcome": _text(record_json(outcome), clean),
            "finished_at": timestamp(),
        }

    @property
    def _about(self) -> dict[str, Any]:
        return {"judge": self.judgement.judge, "mode": self.judgement.mode, "protocol": self.judgement.protocol}

    @property
    def named_configuration(self) -> str:
        """The name of the configuration; without one, a name made of all that is known: judge, mode and protocol."""
        return self.configuration or content_key(self._about)[:16]

    def _unknown(self, criterion: str) -> QuestionSpec:
        """Return what is known of a question whose writer did not say more."""
        return QuestionSpec(criterion, {"criterion": criterion, **self._about})

    def unknown_questions(self) -> list[QuestionSpec]:
        """Return the questions that are known only by judge, mode and criterion."""
        verdicts = self.judgement.verdicts
        return [self._unknown(outcome.criterion) for outcome in verdicts if outcome.criterion not in self.questions]

    def _trace(self, trace: Trace, clean: Secrets) -> tuple[tuple[Any, ...], list[tuple[float, str]]]:
        prompt = tuple(hash_text(_text(text, clean)) for text in trace.prompt)
        head = record_json(trace.model_copy(update={"prompt": prompt}), without={"steps"})
        steps = [(_duration(step.seconds), _text(record_json(step), clean)) for step in trace.steps]
        return (trace.target, _duration(trace.seconds), _text(head, clean)), steps


def hashes_by_path(edit: Edit, roles: Mapping[str, list[str]]) -> dict[PictureSource, str]:
    """Return the hashes of an edit's pictures by path, where all of a role could be read."""
    found: dict[PictureSource, str] = {}
    for role, paths in edit.files.items():
        if len(roles.get(role, ())) == len(paths):
            found.update(zip(paths, roles[role], strict=True))
    return found


def hash_text(text: str) -> str:
    """Return the name under which a text is kept."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]


def timestamp() -> str:
    """Return this second, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _text(text: str, clean: Secrets) -> str:
    return clean(storable_text(text))


def _duration(seconds: float) -> float:
    """Return seconds as a number the database takes: no time is negative, endless or nan."""
    return max(0.0, finite_number(seconds) or 0.0)


class Answer(NamedTuple):
    """Says that a unit answers an edit."""

    edit: int
    criterion: str
    asked: str
    repeat: int
    unit: int
    shown: str | None
    """What of the edit the unit was taken to answer for; a verdict that is kept on purpose was shown something else."""


def write_judgement(
    connection: sqlite3.Connection, rows: JudgementRows, edit: int, also: Mapping[str, Sequence[int]]
) -> frozenset[str]:
    """Write a judgement's units with their traces, and have them answer its edit and others that wait for them.

    A unit that ended unjudged never replaces a verdict: the verdict and its traces are kept.

    Returns:
        The criteria whose verdict was kept.
    """
    kept = set[str]()
    for text in rows.texts:
        connection.execute("INSERT OR IGNORE INTO texts (sha, text) VALUES (?, ?)", (hash_text(text), text))
    for unit in rows.units:
        edits = (edit, *also.get(unit["criterion"], ()))
        place = _place(connection, unit, edit)
        verdict = _find_verdict(connection, unit, rows.old_verdicts.get(unit["criterion"]), place)
        if verdict is not None:
            _keep_verdict(connection, verdict, unit, edits, passing=unit["criterion"] in rows.passing)
            kept.add(unit["criterion"])
            continue
        number = insert_unit(connection, unit) if place is None else replace_unit(connection, place, unit)
        answer = (unit["criterion"], unit["asked"], unit["repeat"], number, unit["shown"])
        before = connection.execute(_ANSWERS, (number,))
        connection.executemany(ANSWER, [*before, *((one, *answer) for one in edits)])
        for head, steps in rows.traces[unit["criterion"]]:
            trace = connection.execute(
                "INSERT INTO traces (unit, target, seconds, head) VALUES (?, ?, ?, ?)", (number, *head)
            ).lastrowid
            connection.executemany(
                "INSERT INTO steps (trace, position, seconds, step) VALUES (?, ?, ?, ?)",
                [(trace, position, *step) for position, step in enumerate(steps)],
            )
    return frozenset(kept)


def insert_unit(connection: sqlite3.Connection, unit: Mapping[str, Any]) -> int:
    """Write a unit that is not there yet and return its number."""
    return int(connection.execute(f"INSERT INTO units ({_NAMES}) VALUES ({_VALUES})", unit).lastrowid or 0)


def _find_verdict(connection: sqlite3.Connection, unit: Mapping[str, Any], *candidates: int | None) -> int | None:
    """Return the unit whose verdict is kept instead of an unjudged outcome; None if there is none or the outcome is a verdict."""
    if unit["status"] == "judged":
        return None
    query = "SELECT 1 FROM units WHERE unit = ? AND status = 'judged'"
    return next((number for number in candidates if number and connection.execute(query, (number,)).fetchone()), None)


def _keep_verdict(
    connection: sqlite3.Connection, verdict: int, unit: Mapping[str, Any], edits: Sequence[int], passing: bool
) -> None:
    """Have a verdict go on answering these edits although the question was asked again and ended unjudged.

    If the judge did reply, the try is counted and the answers are renewed, so that a replacement that goes on does not ask
    again, and the next one asks with replies of its own. After a passing failure the next try takes over the replies that came.
    """
    standing = (
        "SELECT 1 FROM answers JOIN units ON units.unit = answers.unit WHERE answers.edit = ? AND answers.asked = ? "
        "AND answers.repeat = ? AND (answers.unit = ? OR (units.status = 'judged' AND answers.shown IS ?))"
    )
    asked, repeat, shown = unit["asked"], unit["repeat"], unit["shown"]
    for edit in edits:
        if not connection.execute(standing, (edit, asked, repeat, verdict, shown)).fetchone():
            connection.execute(ANSWER, (edit, unit["criterion"], asked, repeat, verdict, shown))
    if not passing:
        connection.execute("UPDATE units SET tries = ? WHERE unit = ?", (unit["tries"], verdict))
        connection.executemany(ANSWER, connection.execute(_ANSWERS, (verdict,)).fetchall())


def replace_unit(connection: sqlite3.Connection, number: int, unit: Mapping[str, Any]) -> int:
    """Write a unit in the place of another and return its number; the other one's traces are gone."""
    connection.execute("DELETE FROM steps WHERE trace IN (SELECT trace FROM traces WHERE unit = ?)", (number,))
    connection.execute("DELETE FROM traces WHERE unit = ?", (number,))
    connection.execute(f"UPDATE units SET {_SET} WHERE unit = :unit", {**unit, "unit": number})
    return number


def _place(connection: sqlite3.Connection, unit: Mapping[str, Any], edit: int) -> int | None:
    """Return the unit that is the same; one that could not see its pictures belongs to its edit alone."""
    same = "SELECT unit FROM units WHERE shown = :shown AND asked = :asked AND repeat = :repeat"
    blind = (
        "SELECT units.unit FROM answers JOIN units ON units.unit = answers.unit WHERE answers.edit = :edit "
        "AND answers.asked = :asked AND answers.repeat = :repeat AND units.shown IS NULL"
    )
    for query in (same, blind):
        if row := connection.execute(query, {**unit, "edit": edit}).fetchone():
            return int(row[0])
    return None


def read_trace(
    damage: Damage, edit_id: str, head: Any, steps: Iterable[tuple[int, Any]], text_of: Callable[[str], str | None]
) -> Trace | None:
    """Return a trace; a step or a text that cannot be read is named among its notes."""
    found: list[Step] = []
    notes: list[str] = []
    for position, text in steps:
        before = len(found)
        with damage.reading("steps", f"{edit_id}, step {position + 1}"):
            found.append(Step.model_validate_json(text))
        if len(found) == before:
            notes.append(f"step {position + 1} cannot be read: the run is damaged")
    with damage.reading("traces", edit_id):
        facts = dict(json.loads(head))
        texts = [text_of(str(sha)) for sha in facts["prompt"]]
        if None in texts:
            damage.add("texts of prompts", edit_id)
            notes.append("a text of the prompt is missing: the run is damaged")
        prompt = tuple(LOST if text is None else text for text in texts)
        return Trace(**{**facts, "prompt": prompt, "steps": tuple(found), "notes": (*facts.get("notes", ()), *notes)})
    return None


def read_reply(damage: Damage, key: str, text: Any) -> dict[str, Any] | None:
    """Return a kept reply; None where it cannot be read, so that this one request is asked again."""
    with damage.reading("kept replies", key[:12]):
        found = dict(json.loads(text))
        return found if fits(found) else dict(storable(found))
    return None


@dataclass(frozen=True)
class StepReply:
    """A reply as the run keeps it, and its message."""

    kept: Mapping[str, Any]
    message: AIMessage


def find_step_reply(run: Run, edit_id: str, step: Step) -> StepReply | None:
    """Return the reply a step was read from, None where the run does not hold it.

    The step knows the request it answers. A request may have been answered more than once, by a unit that was asked anew or
    by forks, and traces of earlier versions do not name theirs: of several replies it is the one with the step's words and calls.
    """
    from langchain_core.messages import AIMessage, messages_from_dict  # takes long to load

    from editloupe.agent.message_records import is_same_reply

    for key, kept in _candidates(run, edit_id, step):
        with run.damage.reading("kept replies", key[:12]):
            (message,) = messages_from_dict([dict(kept["message"])])
            if isinstance(message, AIMessage) and is_same_reply(message, step):
                return StepReply(kept, message)
    return None


def _candidates(run: Run, edit_id: str, step: Step) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if not step.reply_key:
        yield from run.replies_of(edit_id).items()
        return
    query = "SELECT key, reply FROM replies WHERE key = ? OR (key > ? AND key < ?) ORDER BY key"
    with run.reader() as reader:
        rows = reader.connection.execute(query, (step.reply_key, f"{step.reply_key}#", f"{step.reply_key}$")).fetchall()
    for key, text in rows:
        if (reply := read_reply(run.damage, key, text)) is not None:
            yield key, reply

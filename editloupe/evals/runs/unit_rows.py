"""Write judgements as rows of `units`, `answers` and `traces`, and read units, traces and replies back."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import TypeAdapter

from editloupe._util.hashing import content_key
from editloupe._util.json_safe import (
    MARK,
    clamp_integer,
    dump_record,
    finite_number,
    is_json_safe,
    sanitize,
    sanitize_text,
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
"""A row that changes gets a new, higher number; readers find new rows by it."""
_ANSWERS = "SELECT edit, criterion, asked, repeat, unit, shown FROM answers WHERE unit = ?"
LOST = f"{MARK} (this text is missing from the run)"


class Unit(Record):
    """The outcome of one edit on one criterion in one repeat, as the run stores it."""

    name: str
    """The edit's name, unique in the run."""
    edit_id: str
    model: str | None
    """The editing model."""
    criterion: str
    repeat: int
    asked: str
    """Key of the question; a row of the table `asked`."""
    shown: str | None
    """Hash of the inputs the judge was shown; None if a picture could not be read or the writer did not pass it."""
    tries: int
    configuration: str | None
    """The entry of run.json that judged it first."""
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
    """The rows of a judgement, built before the transaction begins."""

    edit: NewEdit
    units: list[dict[str, Any]]
    texts: list[str]
    traces: Mapping[str, list[tuple[tuple[Any, ...], list[tuple[float, str]]]]]
    """By criterion: the columns of `traces`, and the steps."""
    old_verdicts: Mapping[str, int] = field(default_factory=dict)
    passing: Collection[str] = ()


@dataclass(frozen=True)
class JudgementRecord:
    """A judgement to be stored in a run."""

    judgement: Judgement
    repeat: int = 0
    album: Album | JudgementPictures | None = None
    """The pictures that the traces refer to; without it none are stored."""
    position: int | None = None
    questions: Mapping[str, QuestionKey] = field(default_factory=dict)
    """Question keys by criterion. Without them the answers are not found again."""
    tries: Mapping[str, int] = field(default_factory=dict)
    """The number of this try, by criterion."""
    configuration: str | None = None
    price: Price | None = None
    edit: int | None = None
    """The edit's number in the run; without it the edit is inserted."""
    also: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """By criterion, further edits that its unit answers."""
    old_verdicts: Mapping[str, int] = field(default_factory=dict)
    """By criterion, the unit with an older verdict, which is kept if this outcome is unjudged."""
    passing: Collection[str] = ()
    """Criteria that ended unjudged for a temporary reason, not because of the judge's reply."""

    def build_rows(self, folder: PictureFolder, clean: Secrets) -> JudgementRows:
        """Write the pictures and return the rows."""
        edit, album = self.judgement.edit, self.album
        pictures = (
            collect_pictures(self.judgement, album, folder)
            if isinstance(album, Album)
            else album or JudgementPictures()
        )
        pictures.write(folder)
        content = hash_content(edit, hashes_by_path(edit, pictures.roles))
        return JudgementRows(
            edit=NewEdit(edit, self.position, content, {}, pictures.roles),
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
        question = self.questions.get(criterion) or QuestionKey(self._build_unknown_spec(criterion).key, None)
        used = sorted({seen.tool for trace in traces for step in trace.steps for seen in step.observations})
        return {
            "criterion": sanitize_text(criterion),
            "asked": question.asked,
            "shown": question.shown,
            "repeat": self.repeat,
            "used": _text(json.dumps(used), clean),
            "tries": self.tries.get(criterion, 1),
            "configuration": self.configuration,
            "protocol": sanitize_text(self.judgement.protocol),
            "mode": self.judgement.mode,
            "judge": sanitize_text(self.judgement.judge),
            "status": outcome.status,
            "label": sanitize_text(judged.label) if judged and judged.label is not None else None,
            "score": finite_number(judged.score) if judged else None,
            "score_100": finite_number(judged.score_100) if judged else None,
            "reason": None if isinstance(outcome, Verdict) else outcome.reason.value,
            "steps": outcome.steps,
            **{name: clamp_integer(getattr(usage, name)) for name in Usage.model_fields},
            "cost": finite_number(self.price.outcome_cost(outcome)) if self.price else None,
            "seconds": max((_duration(trace.seconds) for trace in traces), default=0.0),
            "outcome": _text(dump_record(outcome), clean),
            "finished_at": timestamp(),
        }

    @property
    def _about(self) -> dict[str, Any]:
        return {"judge": self.judgement.judge, "mode": self.judgement.mode, "protocol": self.judgement.protocol}

    @property
    def named_configuration(self) -> str:
        """The name of the configuration; without one, a hash of judge, mode and protocol."""
        return self.configuration or content_key(self._about)[:16]

    def _build_unknown_spec(self, criterion: str) -> QuestionSpec:
        """Return the spec of a question that was passed without a key."""
        return QuestionSpec(criterion, {"criterion": criterion, **self._about})

    def unknown_questions(self) -> list[QuestionSpec]:
        """Return the specs of questions that were passed without a key."""
        verdicts = self.judgement.verdicts
        return [
            self._build_unknown_spec(outcome.criterion)
            for outcome in verdicts
            if outcome.criterion not in self.questions
        ]

    def _trace(self, trace: Trace, clean: Secrets) -> tuple[tuple[Any, ...], list[tuple[float, str]]]:
        prompt = tuple(hash_text(_text(text, clean)) for text in trace.prompt)
        head = dump_record(trace.model_copy(update={"prompt": prompt}), without={"steps"})
        steps = [(_duration(step.seconds), _text(dump_record(step), clean)) for step in trace.steps]
        return (trace.target, _duration(trace.seconds), _text(head, clean)), steps


def hashes_by_path(edit: Edit, roles: Mapping[str, list[str]]) -> dict[PictureSource, str]:
    """Return the hashes of an edit's pictures by path, for roles whose pictures could all be read."""
    hashes: dict[PictureSource, str] = {}
    for role, paths in edit.files.items():
        if len(roles.get(role, ())) == len(paths):
            hashes.update(zip(paths, roles[role], strict=True))
    return hashes


def hash_text(text: str) -> str:
    """Return the key of a text in the table `texts`."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]


def timestamp() -> str:
    """Return the current time in UTC, in seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _text(text: str, clean: Secrets) -> str:
    return clean(sanitize_text(text))


def _duration(seconds: float) -> float:
    """Return seconds as a finite number, at least 0."""
    return max(0.0, finite_number(seconds) or 0.0)


class Answer(NamedTuple):
    """Links a unit to an edit that it answers; a row of `answers`."""

    edit: int
    criterion: str
    asked: str
    repeat: int
    unit: int
    shown: str | None
    """Hash of the edit's inputs. It differs from the unit's if an old verdict is kept on purpose."""


def write_judgement(
    connection: sqlite3.Connection, rows: JudgementRows, edit: int, also: Mapping[str, Sequence[int]]
) -> frozenset[str]:
    """Write a judgement's units with their traces, and link them to its edit and to others that wait for them.

    An unjudged outcome never replaces a verdict: the verdict and its traces are kept.

    Returns:
        The criteria whose verdict was kept.
    """
    not_replaced = set[str]()
    for text in rows.texts:
        connection.execute("INSERT OR IGNORE INTO texts (sha, text) VALUES (?, ?)", (hash_text(text), text))
    for unit in rows.units:
        edits = (edit, *also.get(unit["criterion"], ()))
        same = _find_same_unit(connection, unit, edit)
        verdict = _find_verdict(connection, unit, rows.old_verdicts.get(unit["criterion"]), same)
        if verdict is not None:
            _keep_verdict(connection, verdict, unit, edits, passing=unit["criterion"] in rows.passing)
            not_replaced.add(unit["criterion"])
            continue
        number = insert_unit(connection, unit) if same is None else replace_unit(connection, same, unit)
        answer = (unit["criterion"], unit["asked"], unit["repeat"], number, unit["shown"])
        before = connection.execute(_ANSWERS, (number,))
        connection.executemany(ANSWER, [*before, *((other, *answer) for other in edits)])
        for head, steps in rows.traces[unit["criterion"]]:
            trace = connection.execute(
                "INSERT INTO traces (unit, target, seconds, head) VALUES (?, ?, ?, ?)", (number, *head)
            ).lastrowid
            connection.executemany(
                "INSERT INTO steps (trace, position, seconds, step) VALUES (?, ?, ?, ?)",
                [(trace, position, *step) for position, step in enumerate(steps)],
            )
    return frozenset(not_replaced)


def insert_unit(connection: sqlite3.Connection, unit: Mapping[str, Any]) -> int:
    """Insert a unit and return its number."""
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
    """Keep a verdict as the answer of these edits although the question was asked again and ended unjudged.

    If the judge replied, the try is counted and the answers are renewed. A replacement that continues does not ask again, and
    the next one does not reuse these replies. After a temporary failure the next try reuses the replies that came.
    """
    current = (
        "SELECT 1 FROM answers JOIN units ON units.unit = answers.unit WHERE answers.edit = ? AND answers.asked = ? "
        "AND answers.repeat = ? AND (answers.unit = ? OR (units.status = 'judged' AND answers.shown IS ?))"
    )
    asked, repeat, shown = unit["asked"], unit["repeat"], unit["shown"]
    for edit in edits:
        if not connection.execute(current, (edit, asked, repeat, verdict, shown)).fetchone():
            connection.execute(ANSWER, (edit, unit["criterion"], asked, repeat, verdict, shown))
    if not passing:
        connection.execute("UPDATE units SET tries = ? WHERE unit = ?", (unit["tries"], verdict))
        connection.executemany(ANSWER, connection.execute(_ANSWERS, (verdict,)).fetchall())


def replace_unit(connection: sqlite3.Connection, number: int, unit: Mapping[str, Any]) -> int:
    """Overwrite a unit, delete its traces, and return its number."""
    connection.execute("DELETE FROM steps WHERE trace IN (SELECT trace FROM traces WHERE unit = ?)", (number,))
    connection.execute("DELETE FROM traces WHERE unit = ?", (number,))
    connection.execute(f"UPDATE units SET {_SET} WHERE unit = :unit", {**unit, "unit": number})
    return number


def _find_same_unit(connection: sqlite3.Connection, unit: Mapping[str, Any], edit: int) -> int | None:
    """Return the number of the same unit, if any. A unit without inputs hash belongs to its edit alone."""
    by_inputs = "SELECT unit FROM units WHERE shown = :shown AND asked = :asked AND repeat = :repeat"
    without_inputs = (
        "SELECT units.unit FROM answers JOIN units ON units.unit = answers.unit WHERE answers.edit = :edit "
        "AND answers.asked = :asked AND answers.repeat = :repeat AND units.shown IS NULL"
    )
    for query in (by_inputs, without_inputs):
        if row := connection.execute(query, {**unit, "edit": edit}).fetchone():
            return int(row[0])
    return None


def read_trace(
    damage: Damage, edit_id: str, head: Any, steps: Iterable[tuple[int, Any]], text_of: Callable[[str], str | None]
) -> Trace | None:
    """Return a trace; its notes name steps and texts that cannot be read. Return None if its head cannot be read."""
    readable: list[Step] = []
    notes: list[str] = []
    for position, text in steps:
        before = len(readable)
        with damage.reading("steps", f"{edit_id}, step {position + 1}"):
            readable.append(Step.model_validate_json(text))
        if len(readable) == before:
            notes.append(f"step {position + 1} cannot be read: the run is damaged")
    with damage.reading("traces", edit_id):
        facts = dict(json.loads(head))
        texts = [text_of(str(sha)) for sha in facts["prompt"]]
        if None in texts:
            damage.add("texts of prompts", edit_id)
            notes.append("a text of the prompt is missing: the run is damaged")
        prompt = tuple(LOST if text is None else text for text in texts)
        return Trace(
            **{**facts, "prompt": prompt, "steps": tuple(readable), "notes": (*facts.get("notes", ()), *notes)}
        )
    return None


def read_reply(damage: Damage, key: str, text: Any) -> dict[str, Any] | None:
    """Return a stored reply; None if it cannot be read, so that the request is sent again."""
    with damage.reading("kept replies", key[:12]):
        reply = dict(json.loads(text))
        return reply if is_json_safe(reply) else dict(sanitize(reply))
    return None


@dataclass(frozen=True)
class StepReply:
    """A stored reply and its message."""

    reply: Mapping[str, Any]
    message: AIMessage


def find_step_reply(run: Run, edit_id: str, step: Step) -> StepReply | None:
    """Return the reply that a step was parsed from; None if the run does not have it.

    The step names its request. A request may have several replies, if a unit was asked again or forked, and traces of earlier
    versions do not name it. Of several replies it is the one with the step's text and calls.
    """
    from langchain_core.messages import AIMessage, messages_from_dict  # takes long to load

    from editloupe.agent.messages import is_same_reply

    for key, reply in _candidates(run, edit_id, step):
        with run.damage.reading("kept replies", key[:12]):
            (message,) = messages_from_dict([dict(reply["message"])])
            if isinstance(message, AIMessage) and is_same_reply(message, step):
                return StepReply(reply, message)
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

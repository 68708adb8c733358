"""What goes into a run and comes out of it: a judgement with what the runner knows about it, and a unit read back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter

from editloupe._util.hashing import content_key
from editloupe._util.storable import finite_number, record_json, storable_text, whole_number
from editloupe.agent.secrets import Secrets
from editloupe.evals.runs.enrolment import Entry, content_of
from editloupe.evals.runs.pictures import KeptPictures, PictureFolder, kept_pictures
from editloupe.evals.runs.prices import Price
from editloupe.judge.question_key import Asked, Question
from editloupe.pictures.decode import Album
from editloupe.pictures.memory import PictureSource
from editloupe.types import Edit, Judgement, Mode, Outcome, Record, Trace, Usage, Verdict

_OUTCOME: TypeAdapter[Outcome] = TypeAdapter(Outcome)


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
class Rows:
    """A judgement as rows, made before the transaction begins."""

    entry: Entry
    units: list[dict[str, Any]]
    texts: list[str]
    traces: Mapping[str, list[tuple[tuple[Any, ...], list[tuple[float, str]]]]]
    """By criterion: the columns of `traces`, and the steps."""
    held: Mapping[str, int] = field(default_factory=dict)
    passing: Collection[str] = ()


@dataclass(frozen=True)
class Filing:
    """A judgement on its way into a run."""

    judgement: Judgement
    repeat: int = 0
    album: Album | KeptPictures | None = None
    """Where the pictures are that the traces speak of; without it none are kept."""
    position: int | None = None
    questions: Mapping[str, Question] = field(default_factory=dict)
    """What was asked, by criterion; without it nobody can tell later whether the same is asked again."""
    tries: Mapping[str, int] = field(default_factory=dict)
    """How often each criterion was asked anew, this time included."""
    configuration: str | None = None
    price: Price | None = None
    edit: int | None = None
    """The edit's number in the run; without it the edit is enrolled."""
    also: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Further edits that a criterion's unit answers."""
    held: Mapping[str, int] = field(default_factory=dict)
    """By criterion, the unit whose verdict answers the question already and is kept if this outcome is unjudged."""
    passing: Collection[str] = ()
    """Criteria that ended unjudged for a reason that says nothing about the judge's reply."""

    def ready(self, folder: PictureFolder, clean: Secrets) -> Rows:
        """Write the pictures and return the rows."""
        edit, album = self.judgement.edit, self.album
        kept = kept_pictures(self.judgement, album, folder) if isinstance(album, Album) else album or KeptPictures()
        kept.write(folder)
        return Rows(
            entry=Entry(edit, self.position, content_of(edit, hashes_by_path(edit, kept.roles)), {}, kept.roles),
            units=[self._unit(outcome, clean) for outcome in self.judgement.verdicts],
            texts=[_text(text, clean) for text in {text for trace in self.judgement.traces for text in trace.prompt}],
            traces={
                outcome.criterion: [self._trace(trace, clean) for trace in self._traces(outcome)]
                for outcome in self.judgement.verdicts
            },
            held=self.held,
            passing=self.passing,
        )

    def _traces(self, outcome: Outcome) -> list[Trace]:
        return [trace for trace in self.judgement.traces if trace.criterion == outcome.criterion]

    def _unit(self, outcome: Outcome, clean: Secrets) -> dict[str, Any]:
        judged = outcome if isinstance(outcome, Verdict) else None
        criterion, usage, traces = outcome.criterion, outcome.usage, self._traces(outcome)
        question = self.questions.get(criterion) or Question(self._unknown(criterion).key, None)
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
            "cost": finite_number(self.price.of(outcome)) if self.price else None,
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

    def _unknown(self, criterion: str) -> Asked:
        """Return what is known of a question whose writer did not say more."""
        return Asked(criterion, {"criterion": criterion, **self._about})

    def unknown_questions(self) -> list[Asked]:
        """Return the questions that are known only by judge, mode and criterion."""
        verdicts = self.judgement.verdicts
        return [self._unknown(outcome.criterion) for outcome in verdicts if outcome.criterion not in self.questions]

    def _trace(self, trace: Trace, clean: Secrets) -> tuple[tuple[Any, ...], list[tuple[float, str]]]:
        prompt = tuple(text_sha(_text(text, clean)) for text in trace.prompt)
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


def text_sha(text: str) -> str:
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

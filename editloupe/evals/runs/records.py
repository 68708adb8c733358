"""What goes into a run and comes out of it: a judgement with what the runner knows about it, and a unit read back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter

from editloupe.evals.runs.pictures import KeptPictures, PictureFolder, kept_pictures
from editloupe.evals.runs.prices import Price
from editloupe.evals.runs.redact import Redactor
from editloupe.images import Album
from editloupe.storable import finite_number, record_json, storable_text, whole_number
from editloupe.types import Judgement, Mode, Outcome, Record, Trace, Usage, Verdict

_OUTCOME: TypeAdapter[Outcome] = TypeAdapter(Outcome)


class Unit(Record):
    """One (edit, criterion, repeat) as the run holds it."""

    edit_id: str
    criterion: str
    repeat: int
    key: str | None
    """What was asked, of whom, with which pictures and settings; None where the runner did not say."""
    tries: int
    configuration: str | None
    """Which entry of run.json judged it."""
    protocol: str
    mode: Mode
    judge: str
    outcome: Outcome
    cost: float | None
    seconds: float
    finished_at: str

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Unit:
        """Read a row of the table `units`."""
        values = {name: row[name] for name in cls.model_fields if name != "outcome"}
        return cls(**values, outcome=_OUTCOME.validate_json(row["outcome"]))


@dataclass(frozen=True)
class Rows:
    """A judgement as rows, made before the transaction begins."""

    position: int | None
    edit: Mapping[str, str]
    units: list[dict[str, Any]]
    texts: list[str]
    traces: list[tuple[tuple[Any, ...], list[tuple[float, str]]]]


@dataclass(frozen=True)
class Filing:
    """A judgement on its way into a run."""

    judgement: Judgement
    repeat: int = 0
    album: Album | KeptPictures | None = None
    """Where the pictures are that the traces speak of; without it none are kept."""
    position: int | None = None
    keys: Mapping[str, str] = field(default_factory=dict)
    """Content keys by criterion."""
    quick: str | None = None
    tries: Mapping[str, int] = field(default_factory=dict)
    """How often each criterion was asked anew, this time included."""
    configuration: str | None = None
    price: Price | None = None

    def ready(self, folder: PictureFolder, clean: Redactor) -> Rows:
        """Write the pictures and return the rows."""
        edit, album = self.judgement.edit, self.album
        kept = kept_pictures(self.judgement, album, folder) if isinstance(album, Album) else album or KeptPictures()
        kept.write(folder)
        return Rows(
            position=self.position,
            edit={
                "edit_id": storable_text(edit.id),
                "edit": _text(record_json(edit), clean),
                "pictures": json.dumps(kept.roles),
            },
            units=[self._unit(outcome, clean) for outcome in self.judgement.verdicts],
            texts=[_text(text, clean) for text in {text for trace in self.judgement.traces for text in trace.prompt}],
            traces=[self._trace(trace, clean) for trace in self.judgement.traces],
        )

    def _unit(self, outcome: Outcome, clean: Redactor) -> dict[str, Any]:
        judged = outcome if isinstance(outcome, Verdict) else None
        criterion, usage = outcome.criterion, outcome.usage
        durations = [trace.seconds for trace in self.judgement.traces if trace.criterion == criterion]
        return {
            "edit_id": storable_text(self.judgement.edit.id),
            "criterion": storable_text(criterion),
            "repeat": self.repeat,
            "key": self.keys.get(criterion),
            "quick": self.quick,
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
            "cost": finite_number(self.price.cost(usage)) if self.price else None,
            "seconds": max((_duration(seconds) for seconds in durations), default=0.0),
            "outcome": _text(record_json(outcome), clean),
            "finished_at": timestamp(),
        }

    def _trace(self, trace: Trace, clean: Redactor) -> tuple[tuple[Any, ...], list[tuple[float, str]]]:
        prompt = tuple(text_sha(_text(text, clean)) for text in trace.prompt)
        head = record_json(trace.model_copy(update={"prompt": prompt}), without={"steps"})
        place = (storable_text(trace.edit_id), storable_text(trace.criterion), self.repeat, trace.target)
        steps = [(_duration(step.seconds), _text(record_json(step), clean)) for step in trace.steps]
        return (*place, _duration(trace.seconds), _text(head, clean)), steps


def text_sha(text: str) -> str:
    """Return the name under which a text is kept."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]


def timestamp() -> str:
    """Return this second, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _text(text: str, clean: Redactor) -> str:
    return clean(storable_text(text))


def _duration(seconds: float) -> float:
    """Return seconds as a number the database takes: no time is negative, endless or nan."""
    return max(0.0, finite_number(seconds) or 0.0)

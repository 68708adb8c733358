"""What people say about the edits of a run, by the rule that `editloupe agree` goes by, and one consensus of several."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from editloupe.evals.analysis import statistics
from editloupe.evals.analysis.consensus import Consensus, consensus_of, counting_scores
from editloupe.evals.analysis.label_merge import Given, merged
from editloupe.evals.analysis.label_rows import LabelReader, Named, label_files, score_of
from editloupe.rubrics.model import Answer, LabelAnswer, NumberAnswer, Rubric, YesNoAnswer
from editloupe.rubrics.protocol import MissingInput
from editloupe.rubrics.registry import known_protocol
from editloupe.types import Edit, UserError


@dataclass(frozen=True)
class Choice:
    """One answer a person can give, with the key that gives it."""

    key: str
    value: str
    meaning: str
    place: float
    """0 to 100."""
    when: tuple[str, ...] = ()


def rubric_of(protocol: str, criterion: str) -> Rubric | None:
    """Return a criterion's rubric in its first wording, None where this version does not know it."""
    known = known_protocol(protocol)
    rubrics = known.rubrics if known else ()
    return next((rubric for rubric in rubrics if rubric.criterion == criterion), None)


def rubric_read(wording: Mapping[str, Any]) -> Rubric | None:
    """Return a rubric as a run kept its words, without what a mode adds; None where that is no rubric."""
    known = {name: value for name, value in wording.items() if name in Rubric.model_fields}
    try:
        return Rubric.model_validate({**known, "modes": {}})
    except ValidationError:
        return None


def rubric_for(protocol: str, criterion: str, edit: Edit) -> Rubric | None:
    """Return the wording of a criterion that an edit is asked, None where this version does not know the rubric."""
    known = known_protocol(protocol)
    if known is None or criterion not in known.criteria:
        return None
    try:
        return known.choose(edit, known.variants(criterion)) or known.rubric(criterion)
    except MissingInput:
        return known.rubric(criterion)


def choices(answer: Answer) -> tuple[Choice, ...]:
    """Return what a person can answer, worst first; nothing for rubrics that take no single label."""
    if isinstance(answer, LabelAnswer):
        ordered = sorted(answer.labels, key=lambda label: label.score)
        return tuple(
            Choice(str(number), label.name, label.meaning.strip(), answer.score_100(label.name), label.when)
            for number, label in enumerate(ordered, start=1)
        )
    if isinstance(answer, NumberAnswer) and answer.high - answer.low <= 9:
        values = range(answer.low, answer.high + 1)
        return tuple(
            Choice(str(value % 10), str(value), band_text(answer, value), answer.score_100(value)) for value in values
        )
    if isinstance(answer, YesNoAnswer):
        return (Choice("1", "no", "", 0.0), Choice("2", "yes", "", 100.0))
    return ()


def band_text(answer: NumberAnswer, value: int) -> str:
    """Return what it takes to be at a place of a scale, as its rubric says it; empty where it says nothing."""
    band = next((band for band in answer.bands if band.low <= value <= band.high), None)
    return ": ".join(filter(None, (band.name, band.meaning.strip()))) if band else ""


def consensus(answer: Answer | None, labels: Iterable[str]) -> Consensus | None:
    """Return the lower median of several labels, None where none of them is an answer to the rubric."""
    return consensus_of(answer, [score for text in labels if (score := score_of(answer, text)) is not None])


@dataclass(frozen=True)
class People:
    """What people say about the edits of a run."""

    rows: tuple[tuple[Any, ...], ...] = ()
    """Of the index's table `people`."""
    given: Mapping[str, Given] = field(default_factory=dict)
    """Protocol to the scores that count, by edit and criterion and annotator."""
    faults: tuple[str, ...] = ()
    """Labels that do not count, and why."""
    adjudicated: Mapping[str, Mapping[tuple[str, str], float]] = field(default_factory=dict)
    """Protocol to the scores that settle what annotators said differently, by edit and criterion."""


def people_of(
    rows: sqlite3.Connection, folder: Path, written: Path, rubric: Callable[[str, str], Rubric | None]
) -> People:
    """Return what people say about the edits of an index.

    Labels of the manifest, of the run's own file and of the file the studio writes are merged as `agree` merges them.
    """
    files = label_files(folder, written)
    human = rows.execute("SELECT name, human, rater FROM edits WHERE human <> '{}'").fetchall()
    if not files and not human:
        return People()
    edits = [Named(*row) for row in rows.execute("SELECT name, edit_id, model FROM edits")]
    asked: dict[str, dict[str, Answer | None]] = {}
    for row in rows.execute("SELECT DISTINCT protocol, criterion FROM cells ORDER BY protocol, criterion"):
        found = rubric(row["protocol"], row["criterion"])
        asked.setdefault(row["protocol"], {})[row["criterion"]] = found.answer if found else None
    said: list[tuple[Any, ...]] = []
    by_protocol: dict[str, Given] = {}
    adjudicated: dict[str, Mapping[tuple[str, str], float]] = {}
    faults: dict[str, None] = {}
    for protocol, answers in asked.items():
        reader = LabelReader(edits, answers, lambda error: faults.setdefault(str(error)))
        sources = [reader.manifest((row["name"], json.loads(row["human"]), row["rater"]) for row in human)]
        for path, origin in files.items():
            try:
                sources.append(reader.file(path, [], origin))
            except UserError as error:
                faults.setdefault(str(error))
        by_protocol[protocol], settled, _ = merged(sources)
        adjudicated[protocol] = settled
        for name, criterion in dict.fromkeys((*by_protocol[protocol], *settled)):
            place = name, criterion
            scores = counting_scores(by_protocol[protocol].get(place, {}).values(), settled.get(place))
            if one := consensus_of(answers[criterion], scores):
                said.append((name, criterion, protocol, one.label, one.score, one.place, one.count))
    return People(tuple(said), by_protocol, tuple(faults), adjudicated)


def alpha(given: Iterable[Mapping[str, float]]) -> tuple[float | None, str | None, int]:
    """Return Krippendorff's ordinal α of the scores of some edits by annotator, or why there is none; and of how many edits."""
    shared = [scores for scores in given if len(scores) > 1]
    if not shared:
        return None, "no edit was labelled by two annotators", 0
    place = {name: column for column, name in enumerate(dict.fromkeys(name for scores in shared for name in scores))}
    ratings = np.full((len(shared), len(place)), np.nan)
    for row, scores in enumerate(shared):
        for name, score in scores.items():
            ratings[row, place[name]] = score
    value, why = statistics.alpha(ratings)
    return value, why, len(shared)

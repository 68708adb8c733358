"""Labels given by people, from the manifest or from a file, by one or several annotators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from editloupe.evals.analysis.bootstrap import Floats
from editloupe.evals.analysis.label_file import read_label_rows
from editloupe.evals.analysis.run_rows import Table
from editloupe.evals.manifests.readers import READERS, Row, read_jsonl
from editloupe.rubrics.model import Answer, LabelAnswer, NumberAnswer, YesNoAnswer
from editloupe.storable import storable_text
from editloupe.types import UserError

LABELS = "labels.jsonl"
"""Where the studio keeps what people label, in the run's folder."""
_YES_NO = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}


@dataclass(frozen=True)
class Human:
    """Scores people gave, by (edit, criterion) and annotator."""

    origin: str
    """Where the labels come from, in words."""
    given: Mapping[tuple[str, str], Mapping[str, float]]
    notes: tuple[str, ...] = ()
    annotators: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        names = dict.fromkeys(name for labels in self.given.values() for name in labels)
        object.__setattr__(self, "annotators", tuple(names))

    def matrix(self, table: Table, criterion: str) -> Floats:
        """Return rows × annotators of scores; nan where an annotator gave none."""
        values = np.full((len(table.rows), len(self.annotators)), np.nan)
        place = {name: column for column, name in enumerate(self.annotators)}
        for number, row in enumerate(table.rows):
            for name, score in self.given.get((row.edit.id, criterion), {}).items():
                values[number, place[name]] = score
        return values


def human_labels(table: Table, file: str | Path | None = None) -> Human:
    """Return the labels of a file; without one, those of the manifest and those given in the studio, beside the run."""
    if file is not None:
        human = _from_file(table, Path(file))
        if not human.given:
            raise UserError(f"{Path(file).name} has no label for an edit and criterion of the run {table.name}")
        return human
    human, beside = _from_manifest(table), table.folder / LABELS
    if not beside.is_file():
        return human
    studio = _from_file(table, beside)
    if not human.given:
        return studio
    if not studio.given:
        return Human(human.origin, human.given, studio.notes)
    both = {key: {**human.given.get(key, {}), **studio.given.get(key, {})} for key in {**human.given, **studio.given}}
    return Human(f"{human.origin} and {studio.origin}", both, studio.notes)


def _from_manifest(table: Table) -> Human:
    given: dict[tuple[str, str], dict[str, float]] = {}
    for row in table.rows:
        for criterion, labels in row.edit.human.items():
            if criterion in table.criteria:
                several = labels if isinstance(labels, (list, tuple)) else (labels,)
                where = Row(f'edit "{row.edit.id}"', {})
                scores = {
                    f"annotator {number}": score
                    for number, label in enumerate(several, start=1)
                    if (score := _score(where, table, criterion, label)) is not None
                }
                if scores:
                    given[row.edit.id, criterion] = scores
    return Human("the manifest", given)


def _from_file(table: Table, path: Path) -> Human:
    """Read `edit_id, criterion, label` rows, or rows with one column a criterion, each with `annotator` or without.

    A named annotator's later label replaces the earlier one, and an empty one takes it back; rows without a name are
    taken as annotators 1, 2, … in the order in which they stand for an edit.
    """
    reader = READERS.get(path.suffix.lower())
    if not path.is_file() or reader is None:
        problem = "is a .jsonl, .csv or .parquet file" if path.is_file() else f"was not found at {path}"
        raise UserError(f"{path.name}: a file of human labels {problem}")
    ours = {row.edit.id for row in table.rows}
    given: dict[tuple[str, str], dict[str, float]] = {}
    strange: set[str] = set()
    notes: list[str] = []
    for row in read_label_rows(path, notes) if reader is read_jsonl else reader(path):
        edit_id = row.values.get("edit_id", row.values.get("id"))
        if edit_id is None or edit_id == "":
            raise row.error('"edit_id" is missing')
        edit_id = storable_text(str(edit_id))
        for criterion, name, label in _cells(row, table, row_may_skip=path.suffix.lower() == ".csv"):
            if edit_id not in ours:
                strange.add(edit_id)
                continue
            labels = given.setdefault((edit_id, criterion), {})
            score = _score(row, table, criterion, label)
            name = name or f"annotator {len(labels) + 1}"
            labels.pop(name, None)
            if score is not None:
                labels[name] = score
    if strange:
        some = ", ".join(sorted(strange)[:3])
        notes.append(f"{len(strange)} labelled edits are not in this run ({some}{' …' if len(strange) > 3 else ''}).")
    return Human(path.name, {key: labels for key, labels in given.items() if labels}, tuple(notes))


def _cells(row: Row, table: Table, row_may_skip: bool) -> Iterator[tuple[str, str | None, Any]]:
    """Yield criterion, annotator and label of everything a row says; an empty cell of a CSV file is not in its row."""
    values = row.values
    annotator = values.get("annotator")
    name = storable_text(str(annotator)).strip() or None if annotator is not None else None
    if (criterion := values.get("criterion")) is not None:
        if "label" not in values and "score" not in values and not row_may_skip:
            raise row.error('"label" is missing')
        if criterion in table.criteria:
            yield str(criterion), name, values.get("label", values.get("score"))
        return
    nested = values.get("human")
    found = {**(nested if isinstance(nested, Mapping) else {}), **{c: values[c] for c in table.criteria if c in values}}
    for criterion in table.criteria:
        if criterion in found:
            label = found[criterion]
            several = label if isinstance(label, (list, tuple)) else (label,)
            for number, one in enumerate(several, start=1):
                yield criterion, name if len(several) == 1 else f"{name or 'annotator'} {number}", one


def _score(row: Row, table: Table, criterion: str, label: Any) -> float | None:
    """Return a label's score on the rubric's scale, None for an empty one; a label that does not exist is an error."""
    text = "" if label is None else " ".join(str(label).split())
    if not text:
        return None
    score = score_of(table.answer(criterion), text)
    if score is None:
        raise row.error(f'"{text}" is no answer to {criterion}; {_allowed(table.answer(criterion))}')
    return score


def score_of(answer: Answer | None, text: str) -> float | None:
    """Return the score of a label's name in any case, or of a number on the scale; None where a text is neither."""
    number = _number(text)
    if isinstance(answer, LabelAnswer):
        for label in answer.labels:
            if text.casefold() == label.name.casefold() or number == label.score:
                return float(label.score)
        return None
    if isinstance(answer, YesNoAnswer):
        return _YES_NO.get(text.casefold(), number if number in (0.0, 1.0) else None)
    if isinstance(answer, NumberAnswer):
        return number if number is not None and answer.low <= number <= answer.high else None
    return number


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def _allowed(answer: Answer | None) -> str:
    if isinstance(answer, LabelAnswer):
        return f"its labels are {', '.join(label.name for label in answer.labels)}"
    if isinstance(answer, NumberAnswer):
        return f"it takes numbers from {answer.low} to {answer.high}"
    return "it takes yes or no" if isinstance(answer, YesNoAnswer) else "it takes a number"

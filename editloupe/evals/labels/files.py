"""Read files of human labels and find the edit, the annotator and the score of each label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from editloupe._util.json_safe import sanitize_text
from editloupe._util.text import number_of, one_line, verb
from editloupe.evals.labels.merge import LabelEntry, LabelSource, is_on_scale
from editloupe.evals.labels.wordings import WORDING
from editloupe.evals.manifests.columns import check_columns, rename_columns
from editloupe.evals.manifests.jsonl_log import read_log_rows
from editloupe.evals.manifests.readers import READERS, Row, read_jsonl
from editloupe.evals.runs.run_folder import LABELS
from editloupe.rubrics.model import (
    Answer,
    ChecksAnswer,
    LabelAnswer,
    MeasuredAnswer,
    NumberAnswer,
    TextAnswer,
    YesNoAnswer,
)
from editloupe.types import Edit, UserError

ADJUDICATED = "adjudicated"
"""The column that marks, with `true`, a label that settles a disagreement between annotators."""
RATER = ("rater", "annotator")
"""Columns with the annotator's name."""
FIELDS = ("edit_id", "id", "name", "model", "criterion", "label", *RATER, ADJUDICATED)
"""Fields of a file of labels, in addition to criteria."""
OVERALL = "score"
"""What a person's rating of an edit as a whole is called; 0 to 100."""
_IDS = ("edit_id", "id", "name")
_YES_NO = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
Answers = Mapping[str, Answer | None]
"""The criteria that can be labelled, in order, each with its kind of answer."""


class EditName(NamedTuple):
    """An edit as labels refer to it."""

    name: str
    """Unique in the run."""
    edit_id: str
    model: str | None


class LabelReader:
    """Reads labels about the edits of one run.

    Args:
        edits: The edits that can be labelled.
        answers: The criteria that can be labelled, each with its kind of answer.
        refuse: Called with the error of each row that cannot be read. If None, the error is raised.
        wordings: Keys of the wordings that the judge was asked, by criterion. Labels that were given under another wording
            are counted.
    """

    def __init__(
        self,
        edits: Iterable[EditName],
        answers: Answers,
        refuse: Callable[[UserError], None] | None = None,
        wordings: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        self._answers = answers
        self._wordings = wordings or {}
        self._other_wording: dict[tuple[str, str, str | None], bool] = {}
        self._report = refuse
        self._edits = edits
        self._unused: dict[str, int] = {}
        self._nearly: dict[str, bool] = {}

    def _refuse(self, error: UserError) -> None:
        if self._report is None:
            raise error
        self._report(error)

    @cached_property
    def _by_id(self) -> dict[str, list[EditName]]:
        """The edits by their ids; made when a file is read, since most runs have none."""
        by_id: dict[str, list[EditName]] = {}
        for edit in self._edits:
            by_id.setdefault(edit.edit_id, []).append(edit)
        return by_id

    @cached_property
    def _names(self) -> set[str]:
        return {edit.name for group in self._by_id.values() for edit in group}

    def read_manifest(self, labelled: Iterable[tuple[str, Mapping[str, Any], str | None]]) -> LabelSource:
        """Read the labels of the manifest itself: for each edit its name, its `human` column and the annotator."""
        entries: list[LabelEntry] = []
        for name, human, rater in labelled:
            row = Row(f'edit "{name}"', {})
            for criterion, label in human.items():
                if criterion in self._answers:
                    entries += self._build_entries(row, (name, criterion), rater, label)
                else:
                    self._leave_out(criterion)
        return LabelSource("the manifest", entries, whole=True)

    def read_file(
        self, path: Path, notes: list[str], origin: str = "", columns: Mapping[str, str] | None = None
    ) -> LabelSource:
        """Read a file with rows of `edit_id, criterion, label`, or with one column per criterion.

        Args:
            path: The file.
            notes: Gets sentences on rows that could not be used.
            origin: A name of the file for messages.
            columns: Fields and criteria to the columns that hold them, if the columns have other names.

        `rater` or `annotator` names the annotator. `model`, or the run's own `name` of an edit, selects one of several
        edits with the same id. `adjudicated` marks a label that settles a disagreement.
        """
        reader = READERS.get(path.suffix.lower())
        if not path.is_file() or reader is None:
            problem = "is a .jsonl, .csv or .parquet file" if path.is_file() else f"was not found at {path}"
            raise UserError(f"{path.name}: a file of human labels {problem}")
        entries: list[LabelEntry] = []
        unknown: dict[str, None] = {}
        may_skip = path.suffix.lower() == ".csv"
        rows = read_log_rows(path, notes) if reader is read_jsonl else reader(path)
        if columns:
            check_columns(path, columns)
            rows = (Row(row.where, rename_columns(row.values, columns)) for row in rows)
        for row in rows:
            try:
                name = self._edit(row)
                for criterion, label in self._cells(row, may_skip):
                    if name is None:
                        unknown[_describe_edit(row)] = None
                    else:
                        settles = str(row.values.get(ADJUDICATED, "")).casefold() in ("true", "1", "yes")
                        self._note_wording(row, name, criterion)
                        entries += self._build_entries(row, (name, criterion), find_rater(row.values), label, settles)
            except UserError as error:
                self._refuse(error)
        if unknown:
            some = ", ".join(sorted(unknown)[:3])
            more = " …" if len(unknown) > 3 else ""
            lost = len(unknown)
            notes.append(
                f"{number_of(lost, 'labelled edit')} {verb(lost, 'is', 'are')} not in this run ({some}{more})."
            )
        return LabelSource(origin or path.name, entries)

    def unused(self) -> list[str]:
        """Say which labels that were read are on something the run was not asked, such as a criterion that is misspelt."""
        criteria = ", ".join(name for name in self._answers if name != OVERALL)
        return [
            f'{number_of(count, "label")} on "{name}" {verb(count, "is", "are")} not used: the run was asked {criteria}.'
            for name, count in self._unused.items()
        ]

    def list_other_wordings(self) -> list[str]:
        """Say how many labels were given under another wording of a rubric than the judge was asked."""
        counts = Counter(criterion for (_, criterion, _), other in self._other_wording.items() if other)
        return [
            f"{number_of(count, 'label')} on {criterion} {verb(count, 'was', 'were')} given under another wording of its "
            "rubric than the judge was asked: people and judge answered different questions."
            for criterion, count in counts.items()
        ]

    def _note_wording(self, row: Row, name: str, criterion: str) -> None:
        """Note whether a label names another wording; a later label of the annotator replaces an earlier one."""
        shown, asked = row.values.get(WORDING), self._wordings.get(criterion)
        if isinstance(shown, str) and asked:
            self._other_wording[name, criterion, find_rater(row.values)] = shown not in asked

    def _leave_out(self, criterion: object) -> None:
        name = one_line(str(criterion))
        self._unused[name] = self._unused.get(name, 0) + 1

    def _edit(self, row: Row) -> str | None:
        """Return the name of the edit a row is about, None if it is not in the run. Raise an error if several edits fit.

        Id and model take precedence over the name: another run may have used the same name for another model's edit.
        """
        values = row.values
        edit_id, name, model = (_clean_text(values.get(key)) for key in ("edit_id", "name", "model"))
        edit_id = edit_id or _clean_text(values.get("id")) or name
        if edit_id is None:
            raise row.error('"edit_id" is missing')
        edits = self._by_id.get(edit_id, [])
        if not edits:
            return next((candidate for candidate in (edit_id, name) if candidate in self._names), None)
        if model is not None:
            # A run that names no model has nothing to contradict the file's.
            own = [edit for edit in edits if edit.model == model]
            edits = own or [edit for edit in edits if edit.model is None]
        if len(edits) > 1 and name in {edit.name for edit in edits}:
            return name
        if len(edits) > 1:
            fits = ", ".join(f"{edit.name} ({edit.model or 'no model'})" for edit in edits)
            raise row.error(
                f'"{edit_id}" fits several edits of this run: {fits}; say which in a column "model", or write the edit\'s '
                'name in a column "name"'
            )
        return edits[0].name if edits else None

    def _cells(self, row: Row, may_skip: bool) -> Iterator[tuple[str, Any]]:
        """Yield criterion and label of each label in a row. Empty cells of a CSV file are not in its row."""
        values = row.values
        if (criterion := values.get("criterion")) is not None:
            if "label" not in values and "score" not in values and not may_skip:
                raise row.error('"label" is missing')
            if isinstance(criterion, str) and criterion in self._answers:
                yield criterion, values.get("label", values.get("score"))
            else:
                self._leave_out(criterion)
            return
        nested = values.get("human")
        labels = nested if isinstance(nested, Mapping) else {}
        # A column may be about anything; one that is nearly called like a criterion is a criterion misspelt.
        for name in (*(name for name in values if self._is_nearly_asked(name)), *labels):
            if name not in self._answers:
                self._leave_out(name)
        for criterion in self._answers:
            if criterion in values or criterion in labels:
                yield criterion, values.get(criterion, labels.get(criterion))

    def _is_nearly_asked(self, column: str) -> bool:
        if column not in self._nearly:
            self._nearly[column] = column not in self._answers and bool(
                get_close_matches(column.casefold(), [name for name in self._answers if name != OVERALL], cutoff=0.8)
            )
        return self._nearly[column]

    def _build_entries(
        self, row: Row, key: tuple[str, str], rater: str | None, label: Any, settles: bool = False
    ) -> list[LabelEntry]:
        """Return a label, or the labels of a list, one per annotator, each with its score."""
        several = label if isinstance(label, (list, tuple)) else (label,)
        entries = []
        for number, value in enumerate(several, start=1):
            name = f"{rater} {number}" if rater and len(several) > 1 else rater
            try:
                entries.append(LabelEntry(key, name, self._score(row, key[1], value), settles))
            except UserError as error:
                self._refuse(error)
        return entries

    def _score(self, row: Row, criterion: str, label: Any) -> float | None:
        """Return a label's score, None for an empty one; a label that does not exist is an error."""
        text = "" if label is None else " ".join(str(label).split())
        if not text:
            return None
        score = parse_label(self._answers[criterion], text)
        if score is None:
            raise row.error(f'"{text}" is not an answer to {criterion}; {describe_scale(self._answers[criterion])}')
        return score


def find_rater(values: Mapping[str, Any]) -> str | None:
    """Return the annotator's name from the first column that has one."""
    for column in RATER:
        if values.get(column) is not None and (name := " ".join(sanitize_text(str(values[column])).split())):
            return name
    return None


def _clean_text(value: Any) -> str | None:
    return None if value is None or value == "" else sanitize_text(str(value))


def _describe_edit(row: Row) -> str:
    edit_id, model = (
        next((str(row.values[key]) for key in keys if row.values.get(key)), "") for keys in (_IDS, ("model",))
    )
    return f"{edit_id} of {model}" if model else edit_id


def list_label_files(folder: Path, studio: Path | None = None, files: Iterable[str | Path] = ()) -> dict[Path, str]:
    """List the files whose labels count for a run, each once, with a name for messages.

    Args:
        folder: The run's folder, in which the studio usually writes.
        studio: The studio's file if it is not in the run's folder.
        files: Further files.
    """
    written = [path for path in (folder / LABELS, studio) if path is not None and path.is_file()]
    paths = {path.resolve(): path for path in (*written, *map(Path, files))}
    names = [path.name for path in paths.values()]
    return {path: path.name if names.count(path.name) == 1 else str(path) for path in paths.values()}


def check_manifest_labels(edit: Edit, answers: Mapping[str, Sequence[Answer]]) -> None:
    """Raise UserError if a manifest's label is an answer to none of the rubrics of its criterion.

    Args:
        edit: The edit with its labels.
        answers: The kinds of answer of each criterion's rubrics. Labels of other criteria are not checked.
    """
    for criterion, label in edit.human.items() if edit.human else ():
        for text in (" ".join(part.split()) for part in (label if isinstance(label, tuple) else (label,))):
            kinds = answers.get(criterion, ()) if text else ()
            if kinds and all(parse_label(answer, text) is None for answer in kinds):
                raise UserError(
                    f'edit "{edit.id}": "{text}" is not an answer to {criterion}; {describe_scale(kinds[0])}'
                )


def parse_label(answer: Answer | None, text: str) -> float | None:
    """Return the score of a label's name in any case, or of a number on the scale; None if a text is not on the scale.

    If the rubric is not known, any number is a score.
    """
    number = _parse_number(text)
    if isinstance(answer, LabelAnswer):
        for label in answer.labels:
            if text.casefold() == label.name.casefold() or number == label.score:
                return float(label.score)
        return None
    if isinstance(answer, YesNoAnswer):
        number = _YES_NO.get(text.casefold(), number)
    return number if number is not None and is_on_scale(answer, number) else None


def _parse_number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def describe_scale(answer: Answer | None) -> str:
    """Return what a criterion takes for an answer, for an error message."""
    if isinstance(answer, LabelAnswer):
        return f"its labels are {', '.join(label.name for label in answer.labels)}"
    if isinstance(answer, NumberAnswer):
        return f"it takes numbers from {answer.low} to {answer.high}"
    if isinstance(answer, ChecksAnswer):
        return "it takes numbers from 0 to 1"
    if isinstance(answer, TextAnswer):
        return "it takes a text, which has no score"
    if isinstance(answer, MeasuredAnswer):
        return "it is measured, and people do not label it"
    return "it takes yes or no" if isinstance(answer, YesNoAnswer) else "it takes a number"

"""Read files of human labels and find the edit, the annotator and the score of each label."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from editloupe._util.json_safe import sanitize_text
from editloupe._util.text import number_of, one_line, verb
from editloupe.evals.labels.label_files import LabelFile, fold_text
from editloupe.evals.labels.label_form import WORDING
from editloupe.evals.labels.merge import LabelEntry, LabelSource, is_on_scale
from editloupe.evals.manifests.columns import FIRST_ROWS, NEAR, format_columns
from editloupe.evals.manifests.readers import PICTURE_SUFFIXES, Row
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
    edited: str = ""
    """Path of the edited picture; empty if there is no file."""
    source: str = ""

    @classmethod
    def of(cls, name: str, edit: Edit) -> EditName:
        """Return the names of an edit that is called `name` in its run."""
        edited, source = (str(path) if isinstance(path, Path) else "" for path in (edit.edited, edit.source))
        return cls(name, edit.id, edit.model, edited, source)


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

    @cached_property
    def _by_picture(self) -> tuple[dict[str, list[EditName]], dict[str, list[EditName]]]:
        """The edits by the file names of their edited and source pictures, with and without suffix."""
        by_edited: dict[str, list[EditName]] = {}
        by_source: dict[str, list[EditName]] = {}
        for edit in itertools.chain.from_iterable(self._by_id.values()):
            for path, index in ((edit.edited, by_edited), (edit.source, by_source)):
                for name in dict.fromkeys(_picture_names(path)):
                    index.setdefault(name, []).append(edit)
        return by_edited, by_source

    def _find_by_picture(self, text: str) -> list[EditName]:
        """Return the edits whose picture has a file name or stem, or whose id is the stem; empty if none fits."""
        by_edited, by_source = self._by_picture
        file, stem = _picture_names(text)
        for edits in (by_edited.get(file), self._by_id.get(stem), by_edited.get(stem), by_source.get(file)):
            if edits:
                break
        edits = edits or by_source.get(stem, [])
        inside = "/" in text and [edit for edit in edits if f"/{edit.edited}".endswith(f"/{text.lstrip('/')}")]
        return inside or edits

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

    def read_file(self, file: LabelFile, notes: list[str]) -> LabelSource:
        """Read a file with rows of `edit_id, criterion, label`, or with one column per criterion.

        `rater` or `annotator` names the annotator. `model`, or the run's own `name` of an edit, selects one of several
        edits with the same id. `adjudicated` marks a label that settles a disagreement.

        Args:
            file: The file.
            notes: Gets sentences on rows that could not be used, and on edits that were found by the name of a picture.

        Raises:
            UserError: The file cannot be read, or a row cannot and errors are not collected.
        """
        self._check_fields(file)
        entries: list[LabelEntry] = []
        edits = _EditCounts()
        may_skip = file.path.suffix.lower() == ".csv"
        rows = file.read_rows(notes)
        first = list(itertools.islice(rows, FIRST_ROWS))
        columns = list(dict.fromkeys(itertools.chain.from_iterable(row.values for row in first)))
        if first and not any(column in _IDS for column in columns):
            raise UserError(
                f"{file.path.name} has no column that names the edit (edit_id, id or name); its columns are "
                f"{_suggest(columns, dict.fromkeys(_IDS, 'id'))}"
            )
        for row in itertools.chain(first, rows):
            try:
                name = self._edit(row, edits)
                for criterion, label in self._cells(row, file, may_skip):
                    if name is None:
                        edits.unknown[_describe_edit(row)] = None
                    else:
                        settles = str(row.values.get(ADJUDICATED, "")).casefold() in ("true", "1", "yes")
                        self._note_wording(row, name, criterion)
                        entries += self._build_entries(
                            row, (name, criterion), find_rater(row.values), file.translate(label, criterion), settles
                        )
            except UserError as error:
                self._refuse(error)
        notes += edits.sentences()
        source = LabelSource(file.origin or file.path.name, entries)
        return source if source.has_labels else replace(source, problem=self._explain(columns, edits, bool(entries)))

    def _check_fields(self, file: LabelFile) -> None:
        """Raise UserError if `--columns` names a field or criterion that is nearly one of those that there are."""
        names = [*FIELDS, *self._answers]
        for name in file.columns:
            if name not in names and (near := get_close_matches(name, names, n=1, cutoff=NEAR)):
                raise UserError(f'--columns: "{name}" is not a criterion or field of labels; did you mean {near[0]}?')

    def _explain(self, columns: Sequence[str], edits: _EditCounts, emptied: bool) -> str:
        """Say why a file has no label."""
        if not columns:
            return "it has no rows"
        criteria = [name for name in self._answers if name != OVERALL]
        if "criterion" not in columns and "human" not in columns and not any(name in self._answers for name in columns):
            return (
                f"it has neither a column criterion nor one for a criterion that was asked ({', '.join(criteria)}); its "
                f"columns are {_suggest(columns, {name: name for name in criteria})}"
            )
        if edits.unknown:
            own = [group[0].edit_id for group in itertools.islice(self._by_id.values(), 3)]
            return (
                f"its edits are {_name_some(edits.unknown)}, and those of the run {_name_some(own, len(self._by_id))}"
            )
        if emptied:
            return "all its labels are empty"
        return f"its labels are on {', '.join(self._unused) or 'nothing'}, and the run was asked {', '.join(criteria)}"

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
        key, judged = row.values.get(WORDING), self._wordings.get(criterion)
        if isinstance(key, str) and judged:
            self._other_wording[name, criterion, find_rater(row.values)] = key not in judged

    def _leave_out(self, criterion: object) -> None:
        name = one_line(str(criterion))
        self._unused[name] = self._unused.get(name, 0) + 1

    def _edit(self, row: Row, counts: _EditCounts) -> str | None:
        """Return the name of the edit a row is about, None if it is not in the run. Raise an error if several edits fit.

        Id and model take precedence over the name: another run may have used the same name for another model's edit. A text
        that is neither is looked for among the file names of pictures.
        """
        values = row.values
        edit_id, name, model = (_clean_text(values.get(key)) for key in ("edit_id", "name", "model"))
        edit_id = edit_id or _clean_text(values.get("id")) or name
        if edit_id is None:
            raise row.error('"edit_id" is missing')
        edits = self._by_id.get(edit_id, [])
        if not edits:
            if own_name := next((candidate for candidate in (edit_id, name) if candidate in self._names), None):
                return own_name
            edits = self._find_by_picture(edit_id)
            if edits:
                counts.by_picture[edit_id] = None
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

    def _cells(self, row: Row, file: LabelFile, may_skip: bool) -> Iterator[tuple[str, Any]]:
        """Yield criterion and label of each label in a row. Empty cells of a CSV file are not in its row."""
        values = row.values
        if (criterion := file.translate(values.get("criterion"))) is not None:
            if "label" not in values and "score" not in values and not may_skip:
                raise row.error('"label" is missing')
            if isinstance(criterion, str) and (own := self._find_criterion(criterion)):
                yield own, values.get("label", values.get("score"))
            else:
                self._leave_out(criterion)
            return
        nested = values.get("human")
        labels = nested if isinstance(nested, Mapping) else {}
        # A column may be about anything; one that is nearly called like a criterion is a criterion misspelt.
        for name in (*(name for name in values if self._is_nearly_asked(name)), *labels):
            if name not in self._answers:
                self._leave_out(name)
        for criterion, answer in self._answers.items():
            if criterion in values or criterion in labels:
                yield criterion, values.get(criterion, labels.get(criterion))
            elif isinstance(answer, ChecksAnswer) and any(
                f"{criterion}.{check.key}" in values for check in answer.checks
            ):
                yield criterion, {check.key: values.get(f"{criterion}.{check.key}") for check in answer.checks}

    def _find_criterion(self, text: str) -> str | None:
        """Return the criterion that a text names, in any case and with blanks or hyphens for underscores."""
        if text in self._answers:
            return text
        return next((name for name in self._answers if fold_text(name) == fold_text(text)), None)

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
        answer = self._answers[criterion]
        if isinstance(answer, ChecksAnswer) and isinstance(label, Mapping):
            choices = read_choices(row, criterion, answer, label)
            return answer.total(choices) if all(choices.values()) else None
        text = "" if label is None else " ".join(str(label).split())
        if not text:
            return None
        score = parse_label(self._answers[criterion], text)
        if score is None:
            raise row.error(
                f'"{text}" is not an answer to {criterion}; {describe_scale(self._answers[criterion])}. '
                f'--map "{text}=LABEL" says which of them is meant'
            )
        return score


def read_choices(row: Row, criterion: str, answer: ChecksAnswer, cells: Mapping[str, Any]) -> dict[str, str]:
    """Return the answer to every item of a check list; empty for an empty cell. Raise UserError for any other text."""
    choices: dict[str, str] = {}
    for check in answer.checks:
        cell = cells.get(check.key)
        text = "" if cell is None else f"{cell:g}" if isinstance(cell, float) else str(cell).strip()
        if text and text not in check.values:
            raise row.error(f'"{text}" is not an answer to {criterion}.{check.key}; it takes {", ".join(check.values)}')
        choices[check.key] = text
    return choices


@dataclass
class _EditCounts:
    """The texts of a file that name edits in an unusual way."""

    unknown: dict[str, None] = field(default_factory=dict)
    by_picture: dict[str, None] = field(default_factory=dict)

    def sentences(self) -> list[str]:
        """Return notes on them."""
        by_picture, lost = len(self.by_picture), len(self.unknown)
        return [
            *(
                [
                    f"{number_of(by_picture, 'edit')} {verb(by_picture, 'was', 'were')} found by the file name of a picture."
                ]
                if by_picture
                else []
            ),
            *(
                [
                    f"{number_of(lost, 'labelled edit')} {verb(lost, 'is', 'are')} not in this run "
                    f"({_name_some(sorted(self.unknown))})."
                ]
                if lost
                else []
            ),
        ]


def _name_some(names: Collection[str], count: int | None = None) -> str:
    """Return the first three names."""
    return ", ".join(itertools.islice(names, 3)) + (" …" if (count or len(names)) > 3 else "")


def _picture_names(path: str) -> tuple[str, str]:
    """Return the file name of a path, and the name without the suffix of a picture.

    >>> _picture_names("out/cat.v2.PNG"), _picture_names("cat.v2")
    (('cat.v2.PNG', 'cat.v2'), ('cat.v2', 'cat.v2'))
    """
    name = PurePosixPath(path.replace("\\", "/")).name
    suffix = PurePosixPath(name).suffix
    return name, name.removesuffix(suffix) if suffix.lower() in PICTURE_SUFFIXES else name


def _suggest(columns: Sequence[str], fields: Mapping[str, str]) -> str:
    """Return the columns of a file, and the option that names one whose name is nearly that of a field.

    Args:
        columns: The columns.
        fields: Names of fields to the field that the option names.

    >>> _suggest(["Edit ID", "who"], {"edit_id": "id"})
    "Edit ID, who; did you mean --columns 'id=Edit ID'?"
    """
    folded = {fold_text(column): column for column in reversed(columns)}
    for name, option in fields.items():
        if near := get_close_matches(fold_text(name), folded, n=1, cutoff=NEAR):
            return f"{format_columns(columns)}; did you mean --columns '{option}={folded[near[0]]}'?"
    return f"{format_columns(columns)}; name it with --columns {next(iter(fields.values()), 'id')}=COLUMN"


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

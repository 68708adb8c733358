"""Import verdicts that were made elsewhere into a run. Such a run has no traces, and pictures and instructions are optional."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from editloupe._util.errors import first_error
from editloupe._util.hashing import content_key
from editloupe._util.json_safe import dump_record
from editloupe.evals.labels.files import describe_scale, parse_label, read_choices
from editloupe.evals.labels.merge import format_score_label, to_score_100
from editloupe.evals.manifests.cases import IdSet
from editloupe.evals.manifests.columns import Columns, check_columns, format_columns, rename_columns, rename_row
from editloupe.evals.manifests.datasets import build_edit
from editloupe.evals.manifests.readers import READERS, Row
from editloupe.evals.runs.configurations import IMPORTED
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import JudgementRecord
from editloupe.judge.question_key import QuestionKey, QuestionSpec
from editloupe.rubrics.model import Answer, ChecksAnswer, LabelAnswer, NumberAnswer
from editloupe.rubrics.protocol import Protocol
from editloupe.rubrics.registry import OWN, find_paper
from editloupe.rubrics.user_rubrics import build_scale_protocol, with_files
from editloupe.types import NOT_APPLICABLE, Edit, Judgement, Mode, Outcome, Reason, Unjudged, UserError, Verdict

NO_INSTRUCTION = "(not imported)"
"""The instruction of an edit whose row names none."""
NO_PICTURE = "no-picture"
"""Begin of the edited picture's name, if a row names none. Each model has one of its own, because its pictures are not known."""
MODE: Mode = "plain"
"""The mode of imported verdicts. It is not known how they were made."""
AT_ONCE = 500
"""Rows that are written in one transaction."""
CRITERION, VALUES = "criterion", ("label", "score")
REPEAT, CONFIDENCE, RATIONALE = "repeat", "confidence", "rationale"
DETAIL = "The imported file has no score here."


@dataclass(frozen=True)
class Scale:
    """The range of the numbers in a file."""

    low: float
    high: float

    @classmethod
    def parse(cls, text: str) -> Scale:
        """Parse `LOW..HIGH`.

        >>> Scale.parse("0..10")
        Scale(low=0.0, high=10.0)

        Raises:
            UserError: The text does not name two numbers, the lower one first.
        """
        low, dots, high = text.partition("..")
        try:
            scale = cls(float(low), float(high))
        except ValueError:
            dots = ""
        if not dots or not scale.low < scale.high or not math.isfinite(scale.high - scale.low):
            raise UserError(f'--scale is LOW..HIGH, such as 0..10, not "{text}"')
        return scale

    def answer(self) -> NumberAnswer:
        """Return the answer of a criterion with this scale; 0 to 100 if its ends are not whole numbers."""
        if self.low.is_integer() and self.high.is_integer():
            return NumberAnswer(low=int(self.low), high=int(self.high), reason_key=None)
        return NumberAnswer(low=0, high=100, reason_key=None)

    def move(self, number: float, answer: Answer | None) -> float | None:
        """Return a number of this scale on the scale of a criterion; None if it is outside."""
        if not self.low <= number <= self.high:
            return None
        low, high = (answer.low, answer.high) if isinstance(answer, NumberAnswer) else (0, 1)
        if (low, high) == (self.low, self.high):
            return number
        return low + (number - self.low) / (self.high - self.low) * (high - low)


@dataclass
class ImportSummary:
    """What an import did."""

    rows: int = 0
    verdicts: int = 0
    """Verdicts in the file."""
    unjudged: int = 0
    """Cells without a score."""
    known: int = 0
    """Verdicts that the run held already."""
    numbered: int = 0
    """Rows without an id, whose edits are named by their position."""


def import_scores(
    file: str | Path,
    out: str | Path,
    judge: str,
    protocol: str,
    columns: Columns | None = None,
    scale: Scale | None = None,
    rubrics: Sequence[str | Path] = (),
) -> ImportSummary:
    """Import the verdicts of a file into a run.

    A row is one edit with a column per criterion, or one verdict with the columns `criterion` and `label` or `score`. The answer
    to a criterion with checks may be an object with an answer per check. A row's
    key is the hash of its edit, its verdicts and the judge's name: importing a file again adds nothing. A later file, or the
    same file read with other columns or another scale, replaces the scores of the edits it names, and an empty cell takes a
    score back.

    Args:
        file: A JSONL, CSV or Parquet file, or a folder or file of results of the protocol's own script.
        out: The run. A new one, or one with imported verdicts.
        judge: The name of the judge that gave the verdicts.
        protocol: The protocol whose criteria were judged; `own` for other criteria.
        columns: Fields and criteria to the columns that hold them.
        scale: The range of the file's numbers, which are mapped to the criterion's scale. None if they are on it already.
        rubrics: Rubric files of the user, for `own` or in addition to the protocol.

    Raises:
        UserError: A row cannot be read, names an unknown criterion or a score that the criterion cannot have, or is there
            twice; or the run holds verdicts that were not imported. Rows before it are imported.
    """
    path = Path(file)
    if not judge.strip():
        raise UserError("--judge must name the judge that gave the verdicts")
    used = _find_protocol(protocol, columns or {}, scale, rubrics)
    rows = _read_rows(path, used, columns or {})
    first = list(itertools.islice(rows, AT_ONCE))
    if not first:
        raise UserError(f"{path.name} has no rows")
    present = dict.fromkeys(itertools.chain(columns or (), *(row.values for row in first)))
    importer = _Importer(path, judge.strip(), used, scale, [name for name in used.criteria if name in present])
    records = importer.build_records(first)
    with Run.write(out) as run:
        importer.configuration = run.configure(importer.describe(), [*importer.specs.values()])
        stored = 0
        while records:
            importer.save(records, run)
            stored += len(records)
            try:
                records = importer.build_records(itertools.islice(rows, AT_ONCE))
            except UserError as error:
                raise UserError(
                    f"{error}; the first {stored} rows are imported, so correct the file and import it again"
                ) from None
    return importer.summary


def _find_protocol(name: str, columns: Columns, scale: Scale | None, rubrics: Sequence[str | Path]) -> Protocol:
    if rubrics or name != OWN:
        return with_files(name, rubrics)
    criteria = [column for column in columns if column not in Edit.model_fields and column not in _ROW_FIELDS]
    if not criteria or scale is None:
        raise UserError(
            "--protocol own needs --rubric FILE, or the criteria and their scale: --columns quality=COLUMN --scale 0..10"
        )
    return build_scale_protocol(criteria, scale.answer())


_ROW_FIELDS = {CRITERION, *VALUES, REPEAT, CONFIDENCE, RATIONALE}


def _read_rows(path: Path, protocol: Protocol, columns: Columns) -> Iterator[Row]:
    """Stream the rows of a file with their columns renamed, or those of a folder of results."""
    paper = find_paper(protocol.name)
    reader = READERS.get(path.suffix.lower()) if path.is_file() else None
    if paper and paper.read_results and not reader and path.exists():
        if columns:
            raise UserError(
                f"--columns goes with a file of scores; {path} has the columns of the script of {paper.title}"
            )
        yield from itertools.starmap(Row, paper.read_results(path))
        return
    if reader is None:
        kinds = ", ".join(READERS)
        raise UserError(f"{path} is not a file of scores ({kinds})" if path.exists() else f"there is no file {path}")
    if columns:
        check_columns(path, columns)
    for row in reader(path):
        yield rename_row(row, partial(rename_columns, columns=columns))


class _Importer:
    """Turns rows into records of judgements."""

    def __init__(
        self, path: Path, judge: str, protocol: Protocol, scale: Scale | None, expected: Sequence[str]
    ) -> None:
        self._path, self._judge, self._protocol, self._scale, self._expected = path, judge, protocol, scale, expected
        self._answers = {name: protocol.rubric(name).answer for name in protocol.criteria}
        self._seen = IdSet()
        self.configuration = ""
        self.summary = ImportSummary()
        self.specs = {
            name: QuestionSpec(name, {IMPORTED: True, "criterion": name, "judge": judge, "protocol": protocol.name})
            for name in protocol.criteria
        }

    def describe(self) -> dict[str, Any]:
        """Return the description that the run stores."""
        return {
            "spec": self._judge,
            "protocol": self._protocol.name,
            "mode": MODE,
            IMPORTED: True,
            "settings": {},
            "criteria": list(self._answers),
            "rubrics": {name: self._protocol.rubric(name).model_dump(mode="json") for name in self._answers},
            "notes": [],
        }

    def build_records(self, rows: Iterable[Row]) -> list[JudgementRecord]:
        """Return the records of some rows, without their configuration."""
        records = []
        for row in rows:
            position, self.summary.rows = self.summary.rows, self.summary.rows + 1
            records.append(self._build_record(row, position))
        return records

    def save(self, records: Iterable[JudgementRecord], run: Run) -> None:
        """Store those records that the run does not hold yet."""
        new = []
        for record in records:
            keys = record.questions.values()
            if run.holds_units([(key.asked, str(key.shown), record.repeat) for key in keys]):
                self.summary.known += len(keys)
            else:
                new.append(replace(record, configuration=self.configuration))
        run.save_all(new)

    def _build_record(self, row: Row, position: int) -> JudgementRecord:
        edit, repeat = self._build_edit(row, position), self._read_repeat(row)
        outcomes = tuple(self._read_outcomes(row, edit))
        if not outcomes:
            raise row.error(
                f"there is no score: name the columns of {', '.join(self._answers)} with --columns, or add the columns "
                f'"criterion" and "score"; this row has {format_columns(row.values)}'
            )
        for outcome in outcomes:
            if self._seen.add(json.dumps([edit.id, edit.model, outcome.criterion, repeat])):
                owner = f" of {edit.model}" if edit.model else ""
                raise row.error(
                    f'edit "{edit.id}"{owner} has a second score for {outcome.criterion}; number repeats in "repeat"'
                )
        judgement = Judgement(edit=edit, protocol=self._protocol.name, mode=MODE, judge=self._judge, verdicts=outcomes)
        shown = content_key([dump_record(judgement)])[:32]
        names = [outcome.criterion for outcome in outcomes]
        return JudgementRecord(
            judgement, repeat, questions={name: QuestionKey(self.specs[name].key, shown) for name in names}
        )

    def _build_edit(self, row: Row, position: int) -> Edit:
        """Return the edit of a row. Without a source picture, edits with the same id are one case."""
        own = {name: value for name, value in row.values.items() if not self._is_about_verdicts(name)}
        name = str(own.get("id") or own.get("edited") or position + 1)
        self.summary.numbered += not (own.get("id") or own.get("edited"))
        own.setdefault("id", name)
        own.setdefault("source", name)
        own.setdefault("edited", f"{NO_PICTURE}-{content_key([name, own.get('model')])[:16]}")
        own.setdefault("instruction", NO_INSTRUCTION)
        return build_edit(Row(row.where, own), self._path.resolve().parent, allow_outside=True)

    def _is_about_verdicts(self, column: str) -> bool:
        base, _, criterion = column.partition(".")
        return column in self._answers or column in _ROW_FIELDS or (base in _ROW_FIELDS and criterion in self._answers)

    def _read_repeat(self, row: Row) -> int:
        value = row.values.get(REPEAT, 0)
        try:
            repeat = int(value)
        except (TypeError, ValueError, OverflowError):
            repeat = -1
        if not 0 <= repeat < 1_000_000 or isinstance(value, bool):
            raise row.error(f'"repeat" is {json.dumps(value, default=str)}, not a whole number from 0')
        return repeat

    def _read_outcomes(self, row: Row, edit: Edit) -> Iterator[Outcome]:
        values = row.values
        if CRITERION in values:
            criterion = str(values[CRITERION])
            if criterion not in self._answers:
                raise row.error(
                    f'"{criterion}" is not a criterion of {self._protocol.name}; it has {", ".join(self._answers)}'
                )
            cell = next((values[name] for name in VALUES if values.get(name) is not None), None)
            yield self._build_outcome(row, criterion, cell, values.get(CONFIDENCE), values.get(RATIONALE))
            return
        # Empty cells of a CSV file are not in its rows.
        for criterion in self._expected:
            if values.get(criterion) is None and not self._is_asked(edit, criterion):
                continue
            confidence, rationale = (values.get(f"{name}.{criterion}") for name in (CONFIDENCE, RATIONALE))
            yield self._build_outcome(row, criterion, values.get(criterion), confidence, rationale)

    def _is_asked(self, edit: Edit, criterion: str) -> bool:
        """Say whether the protocol asks an edit a criterion; True if the edit lacks what that depends on."""
        try:
            return self._protocol.choose(edit, self._protocol.variants(criterion)) is not None
        except UserError:
            return True

    def _build_outcome(self, row: Row, criterion: str, cell: Any, confidence: Any, rationale: Any) -> Outcome:
        answer = self._answers[criterion]
        if isinstance(answer, ChecksAnswer) and isinstance(cell, Mapping):
            return self._build_checks(row, criterion, answer, cell, rationale)
        text = "" if cell is None else " ".join(str(cell).split())
        if text.casefold() in ("", "nan", "none", "null"):
            self.summary.unjudged += 1
            return Unjudged(criterion=criterion, reason=Reason.UNREADABLE, detail=DETAIL, raw=text)
        score = self._read_score(row, criterion, text)
        self.summary.verdicts += 1
        try:
            return Verdict(
                criterion=criterion,
                label=format_score_label(answer, score) if isinstance(answer, LabelAnswer) else None,
                score=score,
                score_100=to_score_100(answer, score),
                rationale=str(rationale or ""),
                confidence=self._read_confidence(row, confidence),
            )
        except ValidationError as error:
            raise row.error(first_error(error).message) from None

    def _build_checks(
        self, row: Row, criterion: str, answer: ChecksAnswer, cell: Mapping[str, Any], rationale: Any
    ) -> Outcome:
        """Return the outcome of an object with an answer per check; unjudged if one has none."""
        choices = read_choices(row, criterion, answer, cell)
        if missing := next((key for key, choice in choices.items() if not choice), None):
            self.summary.unjudged += 1
            detail = f"The imported file has no answer to {missing} here."
            raw = json.dumps(dict(cell), default=str)
            return Unjudged(criterion=criterion, reason=Reason.UNREADABLE, detail=detail, raw=raw)
        self.summary.verdicts += 1
        total = answer.total(choices)
        return Verdict(
            criterion=criterion,
            label=NOT_APPLICABLE if total is None else None,
            score=total,
            score_100=None if total is None else 100 * total,
            values=choices,
            rationale=str(rationale or ""),
        )

    def _read_score(self, row: Row, criterion: str, text: str) -> float:
        answer = self._answers[criterion]
        score: float | None = None
        if self._scale is None or isinstance(answer, LabelAnswer):
            score = parse_label(answer, text)
        elif (number := parse_label(None, text)) is not None:
            score = self._scale.move(number, answer)
        if score is None:
            scale = self._scale
            takes = f"--scale is {scale.low:g}..{scale.high:g}" if scale else describe_scale(answer)
            raise row.error(f'"{text}" is not an answer to {criterion}; {takes}')
        return score

    def _read_confidence(self, row: Row, value: Any) -> float | None:
        if value is None or value == "":
            return None
        number = parse_label(None, str(value))
        if number is None or not 0 <= number <= 1:
            raise row.error(f'"confidence" is {json.dumps(value, default=str)}, not a number from 0 to 1')
        return number

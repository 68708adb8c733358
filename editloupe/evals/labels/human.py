"""Human labels of a run, merged from the manifest, the studio and label files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from editloupe._util.text import number_of, verb
from editloupe.evals.labels.files import OVERALL, Answers, EditName, LabelReader, find_rater
from editloupe.evals.labels.label_files import LabelFile, as_label_file, list_label_files
from editloupe.evals.labels.label_form import find_wording_keys
from editloupe.evals.labels.merge import Consensus, LabelKey, find_consensus, merge_sources, select_counting_scores
from editloupe.evals.runs.configurations import read_answer_kind, rubric_records
from editloupe.rubrics.model import Answer, NumberAnswer
from editloupe.types import Edit, UserError

LabelFiles = str | Path | LabelFile | Iterable[str | Path | LabelFile] | None
"""A file of labels, several, or none."""
RATING = NumberAnswer(low=0, high=100)
"""The answer of a person who rates an edit as a whole."""
ManifestLabels = Iterable[tuple[str, Mapping[str, Any], str | None]]
"""Labels of a manifest: an edit's name, its `human` column, and the annotator."""


@dataclass(frozen=True)
class HumanLabels:
    """People's scores by edit, criterion and annotator. Edits are named as in the run.

    Args:
        origin: Where the labels come from, for messages.
        given: Scores by edit and criterion, and annotator.
        notes: Notes for readers.
        adjudicated: Scores that settle disagreements between annotators.
        unused: Sentences on labels of criteria that were not asked.
        empty: Files without a label on these edits and criteria, and why.
    """

    origin: str
    given: Mapping[LabelKey, Mapping[str, float]]
    notes: tuple[str, ...] = ()
    adjudicated: Mapping[LabelKey, float] = field(default_factory=dict)
    unused: tuple[str, ...] = ()
    empty: Mapping[Path, str] = field(default_factory=dict)
    annotators: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        names = dict.fromkeys(name for labels in self.given.values() for name in labels)
        object.__setattr__(self, "annotators", tuple(names))

    def counting_scores(self, key: LabelKey) -> list[float]:
        """Return the scores of an edit and criterion that count: the adjudicated one alone, else those of all annotators."""
        return select_counting_scores(self.given.get(key, {}).values(), self.adjudicated.get(key))

    def of_edits(self, names: Iterable[str]) -> HumanLabels:
        """Return the labels of some edits."""
        chosen = set(names)
        return replace(
            self,
            given={key: labels for key, labels in self.given.items() if key[0] in chosen},
            adjudicated={key: score for key, score in self.adjudicated.items() if key[0] in chosen},
        )

    def consensus(self, answers: Answers) -> Iterator[tuple[LabelKey, Consensus]]:
        """Yield the consensus of people on every edit and criterion that has labels."""
        for key in dict.fromkeys((*self.given, *self.adjudicated)):
            if agreed := find_consensus(answers[key[1]], self.counting_scores(key)):
                yield key, agreed

    def counting_matrix(self, names: Sequence[str], criterion: str) -> npt.NDArray[np.float64]:
        """Return edits × annotators of the scores that count; an adjudicated one is alone in its row, in the first column."""
        values = self.matrix(names, criterion)
        for number, name in enumerate(names if self.adjudicated else ()):
            if (score := self.adjudicated.get((name, criterion))) is not None:
                values[number] = np.nan
                values[number, 0] = score
        return values

    def matrix(self, names: Sequence[str], criterion: str) -> npt.NDArray[np.float64]:
        """Return edits × annotators of the scores each annotator gave, NaN if none."""
        values = np.full((len(names), max(len(self.annotators), int(bool(self.adjudicated)))), np.nan)
        column_of = {annotator: column for column, annotator in enumerate(self.annotators)}
        own = self._by_criterion.get(criterion, {})
        for number, name in enumerate(names if own else ()):
            for annotator, score in own.get(name, {}).items():
                values[number, column_of[annotator]] = score
        return values

    @cached_property
    def _by_criterion(self) -> Mapping[str, Mapping[str, Mapping[str, float]]]:
        by_criterion: dict[str, dict[str, Mapping[str, float]]] = {}
        for (name, criterion), labels in self.given.items():
            by_criterion.setdefault(criterion, {})[name] = labels
        return by_criterion


def merge_labels(
    edits: Iterable[EditName],
    answers: Answers,
    manifest: ManifestLabels,
    files: Iterable[LabelFile],
    refuse: Callable[[UserError], None] | None = None,
    wordings: Mapping[str, Collection[str]] | None = None,
) -> HumanLabels:
    """Read the labels of a manifest and of files, and merge them by the rules of `labels.merge`.

    Args:
        edits: The edits that can be labelled.
        answers: The criteria that can be labelled, each with its kind of answer.
        manifest: The labels of the manifest.
        files: Files of labels.
        refuse: Called with the error of each label or file that cannot be read. If None, the first error is raised.
        wordings: Keys of the wordings that the judge was asked, by criterion; see `find_wording_keys`.

    Returns:
        The merged labels.
    """
    reader = LabelReader(edits, answers, refuse, wordings)
    notes: list[str] = []
    sources, empty = [reader.read_manifest(manifest)], dict[Path, str]()
    for file in files:
        try:
            sources.append(reader.read_file(file, notes))
        except UserError as error:
            if refuse is None:
                raise
            refuse(error)
            empty[file.path.resolve()] = str(error)
            continue
        if not sources[-1].has_labels:
            empty[file.path.resolve()] = f"{file.path.name} has no label that fits: {sources[-1].problem}"
    scores, adjudicated, merge_notes = merge_sources(sources)
    origins = [source.origin for source in sources if source.has_labels]
    return HumanLabels(
        _join_names(origins) or "the manifest",
        scores,
        (
            *notes,
            *merge_notes,
            *_adjudication_notes(adjudicated),
            *_unknown_scale_notes((*scores, *adjudicated), answers),
            *reader.list_other_wordings(),
        ),
        adjudicated,
        tuple(reader.unused()),
        empty,
    )


def check_labels(files: LabelFiles, ids: Iterable[str], answers: Answers) -> None:
    """Check that files of labels can be read, before anything is judged.

    Only the run itself can tell which of several edits with the same id a label is about.

    Args:
        files: Files of labels.
        ids: Ids of the edits that will be judged.
        answers: The criteria that will be asked, each with its kind of answer.

    Raises:
        UserError: A label cannot be read.
    """
    reader = LabelReader((EditName(edit_id, edit_id, None) for edit_id in dict.fromkeys(ids)), answers)
    for file in list_files(files):
        reader.read_file(file, [])


class LabelledRow(Protocol):
    """The part of a run table's row that labels need."""

    @property
    def name(self) -> str:
        """The edit's name, unique in the run."""
        ...

    @property
    def edit(self) -> Edit:
        """The edit itself."""
        ...


class LabelledTable(Protocol):
    """The part of a run table that labels need."""

    @property
    def name(self) -> str:
        """The run's name."""
        ...

    @property
    def folder(self) -> Path:
        """The run's folder."""
        ...

    @property
    def rows(self) -> Sequence[LabelledRow]:
        """The edits of the run."""
        ...

    @property
    def criteria(self) -> Sequence[str]:
        """The criteria that were asked."""
        ...

    @property
    def about(self) -> Mapping[str, Any]:
        """Contents of run.json."""
        ...

    @property
    def protocol(self) -> str:
        """The protocol."""
        ...

    @property
    def configuration(self) -> str:
        """Name of the configuration."""
        ...

    def answer(self, criterion: str) -> Answer | None:
        """Return the kind of answer a criterion takes."""
        ...


def load_human_labels(
    table: LabelledTable,
    files: HumanLabels | LabelFiles = None,
    studio: Path | None = None,
) -> HumanLabels:
    """Load the labels that count for a run: those of its manifest, of the studio, and of the given files.

    Args:
        table: The run, as `read_run_table` returns it.
        files: Files of labels. Labels that were loaded before are returned as they are.
        studio: The studio's file of labels if it is not in the run's folder.

    Returns:
        The merged labels.

    Raises:
        UserError: A label cannot be read, or a given file labels nothing of this run.
    """
    if isinstance(files, HumanLabels):
        return files
    own = list_files(files)
    human = merge_labels(
        (EditName.of(row.name, row.edit) for row in table.rows),
        {OVERALL: RATING, **{criterion: table.answer(criterion) for criterion in table.criteria}},
        ((row.name, row.edit.human, find_rater(row.edit.extra)) for row in table.rows if row.edit.human),
        list_label_files(table.folder, studio, own),
        wordings=find_wording_keys(table.about, table.protocol, table.configuration),
    )
    check_not_empty([human], own)
    return replace(human, notes=(*human.notes, *human.unused))


def check_not_empty(merged: Collection[HumanLabels], files: Iterable[LabelFile]) -> None:
    """Raise UserError if a file has no label in any of several merges, with the reason."""
    for file in files:
        problems = [human.empty.get(file.path.resolve()) for human in merged]
        if problems and (problem := problems[0]) and all(problems):
            raise UserError(problem)


def list_files(files: LabelFiles) -> list[LabelFile]:
    """Return files as a list."""
    several = [files] if isinstance(files, (str, Path, LabelFile)) else files or ()
    return [as_label_file(file) for file in several]


@dataclass(frozen=True)
class RunLabels:
    """Human labels of a run that may hold several protocols.

    Args:
        by_protocol: The labels on each protocol's criteria.
        asked: Protocols to their criteria, each with its kind of answer.
        faults: Why some labels do not count.
    """

    by_protocol: Mapping[str, HumanLabels] = field(default_factory=dict)
    asked: Mapping[str, Answers] = field(default_factory=dict)
    faults: tuple[str, ...] = ()

    @property
    def given(self) -> Mapping[str, Mapping[LabelKey, Mapping[str, float]]]:
        """Protocol to scores by edit, criterion and annotator."""
        return {protocol: human.given for protocol, human in self.by_protocol.items()}

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for readers of the labels."""
        return tuple(dict.fromkeys(note for human in self.by_protocol.values() for note in human.notes))

    def consensus(self) -> Iterator[tuple[str, str, str, Consensus]]:
        """Yield edit, criterion, protocol and the consensus of people on them."""
        for protocol, human in self.by_protocol.items():
            for (name, criterion), agreed in human.consensus(self.asked[protocol]):
                yield name, criterion, protocol, agreed


def merge_run_labels(
    edits: Sequence[EditName],
    asked: Mapping[str, Answers],
    manifest: Collection[tuple[str, Mapping[str, Any], str | None]],
    files: Iterable[LabelFile],
) -> RunLabels:
    """Merge the labels of a run for each of its protocols.

    Args:
        edits: The edits of the run.
        asked: Protocols to their criteria, each with its kind of answer.
        manifest: The labels of the manifest.
        files: Files of labels.

    Returns:
        The labels by protocol. Labels that cannot be read are listed in `faults`.
    """
    faults: dict[str, None] = {}

    def refuse(error: UserError) -> None:
        faults[str(error)] = None

    files = list(files)
    by_protocol = {name: merge_labels(edits, answers, manifest, files, refuse) for name, answers in asked.items()}
    return RunLabels(by_protocol, asked, tuple(faults))


def find_answers(about: Mapping[str, Any], asked: Iterable[tuple[str, str]]) -> dict[str, dict[str, Answer | None]]:
    """Return protocols and their criteria with the kind of answer each takes; None if its rubric is not known.

    Args:
        about: The contents of run.json.
        asked: Protocols and criteria that the run was asked.
    """
    answers: dict[str, dict[str, Answer | None]] = {}
    for protocol, criterion in asked:
        answers.setdefault(protocol, {})[criterion] = None
    for protocol, own in answers.items():
        records = rubric_records(about, protocol)
        own |= {criterion: read_answer_kind(records.get(criterion, {})) for criterion in own}
    return answers


def _adjudication_notes(adjudicated: Mapping[LabelKey, float]) -> list[str]:
    if not adjudicated:
        return []
    count = len(adjudicated)
    return [
        f"{number_of(count, 'label')} {verb(count, 'was', 'were')} adjudicated and {verb(count, 'counts', 'count')} alone."
    ]


def _unknown_scale_notes(keys: Iterable[LabelKey], answers: Answers) -> list[str]:
    unknown = dict.fromkeys(criterion for _, criterion in keys if answers[criterion] is None)
    return [
        f"The rubric of {criterion} is not known: its labels are compared as numbers and have no place from 0 to 100."
        for criterion in unknown
    ]


def _join_names(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)

"""Labels given by people: those of the manifest, of the studio and of files, merged by one rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from editloupe._util.text import number_of, verb
from editloupe.evals.analysis.bootstrap import Floats
from editloupe.evals.analysis.consensus import counting_scores
from editloupe.evals.analysis.label_merge import merged
from editloupe.evals.analysis.label_rows import Answers, LabelReader, Named, label_files, rater_in, score_of
from editloupe.evals.analysis.run_table import Table
from editloupe.evals.runs.people_files import LABELS
from editloupe.types import UserError

__all__ = ["LABELS", "Files", "Human", "check_labels", "human_labels", "score_of"]

Files = str | Path | Iterable[str | Path] | None
"""A file of labels, several, or none."""


@dataclass(frozen=True)
class Human:
    """Scores people gave, by (edit, criterion) and annotator; an edit goes by its name, which is unique in the run."""

    origin: str
    """Where the labels come from, in words."""
    given: Mapping[tuple[str, str], Mapping[str, float]]
    notes: tuple[str, ...] = ()
    adjudicated: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """Scores that settle what annotators said differently, by (edit, criterion)."""
    annotators: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        names = dict.fromkeys(name for labels in self.given.values() for name in labels)
        object.__setattr__(self, "annotators", tuple(names))

    def counting(self, place: tuple[str, str]) -> list[float]:
        """Return the scores of an edit and criterion that count: the adjudicated one alone, else everybody's."""
        return counting_scores(self.given.get(place, {}).values(), self.adjudicated.get(place))

    def settled(self, table: Table, criterion: str) -> Floats:
        """Return rows × annotators of the scores that count; an adjudicated one stands alone in its row, in the first column."""
        values = self.matrix(table, criterion)
        for number, row in enumerate(table.rows if self.adjudicated else ()):
            if (score := self.adjudicated.get((row.name, criterion))) is not None:
                values[number] = np.nan
                values[number, 0] = score
        return values

    def matrix(self, table: Table, criterion: str) -> Floats:
        """Return rows × annotators of scores as each gave them; nan where an annotator gave none."""
        values = np.full((len(table.rows), max(len(self.annotators), int(bool(self.adjudicated)))), np.nan)
        place = {name: column for column, name in enumerate(self.annotators)}
        own = self._by_criterion.get(criterion, {})
        for number, row in enumerate(table.rows if own else ()):
            if (labels := own.get(row.name)) is not None:
                for name, score in labels.items():
                    values[number, place[name]] = score
        return values

    @cached_property
    def _by_criterion(self) -> Mapping[str, Mapping[str, Mapping[str, float]]]:
        """What was given, by criterion and edit."""
        found: dict[str, dict[str, Mapping[str, float]]] = {}
        for (name, criterion), labels in self.given.items():
            found.setdefault(criterion, {})[name] = labels
        return found


def human_labels(table: Table, files: Files = None, studio: Path | None = None) -> Human:
    """Return the labels that count for a run: of its manifest, of the studio's file beside it, and of the files named.

    `label_merge` says how they are merged. A file that is named and labels nothing of this run is the user's mistake;
    `studio` is the studio's file where it is not in the run's folder.
    """
    named = [files] if isinstance(files, (str, Path)) else list(files or ())
    edits = (Named(row.name, row.edit.id, row.edit.model) for row in table.rows)
    reader = LabelReader(edits, {criterion: table.answer(criterion) for criterion in table.criteria})
    own = reader.manifest((row.name, row.edit.human, rater_in(row.edit.extra)) for row in table.rows if row.edit.human)
    sources, notes = [own], list[str]()
    wanted = {Path(file).resolve() for file in named}
    for path, origin in label_files(table.folder, studio, named).items():
        source = reader.file(path, notes, origin)
        if path.resolve() in wanted and not any(saying.score is not None for saying in source.sayings):
            raise UserError(f"{path.name} has no label for an edit and criterion of the run {table.name}")
        sources.append(source)
    given, adjudicated, told = merged(sources)
    origins = [source.origin for source in sources if any(saying.score is not None for saying in source.sayings)]
    return Human(
        _listed(origins) or "the manifest",
        given,
        (*notes, *told, *_adjudication(adjudicated), *reader.unused()),
        adjudicated,
    )


def check_labels(files: Files, ids: Iterable[str], answers: Answers) -> None:
    """Read files of labels as far as that can be done before anything is judged; a label that cannot be is the user's mistake.

    Which of several edits of one id a label is about is known only in the run.
    """
    named = [files] if isinstance(files, (str, Path)) else list(files or ())
    reader = LabelReader((Named(one, one, None) for one in dict.fromkeys(ids)), answers)
    for file in named:
        reader.file(Path(file), [])


def _adjudication(adjudicated: Mapping[tuple[str, str], float]) -> list[str]:
    if not adjudicated:
        return []
    count = len(adjudicated)
    return [
        f"{number_of(count, 'label')} {verb(count, 'was', 'were')} adjudicated and {verb(count, 'counts', 'count')} alone."
    ]


def _listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)

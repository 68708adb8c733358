"""Agreement of EdiVal-IF, an LMM alone and CLIP's direction with people, by instruction type (Figure 4, Table 13)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np

from editloupe._util.text import number_of, verb
from editloupe.evals.edival.files import file_key
from editloupe.evals.edival.metrics import PROTOCOL
from editloupe.evals.labels.human import load_human_labels
from editloupe.evals.manifests.jsonl_log import append_line, read_log_rows
from editloupe.evals.report.block_types import Block, Heading, Points
from editloupe.evals.stats.agreement import coefficients as st
from editloupe.evals.stats.intervals import Bools, Floats
from editloupe.evals.stats.scores.run_table import RunRow, RunTable, read_run_table
from editloupe.graphs.edival import FOLLOWING
from editloupe.pictures.decode import open_picture
from editloupe.pictures.pixels import ImageError
from editloupe.rubrics.edival.pools import Turn, read_turn
from editloupe.rubrics.edival.tasks import TYPES, build_captions
from editloupe.rubrics.protocol import MissingInput
from editloupe.rubrics.tables import Cell, PrintedTable
from editloupe.tools.models.features import ClipEncoder
from editloupe.types import Edit, Record, UserError

CLIP_FILE = "clip.jsonl"
"""File of CLIP's directions in the folder of the baselines."""


class Labelled(NamedTuple):
    """A picture that people labelled, with its majority label."""

    row: RunRow
    turn: Turn
    followed: bool


class People(NamedTuple):
    """People's labels of a run's single edits."""

    edits: tuple[Labelled, ...]
    agreement: float | None
    """Share of pairs of people with the same label."""
    notes: tuple[str, ...]


def find_labelled_edits(table: RunTable, files: Sequence[Path]) -> People:
    """Return the pictures with a single instruction that a majority of people labelled yes or no.

    Raises:
        UserError: If there is no such picture.
    """
    human = load_human_labels(table, files)
    edits: list[Labelled] = []
    tied = several = alike = pairs = 0
    for row in table.rows:
        scores = human.counting_scores((row.name, FOLLOWING))
        if not scores:
            continue
        try:
            turn = read_turn(row.edit)
        except MissingInput:
            continue
        if len(turn.tasks) != 1:
            several += 1
            continue
        labels = list(human.given.get((row.name, FOLLOWING), {}).values())
        pairs += len(labels) * (len(labels) - 1) // 2
        alike += sum(first == second for first, second in combinations(labels, 2))
        share = sum(scores) / len(scores)
        if share == 0.5:
            tied += 1
        else:
            edits.append(Labelled(row, turn, share > 0.5))
    if not edits:
        raise UserError(f"no picture with a single instruction in {table.name} has a label yes or no")
    notes = [*human.notes]
    if tied:
        notes.append(
            f"{number_of(tied, 'edit')} {verb(tied, 'is', 'are')} left out because as many people say yes as no."
        )
    if several:
        notes.append(f"{several} labelled pictures carry several instructions and are left out.")
    return People(tuple(edits), alike / pairs if pairs else None, tuple(notes))


def score_labelled_edits(
    people: People, alone: Path | None, configuration: str | None, directions: Mapping[str, float | None] | None
) -> BaselineTable:
    """Compare EdiVal-IF and its baselines with people.

    Args:
        people: The labelled edits.
        alone: Folder of a run that the LMM judged alone, or None.
        configuration: Configuration of that run.
        directions: CLIP's direction by name of the edit, or None.
    """
    lmm = _verdicts(read_run_table(alone, PROTOCOL, configuration)) if alone else None
    edits = []
    for row, turn, followed in people.edits:
        outcomes = {EDIVAL_IF: _score(row)}
        if lmm is not None:
            outcomes[LMM] = lmm.get(_picture(row))
        if directions is not None:
            outcomes[CLIP_DIR] = directions.get(row.name)
        edits.append(LabelledEdit(turn.tasks[0].type, followed, outcomes))
    methods = [EDIVAL_IF, *([LMM] if lmm is not None else []), *([CLIP_DIR] if directions is not None else [])]
    return compare_methods(edits, methods, people.agreement, people.notes)


def _verdicts(table: RunTable) -> dict[tuple[str, ...], float | None]:
    return {_picture(row): _score(row) for row in table.rows}


def _picture(row: RunRow) -> tuple[str, ...]:
    """Return a key of a picture across runs: its id and the hashes of both pictures."""
    return row.edit.id, *row.pictures.get("source", ()), *row.pictures.get("edited", ())


def _score(row: RunRow) -> float | None:
    """Return the score of the first repeat, or None if it is unjudged."""
    first = next(iter(row.units.get(FOLLOWING, ())), None)
    return first.score if first is not None and first.judged else None


class ClipDirections:
    """CLIP's directions of edits, cached in a file."""

    def __init__(self, encoder: ClipEncoder, file: Path) -> None:
        self._encoder, self._file = encoder, file
        self.problems: dict[str, str] = {}
        """Reason by edit if there is no direction."""
        self._known: dict[str, float] = {}
        if file.exists():
            self._known = dict(self._read_file())

    def _read_file(self) -> Iterator[tuple[str, float]]:
        for row in read_log_rows(self._file, []):
            try:
                yield str(row.values["key"]), float(row.values["direction"])
            except (KeyError, TypeError, ValueError):
                raise row.error('a row needs "key" and "direction"') from None

    def of(self, edits: Sequence[Labelled], tick: Callable[[int], None] = lambda done: None) -> dict[str, float | None]:
        """Return the direction of every edit by name, or None if a picture cannot be opened."""
        directions: dict[str, float | None] = {}
        for number, (row, turn, _) in enumerate(edits, start=1):
            captions = build_captions(turn.tasks[0])
            key = file_key({"clip": self._encoder.fingerprint, "pictures": _picture(row)[1:], "captions": captions})
            if key not in self._known:
                value = self._direction(row.edit, *captions)
                if value is not None:
                    self._known[key] = value
                    append_line(self._file, json.dumps({"key": key, "edit": row.edit.id, "direction": value}).encode())
            directions[row.name] = self._known.get(key)
            tick(number)
        return directions

    def _direction(self, edit: Edit, before: str, after: str) -> float | None:
        try:
            pictures = [open_picture(path).pixels for path in (edit.source, edit.edited)]
        except ImageError as error:
            self.problems[edit.id] = str(error)
            return None
        return self._encoder.direction(pictures[0], pictures[1], before, after)


EDIVAL_IF, LMM, CLIP_DIR = "EdiVal-IF", "LMM alone", "CLIP_dir"
OVERALL = "overall"
MEASURES = ("accuracy", "plcc", "kappa", "f1")
TUNED = (
    "CLIP_dir's threshold is tuned for each type on these very labels, as in the paper: its figures are the best that any "
    "threshold reaches here, not what an unlabelled set would give."
)


@dataclass(frozen=True)
class LabelledEdit:
    """One picture with a single instruction, its label by people and the outcome of each method."""

    kind: str
    followed: bool
    """Label by the majority of people."""
    said: Mapping[str, float | None]
    """Outcome by method: 1 or 0, or CLIP's direction; None if the method has no outcome."""


class MethodAgreement(Record):
    """Agreement of one method with people on one type, or on all types together."""

    kind: str
    method: str
    edits: int
    accuracy: float | None
    plcc: float | None
    kappa: float | None
    f1: float | None
    threshold: float | None = None
    """Lowest CLIP_dir that counts as followed; None for other methods, or if no edit counts as followed."""


class BaselineTable(Record):
    """Agreement of every method with people, on the edits for which all methods have an outcome."""

    methods: tuple[str, ...]
    labelled: int
    compared: int
    left_out: Mapping[str, int]
    """Number of labelled edits without an outcome, by method."""
    agreements: tuple[MethodAgreement, ...]
    people: float | None = None
    """Share of pairs of people with the same label (85.5 % in the paper)."""
    notes: tuple[str, ...] = ()


def compare_methods(
    edits: Sequence[LabelledEdit],
    methods: Sequence[str],
    people: float | None = None,
    notes: Sequence[str] = (),
) -> BaselineTable:
    """Compare methods on the edits that all of them judged, by type and overall."""
    left = {method: sum(edit.said.get(method) is None for edit in edits) for method in methods}
    both = [edit for edit in edits if all(edit.said.get(method) is not None for method in methods)]
    kinds = np.array([edit.kind for edit in both], str)
    human = np.array([edit.followed for edit in both], float)
    ordered = [kind for kind in TYPES if kind in kinds] + sorted(set(kinds) - set(TYPES))
    outcomes = {method: np.array([edit.said[method] for edit in both], float) for method in methods}
    thresholds: dict[str, float] = {}
    masks: dict[str, Bools] = {kind: kinds == kind for kind in ordered}
    if CLIP_DIR in outcomes:
        for kind, mask in masks.items():
            scores = outcomes[CLIP_DIR][mask]
            thresholds[kind] = find_best_threshold(scores, human[mask])
            outcomes[CLIP_DIR][mask] = scores >= thresholds[kind]
    masks[OVERALL] = np.ones(len(both), bool)
    agreements = [
        _agreement(
            kind, method, outcomes[method][mask], human[mask], thresholds.get(kind) if method == CLIP_DIR else None
        )
        for kind, mask in masks.items()
        for method in methods
    ]
    return BaselineTable(
        methods=tuple(methods),
        labelled=len(edits),
        compared=len(both),
        left_out=left,
        agreements=tuple(agreements),
        people=people,
        notes=(*notes, *((TUNED,) if CLIP_DIR in methods else ())),
    )


def _agreement(kind: str, method: str, judged: Floats, human: Floats, threshold: float | None) -> MethodAgreement:
    return MethodAgreement(
        kind=kind,
        method=method,
        edits=len(judged),
        accuracy=st.accuracy(judged, human)[0],
        plcc=st.pearson(judged, human)[0],
        kappa=st.kappa(judged, human, np.array([0.0, 1.0]))[0],
        f1=f1_score(judged, human),
        threshold=threshold if threshold is None or np.isfinite(threshold) else None,
    )


def f1_score(judged: Floats, human: Floats) -> float | None:
    """Return the F1 score of "followed", or None if neither side has it.

    >>> f1_score(np.array([1.0, 1.0, 0.0]), np.array([1.0, 0.0, 1.0]))
    0.5
    """
    either = float(judged.sum() + human.sum())
    return 2 * float((judged * human).sum()) / either if either else None


def find_best_threshold(scores: Floats, human: Floats) -> float:
    """Return the threshold with the best agreement with people; ties go to the lowest. Infinity if none should pass.

    >>> find_best_threshold(np.array([0.1, 0.2, 0.3]), np.array([0.0, 1.0, 1.0]))
    0.2
    """
    order = np.argsort(scores, kind="stable")
    ranked, right = scores[order], human[order]
    below = np.concatenate([[0.0], np.cumsum(1 - right)])  # true negatives if the first i are rejected
    above = right.sum() - np.concatenate([[0.0], np.cumsum(right)])
    first = np.concatenate([[True], ranked[1:] != ranked[:-1], [True]]) if len(ranked) else np.array([True])
    index = int(np.argmax(np.where(first, below + above, -1.0)))
    return float(ranked[index]) if index < len(ranked) else float("inf")


def build_tables(comparison: BaselineTable) -> list[PrintedTable]:
    """Return accuracy by type (Figure 4) and the further measures (Table 13)."""
    kinds = tuple(dict.fromkeys(item.kind for item in comparison.agreements))
    by = {(item.kind, item.method): item for item in comparison.agreements}
    accuracy: list[tuple[Cell, ...]] = []
    for kind in kinds:
        own = [by[kind, method] for method in comparison.methods]
        accuracy.append((kind, own[0].edits, *(None if item.accuracy is None else 100 * item.accuracy for item in own)))
    measures: list[tuple[Cell, ...]] = [
        (item.kind, item.method, *map(_cell, (item.plcc, item.kappa, item.f1, item.threshold)))
        for item in comparison.agreements
    ]
    columns = ("type", "edits", *comparison.methods)
    return [
        PrintedTable("Figure 4: agreement with people, %", columns, tuple(accuracy), _build_coverage_notes(comparison)),
        PrintedTable("Table 13: further measures", ("type", "method", "PLCC", "κ", "F1", "threshold"), tuple(measures)),
    ]


def _build_coverage_notes(comparison: BaselineTable) -> tuple[str, ...]:
    compared, labelled = comparison.compared, comparison.labelled
    notes = [f"{compared} of {labelled} labelled edits have an outcome of every method and are compared."]
    notes += [f"{method} has no outcome for {count} of them." for method, count in comparison.left_out.items() if count]
    if comparison.people is not None:
        notes.append(f"Pairs of people say the same of an edit in {100 * comparison.people:.1f} % of the cases.")
    return (*notes, *comparison.notes)


def build_blocks(comparison: BaselineTable) -> list[Block]:
    """Return the blocks of a report of the comparison."""
    blocks: list[Block] = [Heading("EdiVal-IF and its baselines against people", 1)]
    for table in build_tables(comparison):
        blocks += [Heading(table.title, 2), table]
        if table.notes:
            blocks.append(Points(table.notes))
    return blocks


def _cell(value: float | None) -> str | None:
    return None if value is None else f"{value:.4f}"

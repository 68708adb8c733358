"""How well EdiVal-IF, an LMM alone and CLIP's direction agree with people, by instruction type (Figure 4, Table 13)."""

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
from editloupe.evals.stats.bootstrap import Bools, Floats
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
"""CLIP's directions, in the folder of the baselines."""


class Labelled(NamedTuple):
    """A picture that people labelled."""

    row: RunRow
    turn: Turn
    followed: bool


class People(NamedTuple):
    """What people say of a run's single edits."""

    edits: tuple[Labelled, ...]
    agreement: float | None
    """The share of pairs of people that say the same."""
    notes: tuple[str, ...]


def find_labelled_edits(table: RunTable, files: Sequence[Path]) -> People:
    """Return the pictures of one instruction that a majority of people labelled yes or no."""
    human = load_human_labels(table, files)
    found: list[Labelled] = []
    tied = several = alike = pairs = 0
    for row in table.rows:
        given = human.counting_scores((row.name, FOLLOWING))
        if not given:
            continue
        try:
            turn = read_turn(row.edit)
        except MissingInput:
            continue
        if len(turn.tasks) != 1:
            several += 1
            continue
        said = list(human.given.get((row.name, FOLLOWING), {}).values())
        pairs += len(said) * (len(said) - 1) // 2
        alike += sum(one == other for one, other in combinations(said, 2))
        share = sum(given) / len(given)
        if share == 0.5:
            tied += 1
        else:
            found.append(Labelled(row, turn, share > 0.5))
    if not found:
        raise UserError(f"no picture of one instruction in {table.name} has a label that says yes or no")
    notes = [*human.notes]
    if tied:
        notes.append(
            f"{number_of(tied, 'edit')} {verb(tied, 'is', 'are')} left out because as many people say yes as no."
        )
    if several:
        notes.append(f"{several} labelled pictures carry several instructions and are left out.")
    return People(tuple(found), alike / pairs if pairs else None, tuple(notes))


def score_labelled_edits(
    people: People, alone: Path | None, configuration: str | None, directions: Mapping[str, float | None] | None
) -> BaselineTable:
    """Compare EdiVal-IF with the baselines there are: the LMM alone in a run of its own, CLIP's directions by name."""
    lmm = _verdicts(read_run_table(alone, PROTOCOL, configuration)) if alone else None
    edits = []
    for row, turn, followed in people.edits:
        said = {EDIVAL_IF: _score(row)}
        if lmm is not None:
            said[LMM] = lmm.get(_picture(row))
        if directions is not None:
            said[CLIP_DIR] = directions.get(row.name)
        edits.append(LabelledEdit(turn.tasks[0].type, followed, said))
    methods = [EDIVAL_IF, *([LMM] if lmm is not None else []), *([CLIP_DIR] if directions is not None else [])]
    return compare_methods(edits, methods, people.agreement, people.notes)


def _verdicts(table: RunTable) -> dict[tuple[str, ...], float | None]:
    return {_picture(row): _score(row) for row in table.rows}


def _picture(row: RunRow) -> tuple[str, ...]:
    """Return what names a picture in two runs: its id and the content of both pictures, so that one made again is another."""
    return row.edit.id, *row.pictures.get("source", ()), *row.pictures.get("edited", ())


def _score(row: RunRow) -> float | None:
    """Return the verdict of the first repeat, None where there is none."""
    first = next(iter(row.units.get(FOLLOWING, ())), None)
    return first.score if first is not None and first.judged else None


class ClipDirections:
    """CLIP's directions of edits, kept in a file: what is there is not worked out again."""

    def __init__(self, encoder: ClipEncoder, file: Path) -> None:
        self._encoder, self._file = encoder, file
        self.problems: dict[str, str] = {}
        """By edit: why there is none."""
        self._known: dict[str, float] = {}
        if file.exists():
            self._known = dict(self._kept())

    def _kept(self) -> Iterator[tuple[str, float]]:
        for row in read_log_rows(self._file, []):
            try:
                yield str(row.values["key"]), float(row.values["direction"])
            except (KeyError, TypeError, ValueError):
                raise row.error('a row needs "key" and "direction"') from None

    def of(self, edits: Sequence[Labelled], tick: Callable[[int], None] = lambda done: None) -> dict[str, float | None]:
        """Return the direction of every edit by its name; None where a picture cannot be opened."""
        found: dict[str, float | None] = {}
        for number, (row, turn, _) in enumerate(edits, start=1):
            said = build_captions(turn.tasks[0])
            key = file_key({"clip": self._encoder.fingerprint, "pictures": _picture(row)[1:], "captions": said})
            if key not in self._known:
                value = self._direction(row.edit, *said)
                if value is not None:
                    self._known[key] = value
                    append_line(self._file, json.dumps({"key": key, "edit": row.edit.id, "direction": value}).encode())
            found[row.name] = self._known.get(key)
            tick(number)
        return found

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
    """One picture of one instruction, what people say of it, and what each method does."""

    kind: str
    followed: bool
    """By the majority of people."""
    said: Mapping[str, float | None]
    """By method: 1 or 0, or CLIP's direction; None where it has no outcome."""


class MethodAgreement(Record):
    """One method on one type, or on all of them together."""

    kind: str
    method: str
    edits: int
    accuracy: float | None
    plcc: float | None
    kappa: float | None
    f1: float | None
    threshold: float | None = None
    """Of CLIP_dir: an edit counts as followed from here on; None also where none should."""


class BaselineTable(Record):
    """Every method against people, on the edits that all of them have an outcome for."""

    methods: tuple[str, ...]
    labelled: int
    compared: int
    left_out: Mapping[str, int]
    """By method: labelled edits it has no outcome for."""
    agreements: tuple[MethodAgreement, ...]
    people: float | None = None
    """The share of pairs of people that say the same of an edit (85.5 % in the paper)."""
    notes: tuple[str, ...] = ()


def compare_methods(
    edits: Sequence[LabelledEdit],
    methods: Sequence[str],
    people: float | None = None,
    notes: Sequence[str] = (),
) -> BaselineTable:
    """Compare methods on the edits that all of them judged, type by type and overall."""
    left = {method: sum(edit.said.get(method) is None for edit in edits) for method in methods}
    both = [edit for edit in edits if all(edit.said.get(method) is not None for method in methods)]
    kinds = np.array([edit.kind for edit in both], str)
    human = np.array([edit.followed for edit in both], float)
    ordered = [kind for kind in TYPES if kind in kinds] + sorted(set(kinds) - set(TYPES))
    said = {method: np.array([edit.said[method] for edit in both], float) for method in methods}
    thresholds: dict[str, float] = {}
    places: dict[str, Bools] = {kind: kinds == kind for kind in ordered}
    if CLIP_DIR in said:
        for kind, here in places.items():
            scores = said[CLIP_DIR][here]
            thresholds[kind] = find_best_threshold(scores, human[here])
            said[CLIP_DIR][here] = scores >= thresholds[kind]
    places[OVERALL] = np.ones(len(both), bool)
    found = [
        _agreement(kind, method, said[method][here], human[here], thresholds.get(kind) if method == CLIP_DIR else None)
        for kind, here in places.items()
        for method in methods
    ]
    return BaselineTable(
        methods=tuple(methods),
        labelled=len(edits),
        compared=len(both),
        left_out=left,
        agreements=tuple(found),
        people=people,
        notes=(*notes, *((TUNED,) if CLIP_DIR in methods else ())),
    )


def _agreement(kind: str, method: str, said: Floats, human: Floats, threshold: float | None) -> MethodAgreement:
    return MethodAgreement(
        kind=kind,
        method=method,
        edits=len(said),
        accuracy=st.accuracy(said, human)[0],
        plcc=st.pearson(said, human)[0],
        kappa=st.kappa(said, human, np.array([0.0, 1.0]))[0],
        f1=f1_score(said, human),
        threshold=threshold if threshold is None or np.isfinite(threshold) else None,
    )


def f1_score(said: Floats, human: Floats) -> float | None:
    """Return the harmonic mean of precision and recall of "followed"; None where neither side ever says so.

    >>> f1_score(np.array([1.0, 1.0, 0.0]), np.array([1.0, 0.0, 1.0]))
    0.5
    """
    either = float(said.sum() + human.sum())
    return 2 * float((said * human).sum()) / either if either else None


def find_best_threshold(scores: Floats, human: Floats) -> float:
    """Return the lowest threshold of those that agree most often with people; infinite where nothing should pass.

    >>> find_best_threshold(np.array([0.1, 0.2, 0.3]), np.array([0.0, 1.0, 1.0]))
    0.2
    """
    order = np.argsort(scores, kind="stable")
    ranked, right = scores[order], human[order]
    below = np.concatenate([[0.0], np.cumsum(1 - right)])  # true negatives where the first i are turned down
    above = right.sum() - np.concatenate([[0.0], np.cumsum(right)])
    first = np.concatenate([[True], ranked[1:] != ranked[:-1], [True]]) if len(ranked) else np.array([True])
    place = int(np.argmax(np.where(first, below + above, -1.0)))
    return float(ranked[place]) if place < len(ranked) else float("inf")


def build_tables(found: BaselineTable) -> list[PrintedTable]:
    """Return accuracy by type (Figure 4) and the further measures (Table 13)."""
    kinds = tuple(dict.fromkeys(one.kind for one in found.agreements))
    by = {(one.kind, one.method): one for one in found.agreements}
    accuracy: list[tuple[Cell, ...]] = []
    for kind in kinds:
        own = [by[kind, method] for method in found.methods]
        accuracy.append((kind, own[0].edits, *(None if one.accuracy is None else 100 * one.accuracy for one in own)))
    measures: list[tuple[Cell, ...]] = [
        (one.kind, one.method, *map(_cell, (one.plcc, one.kappa, one.f1, one.threshold))) for one in found.agreements
    ]
    return [
        PrintedTable(
            "Figure 4: agreement with people, %", ("type", "edits", *found.methods), tuple(accuracy), _standing(found)
        ),
        PrintedTable("Table 13: further measures", ("type", "method", "PLCC", "κ", "F1", "threshold"), tuple(measures)),
    ]


def _standing(found: BaselineTable) -> tuple[str, ...]:
    told = [f"{found.compared} of {found.labelled} labelled edits have an outcome of every method and are compared."]
    told += [f"{method} has no outcome for {count} of them." for method, count in found.left_out.items() if count]
    if found.people is not None:
        told.append(f"Pairs of people say the same of an edit in {100 * found.people:.1f} % of the cases.")
    return (*told, *found.notes)


def build_blocks(found: BaselineTable) -> list[Block]:
    """Tell the comparison."""
    told: list[Block] = [Heading("EdiVal-IF and its baselines against people", 1)]
    for one in build_tables(found):
        told += [Heading(one.title, 2), one]
        if one.notes:
            told.append(Points(one.notes))
    return told


def _cell(value: float | None) -> str | None:
    return None if value is None else f"{value:.4f}"

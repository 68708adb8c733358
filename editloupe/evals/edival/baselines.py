"""Agreement of EdiVal-IF, an LMM alone and CLIP's direction with people, by instruction type (Figure 4, Table 13)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from editloupe._util.text import number_of, verb
from editloupe.evals.edival.files import file_key
from editloupe.evals.edival.metrics import PROTOCOL
from editloupe.evals.labels.human import LabelFiles, load_human_labels
from editloupe.evals.manifests.jsonl_log import append_line, read_log_rows
from editloupe.evals.report.block_types import Block, Drawing, Heading, Points
from editloupe.evals.report.report_figures import Draw
from editloupe.evals.runs.store import Run
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


RatingRule = Literal["each", "majority"]
RATING_RULES: tuple[RatingRule, ...] = get_args(RatingRule)
"""How several ratings of an edit count: each one, or the majority of them with ties left out."""


class Labelled(NamedTuple):
    """A picture that people labelled."""

    row: RunRow
    turn: Turn
    ratings: tuple[float, ...]
    """1 for yes and 0 for no, one per person; an adjudicated label stands alone."""


class People(NamedTuple):
    """People's labels of a run's single edits."""

    edits: tuple[Labelled, ...]
    agreement: float | None
    """Share of pairs of people with the same label."""
    notes: tuple[str, ...]


def find_labelled_edits(table: RunTable, files: LabelFiles) -> People:
    """Return the pictures with a single instruction that people labelled yes or no.

    Raises:
        UserError: If there is no such picture.
    """
    human = load_human_labels(table, files)
    edits: list[Labelled] = []
    several = alike = pairs = 0
    for row in table.rows:
        ratings = human.counting_scores((row.name, FOLLOWING))
        if not ratings:
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
        edits.append(Labelled(row, turn, tuple(ratings)))
    if not edits:
        raise UserError(f"no picture with a single instruction in {table.name} has a label yes or no")
    notes = [*human.notes]
    if several:
        notes.append(f"{several} labelled pictures carry several instructions and are left out.")
    return People(tuple(edits), alike / pairs if pairs else None, tuple(notes))


class LmmRun(NamedTuple):
    """A run, or one configuration of it, in which an LMM alone judged the edits."""

    folder: Path
    configuration: str | None = None


def find_other_lmms(folder: Path, current: str | None) -> list[LmmRun]:
    """Return the configurations of a run of LMMs alone: the current one, and others that judged as many edits."""
    with Run.open(folder) as run:
        every = run.configurations(PROTOCOL)
    most = max((own.units for own in every if own.name == current), default=0)
    return [LmmRun(folder, own.name) for own in every if own.units >= most]


def score_labelled_edits(
    people: People,
    lmms: Sequence[LmmRun],
    directions: Mapping[str, float | None] | None,
    rule: RatingRule = "each",
) -> BaselineTable:
    """Compare EdiVal-IF and its baselines with people.

    Args:
        people: The labelled edits.
        lmms: Runs that LMMs judged alone; each is a method of its own.
        directions: CLIP's direction by name of the edit, or None.
        rule: How several ratings of an edit count.
    """
    by_lmm = _read_lmms(lmms)
    edits = []
    for row, turn, ratings in people.edits:
        outcomes = {EDIVAL_IF: _score(row)}
        outcomes |= {name: verdicts.get(_picture(row)) for name, verdicts in by_lmm.items()}
        if directions is not None:
            outcomes[CLIP_DIR] = directions.get(row.name)
        edits.append(LabelledEdit(turn.tasks[0].type, ratings, outcomes))
    methods = [EDIVAL_IF, *by_lmm, *([CLIP_DIR] if directions is not None else [])]
    return compare_methods(edits, methods, people.agreement, people.notes, rule)


def _read_lmms(lmms: Sequence[LmmRun]) -> dict[str, dict[tuple[str, ...], float | None]]:
    """Return the verdicts of every LMM by name. A single LMM is called `LMM alone`; several are called by their models."""
    by_name: dict[str, dict[tuple[str, ...], float | None]] = {}
    for folder, configuration in lmms:
        table = read_run_table(folder, PROTOCOL, configuration)
        with Run.open(folder) as run:
            short = {own.name: own.short_name for own in run.configurations(PROTOCOL)}
        name = short.get(table.configuration, table.judges[0]).removesuffix("/plain") if len(lmms) > 1 else LMM
        verdicts = {_picture(row): _score(row) for row in table.rows}
        by_name[name if name not in by_name else f"{name} ({folder.name})"] = verdicts
    return by_name


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
        self._directions = dict(self._read_file()) if file.exists() else {}

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
            if key not in self._directions:
                value = self._direction(row.edit, *captions)
                if value is not None:
                    self._directions[key] = value
                    append_line(self._file, json.dumps({"key": key, "edit": row.edit.id, "direction": value}).encode())
            directions[row.name] = self._directions.get(key)
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
FIGURE = "agreement-with-people"
MEASURES = ("accuracy", "plcc", "kappa", "f1")
TUNED = (
    "CLIP_dir's threshold is tuned for each type on these very labels, as in the paper: its figures are the best that any "
    "threshold reaches here, not what an unlabelled set would give."
)


@dataclass(frozen=True)
class LabelledEdit:
    """One picture with a single instruction, people's ratings and the outcome of each method."""

    kind: str
    ratings: tuple[float, ...]
    """1 for yes and 0 for no, one per person."""
    outcomes: Mapping[str, float | None]
    """Outcome by method: 1 or 0, or CLIP's direction; None if the method has no outcome."""


class MethodAgreement(Record):
    """Agreement of one method with people on one type, or on all types together."""

    kind: str
    method: str
    edits: int
    ratings: int
    """Ratings that the measures are computed from; with the majority one per edit."""
    accuracy: float | None
    plcc: float | None
    kappa: float | None
    f1: float | None
    threshold: float | None = None
    """Lowest CLIP_dir that counts as followed; None for other methods, or if no edit counts as followed."""


class BaselineTable(Record):
    """Agreement of every method with people, on the edits for which all methods have an outcome."""

    methods: tuple[str, ...]
    ratings: RatingRule
    """How several ratings of an edit count."""
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
    rule: RatingRule = "each",
) -> BaselineTable:
    """Compare methods on the edits that all of them judged, by type and overall.

    Section 2.5 calls people's own agreement the best that any method can reach, which holds only if every rating counts. So
    that is the default. The overall accuracy by the other rule is stated in a note.
    """
    left_out = {method: sum(edit.outcomes.get(method) is None for edit in edits) for method in methods}
    both = [edit for edit in edits if all(edit.outcomes.get(method) is not None for method in methods)]
    agreements = _compute_agreements(both, methods, rule)
    return BaselineTable(
        methods=tuple(methods),
        ratings=rule,
        labelled=len(edits),
        compared=len(both),
        left_out=left_out,
        agreements=agreements,
        people=people,
        notes=(*_describe_ratings(both, methods, rule), *notes, *((TUNED,) if CLIP_DIR in methods else ())),
    )


def _describe_ratings(both: Sequence[LabelledEdit], methods: Sequence[str], rule: RatingRule) -> list[str]:
    """Return how ratings count, and what the other rule gives if edits have several ratings."""
    tied = sum(_find_majority(edit) is None for edit in both)
    ties = f"{number_of(tied, 'edit')} with as many yes as no {verb(tied, 'is', 'are')} left out"
    counts = {"each": "Every rating counts.", "majority": f"The majority of people counts; {ties}."}
    if all(len(edit.ratings) < 2 for edit in both):
        return [counts["each"]]
    other: RatingRule = "majority" if rule == "each" else "each"
    overall = [item for item in _compute_agreements(both, methods, other) if item.kind == OVERALL]
    listed = ", ".join(f"{item.method} {100 * item.accuracy:.1f} %" for item in overall if item.accuracy is not None)
    by = f"By the majority of people, where {ties}" if other == "majority" else "With every rating counting"
    return [counts[rule], f"{by}, the overall accuracy is: {listed}."]


def _find_majority(edit: LabelledEdit) -> float | None:
    share = sum(edit.ratings) / len(edit.ratings)
    return None if share == 0.5 else float(share > 0.5)


def _compute_agreements(
    both: Sequence[LabelledEdit], methods: Sequence[str], rule: RatingRule
) -> tuple[MethodAgreement, ...]:
    """Compare every method with people by type and overall, with one row per rating or per edit with a majority."""
    rated: list[tuple[int, LabelledEdit, float]] = []
    for number, edit in enumerate(both):
        majority = _find_majority(edit)
        ratings = edit.ratings if rule == "each" else () if majority is None else (majority,)
        rated += [(number, edit, rating) for rating in ratings]
    numbers = np.array([number for number, _, _ in rated], np.int64)
    kinds = np.array([edit.kind for _, edit, _ in rated], str)
    human = np.array([rating for _, _, rating in rated], float)
    ordered = [kind for kind in TYPES if kind in kinds] + sorted(set(kinds) - set(TYPES))
    outcomes = {method: np.array([edit.outcomes[method] for _, edit, _ in rated], float) for method in methods}
    thresholds: dict[str, float] = {}
    masks: dict[str, Bools] = {kind: kinds == kind for kind in ordered}
    if CLIP_DIR in outcomes:
        for kind, mask in masks.items():
            scores = outcomes[CLIP_DIR][mask]
            thresholds[kind] = find_best_threshold(scores, human[mask])
            outcomes[CLIP_DIR][mask] = scores >= thresholds[kind]
    masks[OVERALL] = np.ones(len(rated), bool)
    return tuple(
        MethodAgreement(
            kind=kind,
            method=method,
            edits=len(set(numbers[mask].tolist())),
            ratings=int(mask.sum()),
            threshold=_finite(thresholds.get(kind)) if method == CLIP_DIR else None,
            **_measure(outcomes[method][mask], human[mask]),
        )
        for kind, mask in masks.items()
        for method in methods
    )


def _measure(judged: Floats, human: Floats) -> dict[str, float | None]:
    return {
        "accuracy": st.accuracy(judged, human)[0],
        "plcc": st.pearson(judged, human)[0],
        "kappa": st.kappa(judged, human, np.array([0.0, 1.0]))[0],
        "f1": f1_score(judged, human),
    }


def _finite(threshold: float | None) -> float | None:
    return threshold if threshold is None or np.isfinite(threshold) else None


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
        accuracy.append(
            (
                kind,
                own[0].edits,
                own[0].ratings,
                *(None if item.accuracy is None else 100 * item.accuracy for item in own),
            )
        )
    measures: list[tuple[Cell, ...]] = [
        (item.kind, item.method, *map(_cell, (item.plcc, item.kappa, item.f1, item.threshold)))
        for item in comparison.agreements
    ]
    columns = ("type", "edits", "ratings", *comparison.methods)
    title, notes = "Figure 4: agreement with people, %", _build_coverage_notes(comparison)
    return [
        PrintedTable(title, columns, tuple(accuracy), notes, figure=FIGURE),
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
        if table.figure:
            blocks.append(Drawing(table.figure, "Agreement with people by type; dashed lines: all edits (Figure 4)"))
        if table.notes:
            blocks.append(Points(table.notes))
    return blocks


def build_figures(comparison: BaselineTable) -> dict[str, Draw]:
    """Return functions that draw the figures of the comparison, by name."""

    def draw() -> Any:
        from editloupe.evals.edival.plots import draw_agreement_bars  # matplotlib is slow to load

        accuracy = {(item.kind, item.method): item.accuracy for item in comparison.agreements}
        return draw_agreement_bars(accuracy, comparison.methods, OVERALL)

    return {FIGURE: draw}


def _cell(value: float | None) -> str | None:
    return None if value is None else f"{value:.4f}"

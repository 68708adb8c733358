"""How well EdiVal-IF, an LMM alone and CLIP's direction agree with people, by instruction type (Figure 4, Table 13)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from editloupe.evals.report.block_types import Block, Heading, Points
from editloupe.evals.stats.agreement import coefficients as st
from editloupe.evals.stats.bootstrap import Bools, Floats
from editloupe.rubrics.edival.tasks import TYPES
from editloupe.rubrics.tables import Cell, PrintedTable
from editloupe.types import Record

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


class Agreement(Record):
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
    agreements: tuple[Agreement, ...]
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
            thresholds[kind] = best_threshold(scores, human[here])
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


def _agreement(kind: str, method: str, said: Floats, human: Floats, threshold: float | None) -> Agreement:
    return Agreement(
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


def best_threshold(scores: Floats, human: Floats) -> float:
    """Return the lowest threshold of those that agree most often with people; infinite where nothing should pass.

    >>> best_threshold(np.array([0.1, 0.2, 0.3]), np.array([0.0, 1.0, 1.0]))
    0.2
    """
    order = np.argsort(scores, kind="stable")
    ranked, right = scores[order], human[order]
    below = np.concatenate([[0.0], np.cumsum(1 - right)])  # true negatives where the first i are turned down
    above = right.sum() - np.concatenate([[0.0], np.cumsum(right)])
    first = np.concatenate([[True], ranked[1:] != ranked[:-1], [True]]) if len(ranked) else np.array([True])
    place = int(np.argmax(np.where(first, below + above, -1.0)))
    return float(ranked[place]) if place < len(ranked) else float("inf")


def sections(found: BaselineTable) -> list[PrintedTable]:
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


def blocks(found: BaselineTable) -> list[Block]:
    """Tell the comparison."""
    told: list[Block] = [Heading("EdiVal-IF and its baselines against people", 1)]
    for one in sections(found):
        told += [Heading(one.title, 2), one]
        if one.notes:
            told.append(Points(one.notes))
    return told


def _cell(value: float | None) -> str | None:
    return None if value is None else f"{value:.4f}"

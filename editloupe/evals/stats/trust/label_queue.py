"""Choose the edits that people should label next, by known probabilities that grow with the judge's uncertainty.

π = clip((1 − τ)·η·u + τ·b, 0, 1) with b = budget / n and η = b / mean(u): Zrnic and Candès, "Active Statistical Inference"
(arXiv 2403.03208), whose mixing with a uniform rule keeps every probability above τ·b.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from editloupe._util.files import write_text
from editloupe._util.text import for_json, normalize_name, number_of
from editloupe.evals.labels.human import HumanLabels
from editloupe.evals.manifests.readers import read_jsonl
from editloupe.evals.runs.run_folder import ALREADY_LABELLED, QUEUE
from editloupe.evals.stats.intervals import Bools, Floats, Ints
from editloupe.evals.stats.scores.run_table import RunRow, RunTable
from editloupe.evals.stats.scores.run_units import row_means
from editloupe.evals.stats.trust.confidence import AUTO, find_confidences
from editloupe.types import Reason, UserError

QUEUE_FILE = QUEUE
"""Name of the queue's file in the run's folder."""
_LABELLED = "already_labelled"
"""Field of every line with the number of edits that were labelled before the draw; the first line names them."""


@dataclass(frozen=True)
class QueuedEdit:
    """One edit to be labelled."""

    edit_id: str
    name: str
    """Unique in the run."""
    model: str | None
    probability: float
    """With which it was drawn."""
    uncertainty: float | None
    """The judge's uncertainty, 0 to 1; None if unknown."""
    why: str = ""
    """`needs_a_person` if no judge of a cascade could be trusted; empty if the edit was drawn at random."""
    of: int | None = None
    """Number of edits that could be drawn, without those already labelled; None in files that do not record it."""
    annotator: str | None = None
    """The annotator who labels it; None if all annotators do."""
    chosen: str = ""
    """The filter by which a person chose it; empty if it was drawn by chance."""


@dataclass(frozen=True)
class LabelQueue:
    """The edits to label, in a random order, so that the first ones labelled are a fair part of them."""

    name: str
    """A name for messages, such as that of its file."""
    drawn: tuple[QueuedEdit, ...]
    parts: tuple[LabelQueue, ...] = ()
    """The queues this one was joined from; its probabilities are then the inverse of each label's weight."""
    labelled: tuple[str, ...] = ()
    """Names of edits that were labelled before the draw: they could not be drawn, and each represents only itself."""

    @property
    def chances(self) -> Mapping[str, float]:
        """The probability with which each edit was drawn, by its name in its run; 1 for edits that were labelled before."""
        if not self.parts:
            return {**dict.fromkeys(self.labelled, 1.0), **{edit.name: edit.probability for edit in self.drawn}}
        counts: dict[str, float] = {}
        for part, share in self.shares():
            for name, chance in part.chances.items():
                counts[name] = counts.get(name, 0.0) + share / chance
        return {name: 1 / count for name, count in counts.items()}

    def shares(self) -> list[tuple[LabelQueue, float]]:
        """Return the queues this one was joined from, or itself, each with its share in the average: by their sizes."""
        parts = self.parts or (self,)
        total = sum(len(part.drawn) for part in parts)
        return [(part, len(part.drawn) / total if total else 1 / len(parts)) for part in parts]

    @property
    def whole(self) -> int | None:
        """Number of edits the queue represents, including those already labelled; None if the file does not record it."""
        sizes = {edit.of for edit in self.drawn}
        size = sizes.pop() if len(sizes) == 1 else None
        return None if size is None else size + len(self.labelled)

    def of(self, annotator: str) -> tuple[QueuedEdit, ...]:
        """Return the edits an annotator is to label, in order: edits that need a person first."""
        mine = [edit for edit in self.drawn if edit.annotator in (None, annotator)]
        return tuple(sorted(mine, key=lambda edit: not edit.why))

    @property
    def annotators(self) -> tuple[str, ...]:
        """The annotators between whom a part of the queue is split; empty if all annotators label all of it."""
        return tuple(dict.fromkeys(edit.annotator for edit in self.drawn if edit.annotator is not None))

    def split(self, annotators: Sequence[str], shared: int) -> LabelQueue:
        """Split the queue: the first edits are for all annotators, as a calibration round, and the others are dealt out in turn.

        The order is random, so both the round and every share are random parts of the queue. Probabilities do not change.
        """
        names = list(dict.fromkeys(map(normalize_name, annotators)))
        if len(names) < 2 or not all(names):
            raise UserError("a queue is split between two annotators or more; name each with --annotator")
        if shared < 0:
            raise UserError("--shared is the number of edits that everybody labels, 0 or more")
        dealt = [
            replace(edit, annotator=None if position < shared else names[(position - shared) % len(names)])
            for position, edit in enumerate(self.drawn)
        ]
        return replace(self, drawn=tuple(dealt))

    def check(self, table: RunTable) -> None:
        """Refuse a queue that was not drawn by chance, or from another run. A part of a run is checked against the whole run."""
        if any(edit.chosen for edit in self.drawn):
            raise UserError(
                f"{self.name} holds edits that were chosen by a filter, which say nothing about the others; draw a queue with "
                "`editloupe label-queue`"
            )
        keys = {(row.name, row.edit.id) for row in (table.whole or table).rows}
        names = {name for name, _ in keys}
        unknown = [edit.name for edit in self.drawn if (edit.name, edit.edit_id) not in keys]
        unknown += [name for part in self.parts or (self,) for name in part.labelled if name not in names]
        if unknown:
            raise UserError(
                f"{self.name} was drawn from another run: {table.name} has no edit {unknown[0]}"
                + (f" and {len(unknown) - 1} more of it" if len(unknown) > 1 else "")
            )

    def write(self, path: Path) -> None:
        """Write the queue, one JSON object a line; labels may be added to its lines."""
        write_text(path, self.as_text())

    def as_text(self) -> str:
        """Return the queue as its file holds it."""
        rows = [{k: v for k, v in vars(edit).items() if v or k not in ("annotator", "chosen")} for edit in self.drawn]
        if self.labelled:
            rows = [{**row, _LABELLED: len(self.labelled)} for row in rows]
            rows[:1] = [{**row, ALREADY_LABELLED: list(self.labelled)} for row in rows[:1]]
        return "".join(f"{for_json(row)}\n" for row in rows)

    @classmethod
    def read(cls, path: Path) -> LabelQueue:
        """Read a queue that was written."""
        if not path.is_file():
            raise UserError(f"the queue was not found at {path}")
        labelled: dict[str, None] = {}
        edits = tuple(_read(path, labelled))
        return cls(path.name, edits, labelled=tuple(labelled))


@dataclass(frozen=True)
class LabelledCells:
    """Cells (an edit on a criterion) that a mean is taken over."""

    rows: Ints
    columns: Ints
    shares: Floats
    """Weight of each cell in the mean."""
    labelled: Bools
    """Whether people labelled it."""


class QueueWeights:
    """The drawing probabilities of one queue for the rows of a slice.

    Args:
        queue: The queue.
        share: Its share in the average, if several queues were joined.
        names: The names of the rows.
    """

    def __init__(self, queue: LabelQueue, share: float, names: Sequence[str]) -> None:
        self.name, self.share = queue.name, share
        before = set(queue.labelled)
        self.before: Bools = np.array([name in before for name in names], bool)
        """Rows that were labelled before the draw: each represents only itself."""
        chances = queue.chances
        self.chances = np.array([chances.get(name, np.nan) for name in names])

    def weights(self, cells: LabelledCells) -> Floats:
        """Return the weight of each cell's label; 0 for cells that the queue did not draw.

        Drawn edits represent all that could be drawn. If some edits were labelled before, the drawn ones are scaled to exactly
        that, so that a partly labelled queue does not give the others too much weight.
        """
        before = self.before[cells.rows]
        weights = 1 / self.chances[cells.rows]
        weights = np.where(np.isnan(weights), 0.0, weights)
        for column in np.unique(cells.columns) if before.any() else ():
            rest = (cells.columns == column) & ~before
            labelled = rest & cells.labelled & (weights > 0)
            total = float((cells.shares * weights)[labelled].sum())
            weights[rest] *= float(cells.shares[rest].sum()) / total if total > 0 else 0.0
        return np.asarray(weights)

    def explain_too_few(self, cells: LabelledCells, min_labels: int) -> str | None:
        """Return why the labels cannot be weighted if some edits were labelled before the draw; None if they can."""
        before = self.before[cells.rows]
        if not before.any():
            return None
        unlabelled = len(np.unique(cells.rows[before & ~cells.labelled]))
        if unlabelled:
            return (
                f"{unlabelled} of the {len(np.unique(cells.rows[before]))} edits here that were labelled before {self.name} was "
                "drawn have no label now; add their labels with --human"
            )
        for column in np.unique(cells.columns):
            rest = (cells.columns == column) & ~before
            labels = int((rest & cells.labelled & np.isfinite(self.chances[cells.rows])).sum())
            if labels < (needed := min(min_labels, int(rest.sum()))):
                return f"{number_of(labels, 'label')} of edits that {self.name} drew; at least {needed} are needed"
        return None


def _read(path: Path, labelled: dict[str, None]) -> Iterable[QueuedEdit]:
    """Yield the lines of a queue; the names of edits that were labelled before the draw go to `labelled`."""
    for row in read_jsonl(path):
        values = row.values
        labelled.update(dict.fromkeys(map(str, _as_list(values.get(ALREADY_LABELLED)))))
        if values.get(_LABELLED, 0) != len(labelled):
            raise row.error(
                f"the queue was drawn with {values.get(_LABELLED, 0)} labelled edits, but its first line names "
                f'{len(labelled)} of them in "{ALREADY_LABELLED}"; draw the queue again'
            )
        chance = values.get("probability")
        if not isinstance(chance, (int, float)) or not 0 < chance <= 1:
            raise row.error('"probability" is a number above 0 and up to 1')
        if not isinstance(values.get("name"), str) or not isinstance(values.get("edit_id"), str):
            raise row.error('"edit_id" and "name" say which edit it is')
        model = values.get("model")
        yield QueuedEdit(
            values["edit_id"],
            values["name"],
            None if model is None else str(model),
            float(chance),
            values.get("uncertainty"),
            str(values.get("why") or ""),
            values["of"] if isinstance(values.get("of"), int) else None,
            str(values["annotator"]) if values.get("annotator") and not _has_label(values) else None,
            str(values.get("chosen") or ""),
        )


def _as_list(value: object) -> Iterable[object]:
    return value if isinstance(value, list) else ()


def _has_label(values: Mapping[str, object]) -> bool:
    """Return whether a label was added to a line; `annotator` is then the person who gave it."""
    return "label" in values or "human" in values


def find_queue(table: RunTable, named: Sequence[Path] = ()) -> LabelQueue | None:
    """Return the named queues, joined if there are several, or else the queue in the run's folder, or None.

    Args:
        table: The run.
        named: Files of queues.
    """
    if named:
        return join_queues([LabelQueue.read(path) for path in named])
    own = table.folder / QUEUE_FILE
    return LabelQueue.read(own) if own.is_file() else None


def join_queues(queues: Sequence[LabelQueue]) -> LabelQueue:
    """Return several queues as one: each estimates the whole by its own probabilities, and they are averaged by their sizes.

    A label of queue q counts by n_q / π_q, one that several drew by the sum; the queues must have been drawn from the same
    edits, each with a seed of its own, or their probabilities speak of different wholes.
    """
    if len(queues) == 1:
        return queues[0]
    names = [queue.name for queue in queues]
    if len(sizes := {queue.whole for queue in queues}) > 1:
        counts = " and ".join("unknown" if size is None else str(size) for size in sorted(sizes, key=str))
        raise UserError(
            f"{' and '.join(names)} were drawn from different numbers of edits ({counts}), so no edit of the one has a known "
            "chance in the other; use one of them"
        )
    keys = [tuple((edit.name, edit.probability) for edit in queue.drawn) for queue in queues]
    if len(set(keys)) < len(keys):
        raise UserError(f"two of the queues {' and '.join(names)} are the same draw; name it once")
    first = {edit.name: edit for queue in reversed(queues) for edit in queue.drawn}
    joined = LabelQueue(" and ".join(names), (), tuple(queues))
    edits = tuple(replace(edit, probability=joined.chances[name]) for name, edit in first.items())
    return replace(joined, drawn=edits)


def find_labelled_rows(table: RunTable, labels: HumanLabels) -> tuple[list[str], int]:
    """Return the names of edits with a label on every criterion, and the number of edits with labels on some criteria only."""
    complete, partly = [], 0
    for row in table.rows:
        if not is_drawable(row):
            continue
        has_labels = [bool(labels.counting_scores((row.name, criterion))) for criterion in row.units]
        if all(has_labels):
            complete.append(row.name)
        else:
            partly += any(has_labels)
    return complete, partly


def draw_queue(
    table: RunTable, budget: int, tau: float = 0.5, seed: int = 0, by: str = AUTO, labelled: Collection[str] = ()
) -> tuple[LabelQueue, str]:
    """Draw edits to be labelled.

    The same run, budget, τ and seed give the same queue; with τ = 1 it is a plain random sample. All edits that need a person are
    drawn, up to the budget; the rest of the budget is drawn from the other edits that have a verdict.

    Args:
        table: The run.
        budget: Number of edits that people can label.
        tau: Share of the budget that is spread evenly.
        seed: Seed of the draw.
        by: Where confidence comes from, a key of `CONFIDENCE_KINDS` or `auto`.
        labelled: Names of edits that people have labelled already. They are not drawn. The queue records them, because
            corrected scores count each of them for itself.

    Returns:
        The queue, and the kind of confidence that was used.

    Raises:
        UserError: Nothing can be drawn, or all of it is labelled already.
    """
    if budget < 1:
        raise UserError("--budget is the number of edits that can be labelled, at least 1")
    if not 0 < tau <= 1:
        raise UserError("--tau is above 0 and at most 1: with 0 some edits could never be drawn")
    drawable = [position for position, row in enumerate(table.rows) if is_drawable(row)]
    if not drawable:
        raise UserError(f"the run {table.name} has no edit with a verdict")
    left_out = set(labelled)
    before = tuple(table.rows[position].name for position in drawable if table.rows[position].name in left_out)
    judged = any(not needs_person(table.rows[position]) for position in drawable)
    drawable = [position for position in drawable if table.rows[position].name not in left_out]
    if not drawable:
        raise UserError(format_all_labelled(f"the run {table.name}", len(before)))
    needing = [position for position in drawable if needs_person(table.rows[position])]
    rows = [position for position in drawable if not needs_person(table.rows[position])]
    kind, confidences = find_confidences(table, by)
    unsure = _mean_uncertainty(confidences)[rows]
    certain = np.full(len(needing), min(1.0, budget / max(len(needing), 1)))
    rest = budget - len(needing)
    others = (
        drawing_probabilities(np.where(np.isnan(unsure), _mean_or_one(unsure), unsure), rest, tau)
        if rows and rest > 0
        else np.zeros(len(rows))
    )
    chances, unsure, rows = (
        np.concatenate([certain, others]),
        np.concatenate([np.ones(len(needing)), unsure]),
        needing + rows,
    )
    picked = sample_systematically(chances, np.random.default_rng(seed))
    edits = [
        QueuedEdit(
            edit_id=table.rows[rows[position]].edit.id,
            name=table.rows[rows[position]].name,
            model=table.rows[rows[position]].edit.model,
            probability=float(chances[position]),
            uncertainty=None if np.isnan(unsure[position]) else float(unsure[position]),
            # Where nothing at all was judged there are no others: chance alone draws.
            why=Reason.NEEDS_A_PERSON.value if position < len(needing) and judged else "",
            of=len(rows),
        )
        for position in picked
    ]
    return LabelQueue("the queue", tuple(edits), labelled=before), kind


def format_all_labelled(what: str, count: int) -> str:
    """Return the sentence that nothing is left to draw."""
    them = number_of(count, "edit")
    return f"nothing is left to label: {what} has {them} that could be drawn, all labelled on every criterion"


def is_drawable(row: RunRow) -> bool:
    """Say whether an edit has a verdict or needs a person."""
    return needs_person(row) or any(unit.judged for units in row.units.values() for unit in units)


def draw_evenly(
    edits: Sequence[tuple[str, str, str | None]],
    budget: int,
    seed: int = 0,
    labelled: Collection[str] = (),
    groups: Sequence[Hashable] | None = None,
) -> LabelQueue:
    """Draw a plain random sample of edits, judged or not, from all of them or from each of several groups.

    Args:
        edits: Id, name and model of each edit.
        budget: Number of edits to draw, from each group if there are groups. A smaller group is drawn whole.
        seed: Seed of the draw.
        labelled: Names of edits that are not drawn; the queue records them.
        groups: The group of each edit. Edits of one group have the same probability: the group's share that is drawn.
    """
    if budget < 1:
        raise UserError("--budget is the number of edits that can be labelled, at least 1")
    left_out = set(labelled)
    before = tuple(name for _, name, _ in edits if name in left_out)
    members: dict[Hashable, list[tuple[str, str, str | None]]] = {}
    for edit, group in zip(edits, groups or [None] * len(edits), strict=True):
        if edit[1] not in left_out:
            members.setdefault(group, []).append(edit)
    if before and not members:
        raise UserError(format_all_labelled("the manifest", len(before)))
    random, total = np.random.default_rng(seed), len(edits) - len(before)
    queued = []
    for own in members.values():
        count = min(budget, len(own))
        picked = [own[position] for position in random.permutation(len(own))[:count]]
        queued += [
            QueuedEdit(edit_id, name, model, count / len(own), None, of=total) for edit_id, name, model in picked
        ]
    if groups is not None:
        queued = [queued[position] for position in random.permutation(len(queued))]
    return LabelQueue("the queue", tuple(queued), labelled=before)


def find_groups(records: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the group of each edit: its values in some columns.

    Args:
        records: Fields and columns of each edit; a missing value is None or not there.
        columns: The columns that make the groups.

    Raises:
        UserError: No edit has one of the columns.
    """
    columns_present = dict.fromkeys(name for record in records for name, value in record.items() if value is not None)
    for name in columns:
        if name not in columns_present:
            raise UserError(f'--per: no edit has a column "{name}"; there are: {", ".join(columns_present)}')
    return [
        tuple(f"(no {name})" if record.get(name) is None else str(record[name]) for name in columns)
        for record in records
    ]


def needs_person(row: RunRow) -> bool:
    """Say whether no judge of a cascade could be trusted with an edit."""
    return any(unit.kind.reason == Reason.NEEDS_A_PERSON for units in row.units.values() for unit in units)


def _mean_uncertainty(confidences: Mapping[str, Floats]) -> Floats:
    """Return each row's uncertainty, the mean over the criteria that have one."""
    return row_means(np.stack([1 - values for values in confidences.values()]), 0)


def _mean_or_one(values: Floats) -> float:
    defined = values[np.isfinite(values)]
    return float(defined.mean()) if len(defined) else 1.0


def drawing_probabilities(unsure: Floats, budget: int, tau: float) -> Floats:
    """Return the probability with which each edit is drawn.

    >>> drawing_probabilities(np.array([0.0, 0.1, 0.3]), 1, 0.5).round(3).tolist()
    [0.167, 0.292, 0.542]
    """
    share = min(budget / len(unsure), 1.0)
    mean = float(unsure.mean())
    spread = share / mean * unsure if mean > 0 else np.full(len(unsure), share)
    return np.clip((1 - tau) * spread + tau * share, 0, 1)


def sample_systematically(chances: Floats, random: np.random.Generator) -> Ints:
    """Draw items with exactly these probabilities and nearly constant sample size: systematic sampling in random order."""
    order = random.permutation(len(chances))
    ends = np.cumsum(chances[order])
    marks = np.floor(ends + random.random())
    picked = order[np.diff(marks, prepend=np.floor(0.0)) > 0] if len(ends) else order
    return random.permutation(picked)

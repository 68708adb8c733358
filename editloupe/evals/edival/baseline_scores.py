"""What people, EdiVal-IF, an LMM alone and CLIP say of the single edits of a run of chains."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from editloupe._util.text import number_of, verb
from editloupe.evals.edival.baselines import CLIP_DIR, EDIVAL_IF, LMM, BaselineTable, LabelledEdit, compare_methods
from editloupe.evals.edival.files import file_key
from editloupe.evals.edival.scores_of_runs import PROTOCOL
from editloupe.evals.labels.human import load_human_labels
from editloupe.evals.manifests.jsonl_log import append_line, read_log_rows
from editloupe.evals.stats.scores.run_table import RunRow, RunTable, read_run_table
from editloupe.graphs.edival import FOLLOWING
from editloupe.pictures.decode import open_picture
from editloupe.pictures.pixels import ImageError
from editloupe.rubrics.edival.captions import captions
from editloupe.rubrics.edival.turn import Turn, read_turn
from editloupe.rubrics.protocol import MissingInput
from editloupe.tools.models.features import ClipEncoder
from editloupe.types import Edit, UserError

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


def labelled_edits(table: RunTable, files: Sequence[Path]) -> People:
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


def compared(
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
            said = captions(turn.tasks[0])
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

"""A run read into rows: edits in the manifest's order, and what was said of each, by criterion and repeat."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from editloupe.evals.analysis.bootstrap import Floats
from editloupe.evals.runs.configurations import Configuration, rubrics
from editloupe.evals.runs.records import Unit
from editloupe.evals.runs.store import Run
from editloupe.rubrics.model import Answer, LabelAnswer
from editloupe.rubrics.registry import OWN, known_protocol
from editloupe.types import Edit, UserError, Verdict

RULES = "rules"
BASELINE = (
    "Judged by rules, a rule-based baseline that decides from measured pixels and is not a multimodal model; "
    "its scores are not to be read as people's."
)
_ANSWER: TypeAdapter[Answer] = TypeAdapter(Answer)
NO_MODEL = "(no model)"
_EDIT_FIELDS = ("id", "instruction", "instruction_type", "model", "turn", "hint")


@dataclass(frozen=True)
class RunRow:
    """One edit of a run with its units, by criterion, repeats in order."""

    edit: Edit
    pictures: Mapping[str, list[str]]
    """Hashes by role, as far as the run kept the pictures."""
    units: Mapping[str, tuple[Unit, ...]]
    name: str = ""
    """Unique in the run; ids are not, where several models' pictures lie in it."""

    @property
    def model(self) -> str:
        """The editing model, in the words of a table."""
        return self.edit.model or NO_MODEL

    @property
    def case(self) -> tuple[Any, ...]:
        """What the outputs of two editing models share: source picture, instruction, targets and further inputs."""
        given = {role: shas for role, shas in self.pictures.items() if role not in ("source", "edited")}
        inputs = tuple((role, *given[role]) for role in sorted(given))
        return self.source, self.edit.instruction, self.edit.target_boxes, self.edit.turn, inputs

    @property
    def source(self) -> str:
        """What tells source images apart: the content hash, or the path where the run has no hash."""
        return next(iter(self.pictures.get("source", ())), str(self.edit.source))

    def field(self, name: str) -> Any:
        """Return a field of the edit or of its manifest line, None where it has none."""
        value = getattr(self.edit, name) if name in _EDIT_FIELDS else self.edit.extra.get(name)
        return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)


@dataclass(frozen=True)
class Table:
    """All rows of a run that belong to one protocol."""

    name: str
    folder: Path
    protocol: str
    rows: tuple[RunRow, ...]
    about: Mapping[str, Any]
    damage: tuple[str, ...] = ()
    """What of the run could not be read, a sentence each."""
    configuration: str = ""
    """Which of the run's configurations this is."""
    asked: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The rubrics as the run keeps them, by criterion."""

    @cached_property
    def criteria(self) -> tuple[str, ...]:
        """The criteria that were asked, in the protocol's order."""
        asked = dict.fromkeys(criterion for row in self.rows for criterion in row.units)
        protocol = known_protocol(self.protocol)
        order = list(protocol.criteria) if protocol else []
        return tuple(sorted(asked, key=lambda name: order.index(name) if name in order else len(order)))

    @cached_property
    def own(self) -> tuple[str, ...]:
        """Criteria of the user's own that were asked beside the protocol's; no part of the protocol's scores."""
        if self.protocol == OWN:
            return ()
        return tuple(name for name in self.criteria if self.rubrics.get(name, {}).get("protocol") == OWN)

    @property
    def titles(self) -> dict[str, str]:
        """Criteria to their titles; one asked beside the protocol's says so."""
        return {name: self.title_of(name) + (" (own)" if name in self.own else "") for name in self.criteria}

    @cached_property
    def models(self) -> tuple[str, ...]:
        """The editing models, in the order in which they first occur."""
        return tuple(dict.fromkeys(row.model for row in self.rows))

    def with_rows(self, rows: Iterable[RunRow]) -> Table:
        """Return the table with these rows instead."""
        return replace(self, rows=tuple(rows))

    def of_model(self, model: str) -> Table:
        """Return the part of one editing model."""
        return self.with_rows(row for row in self.rows if row.model == model)

    @cached_property
    def repeats(self) -> tuple[int, ...]:
        """The repeats that occur, in order."""
        return tuple(sorted({unit.repeat for row in self.rows for units in row.units.values() for unit in units}))

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """All units, in the order of the rows."""
        return tuple(unit for row in self.rows for units in row.units.values() for unit in units)

    @property
    def judges(self) -> tuple[str, ...]:
        """The judges that gave the verdicts; usually one."""
        return tuple(dict.fromkeys(unit.judge for unit in self.units))

    @property
    def modes(self) -> tuple[str, ...]:
        """The modes the verdicts were given in; usually one."""
        return tuple(dict.fromkeys(unit.mode for unit in self.units))

    @property
    def title(self) -> str:
        """Judge, protocol and mode in a few words."""
        return f"{' + '.join(self.judges)} · {self.protocol} · {' + '.join(self.modes)} mode"

    @property
    def by_rules(self) -> bool:
        """True where the embedded rule-based judge gave some of the verdicts."""
        return any(judge.split(":")[0] == RULES for judge in self.judges)

    @cached_property
    def rubrics(self) -> Mapping[str, Mapping[str, Any]]:
        """What is known of each criterion's rubric: as the run or run.json recorded it, else as this version has it."""
        found: dict[str, Mapping[str, Any]] = dict(self.asked)
        for one in self.about.get("configurations", ()):
            rubrics = one.get("rubrics", {}) if one.get("protocol") == self.protocol else {}
            for rubric in rubrics.values() if isinstance(rubrics, Mapping) else ():
                if isinstance(rubric, Mapping) and "criterion" in rubric:
                    found.setdefault(str(rubric["criterion"]), rubric)
        if known := known_protocol(self.protocol):
            for criterion in known.criteria:
                found.setdefault(criterion, known.rubric(criterion).model_dump(mode="json"))
        return found

    def answer(self, criterion: str) -> Answer | None:
        """Return the kind of answer a criterion takes, None where its rubric is neither recorded nor known."""
        try:
            return _ANSWER.validate_python(self.rubrics[criterion]["answer"])
        except (KeyError, ValidationError):
            return None

    def labels(self, criterion: str) -> tuple[str, ...]:
        """Return the labels of a label criterion, worst first; none for the other kinds."""
        answer = self.answer(criterion)
        if not isinstance(answer, LabelAnswer):
            return ()
        return tuple(label.name for label in sorted(answer.labels, key=lambda label: label.score))

    def title_of(self, criterion: str) -> str:
        """Return a criterion's title."""
        return str(self.rubrics.get(criterion, {}).get("title") or criterion.replace("_", " ").capitalize())

    def scores(self, criterion: str, unit_score: str = "score_100") -> Floats:
        """Return rows × repeats of scores; nan where there is no verdict or no number."""
        values = np.full((len(self.rows), len(self.repeats)), np.nan)
        place = {repeat: column for column, repeat in enumerate(self.repeats)}
        for number, row in enumerate(self.rows):
            for unit in row.units.get(criterion, ()):
                score = getattr(unit.outcome, unit_score) if isinstance(unit.outcome, Verdict) else None
                if score is not None:
                    values[number, place[unit.repeat]] = score
        return values

    def states(self, criterion: str) -> tuple[Floats, Floats]:
        """Return rows × repeats of 0 and 1: which units were judged, which were asked and ended unjudged."""
        judged, unjudged = np.zeros((2, len(self.rows), len(self.repeats)))
        place = {repeat: column for column, repeat in enumerate(self.repeats)}
        for number, row in enumerate(self.rows):
            for unit in row.units.get(criterion, ()):
                state = judged if isinstance(unit.outcome, Verdict) else unjudged
                state[number, place[unit.repeat]] = 1
        return judged, unjudged


def table_of(run: Run | Table | str | Path, protocol: str | None = None, configuration: str | None = None) -> Table:
    """Read a run, or pass on what was read; where it holds several protocols or configurations, one has to be named."""
    if isinstance(run, Table):
        return run
    if not isinstance(run, Run):
        with Run.open(run) as opened:
            return table_of(opened, protocol, configuration)
    chosen = choose(run, protocol, configuration)
    by_edit: dict[str, dict[str, list[Unit]]] = {}
    for unit in run.units(configuration=chosen.name):
        by_edit.setdefault(unit.name, {}).setdefault(unit.criterion, []).append(unit)
    rows = tuple(
        RunRow(edit, pictures, {criterion: tuple(units) for criterion, units in by_edit[name].items()}, name)
        for edit, pictures, name in run.edits()
        if name in by_edit
    )
    if not rows:
        raise UserError(f"the run {run.folder.name} holds no edit that can be read. {' '.join(run.damage.sentences())}")
    name, about = run.folder.resolve().name, run.about()
    with closing(run.reader()) as reader:
        asked = rubrics(reader, chosen.name)
    return Table(name, run.folder, chosen.protocol, rows, about, run.damage.sentences(), chosen.name, asked)


def choose(run: Run, protocol: str | None = None, configuration: str | None = None) -> Configuration:
    """Return the configuration of a run that is meant; where several could be, UserError lists them."""
    found = run.configurations()
    if not found:
        damage = " ".join(run.damage.sentences())
        raise UserError(
            f"the run {run.folder.name} holds no verdicts {f'that can be read. {damage}' if damage else 'yet'}"
        )
    protocols = list(dict.fromkeys(one.protocol for one in found))
    if protocol is not None and protocol not in protocols:
        raise UserError(f"the run {run.folder.name} holds no verdicts of {protocol}; it has {' and '.join(protocols)}")
    left = [one for one in found if protocol in (None, one.protocol)]
    if configuration is not None:
        left = [one for one in left if configuration in (one.judge, one.mode, one.name[: len(configuration)])]
    if len(left) == 1:
        return left[0]
    if len({one.protocol for one in left}) > 1:
        raise UserError(
            f"the run {run.folder.name} holds verdicts of {' and '.join(protocols)}; name one with --protocol"
        )
    listed = "; ".join(f"{one.name} ({one.title}, {one.units} units)" for one in left or found)
    if not left:
        raise UserError(f'the run {run.folder.name} has no configuration "{configuration}"; it has: {listed}')
    raise UserError(f"the run {run.folder.name} was judged in several ways; name one with --configuration: {listed}")


def row_means(values: Floats) -> Floats:
    """Return each row's mean over its judged repeats; nan where none was judged.

    >>> row_means(np.array([[1.0, 3.0], [np.nan, 4.0], [np.nan, np.nan]])).tolist()
    [2.0, 4.0, nan]
    """
    known = np.isfinite(values)
    counts = known.sum(1)
    means: Floats = np.where(counts > 0, np.where(known, values, 0).sum(1) / np.maximum(counts, 1), np.nan)
    return means


def lower_median(values: Floats) -> Floats:
    """Return each row's lower median: the middle value, and of two middle ones the lower; nan where a row is empty.

    >>> lower_median(np.array([[4.0, 1.0, np.nan], [2.0, 3.0, 3.0], [np.nan, np.nan, np.nan]])).tolist()
    [1.0, 3.0, nan]
    """
    if not values.shape[1]:
        return np.full(len(values), np.nan)
    ordered = np.sort(values, axis=1)
    counts = np.isfinite(values).sum(1)
    picked = ordered[np.arange(len(values)), np.maximum(counts - 1, 0) // 2]
    return np.where(counts > 0, picked, np.nan)

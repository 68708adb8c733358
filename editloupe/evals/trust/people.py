"""People's labels put where the judge's scores stand: the same columns, made by the paper's own arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from editloupe.evals.analysis.bootstrap import Floats
from editloupe.evals.analysis.run_table import RunRow
from editloupe.evals.analysis.run_units import JUDGED
from editloupe.evals.analysis.sheet import Sheet
from editloupe.evals.labels.consensus import score_100_of
from editloupe.evals.labels.human import Human
from editloupe.rubrics.model import Answer
from editloupe.rubrics.registry import known_protocol


def people_columns(sheet: Sheet, human: Human) -> Floats:
    """Return rows × columns as the sheet has them, with the mean of people's scores; nan where they gave none.

    Gates and whole-edit scores of the paper are applied to what people said. Where a paper gates one criterion by another, an
    edit counts only if people labelled all that was asked of it.
    """
    table = sheet.table
    answers = {name: table.answer(name) for name in table.criteria}
    protocol = known_protocol(table.protocol)
    gated = protocol is not None and protocol.reported is not None
    rows, places = [], []
    for place, row in enumerate(table.rows):
        given = _given(row, human, answers)
        asked = [name for name in row.units if name not in table.own]
        if not given or (gated and not all(name in given for name in asked)):
            continue
        rows.append(_said_by_people(row, given))
        places.append(place)
    found = np.full((len(table.rows), len(sheet.criteria) + (sheet.how.edit_score is not None)), np.nan)
    if not rows:
        return found
    own = Sheet(table, tuple(rows))
    columns = own.columns()
    for column, name in enumerate(own.criteria):
        found[places, sheet.criteria.index(name)] = columns[:, column]
    if sheet.how.edit_score is not None:
        found[places, -1] = columns[:, -1]
    return found


def _given(row: RunRow, human: Human, answers: Mapping[str, Answer | None]) -> dict[str, float]:
    """Return the mean of people's scores on each criterion, 0 to 100."""
    found = {}
    for criterion in row.units:
        scores = human.counting((row.name, criterion))
        values = [value for score in scores if (value := score_100_of(answers[criterion], score)) is not None]
        if values:
            found[criterion] = float(np.mean(values))
    return found


def _said_by_people(row: RunRow, given: Mapping[str, float]) -> RunRow:
    units = {}
    for criterion, judged in row.units.items():
        value = given.get(criterion)
        status = "unjudged" if value is None else JUDGED
        units[criterion] = (judged[0].with_kind(status=status)._replace(repeat=0, score=value, score_100=value),)
    return replace(row, units=units)

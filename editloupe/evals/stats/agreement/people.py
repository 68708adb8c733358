"""Agreement of people among themselves on the edits of a manifest, without a judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import Field

from editloupe.evals.labels.human import HumanLabels
from editloupe.evals.stats.agreement.judge_vs_human import (
    AnnotatorAgreement,
    Ceiling,
    RaterAgreement,
    count_labels,
    group_edits,
    measure_annotator_agreement,
    measure_ceiling,
)
from editloupe.evals.stats.intervals import LEVEL, number_keys
from editloupe.evals.stats.scores.score_matrix import order_types
from editloupe.rubrics.protocol import Protocol
from editloupe.types import Edit, Record, UserError


class PeopleCriterion(Record):
    """Agreement of people on one criterion."""

    labelled: int
    """Edits with at least one label."""
    people: AnnotatorAgreement | None
    """None if no edit has two labels."""
    ceiling: Ceiling | None
    """One annotator against the others; None if no edit has two labels."""
    by: Mapping[str, Mapping[str, RaterAgreement]] = Field(default_factory=dict)
    """Column to value to agreement."""


class PeopleAgreement(Record):
    """Agreement of people on the edits of a manifest."""

    manifest: str
    protocol: str
    edits: int
    origin: str
    """Where the labels come from."""
    annotators: Mapping[str, int]
    """Number of labels per annotator."""
    criteria: Mapping[str, PeopleCriterion]
    notes: tuple[str, ...] = ()

    def rows(self) -> list[dict[str, Any]]:
        """Return one plain record per criterion, type or other group, and measure."""
        records = []
        for criterion, own in self.criteria.items():
            if own.people is None:
                continue
            groups: list[tuple[dict[str, str], RaterAgreement]] = [({"type": "all"}, own.people)]
            groups += [({"type": kind}, part) for kind, part in own.people.by_type.items()]
            for column, values in own.by.items():
                groups += [({"type": "all", "by": column, "group": value}, part) for value, part in values.items()]
            records += [
                {"criterion": criterion, **names, "measure": f"people_{name}", **getattr(part, name).model_dump()}
                for names, part in groups
                for name in ("krippendorff_alpha", "exact")
            ]
        return records


def measure_people_agreement(
    name: str,
    edits: Sequence[tuple[str, Edit]],
    labels: HumanLabels,
    protocol: Protocol,
    by: Sequence[str] = (),
    level: float = LEVEL,
) -> PeopleAgreement:
    """Measure the agreement among people on every criterion of a protocol: overall, by type and by further columns.

    Args:
        name: The manifest's name.
        edits: The edits with their names.
        labels: People's labels.
        protocol: The protocol whose criteria were labelled.
        by: Columns to group by; several joined by commas are grouped together.
        level: Level of the intervals.

    Raises:
        UserError: No edit has a label on these criteria, or one of the columns.
    """
    if not labels.given:
        notes = f" {' '.join(labels.unused)}" if labels.unused else ""
        raise UserError(
            f"{name} has no label on a criterion of {protocol.name} ({', '.join(protocol.criteria)}); --protocol names "
            f"another protocol, --human a file of labels.{notes}"
        )
    names, sources = [own for own, _ in edits], number_keys([str(edit.source) for _, edit in edits])
    kinds = [edit.instruction_type for _, edit in edits]
    types = {kind: np.array([own == kind for own in kinds]) for kind in order_types(kinds, protocol.types)}
    groups = {column: group_edits([edit for _, edit in edits], column, name) for column in dict.fromkeys(by)}
    criteria = {}
    for criterion in protocol.criteria:
        ratings = labels.matrix(names, criterion)
        labelled = int(np.isfinite(ratings).any(1).sum())
        if not labelled:
            continue
        parts = {
            column: measure_annotator_agreement(ratings, labels.annotators, sources, members, level)
            for column, members in groups.items()
        }
        criteria[criterion] = PeopleCriterion(
            labelled=labelled,
            people=measure_annotator_agreement(ratings, labels.annotators, sources, types, level),
            ceiling=measure_ceiling(ratings, sources, level),
            by={column: part.by_type for column, part in parts.items() if part is not None},
        )
    return PeopleAgreement(
        manifest=name,
        protocol=protocol.name,
        edits=len(edits),
        origin=labels.origin,
        annotators=count_labels(labels),
        criteria=criteria,
        notes=(*labels.notes, *labels.unused),
    )

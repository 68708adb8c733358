"""Agreement of the judge with people, and of people among themselves.

Every measure is computed per criterion and per instruction type, each with an interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from editloupe._util.tables import data_frame, html_table, text_table
from editloupe.evals.labels.human import Files, Human, load_human_labels
from editloupe.evals.runs.store import Run
from editloupe.evals.stats.agreement import coefficients as st
from editloupe.evals.stats.agreement.coefficients import MEASURES, Pairing, alpha_estimate, used
from editloupe.evals.stats.bootstrap import (
    Bools,
    Estimate,
    Floats,
    Resampling,
    bootstrap,
    clusterings,
    estimate,
    kinds_of,
    missing,
)
from editloupe.evals.stats.scores.run_table import Table, read_run_table, warnings_of
from editloupe.evals.stats.scores.run_units import row_lower_medians, row_means
from editloupe.rubrics.model import LabelAnswer, NumberAnswer, YesNoAnswer
from editloupe.rubrics.registry import known_protocol
from editloupe.types import Record, UserError

CONSENSUS = (
    "With several annotators, correlations and MAE are taken against the mean of their scores; accuracy, κ and the "
    "confusion matrix against their lower median label (of two middle labels the stricter). Repeats of the judge are "
    "treated alike."
)
MOST_PAIRS = 100
"""Pairs of raters that are told, those who share most edits first: a crowd has thousands."""
_CEILING = ("spearman", "pearson", "mae", "accuracy")


class Confusion(Record):
    """Counts of labels: one row a label of the people, one column a label of the judge, worst first."""

    labels: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]


class Ceiling(Record):
    """How well one annotator agrees with the others, averaged over annotators: what a judge can hope for."""

    annotators: int
    spearman: Estimate
    pearson: Estimate
    mae: Estimate
    accuracy: Estimate


class Among(Record):
    """Agreement among raters on the edits that two or more of them labelled."""

    raters: int
    """Who labelled an edit that another one labelled too."""
    n: int
    """Edits with two labels or more."""
    krippendorff_alpha: Estimate
    """Ordinal."""
    exact: Estimate
    """Share of equal labels among all pairs of labels of the same edit."""


class RaterPair(Among):
    """Agreement of two raters."""

    names: tuple[str, str]


class AmongPeople(Among):
    """Agreement among raters on one criterion, of all types, of each type, and of every two raters."""

    by_type: Mapping[str, Among] = Field(default_factory=dict)
    pairs: tuple[RaterPair, ...] = ()
    pairs_left_out: int = 0
    """Pairs beyond those that are told."""


class Measures(Record):
    """Every measure of agreement between the judge and people on one criterion, for all edits or for one type."""

    n: int
    """Edits with a verdict and at least one human label."""
    left_out: int
    """Edits with a human label that the judge left unjudged."""
    spearman: Estimate
    pearson: Estimate
    mae: Estimate
    mae_100: Estimate
    """MAE on the scale of 0 to 100."""
    accuracy: Estimate
    kappa: Estimate
    kappa_quadratic: Estimate
    krippendorff_alpha: Estimate
    """Among the annotators; where there is only one, between that annotator and the judge. `raters` says which."""
    raters: str
    krippendorff_alpha_annotators: Estimate
    krippendorff_alpha_with_judge: Estimate
    """The judge as one more annotator."""


class CriterionAgreement(Measures):
    """Agreement on one criterion over all edits, with the confusion matrix, the ceiling and the types apart."""

    confusion: Confusion | None
    ceiling: Ceiling | None
    people: AmongPeople | None = None
    """People among themselves; None where no edit has two labels."""
    by_type: Mapping[str, Measures] = Field(default_factory=dict)


class Agreement(Record):
    """Agreement of one run with people."""

    run: str
    judge: str
    mode: str
    protocol: str
    configuration: str = ""
    models: tuple[str, ...] = ()
    """The editing models whose outputs were judged."""
    origin: str
    """Where the human labels come from."""
    annotators: Mapping[str, int]
    """Labels given by each."""
    criteria: Mapping[str, CriterionAgreement]
    by: Mapping[str, Mapping[str, Mapping[str, Measures]]] = Field(default_factory=dict)
    """Field to value to criterion: the editing model where there are several, and whatever else was asked for."""
    consensus: str = CONSENSUS
    notes: tuple[str, ...] = ()

    def rows(self) -> list[dict[str, Any]]:
        """Return one plain record a criterion, type or other group, and measure."""
        groups: list[tuple[dict[str, str], Measures]] = []
        for criterion, whole in self.criteria.items():
            kinds = (("all", whole), *whole.by_type.items())
            groups += [({"criterion": criterion, "type": kind}, measures) for kind, measures in kinds]
            for field, values in self.by.items():
                groups += [
                    ({"criterion": criterion, "type": "all", "by": field, "group": value}, found[criterion])
                    for value, found in values.items()
                ]
        return [
            {**place, "measure": name, **getattr(measures, name).model_dump(exclude={"intervals"})}
            for place, measures in groups
            for name in (*MEASURES, "mae_100", "krippendorff_alpha")
        ]

    def to_pandas(self) -> Any:
        """Return the rows as a pandas data frame. Raise UserError if pandas is not installed."""
        return data_frame(self.rows())

    frame = to_pandas
    """The former name of `to_pandas`."""

    def _table(self) -> tuple[str, tuple[str, ...], list[tuple[Any, ...]]]:
        columns = ("criterion", "type", "measure", "value", "low", "high", "n")
        rows = [tuple(row[name] for name in columns) for row in self.rows()]
        return f"Agreement of {self.run} with people ({self.judge}, {self.mode})", columns, rows

    def __repr__(self) -> str:
        title, columns, rows = self._table()
        return f"{title}\n{text_table(columns, rows)}"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return html_table(*self._table(), self.notes)


def measure_agreement(
    run: Run | Table | str | Path,
    human: Human | Files = None,
    how: Resampling | None = None,
    protocol: str | None = None,
    configuration: str | None = None,
    by: Sequence[str] = (),
) -> Agreement:
    """Compare a run's verdicts with people's labels: those of its manifest, of the studio, and of the files named.

    Unjudged edits are left out and counted. What cannot be computed has no value and says why. `by` are fields of the
    manifest, or several with commas between them; several editing models are always told apart.
    """
    table, how = read_run_table(run, protocol, configuration), how or Resampling()
    people = load_human_labels(table, human)
    given: dict[str, int] = dict.fromkeys(people.annotators, 0)
    for labels in people.given.values():
        for name in labels:
            given[name] += 1
    notes = list(warnings_of(table))
    fields = (
        dict.fromkeys((*(["model"] if len(table.models) > 1 else []), *by))
        if people.given or people.adjudicated
        else {}
    )
    if not (people.given or people.adjudicated):
        notes.append("No human labels: the manifest has none for these edits, and no file was named.")
    return Agreement(
        run=table.name,
        judge=" + ".join(table.judges),
        mode=" + ".join(table.modes),
        protocol=table.protocol,
        configuration=table.configuration,
        models=table.models,
        origin=people.origin,
        annotators=given,
        criteria={criterion: _criterion(table, people, criterion, how) for criterion in table.criteria},
        by={field: _by(table, people, field, how) for field in fields},
        notes=(*notes, *people.notes),
    )


class _Said(NamedTuple):
    """What judge and people said on a criterion: edits × repeats, and twice edits × annotators."""

    judge: Floats
    ratings: Floats
    """As each annotator gave them."""
    counting: Floats
    """Those that count: adjudicated ones in place of what annotators said differently."""

    @classmethod
    def of(cls, table: Table, people: Human, criterion: str) -> _Said:
        return cls(
            table.scores(criterion, "score"),
            people.matrix(table.names, criterion),
            people.settled(table.names, criterion),
        )


def _by(table: Table, people: Human, fields: str, how: Resampling) -> dict[str, dict[str, Measures]]:
    """Return every measure by the values of a field, or of several together, in the order in which they first occur."""
    names = [name.strip() for name in fields.split(",")]
    for name in names:
        if not any(row.field(name) is not None for row in table.rows):
            raise UserError(f'no edit of the run {table.name} has a field "{name}" to tell agreement by')
    groups: dict[str, list[int]] = {}
    for number, row in enumerate(table.rows):
        values = [row.field(name) for name in names]
        told = [f"(no {name})" if v is None else str(v) for name, v in zip(names, values, strict=True)]
        groups.setdefault(" · ".join(told), []).append(number)
    found: dict[str, dict[str, Measures]] = {value: {} for value in groups}
    sources = [row.source for row in table.rows]
    for criterion in table.criteria:
        said = _Said.of(table, people, criterion)
        scale = scale_of(table, criterion)
        for value, places in groups.items():
            members = np.zeros(len(table.rows), bool)
            members[places] = True
            found[value][criterion] = _measures(said, members, sources, scale, how)[0]
    return found


def _criterion(table: Table, people: Human, criterion: str, how: Resampling) -> CriterionAgreement:
    said = _Said.of(table, people, criterion)
    kinds = [row.edit.instruction_type for row in table.rows]
    sources = [row.source for row in table.rows]
    scale = scale_of(table, criterion)
    everyone = np.ones(len(kinds), bool)
    whole, pairs = _measures(said, everyone, sources, scale, how)
    types: dict[str, Bools] = {str(kind): np.array([k == kind for k in kinds]) for kind in _in_order(table, kinds)}
    by_type = {name: _measures(said, of, sources, scale, how)[0] for name, of in types.items()}
    names = table.labels(criterion) or tuple(f"{value:g}" for value in pairs.values)
    counted = len(pairs) > 0 and len(pairs.values) <= st.MOST_VALUES
    counts = st.confusion(pairs.x_label, pairs.y_label, pairs.values) if counted else []
    return CriterionAgreement(
        **dict(whole),
        confusion=Confusion(labels=names, counts=tuple(map(tuple, counts))) if counted else None,
        ceiling=ceiling_of(said.ratings, sources, how),
        people=among_people(said.ratings, people.annotators, sources, types, how),
        by_type=by_type,
    )


def _in_order(table: Table, kinds: list[Any]) -> list[Any]:
    """Return the types that occur, the protocol's own first and in its order."""
    protocol = known_protocol(table.protocol)
    known = protocol.types if protocol else ()
    found = dict.fromkeys(kind for kind in kinds if kind is not None)
    return [*(kind for kind in known if kind in found), *(kind for kind in found if kind not in known)]


def pairing(judge: Floats, ratings: Floats, scale: tuple[float, ...]) -> tuple[Pairing, Bools]:
    """Return the scores of items that have both, and the mask of those items."""
    x, y = row_means(judge), row_means(ratings)
    both = np.isfinite(x) & np.isfinite(y)
    x_label, y_label = row_lower_medians(judge), row_lower_medians(ratings)
    values = st.values_of(x_label[both], y_label[both], scale=scale)
    return Pairing(x[both], y[both], x_label[both], y_label[both], values), both


def scale_of(table: Table, criterion: str) -> tuple[float, ...]:
    """Return the scores a criterion's labels may have; nothing where its scale is not a short list."""
    answer = table.answer(criterion)
    if isinstance(answer, LabelAnswer):
        return tuple(sorted({float(label.score) for label in answer.labels}))
    if isinstance(answer, NumberAnswer):
        return tuple(float(value) for value in range(answer.low, answer.high + 1))
    return (0.0, 1.0) if isinstance(answer, YesNoAnswer) else ()


def _measures(
    said: _Said,
    members: Bools,
    sources: list[str],
    scale: tuple[float, ...],
    how: Resampling,
) -> tuple[Measures, Pairing]:
    judge, ratings, counting = said
    pairs, both = pairing(judge[members], counting[members], scale)
    here = [sources[place] for place in np.flatnonzero(members)]
    ways = clusterings([source for source, paired in zip(here, both, strict=True) if paired])
    raters = np.concatenate([ratings[members], row_lower_medians(judge[members])[:, None]], 1)
    among, with_judge = alpha_estimate(ratings[members], here, how), alpha_estimate(raters, here, how)
    several = used(ratings).shape[1] > 1
    found = pairs.estimates(ways, how)
    labelled = np.isfinite(counting[members]).any(1)
    return (
        Measures(
            n=len(pairs),
            left_out=int((labelled & ~both).sum()),
            **found,
            mae_100=_mae_100(found["mae"], scale),
            krippendorff_alpha=among if several else with_judge,
            raters="annotators" if several else "annotator and judge",
            krippendorff_alpha_annotators=among,
            krippendorff_alpha_with_judge=with_judge,
        ),
        pairs,
    )


def _mae_100(mae: Estimate, scale: tuple[float, ...]) -> Estimate:
    if mae.value is None or len(scale) < 2:
        return missing(mae.why or "the rubric's scale has no ends", mae.n)
    factor = 100 / (scale[-1] - scale[0])
    times = {name: None if (v := getattr(mae, name)) is None else v * factor for name in ("value", "low", "high")}
    intervals = {name: (low * factor, high * factor) for name, (low, high) in mae.intervals.items()}
    return mae.model_copy(update={**times, "intervals": intervals})


def ceiling_of(ratings: Floats, sources: list[str], how: Resampling) -> Ceiling | None:
    """Hold each annotator against the others in turn; None where nobody shares an edit with another."""
    shared = np.isfinite(ratings).sum(1) >= 2
    if not shared.any():
        return None
    given = used(ratings[shared])
    ways = clusterings([source for source, here in zip(sources, shared, strict=True) if here])
    kinds = kinds_of(given)
    whole, few = _turns(given), _turns(given[kinds.first])
    n = int(np.any([items for items, _ in whole], axis=0).sum())
    values = {measure: [pair.value(measure) for _, pair in whole] for measure in _CEILING}
    defined = {measure: [v is not None for v, _ in found] for measure, found in values.items()}

    def mean_of(measure: str, counts: Floats) -> Floats:
        turns = [turn for turn, known in zip(few, defined[measure], strict=True) if known]
        return np.asarray(np.mean([pair.samples(measure, counts[:, items]) for items, pair in turns], axis=0))

    statistics = {measure: partial(mean_of, measure) for measure in _CEILING if any(defined[measure])}
    samples = bootstrap(ways, how, statistics, kinds)
    found: dict[str, Estimate] = {}
    for measure, results in values.items():
        known = [value for value, _ in results if value is not None]
        why = None if known else next((why for _, why in results if why), st.NOTHING)
        found[measure] = estimate(float(np.mean(known)) if known else None, n, samples.get(measure, {}), how.level, why)
    return Ceiling(annotators=given.shape[1], **found)


def _turns(given: Floats) -> list[tuple[Bools, Pairing]]:
    """Return for each annotator the items shared with others, and the own scores against those of the others."""
    found = []
    for one in range(given.shape[1]):
        rest = np.delete(given, one, 1)
        items = np.isfinite(given[:, one]) & np.isfinite(rest).any(1)
        found.append((items, pairing(given[:, one : one + 1], rest, ())[0]))
    return found


def among_people(
    ratings: Floats, names: Sequence[str], sources: Sequence[str], types: Mapping[str, Bools], how: Resampling
) -> AmongPeople | None:
    """Work out how people agree; `ratings` are edits × raters, nan where one gave nothing. None where no edit has two labels."""
    shared = np.isfinite(ratings).sum(1) >= 2
    if not shared.any():
        return None
    found, left_out = _pairs(ratings[shared])
    here = _at(sources, shared)
    return AmongPeople(
        **dict(_among(ratings[shared], here, how)),
        by_type={
            name: _among(ratings[mask], _at(sources, mask), how)
            for name, members in types.items()
            if (mask := members & shared).any()
        },
        pairs=tuple(
            RaterPair(names=(names[a], names[b]), **dict(_among(ratings[shared][:, [a, b]], here, how)))
            for a, b in found
        ),
        pairs_left_out=left_out,
    )


def _at(sources: Sequence[str], members: Bools) -> list[str]:
    return [source for source, here in zip(sources, members, strict=True) if here]


def _among(ratings: Floats, sources: Sequence[str], how: Resampling) -> Among:
    shared = np.isfinite(ratings).sum(1) >= 2
    given = used(ratings[shared])
    return Among(
        raters=given.shape[1],
        n=int(shared.sum()),
        krippendorff_alpha=alpha_estimate(ratings, sources, how),
        exact=exact_share(ratings, sources, how),
    )


def exact_share(ratings: Floats, sources: Sequence[str], how: Resampling) -> Estimate:
    """Return the share of equal labels among all pairs of labels of one edit, with its interval.

    An edit with three labels has three pairs, and counts three times as much as one with two.
    """
    equal, pairs = _equal_pairs(ratings)
    shared = pairs > 0
    if not shared.any():
        return estimate(None, 0, {}, how.level, "no edit was rated by two")
    counts = np.column_stack([equal, pairs])[shared]
    ways = clusterings(_at(sources, shared))
    kinds = kinds_of(counts)
    few = counts[kinds.first]

    def share(drawn: Floats) -> Floats:
        return np.asarray((drawn @ few[:, 0]) / (drawn @ few[:, 1]))

    samples = bootstrap(ways, how, {"exact": share}, kinds)["exact"]
    return estimate(float(equal.sum() / pairs.sum()), int(shared.sum()), samples, how.level)


def _equal_pairs(ratings: Floats) -> tuple[Floats, Floats]:
    """Return for every edit how many pairs of its labels are equal, and how many there are."""
    given = np.isfinite(ratings)
    labels = given.sum(1)
    equal = np.zeros(len(ratings))
    for value in np.unique(ratings[given]):
        same = (ratings == value).sum(1)
        equal += same * (same - 1) / 2
    return equal, labels * (labels - 1) / 2


def _pairs(ratings: Floats) -> tuple[list[tuple[int, int]], int]:
    """Return the raters that share an edit, two by two, those who share most first, and how many pairs are left out."""
    given = np.isfinite(ratings)
    counts = given.T.astype(float) @ given.astype(float)
    found = [(a, b) for a, b in combinations(range(ratings.shape[1]), 2) if counts[a, b] > 0]
    if len(found) > MOST_PAIRS:
        found.sort(key=lambda pair: -counts[pair])
    return found[:MOST_PAIRS], max(0, len(found) - MOST_PAIRS)

"""Measure whether a judge still judges as before, by judging the same edits again.

There are three answers. *Same*: two one-sided tests show that the mean moved less than the margin (Schuirmann 1987). *Changed*:
the mean moved, or labels are repeated less often than between the judge's own repeats. *Cannot tell*: there are too few edits
to show either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import erfc, sqrt
from typing import Literal

import numpy as np
from scipy import stats  # type: ignore[import-untyped]

from editloupe._util.text import number_of, verb
from editloupe.evals.stats.agreement import coefficients as st
from editloupe.evals.stats.agreement.judge_vs_human import find_label_scale, match_scores
from editloupe.evals.stats.comparison.run_comparison import match_pictures
from editloupe.evals.stats.intervals import Floats, Ints, Number, number_keys
from editloupe.evals.stats.scores.run_table import RunRow, RunTable
from editloupe.evals.stats.scores.run_units import row_means
from editloupe.types import Record, UserError

DriftAnswer = Literal["same", "changed", "cannot tell"]
MIN_EDITS = 20
"""Edits judged both times below which the answer is always *cannot tell*."""


ONE_REPEAT = (
    "This is about means only: one repeat cannot show that a judge varies more; an anchor with --repeats 2 can."
)


class CriterionDrift(Record):
    """One criterion judged twice."""

    answer: DriftAnswer
    why: str
    edits: int
    exact: Number | None = None
    """Share of edits with the same label."""
    exact_of_repeats: Number | None = None
    """The same share between two repeats of the anchor, if it has them: the judge's own variation."""
    kappa: Number | None = None
    shift: Number | None = None
    """The mean then subtracted from the mean now, on the scale of 0 to 100."""
    low: Number | None = None
    high: Number | None = None


class Drift(Record):
    """The comparison of an anchor run with the same edits judged again."""

    answer: DriftAnswer
    sentence: str
    anchor: str
    before: str
    """The judge of the anchor."""
    after: str
    edits: int
    margin: Number
    error: Number
    criteria: Mapping[str, CriterionDrift]
    notes: tuple[str, ...] = ()


def measure_drift(anchor: RunTable, again: RunTable, margin: float = 5.0, error: float = 0.05) -> Drift:
    """Compare an anchor run with the same edits judged again; `margin` is in points of 100.

    The probability of *changed* without a change is at most `error`, over all criteria together.
    """
    if not 0 < margin < 100 or not 0 < error < 0.5:
        raise UserError("--margin must be between 0 and 100 points; --error must be between 0 and 0.5")
    pairs = match_pictures(anchor, again).pairs
    if not pairs:
        raise UserError(f"{anchor.name} and {again.name} share no edit")
    first, second = (
        table.with_rows(rows) for table, rows in zip((anchor, again), zip(*pairs, strict=True), strict=True)
    )
    names = [name for name in first.criteria if name in second.criteria]
    criteria = {name: _measure_criterion(first, second, name, margin, error, len(names)) for name in names}
    answer = _combine_answers([criterion.answer for criterion in criteria.values()])
    edits = max((criterion.edits for criterion in criteria.values()), default=0)
    sources = len(np.unique(first.sources))
    notes = [
        *_served_notes(anchor, again),
        *(
            f"{name}: {lost} of {number_of(len(pairs), 'edit')} {verb(lost, 'has', 'have')} no verdict in one of the two."
            for name in names
            if (lost := len(pairs) - criteria[name].edits)
        ),
    ]
    return Drift(
        answer=answer,
        sentence=_format_sentence(answer, criteria, anchor, edits, sources, margin),
        anchor=anchor.name,
        before=anchor.title,
        after=again.title,
        edits=edits,
        margin=margin,
        error=error,
        criteria=criteria,
        notes=tuple(notes),
    )


def _combine_answers(answers: Sequence[DriftAnswer]) -> DriftAnswer:
    if "changed" in answers:
        return "changed"
    return "same" if answers and all(answer == "same" for answer in answers) else "cannot tell"


def _served_notes(anchor: RunTable, again: RunTable) -> Iterator[str]:
    """Yield a note if the provider reports other model versions than before."""
    then, now = (tuple(sorted({version.served.summary for version in table.versions})) for table in (anchor, again))
    if then != now and now:
        yield f"Served then: {' and '.join(then) or 'not recorded'}. Served again: {' and '.join(now)}."


def _format_sentence(
    answer: DriftAnswer,
    criteria: Mapping[str, CriterionDrift],
    anchor: RunTable,
    edits: int,
    sources: int,
    margin: float,
) -> str:
    shares = [
        f"{anchor.title_of(name)} {criterion.exact * 100:.0f} %"
        for name, criterion in criteria.items()
        if criterion.exact is not None
    ]
    labels = f" (same label: {', '.join(shares)})" if shares else ""
    if answer == "same":
        untested = all(criterion.exact_of_repeats is None for criterion in criteria.values())
        once = f" {ONE_REPEAT}" if untested else ""
        return f"Same: on {number_of(edits, 'edit')} no mean moved by {margin:g} points of 100 or more{labels}.{once}"
    if answer == "changed":
        moved = [
            f"{anchor.title_of(name)}: {criterion.why}"
            for name, criterion in criteria.items()
            if criterion.answer == "changed"
        ]
        return f"Changed: on {number_of(edits, 'edit')}, {'; '.join(moved)}{labels}."
    shared = f" of {number_of(sources, 'source picture')}" if sources < edits else ""
    return (
        f"Cannot tell with {number_of(edits, 'edit')}{shared}: neither a change nor its absence within {margin:g} points "
        f"of 100 is shown{labels}."
    )


def _measure_criterion(
    a: RunTable, b: RunTable, criterion: str, margin: float, error: float, criteria: int
) -> CriterionDrift:
    before, after = row_means(a.scores(criterion)), row_means(b.scores(criterion))
    both = np.isfinite(before) & np.isfinite(after)
    count = int(both.sum())
    if count < MIN_EDITS:
        why = f"{number_of(count, 'edit')} {verb(count, 'was', 'were')} judged both times; at least {MIN_EDITS} are needed"
        return CriterionDrift(answer="cannot tell", why=why, edits=count)
    pairs, _ = match_scores(a.scores(criterion, "score"), b.scores(criterion, "score"), find_label_scale(a, criterion))
    sources = number_keys(a.sources[both])
    wavering = _compare_with_repeats(a, b, criterion)
    # The probability of a false alarm is shared among the criteria and the one or two tests of each.
    each = error / criteria / (1 if wavering is None else 2)
    answer, why, shift, low, high = assess_shift((after - before)[both], sources, margin, error, each)
    if wavering is not None and answer != "changed" and wavering[1] < each:
        answer, why = "changed", f"labels are kept less often than by the judge's own repeats (p {wavering[1]:.2g})"
    return CriterionDrift(
        answer=answer,
        why=why,
        edits=count,
        exact=float((pairs.x_label == pairs.y_label).mean()),
        exact_of_repeats=None if wavering is None else wavering[0],
        kappa=st.kappa(pairs.x_label, pairs.y_label, pairs.values)[0],
        shift=shift,
        low=low,
        high=high,
    )


def assess_shift(
    moved: Floats, sources: Ints, margin: float, error: float, each: float
) -> tuple[DriftAnswer, str, float, float, float]:
    """Say whether a mean moved: the answer, why, the shift, and its interval of level 1 − 2·error, by source picture.

    >>> assess_shift(np.zeros(200), np.arange(200), 5, 0.05, 0.05)[:2]
    ('same', 'no label changed')
    """
    shift, count = float(moved.mean()), len(moved)
    sums = np.bincount(sources, moved - shift)
    clusters = len(sums)
    if not moved.any():
        # Nothing varied, so no variance says how far it could have: bound the share of edits that may change, 100 points each.
        reach = (1 - error ** (1 / clusters)) * 100
        answer: DriftAnswer = "same" if reach < margin else "cannot tell"
        return answer, "no label changed", 0.0, -reach, reach
    se = float(np.sqrt((sums**2).sum() * clusters / max(clusters - 1, 1))) / count
    freedom = max(clusters - 1, 1)
    reach = float(stats.t.ppf(1 - error, freedom)) * se
    low, high = shift - reach, shift + reach
    text = f"mean {shift:+.1f} [{low:+.1f}, {high:+.1f}]"
    if -margin < low and high < margin:
        return "same", text, shift, low, high
    # Had nothing changed, then and again could be swapped for every source picture: the sign-flip test is exact, however few
    # labels changed. The t test only saves the flips if they could not find anything.
    near = 2 * float(stats.t.sf(abs(shift) / se, freedom)) < 2 * each if se else True
    changed = near and sign_flip_p_value(np.bincount(sources, moved).astype(float)) < each
    return ("changed" if changed else "cannot tell"), text, shift, low, high


def _compare_with_repeats(a: RunTable, b: RunTable, criterion: str) -> tuple[float, float] | None:
    """Return how often the anchor's own repeats keep a label, and p that the second judging keeps it less often."""
    mine, theirs = a.scores(criterion, "score"), b.scores(criterion, "score")
    if mine.shape[1] < 2:
        return None
    comparable = np.isfinite(mine[:, :2]).all(1) & np.isfinite(theirs[:, 0])
    if comparable.sum() < MIN_EDITS:
        return None
    own = mine[comparable, 0] == mine[comparable, 1]
    lost = own.astype(float) - (mine[comparable, 0] == theirs[comparable, 0])
    sources = number_keys(a.sources[comparable])
    # The second judging may be swapped with the judge's second repeat, had nothing changed: half of a two-sided exact test.
    return float(own.mean()), sign_flip_p_value(np.bincount(sources, lost).astype(float)) / 2 if lost.sum() > 0 else 1.0


MAX_EXACT = 14
"""Clusters up to which all sign patterns are tried."""
FLIPS = 10_000
BINOMIAL_COST = 16
"""Signs that are drawn in the time of one binomial number."""
MIN_NORMAL = 2000
"""Clusters from which the distribution over all signs is taken for the normal one it tends to; flips would be less exact."""


def sign_flip_p_value(differences: Floats, seed: int = 0) -> float:
    """Return the two-sided p-value of cluster sums of differences: exact for few clusters, from seeded flips for more.

    >>> sign_flip_p_value(np.array([1.0, 1.0, 1.0]))
    0.25
    """
    moving = differences[differences != 0]
    if not len(moving):
        return 1.0
    observed = abs(moving.sum()) * (1 - 1e-12)
    if len(moving) <= MAX_EXACT:
        patterns = np.arange(2 ** len(moving))[:, None] >> np.arange(len(moving)) & 1
        return float((np.abs((1 - 2 * patterns) @ moving) >= observed).mean())
    if len(moving) >= MIN_NORMAL:
        return erfc(observed / sqrt(2 * float((moving**2).sum())))
    observed *= 1 - 1e-9
    as_far = sum(int((np.abs(sums) >= observed).sum()) for sums in _draw_flips(moving, np.random.default_rng(seed)))
    return (as_far + 1) / (FLIPS + 1)


def _draw_flips(moving: Floats, random: np.random.Generator) -> Iterator[Floats]:
    """Yield batches of sums with random signs.

    Differences of equal size are interchangeable. If there are few sizes, one binomial draw per size replaces one sign per
    cluster.
    """
    sizes, counts = np.unique(np.round(np.abs(moving), 12), return_counts=True)
    by_size = len(sizes) * BINOMIAL_COST < len(moving)
    width = len(sizes) if by_size else len(moving)
    remaining = FLIPS
    while remaining:
        batch = min(remaining, max(1, 4_000_000 // width))
        remaining -= batch
        if by_size:
            yield np.asarray((2 * random.binomial(counts, 0.5, (batch, width)) - counts) @ sizes, float)
        else:
            bits = np.unpackbits(random.integers(0, 256, (batch, -(-width // 8)), np.uint8), axis=1, count=width)
            yield 2 * (bits @ moving) - moving.sum()


def draw_anchor_rows(table: RunTable, count: int, seed: int = 0) -> list[RunRow]:
    """Draw edits evenly over types and labels, as often as each occurs; the same seed draws the same.

    Rare labels are not drawn more often: a judge that wavers gives such edits another label the next time, and its mean would
    seem to move.
    """
    random = np.random.default_rng(seed)
    judged = [
        position for position, row in enumerate(table.rows) if any(u.judged for us in row.units.values() for u in us)
    ]

    def kind(position: int) -> tuple[str, ...]:
        row = table.rows[position]
        return str(row.edit.instruction_type), *(str(units[0].score) for units in row.units.values())

    ordered = sorted(random.permutation(judged).tolist(), key=kind)
    if len(ordered) <= count:
        return [table.rows[position] for position in sorted(ordered)]
    steps = np.floor((np.arange(count) + random.random()) * len(ordered) / count).astype(int)
    return [table.rows[position] for position in sorted(ordered[step] for step in steps)]

"""Scores corrected by people's labels, calibration, drift and the test for replacing annotators, as blocks.

Corrected scores are also a table of their own, and stand with each mean of a report's JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from editloupe._util.text import number_of
from editloupe.evals.report.block_types import Block, Heading, Paragraph, Points
from editloupe.evals.stats.trust.corrected_scores import (
    FEWEST,
    Corrected,
    CorrectedPart,
    CorrectedScore,
    CorrectedScores,
)
from editloupe.judge.calibration import CONFIDENCE_KINDS, Calibration
from editloupe.rubrics.tables import Cell, PrintedTable

if TYPE_CHECKING:
    from editloupe.evals.stats.trust.drift import Drift
    from editloupe.evals.stats.trust.replace_annotators import Replacement

CORRECTED = "Scores corrected by people"
OVERALL, FINAL = "overall", "score"


def corrected_blocks(found: CorrectedScores, titles: Mapping[str, str], level: int = 2) -> Iterator[Block]:
    """Tell the corrected scores: how the labels were drawn, what they gained, and every mean beside its correction."""
    yield Heading(CORRECTED, level)
    yield Paragraph(f"What people would have said of all edits, from their labels ({found.origin}). {found.drawn}")
    yield Points((*_describe_gain(found), *found.notes))
    several = any(part.by_type for part in found.parts.values())
    yield _build_table(found, titles, {label: part.overall for label, part in found.parts.items()}, "model")
    for label, part in found.parts.items() if several else ():
        yield Heading(f"{label}, by type", level + 1)
        yield (
            _build_table(found, titles, part.by_type, "type")
            if _has_corrected_type(part)
            else _explain_missing_types(part)
        )
    yield from _difference_blocks(found, level + 1)
    yield from _yes_no_blocks(found, titles, level + 1)


def _has_corrected_type(part: CorrectedPart) -> bool:
    return any(
        one.corrected is not None for score in part.by_type.values() for one in (score, *score.criteria.values())
    )


def _explain_missing_types(part: CorrectedPart) -> Paragraph:
    """Say once why no type has a corrected score of its own."""
    labels = ", ".join(f"{name} {score.labels}" for name, score in part.by_type.items())
    others = [f" {name}: {one.why}." for name, one in part.by_type.items() if one.why and one.labels >= FEWEST]
    return Paragraph(
        f"No type has a corrected score of its own: at least {FEWEST} labels are needed for each ({labels}).{''.join(others)}"
    )


def _describe_gain(found: CorrectedScores) -> Iterator[str]:
    for label, part in found.parts.items():
        one = part.overall
        if one.corrected is None or one.judge is None:
            yield f"{label}: no corrected score ({one.why})."
            continue
        gained = (
            f"{number_of(one.labels, 'label')} and the judge are as good as {one.worth} human labels alone would be"
            if one.weight
            else f"{number_of(one.labels, 'label')} alone, to which the judge adds nothing"
        )
        yield f"{label}: the judge says {one.judge:.1f}, people would say {one.told()}: {gained}."


def _build_table(
    found: CorrectedScores, titles: Mapping[str, str], lines: Mapping[str, CorrectedScore], head: str
) -> PrintedTable:
    rows, whys = [], []
    for name, score in lines.items():
        means: dict[str, Corrected] = {FINAL: score}
        if len(score.criteria) > 1:
            means |= {titles.get(criterion, criterion): one for criterion, one in score.criteria.items()}
        for what, one in means.items():
            judge = "–" if one.judge is None else f"{one.judge:.1f}"
            alone = Corrected(judge=None, corrected=one.alone, low=one.alone_low, high=one.alone_high).told()
            worth = "–" if one.worth is None else str(one.worth)
            rows.append((name, what, judge, one.told(), alone, str(one.labels), worth))
        if score.why:
            whys.append(f"{name}: {score.why}.")
    columns = (head, "of", "judge", "corrected", "labels alone", "labels", "as good as")
    note = f"{found.level * 100:g} % intervals. As good as: labels alone that would give so narrow an interval."
    return PrintedTable("", columns, tuple(rows), (" ".join((note, *whys)),))


def _difference_blocks(found: CorrectedScores, level: int) -> Iterator[Block]:
    if not found.differences:
        return
    yield Heading("Differences, corrected", level)
    rows, whys = [], []
    for one in found.differences:
        judge = "–" if one.judge is None else f"{one.judge:+.1f}"
        told = Corrected(judge=None, corrected=one.corrected, low=one.low, high=one.high).told()
        rows.append((f"{one.a} − {one.b}", judge, told, *map(str, one.labels)))
        whys += [f"{one.a} − {one.b}: {one.why}."] if one.why else []
    yield PrintedTable("", ("overall", "judge", "corrected", "labels", "labels"), tuple(rows), (" ".join(whys),))


def _yes_no_blocks(found: CorrectedScores, titles: Mapping[str, str], level: int) -> Iterator[Block]:
    rows, whys = [], []
    for label, part in found.parts.items():
        for criterion, one in part.yes_no.items():
            rates = ["–" if rate is None else f"{rate * 100:.0f} %" for rate in (one.sensitivity, one.specificity)]
            told = Corrected(judge=None, corrected=one.corrected, low=one.low, high=one.high).told()
            title = titles.get(criterion, criterion)
            rows.append((f"{label}, {title}", f"{one.judge:.1f}", told, *rates, str(one.labels)))
            whys += [f"{label}, {title}: {one.why}."] if one.why else []
    if rows:
        yield Heading("Share of yes, by sensitivity and specificity", level)
        columns = ("criterion", "judge", "corrected", "sensitivity", "specificity", "labels")
        yield PrintedTable("", columns, tuple(rows), (" ".join(whys),))


def corrected_table(found: CorrectedScores, titles: Mapping[str, str]) -> PrintedTable:
    """Return every corrected mean as one table: a row a model, type and score."""
    rows: list[tuple[Cell, ...]] = []
    for label, part in found.parts.items():
        for kind, score in ((OVERALL, part.overall), *part.by_type.items()):
            rows.append((label, kind, FINAL, *_cells(score)))
            named = score.criteria.items() if len(score.criteria) > 1 else ()
            rows += [(label, kind, titles.get(name, name), *_cells(one)) for name, one in named]
    columns = ("model", "type", "of", "judge", "corrected", "low", "high", "labels", "as good as", "edits")
    return PrintedTable(CORRECTED, columns, tuple(rows), (found.drawn,))


def _cells(one: Corrected) -> tuple[Cell, ...]:
    return one.judge, one.corrected, one.low, one.high, one.labels, one.worth, one.edits


def add_corrected_means(data: dict[str, Any], found: CorrectedScores) -> None:
    """Put `corrected` with its ends and labels beside each mean of a report's JSON."""
    for label, part in found.parts.items():
        _add_to_slice(data["parts"][label], part)
    if len(found.parts) == 1:
        (only,) = found.parts.values()
        _add_to_slice(data, only)
    for label, score in data.get("by", {}).get("model", {}).items():
        if label in found.parts:
            _add_to_score(score, found.parts[label].overall)


def _add_to_slice(data: dict[str, Any], part: CorrectedPart) -> None:
    _add_to_score(data["overall"], part.overall)
    for kind, score in data["by_type"].items():
        if kind in part.by_type:
            _add_to_score(score, part.by_type[kind])


def _add_to_score(data: dict[str, Any], score: CorrectedScore) -> None:
    data["corrected"] = score.model_dump(mode="json", exclude={"criteria"})
    for name, one in data["criteria"].items():
        if name in score.criteria:
            one["corrected"] = score.criteria[name].model_dump(mode="json")


def calibration_blocks(found: Calibration, titles: Mapping[str, str]) -> Iterator[Block]:
    """Tell which verdicts may be kept, and what that rests on."""
    yield Heading(f"What may be kept of {found.judge} · {found.protocol} · {found.mode} mode", 1)
    promise = (
        f"Of what is kept people agree with at least {found.agreement * 100:g} %, for each criterion with an error of "
        f"{found.error * 100:g} %"
        if found.keeps_something
        else f"Nothing may be kept: the labels do not show that people agree with {found.agreement * 100:g} % of it"
    )
    yield Paragraph(f"{promise}; confidence is {CONFIDENCE_KINDS[found.confidence]}.", "answer")
    rows, whys = [], list(found.notes)
    if found.after:
        whys.insert(
            0, f"This is stage {len(found.after) + 1} of a cascade: only what the stages before it leave over counts."
        )
    for criterion, one in found.criteria.items():
        title = titles.get(criterion, criterion)
        best = next((step for step in reversed(one.tested) if step.passed), None)
        if best is None:
            rows.append((title, "nothing", "0 %", str(one.labels), "–", "–"))
            whys.append(f"{title}: nothing may be kept; {one.why}.")
            continue
        agreed = f"{best.agreed} of {best.labels}"
        rows.append(
            (
                title,
                f"{best.threshold:.3g}",
                f"{one.kept * 100:.0f} %",
                str(one.labels),
                agreed,
                f"{best.lower * 100:.1f} %",
            )
        )
    columns = ("criterion", "kept from", "of the run", "labels", "people agree", "at least")
    yield PrintedTable("", columns, tuple(rows), ("At least: the Clopper–Pearson lower bound.",))
    if whys:
        yield Points(tuple(whys))


def drift_blocks(found: Drift, titles: Mapping[str, str]) -> Iterator[Block]:
    """Tell whether a judge judges as it did."""
    yield Heading(f"{found.anchor}, judged again", 1)
    yield Paragraph(found.sentence, "answer")
    yield Points((f"Then: {found.before}.", f"Again: {found.after}.", *found.notes))
    rows = []
    for criterion, one in found.criteria.items():
        shares = ["–" if share is None else f"{share * 100:.0f} %" for share in (one.exact, one.exact_of_repeats)]
        kappa = "–" if one.kappa is None else f"{one.kappa:.2f}"
        shift = "–" if one.shift is None else f"{one.shift:+.1f} [{one.low:+.1f}, {one.high:+.1f}]"
        rows.append((titles.get(criterion, criterion), one.answer, *shares, kappa, shift, str(one.edits)))
    columns = ("criterion", "answer", "same label", "its own repeats", "Cohen κ", "shift of the mean", "edits")
    note = f"Interval of {(1 - 2 * found.error) * 100:g} %; same where it lies within ±{found.margin:g} points of 100."
    yield PrintedTable("", columns, tuple(rows), (note,))


def replacement_blocks(found: Mapping[str, Replacement], titles: Mapping[str, str], epsilon: float) -> Iterator[Block]:
    """Tell whether the judge may stand in for annotators, criterion by criterion."""
    yield Heading("May the judge replace annotators?")
    yield Paragraph(
        f"Alternative annotator test (Calderon and others 2025), ε = {epsilon:g}: yes where the judge is shown to be no more "
        "than ε worse than at least half of the annotators."
    )
    for criterion, one in found.items():
        title = titles.get(criterion, criterion)
        if one.may_replace is None or one.winning_rate is None or one.advantage is None:
            yield Points((f"{title}: not tested, {one.why}.",))
            continue
        rows = [
            (
                name,
                f"{left.judge_wins * 100:.0f} %",
                f"{left.annotator_wins * 100:.0f} %",
                "< 0.001" if left.p < 0.001 else f"{left.p:.3f}",
                "yes" if left.rejected else "no",
                str(left.edits),
            )
            for name, left in one.annotators.items()
        ]
        told = f"{'Yes' if one.may_replace else 'No'}: winning rate {one.winning_rate:.2f}, mean advantage {one.advantage:.2f}."
        note = f"{told} {one.why or ''}".strip()
        yield PrintedTable(
            "", (title, "judge as close", "annotator as close", "p", "passed", "edits"), tuple(rows), (note,)
        )

"""Turn corrected scores, calibration, drift and the alternative annotator test into blocks.

Corrected scores are also available as a table, and are added to the means in the JSON form of a report.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from editloupe._util.text import number_of
from editloupe.evals.report.block_types import Block, Heading, Paragraph, Points
from editloupe.evals.stats.trust.corrected_scores import (
    Corrected,
    CorrectedScore,
    CorrectedScores,
    CorrectedSlice,
)
from editloupe.evals.stats.trust.yes_no import MIN_LABELS
from editloupe.judge.calibration import CONFIDENCE_KINDS, Calibration
from editloupe.rubrics.tables import Cell, PrintedTable

if TYPE_CHECKING:
    from editloupe.evals.stats.trust.drift import Drift
    from editloupe.evals.stats.trust.replace_annotators import ReplacementTest

CORRECTED = "Scores corrected by people"
OVERALL, FINAL = "overall", "score"


def corrected_blocks(scores: CorrectedScores, titles: Mapping[str, str], level: int = 2) -> Iterator[Block]:
    """Yield the blocks of corrected scores: how labels were drawn, what they gained, and every mean with its correction."""
    yield Heading(CORRECTED, level)
    yield Paragraph(f"What people would have said of all edits, from their labels ({scores.origin}). {scores.drawn}")
    yield Points((*_describe_gain(scores), *scores.notes))
    several = any(part.by_type for part in scores.parts.values())
    yield _build_table(scores, titles, {label: part.overall for label, part in scores.parts.items()}, "model")
    for label, part in scores.parts.items() if several else ():
        yield Heading(f"{label}, by type", level + 1)
        yield (
            _build_table(scores, titles, part.by_type, "type")
            if _has_corrected_type(part)
            else _explain_missing_types(part)
        )
    yield from _difference_blocks(scores, level + 1)
    yield from _yes_no_blocks(scores, titles, level + 1)


def _has_corrected_type(part: CorrectedSlice) -> bool:
    return any(
        corrected.corrected is not None
        for score in part.by_type.values()
        for corrected in (score, *score.criteria.values())
    )


def _explain_missing_types(part: CorrectedSlice) -> Paragraph:
    """Explain once why no type has its own corrected score."""
    start = "No type has a corrected score of its own"
    few = [f"{name} {score.labels}" for name, score in part.by_type.items() if score.labels < MIN_LABELS]
    if len(few) == len(part.by_type):
        return Paragraph(f"{start}: at least {MIN_LABELS} labels are needed for each ({', '.join(few)}).")
    others = [
        f" {name}: {score.why}." for name, score in part.by_type.items() if score.labels >= MIN_LABELS and score.why
    ]
    fewer = f" With fewer than {MIN_LABELS} labels: {', '.join(few)}." if few else ""
    return Paragraph(f"{start}.{''.join(others)}{fewer}")


def _describe_gain(scores: CorrectedScores) -> Iterator[str]:
    for label, part in scores.parts.items():
        score = part.overall
        if score.corrected is None or score.judge is None:
            yield f"{label}: no corrected score ({score.why})."
            continue
        gained = (
            f"{number_of(score.labels, 'label')} and the judge are as good as {score.worth} human labels alone would be"
            if score.weight
            else f"{number_of(score.labels, 'label')} alone, to which the judge adds nothing"
        )
        yield f"{label}: the judge says {score.judge:.1f}, people would say {score.format()}: {gained}."


def _build_table(
    scores: CorrectedScores, titles: Mapping[str, str], lines: Mapping[str, CorrectedScore], head: str
) -> PrintedTable:
    rows, whys = [], []
    for name, score in lines.items():
        means: dict[str, Corrected] = {FINAL: score}
        if len(score.criteria) > 1:
            means |= {titles.get(criterion, criterion): mean for criterion, mean in score.criteria.items()}
        for what, mean in means.items():
            judge = "–" if mean.judge is None else f"{mean.judge:.1f}"
            alone = Corrected(judge=None, corrected=mean.alone, low=mean.alone_low, high=mean.alone_high).format()
            worth = "–" if mean.worth is None else str(mean.worth)
            rows.append((name, what, judge, mean.format(), alone, str(mean.labels), worth))
        if score.why:
            whys.append(f"{name}: {score.why}.")
    columns = (head, "of", "judge", "corrected", "labels alone", "labels", "as good as")
    note = f"{scores.level * 100:g} % intervals. As good as: labels alone that would give so narrow an interval."
    return PrintedTable("", columns, tuple(rows), (" ".join((note, *whys)),))


def _difference_blocks(scores: CorrectedScores, level: int) -> Iterator[Block]:
    if not scores.differences:
        return
    yield Heading("Differences, corrected", level)
    rows, whys = [], []
    for difference in scores.differences:
        judge = "–" if difference.judge is None else f"{difference.judge:+.1f}"
        corrected = Corrected(
            judge=None, corrected=difference.corrected, low=difference.low, high=difference.high
        ).format()
        rows.append((f"{difference.a} − {difference.b}", judge, corrected, *map(str, difference.labels)))
        whys += [f"{difference.a} − {difference.b}: {difference.why}."] if difference.why else []
    yield PrintedTable("", ("overall", "judge", "corrected", "labels", "labels"), tuple(rows), (" ".join(whys),))


def _yes_no_blocks(scores: CorrectedScores, titles: Mapping[str, str], level: int) -> Iterator[Block]:
    rows, whys = [], []
    for label, part in scores.parts.items():
        for criterion, share in part.yes_no.items():
            rates = ["–" if rate is None else f"{rate * 100:.0f} %" for rate in (share.sensitivity, share.specificity)]
            corrected = Corrected(judge=None, corrected=share.corrected, low=share.low, high=share.high).format()
            title = titles.get(criterion, criterion)
            rows.append((f"{label}, {title}", f"{share.judge:.1f}", corrected, *rates, str(share.labels)))
            whys += [f"{label}, {title}: {share.why}."] if share.why else []
    if rows:
        yield Heading("Share of yes, by sensitivity and specificity", level)
        columns = ("criterion", "judge", "corrected", "sensitivity", "specificity", "labels")
        yield PrintedTable("", columns, tuple(rows), (" ".join(whys),))


def corrected_table(scores: CorrectedScores, titles: Mapping[str, str]) -> PrintedTable:
    """Return all corrected means as one table with a row per model, type and score."""
    rows: list[tuple[Cell, ...]] = []
    for label, part in scores.parts.items():
        for kind, score in ((OVERALL, part.overall), *part.by_type.items()):
            rows.append((label, kind, FINAL, *_cells(score)))
            named = score.criteria.items() if len(score.criteria) > 1 else ()
            rows += [(label, kind, titles.get(name, name), *_cells(mean)) for name, mean in named]
    columns = ("model", "type", "of", "judge", "corrected", "low", "high", "labels", "as good as", "edits")
    return PrintedTable(CORRECTED, columns, tuple(rows), (scores.drawn,))


def _cells(mean: Corrected) -> tuple[Cell, ...]:
    return mean.judge, mean.corrected, mean.low, mean.high, mean.labels, mean.worth, mean.edits


def add_corrected_means(data: dict[str, Any], scores: CorrectedScores) -> None:
    """Add `corrected` with its interval and label count to each mean of a report's JSON."""
    for label, part in scores.parts.items():
        _add_to_slice(data["parts"][label], part)
    if len(scores.parts) == 1:
        (only,) = scores.parts.values()
        _add_to_slice(data, only)
    for label, score in data.get("by", {}).get("model", {}).items():
        if label in scores.parts:
            _add_to_score(score, scores.parts[label].overall)


def _add_to_slice(data: dict[str, Any], part: CorrectedSlice) -> None:
    _add_to_score(data["overall"], part.overall)
    for kind, score in data["by_type"].items():
        if kind in part.by_type:
            _add_to_score(score, part.by_type[kind])


def _add_to_score(data: dict[str, Any], score: CorrectedScore) -> None:
    data["corrected"] = score.model_dump(mode="json", exclude={"criteria"})
    for name, criterion_data in data["criteria"].items():
        if name in score.criteria:
            criterion_data["corrected"] = score.criteria[name].model_dump(mode="json")


def calibration_blocks(calibration: Calibration, titles: Mapping[str, str]) -> Iterator[Block]:
    """Yield the blocks on which verdicts may be kept, and why."""
    yield Heading(f"What may be kept of {calibration.judge} · {calibration.protocol} · {calibration.mode} mode", 1)
    promise = (
        f"Of what is kept people agree with at least {calibration.agreement * 100:g} %, for each criterion with an error of "
        f"{calibration.error * 100:g} %"
        if calibration.keeps_something
        else f"Nothing may be kept: the labels do not show that people agree with {calibration.agreement * 100:g} % of it"
    )
    yield Paragraph(f"{promise}; confidence is {CONFIDENCE_KINDS[calibration.confidence]}.", "answer")
    rows, whys = [], list(calibration.notes)
    if calibration.after:
        whys.insert(
            0,
            f"This is stage {len(calibration.after) + 1} of a cascade: only what the stages before it leave over counts.",
        )
    for criterion, criterion_calibration in calibration.criteria.items():
        title = titles.get(criterion, criterion)
        best = next((step for step in reversed(criterion_calibration.tested) if step.passed), None)
        if best is None:
            rows.append((title, "nothing", "0 %", str(criterion_calibration.labels), "–", "–"))
            whys.append(f"{title}: nothing may be kept; {criterion_calibration.why}.")
            continue
        agreed = f"{best.agreed} of {best.labels}"
        rows.append(
            (
                title,
                f"{best.threshold:.3g}",
                f"{criterion_calibration.kept * 100:.0f} %",
                str(criterion_calibration.labels),
                agreed,
                f"{best.lower * 100:.1f} %",
            )
        )
    columns = ("criterion", "kept from", "of the run", "labels", "people agree", "at least")
    yield PrintedTable("", columns, tuple(rows), ("At least: the Clopper–Pearson lower bound.",))
    if whys:
        yield Points(tuple(whys))


def drift_blocks(drift: Drift, titles: Mapping[str, str]) -> Iterator[Block]:
    """Yield the blocks on whether a judge has changed."""
    yield Heading(f"{drift.anchor}, judged again", 1)
    yield Paragraph(drift.sentence, "answer")
    yield Points((f"Then: {drift.before}.", f"Again: {drift.after}.", *drift.notes))
    rows = []
    for criterion, change in drift.criteria.items():
        shares = ["–" if share is None else f"{share * 100:.0f} %" for share in (change.exact, change.exact_of_repeats)]
        kappa = "–" if change.kappa is None else f"{change.kappa:.2f}"
        shift = "–" if change.shift is None else f"{change.shift:+.1f} [{change.low:+.1f}, {change.high:+.1f}]"
        rows.append(
            (
                titles.get(criterion, criterion),
                change.answer,
                *shares,
                kappa,
                shift,
                str(change.edits),
            )
        )
    columns = ("criterion", "answer", "same label", "its own repeats", "Cohen κ", "shift of the mean", "edits")
    note = f"Interval of {(1 - 2 * drift.error) * 100:g} %; same if it is within ±{drift.margin:g} points of 100."
    yield PrintedTable("", columns, tuple(rows), (note,))


def replacement_blocks(
    replacements: Mapping[str, ReplacementTest], titles: Mapping[str, str], epsilon: float
) -> Iterator[Block]:
    """Yield the blocks on whether the judge may replace annotators, per criterion."""
    yield Heading("May the judge replace annotators?")
    yield Paragraph(
        f"Alternative annotator test (Calderon and others 2025), ε = {epsilon:g}: yes if the judge is shown to be at most "
        "ε worse than at least half of the annotators."
    )
    for criterion, replacement in replacements.items():
        title = titles.get(criterion, criterion)
        if replacement.may_replace is None or replacement.winning_rate is None or replacement.advantage is None:
            yield Points((f"{title}: not tested, {replacement.why}.",))
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
            for name, left in replacement.annotators.items()
        ]
        answer = (
            f"{'Yes' if replacement.may_replace else 'No'}: winning rate {replacement.winning_rate:.2f}, "
            f"mean advantage {replacement.advantage:.2f}."
        )
        note = f"{answer} {replacement.why or ''}".strip()
        yield PrintedTable(
            "", (title, "judge as close", "annotator as close", "p", "passed", "edits"), tuple(rows), (note,)
        )

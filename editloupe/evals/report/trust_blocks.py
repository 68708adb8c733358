"""Calibration, drift and the test for replacing annotators, as blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from editloupe.evals.report.block_types import Block, Heading, Paragraph, Points
from editloupe.evals.trust.confidence import KINDS
from editloupe.evals.trust.drift import Drift
from editloupe.evals.trust.replace_annotators import Replacement
from editloupe.judge.calibration import Calibration
from editloupe.rubrics.tables import PrintedTable


def calibration_blocks(found: Calibration, titles: Mapping[str, str]) -> Iterator[Block]:
    """Tell which verdicts may be kept, and what that rests on."""
    yield Heading(f"What may be kept of {found.judge} · {found.protocol} · {found.mode} mode", 1)
    promise = (
        f"Of what is kept people agree with at least {found.agreement * 100:g} %, for each criterion with an error of "
        f"{found.error * 100:g} %"
        if found.keeps_something
        else f"Nothing may be kept: the labels do not show that people agree with {found.agreement * 100:g} % of it"
    )
    yield Paragraph(f"{promise}; confidence is {KINDS[found.confidence]}.", "answer")
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

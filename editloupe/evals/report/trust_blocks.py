"""Calibration, drift and the test for replacing annotators, as blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from editloupe.evals.report.block_types import Block, Grid, Heading, Paragraph, Points
from editloupe.evals.trust.calibrate import Calibration
from editloupe.evals.trust.confidence import KINDS


def calibration_blocks(found: Calibration, titles: Mapping[str, str]) -> Iterator[Block]:
    """Tell which verdicts may be kept, and what that rests on."""
    yield Heading(f"What may be kept of {found.judge} · {found.protocol} · {found.mode} mode", 1)
    yield Paragraph(
        f"Of what is kept people agree with at least {found.agreement * 100:g} %, for each criterion with an error of "
        f"{found.error * 100:g} %; confidence is {KINDS[found.confidence]}.",
        "answer",
    )
    rows, whys = [], list(found.notes)
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
    yield Grid(columns, tuple(rows), "At least: the Clopper–Pearson lower bound.")
    if whys:
        yield Points(tuple(whys))

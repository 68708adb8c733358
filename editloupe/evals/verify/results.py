"""Sum up checked claims as contradiction rates with intervals, counts by kind, and the verdicts to look at first."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from editloupe._util.text import format_trace_command, number_of, shorten
from editloupe.evals.report.block_types import Block, Heading, Paragraph, Points
from editloupe.evals.runs.claim_store import ClaimCounts
from editloupe.evals.runs.unit_rows import Unit
from editloupe.evals.stats.intervals import Estimate, estimate_share
from editloupe.evals.verify.verify_run import MISSING, CheckedVerdict
from editloupe.judge.claims.claim_records import ClaimState
from editloupe.rubrics.tables import Cell, PrintedTable
from editloupe.types import Record

WORKLIST = 10
"""Contradicted verdicts that a page lists; `editloupe traces` lists all."""
NAMED = 5
"""Edits with missing pictures that are named."""
EXAMPLE = 50
"""Characters of a claim that are shown as an example."""
FIELDS = ("judge", "criterion", "type", "tools", "label")
"""What contradiction rates are stated by."""
NO_TYPE = "no type"


class ContradictionRate(Record):
    """The share of verdicts with a contradicted claim, among those with a claim that could be checked.

    Args:
        by: The field: judge, criterion, type, tools or label.
        value: The value of the field.
        verdicts: Verdicts with this value that were verified.
        checkable: Of these, verdicts with a claim that could be checked.
        contradicted: Of these, verdicts with a contradicted claim.
        rate: The share, with an interval by source picture.
    """

    by: str
    value: str
    verdicts: int
    checkable: int
    contradicted: int
    rate: Estimate


class ContradictedVerdict(Record):
    """A verdict with a contradicted claim."""

    edit_id: str
    name: str
    criterion: str
    repeat: int
    label: str | None
    confidence: float | None
    contradicted: int
    text: str
    """The first contradicted claim."""
    why: str


class UncheckableReason(Record):
    """A reason why claims are not checkable."""

    why: str
    claims: int
    """Claims with this reason."""
    example: str
    """The first of them, in the judge's words."""


class Verification(Record):
    """The result of `editloupe verify`.

    Args:
        run: The run's name.
        claims: Number of claims.
        supported: Claims that the pixels support.
        contradicted: Claims that the pixels contradict.
        not_checkable: Claims that the pixels do not settle.
        unparsed: Statements in which no claim was found.
        checked: Verdicts that were verified.
        fresh: Of these, verdicts that were verified just now.
        not_checked: Verdicts that were not verified, by reason.
        missing: The first edits whose pictures are missing.
        overall: The share of verdicts with a contradicted claim.
        rates: The same by judge, criterion, type, use of tools and label.
        kinds: Claims by kind and result.
        reasons: Why claims are not checkable, the most frequent reason first.
        worklist: Contradicted verdicts, the most confident first.
    """

    run: str
    claims: int
    supported: int
    contradicted: int
    not_checkable: int
    unparsed: int
    checked: int
    fresh: int
    not_checked: Mapping[str, int]
    missing: tuple[str, ...]
    overall: Estimate
    rates: tuple[ContradictionRate, ...]
    kinds: Mapping[str, Mapping[str, int]]
    reasons: tuple[UncheckableReason, ...]
    worklist: tuple[ContradictedVerdict, ...]


@dataclass
class ClaimTally:
    """Collects checked verdicts, as a few numbers each."""

    checked: int = 0
    fresh: int = 0
    unparsed: int = 0
    not_checked: Counter[str] = field(default_factory=Counter)
    missing: list[str] = field(default_factory=list)
    kinds: dict[str, Counter[str]] = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    """The first claim by reason."""
    worklist: list[tuple[float, int, ContradictedVerdict]] = field(default_factory=list)
    _rows: list[tuple[tuple[int, ...], int, int, bool]] = field(default_factory=list)
    """Codes of the fields, code of the source picture, checkable claims, whether one is contradicted."""
    _codes: dict[str, int] = field(default_factory=dict)

    def add(self, verdict: CheckedVerdict, record: Mapping[str, Any] | None) -> None:
        """Add a verdict and the record of its claims; None if it was not checked."""
        if verdict.counts is None or record is None:
            self.not_checked[verdict.why] += 1
            if verdict.why == MISSING and verdict.edit.name not in self.missing[-1:]:
                self.missing += [verdict.edit.name] if len(self.missing) < NAMED else []
            return
        self.checked, self.fresh = self.checked + 1, self.fresh + verdict.fresh
        self.unparsed += len(record["unparsed"])
        for claim in record["claims"]:
            self.kinds.setdefault(claim["kind"], Counter())[claim["state"]] += 1
            if claim["state"] == ClaimState.NOT_CHECKABLE:
                reason = claim["evidence"]["why"].partition(":")[0]  # what was measured follows the colon
                self.reasons[reason] += 1
                self.examples.setdefault(reason, claim["text"])
        counts, unit, edit = verdict.counts, verdict.unit, verdict.edit.edit
        label = getattr(unit.outcome, "label", None) or "no label"
        kind = edit.instruction_type or NO_TYPE
        values = (unit.judge, unit.criterion, kind, "with tools" if counts.tools else "without tools", label)
        source = next(iter(verdict.edit.pictures.get("source", ())), str(edit.source))
        checkable = counts.supported + counts.contradicted
        self._rows.append((tuple(map(self._code, values)), self._code(source), checkable, counts.contradicted > 0))
        if counts.contradicted:
            self._list(unit, counts, record)

    def _code(self, value: str) -> int:
        return self._codes.setdefault(value, len(self._codes))

    def _list(self, unit: Unit, counts: ClaimCounts, record: Mapping[str, Any]) -> None:
        first = next(claim for claim in record["claims"] if claim["state"] == ClaimState.CONTRADICTED)
        confidence = getattr(unit.outcome, "confidence", None)
        verdict = ContradictedVerdict(
            edit_id=unit.edit_id,
            name=unit.name,
            criterion=unit.criterion,
            repeat=unit.repeat,
            label=getattr(unit.outcome, "label", None),
            confidence=confidence,
            contradicted=counts.contradicted,
            text=first["text"],
            why=first["evidence"]["why"],
        )
        heapq.heappush(self.worklist, (-1.0 if confidence is None else confidence, -len(self._rows), verdict))
        if len(self.worklist) > WORKLIST:
            heapq.heappop(self.worklist)

    def result(self, run: str) -> Verification:
        """Return the sums, rates and intervals."""
        names = list(self._codes)
        states: Counter[str] = sum(self.kinds.values(), Counter())
        rates = []
        for column, by in enumerate(FIELDS):
            for code in dict.fromkeys(row[0][column] for row in self._rows):
                rows = [row for row in self._rows if row[0][column] == code]
                rates.append(_build_rate(by, names[code], rows))
        return Verification(
            run=run,
            claims=sum(states.values()),
            **{state.value: states[state.value] for state in ClaimState},
            unparsed=self.unparsed,
            checked=self.checked,
            fresh=self.fresh,
            not_checked=dict(self.not_checked),
            missing=tuple(self.missing),
            overall=_build_rate("", "", self._rows).rate,
            rates=tuple(rates),
            kinds={
                name: {state.value: counts[state.value] for state in ClaimState} for name, counts in self.kinds.items()
            },
            reasons=tuple(
                UncheckableReason(why=why, claims=count, example=self.examples[why])
                for why, count in self.reasons.most_common()
            ),
            worklist=tuple(verdict for _, _, verdict in sorted(self.worklist, reverse=True)),
        )


def _build_rate(by: str, value: str, rows: Sequence[tuple[tuple[int, ...], int, int, bool]]) -> ContradictionRate:
    checkable = [row for row in rows if row[2]]
    contradicted = [row[3] for row in checkable]
    rate = estimate_share(contradicted, [row[1] for row in checkable], "no claim could be checked")
    counts = {"verdicts": len(rows), "checkable": len(checkable), "contradicted": sum(contradicted)}
    return ContradictionRate(by=by, value=value, rate=rate, **counts)


def describe_verification(result: Verification) -> Iterator[str]:
    """Yield sentences on how much was checked and what was not."""
    checked = number_of(result.checked, "verdict")
    yield (
        f"{number_of(result.claims, 'claim')} in {checked}: {result.supported} supported, {result.contradicted} contradicted, "
        f"{result.not_checkable} not checkable; {number_of(result.unparsed, 'statement')} without a claim that is understood"
    )
    for why, count in result.not_checked.items():
        names = f" ({', '.join(result.missing)}{' …' if count > len(result.missing) else ''})" if why == MISSING else ""
        yield f"{number_of(count, 'verdict')} not checked: {why}{names}"


def verification_blocks(result: Verification, folder: str, configuration: str = "") -> Iterator[Block]:
    """Yield the result as a page.

    Args:
        result: The result.
        folder: The run's folder, for the commands that show traces.
        configuration: The configuration's short name, for the same commands.
    """
    yield Heading(f"{result.run}: claims of the verdicts, checked against the pixels", 1)
    yield Points(tuple(f"{sentence}." for sentence in describe_verification(result)))
    yield Paragraph(
        f"Verdicts with a contradicted claim, of those with a checkable one: {_format(result.overall)}.", "answer"
    )
    if not result.checked:
        return
    rows: list[tuple[Cell, ...]] = [
        (rate.by, rate.value, rate.verdicts, rate.checkable, rate.contradicted, _format(rate.rate))
        for rate in result.rates
    ]
    yield PrintedTable("", ("by", "value", "verdicts", "checkable", "contradicted", "share"), tuple(rows))
    yield Heading("Kinds of claims")
    kinds: list[tuple[Cell, ...]] = [
        (name.replace("_", " "), *counts.values()) for name, counts in sorted(result.kinds.items())
    ]
    yield PrintedTable("", ("kind", *(state.value.replace("_", " ") for state in ClaimState)), tuple(kinds))
    if result.reasons:
        yield Heading("Why claims are not checkable")
        reasons = tuple((reason.why, reason.claims, shorten(reason.example, EXAMPLE)) for reason in result.reasons)
        yield PrintedTable("", ("reason", "claims", "for example"), reasons)
    if result.worklist:
        yield Heading("Contradicted, the most confident first")
        yield Points(tuple(_describe(verdict, folder, configuration) for verdict in result.worklist))
    yield Points(
        (
            "Shares are of verdicts with at least one claim that could be checked; intervals are by source picture.",
            "A contradicted verdict keeps its label. A verdict without contradiction may still be wrong.",
        )
    )


def _describe(verdict: ContradictedVerdict, folder: str, configuration: str) -> str:
    sure = "" if verdict.confidence is None else f", confidence {verdict.confidence:.2f}"
    command = format_trace_command(folder, verdict.name, verdict.criterion, verdict.repeat, configuration)
    return f"{verdict.criterion}: {verdict.label}{sure}. “{shorten(verdict.text, 120)}” – but {verdict.why}. {command}"


def _format(estimate: Estimate) -> str:
    return "–" if estimate.value is None else f"{estimate.format()} (n {estimate.n})"

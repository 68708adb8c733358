"""What a report is: the scores of a run with everything a reader needs to trust or doubt them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, PlainSerializer

from editloupe.evals.report.notable_edits import NotableEdit
from editloupe.evals.report.table_formats import table_to_dict
from editloupe.evals.stats.agreement.judge_vs_human import Agreement
from editloupe.evals.stats.bootstrap import Estimate, Number
from editloupe.evals.stats.comparison.model_comparison import ModelComparison
from editloupe.evals.stats.scores.distribution import AreaTrend, Distribution
from editloupe.evals.stats.scores.run_scores import Coverage, Scores
from editloupe.evals.stats.scores.run_table import ServedVersion
from editloupe.evals.stats.trust.corrected_scores import CorrectedScores
from editloupe.rubrics.tables import PrintedTable
from editloupe.types import Record


class UsageTotals(Record):
    """What the verdicts took."""

    requests: int
    input_tokens: int
    output_tokens: int
    cost: Number | None
    """In US dollars; None where a price is not known."""
    seconds: Number
    """Waiting time of all units together."""


ReportTable = Annotated[
    PrintedTable, PlainSerializer(lambda table: {"protocol": table.protocol, **table_to_dict(table)})
]
"""A table as the JSON form of a report holds it."""


class Report(Scores):
    """One run, told from the answer to the details; its JSON form has the scores at the top."""

    run: str
    folder: str
    """As the user named it."""
    judge: str
    mode: str
    differs: str = ""
    """What tells this configuration from an earlier one of the run with the same judge, protocol and mode."""
    answer: str
    certainty: tuple[str, ...]
    """How sure the answer is, one sentence each."""
    baseline: str | None
    """Said where the rule-based judge gave the verdicts."""
    versions: tuple[ServedVersion, ...] = ()
    """What the providers say served the verdicts; empty where they said nothing."""
    version_notes: tuple[str, ...] = ()
    """Said where one judge was served in several versions."""
    titles: Mapping[str, str]
    """Criteria to their titles."""
    agreement: Agreement | None
    """None where people labelled nothing."""
    corrected: CorrectedScores | None = None
    """The scores corrected by people's labels, where that was asked for."""
    rankings: tuple[ModelComparison, ...]
    """What can be said about the order of the editing models, by paired tests, and what nothing edited scores; one for
    every value of what the paper keeps apart, usually one."""
    tables: tuple[ReportTable, ...]
    """What the protocol's paper prints, and what several fields to group by make."""
    distributions: Mapping[str, Distribution]
    areas: Mapping[str, AreaTrend]
    instructive: tuple[NotableEdit, ...]
    spent: UsageTotals
    methods: str
    editloupe: str
    """The version that made the report."""


class LeaderboardEntry(Record):
    """One line of a leaderboard."""

    rank: int | None
    """By overall score; None where the run has none."""
    ranks: tuple[int, int] | None = None
    """The best and the worst rank that the paired tests leave open; None where they were not compared."""
    run: str
    """The run and, where it holds several, the editing model."""
    model: str | None = None
    judge: str
    mode: str
    protocol: str
    overall: Estimate
    criteria: Mapping[str, Estimate]
    coverage: Coverage
    agreement: Mapping[str, Estimate] = Field(default_factory=dict)
    """Criterion to Spearman's ρ with people."""


class Leaderboard(Record):
    """Several runs, best first, with their reports."""

    answer: str
    rankings: tuple[ModelComparison, ...] = ()
    """The editing models of all runs, where one judge judged them by one protocol."""
    leaderboard: tuple[LeaderboardEntry, ...]
    tables: tuple[ReportTable, ...] = ()
    """The papers' tables with the models of all runs as rows, protocol by protocol."""
    notes: tuple[str, ...]
    reports: tuple[Report, ...]

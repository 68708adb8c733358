"""Records of a report and of a leaderboard. Their field names are the keys of the JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, PlainSerializer

from editloupe.evals.report.notable_edits import NotableEdit
from editloupe.evals.report.table_formats import table_to_dict
from editloupe.evals.stats.agreement.edit_scores import ScoreAgreement
from editloupe.evals.stats.agreement.judge_vs_human import Agreement
from editloupe.evals.stats.comparison.model_comparison import ModelComparison
from editloupe.evals.stats.intervals import Estimate, Number
from editloupe.evals.stats.scores.distribution import AreaTrend, Distribution
from editloupe.evals.stats.scores.passport import Passport
from editloupe.evals.stats.scores.run_scores import Coverage, Scores
from editloupe.evals.stats.scores.run_table import ServedVersion
from editloupe.evals.stats.trust.corrected_scores import CorrectedScores
from editloupe.rubrics.tables import PrintedTable
from editloupe.types import Record


class UsageTotals(Record):
    """Requests, tokens, cost and time of all verdicts."""

    requests: int
    input_tokens: int
    output_tokens: int
    cost: Number | None
    """In US dollars; None if a price is unknown."""
    seconds: Number
    """Sum over all units."""


ReportTable = Annotated[
    PrintedTable, PlainSerializer(lambda table: {"protocol": table.protocol, **table_to_dict(table)})
]
"""A table, serialized as in the JSON form of a report."""


class Report(Scores):
    """The report of one run. Its JSON form has the scores at the top level."""

    run: str
    folder: str
    """Path as given by the user."""
    judge: str
    mode: str
    differs: str = ""
    """How this configuration differs from an earlier one with the same judge, protocol and mode."""
    configuration: str = ""
    """The configuration's name in the run."""
    short_name: str = ""
    """What names the configuration in `--configuration`; empty if the run has only one."""
    answer: str
    certainty: tuple[str, ...]
    """Sentences on how certain the answer is."""
    baseline: str | None
    """A note if the embedded rule-based judge gave the verdicts."""
    versions: tuple[ServedVersion, ...] = ()
    """Model versions reported by the providers; empty if none was reported."""
    version_notes: tuple[str, ...] = ()
    """Notes if one judge was served in several versions."""
    titles: Mapping[str, str]
    """Criteria to their titles."""
    agreement: Agreement | None
    """None without human labels."""
    score_agreement: ScoreAgreement | None = None
    """Agreement on the scores of whole edits; None if no edit has a score by people."""
    corrected: CorrectedScores | None = None
    """Scores corrected by human labels, if requested."""
    rankings: tuple[ModelComparison, ...]
    """Paired comparisons of the editing models and the score of the unedited baseline. One per group that the paper keeps
    separate, usually one."""
    tables: tuple[ReportTable, ...]
    """The paper's tables, and tables for groupings by several fields."""
    rules: Mapping[str, str] = Field(default_factory=dict, exclude_if=lambda value: not value)
    """The rules of the paper's public script that its tables follow; empty if they follow the paper's text."""
    passport: Passport
    """What decides whether these scores can be compared with others."""
    distributions: Mapping[str, Distribution]
    areas: Mapping[str, AreaTrend]
    instructive: tuple[NotableEdit, ...]
    spent: UsageTotals
    methods: str
    editloupe: str
    """Version of EditLoupe that built the report."""


class LeaderboardEntry(Record):
    """One line of a leaderboard."""

    rank: int | None
    """Rank by overall score; None without one."""
    ranks: tuple[int, int] | None = None
    """Best and worst rank that the paired tests allow; None if not compared."""
    run: str
    """The run and, if it has several, the editing model."""
    model: str | None = None
    judge: str
    mode: str
    protocol: str
    passport: str
    """Key of the passport; rows are ranked only among those with the same one."""
    overall: Estimate
    criteria: Mapping[str, Estimate]
    coverage: Coverage
    agreement: Mapping[str, Estimate] = Field(default_factory=dict)
    """Spearman's ρ with people by criterion."""
    pearson: Mapping[str, Estimate] = Field(default_factory=dict)
    """Pearson's r with people by criterion."""


class Leaderboard(Record):
    """Several runs, best first, with their reports."""

    answer: str
    rankings: tuple[ModelComparison, ...] = ()
    """Comparisons of the editing models of all runs, if judge and protocol are the same."""
    leaderboard: tuple[LeaderboardEntry, ...]
    tables: tuple[ReportTable, ...] = ()
    """The papers' tables per protocol, with the models of all runs as rows."""
    notes: tuple[str, ...]
    reports: tuple[Report, ...]

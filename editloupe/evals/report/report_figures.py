"""Figures of a report or leaderboard by name, drawn on demand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from editloupe.evals.report.report_records import Leaderboard, Report
from editloupe.evals.stats.agreement.edit_scores import ScoreAgreement
from editloupe.evals.stats.agreement.judge_vs_human import Agreement, CriterionAgreement, Measures
from editloupe.evals.stats.comparison.model_comparison import ModelComparison
from editloupe.evals.stats.intervals import Estimate
from editloupe.evals.stats.scores.distribution import AreaTrend
from editloupe.evals.stats.scores.score_matrix import SEPARATOR
from editloupe.types import UNJUDGED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from editloupe.evals.stats.trust.trust_summary import TrustSummary

Draw = Callable[[], "Figure"]


def build_figures(report_or_board: Report | Leaderboard) -> dict[str, Draw]:
    """Return functions that draw the figures, by name. Figures of the runs of a leaderboard are named `RUN/figure`."""
    if isinstance(report_or_board, Report):
        return _build_report_figures(report_or_board)
    own = _build_leaderboard_figures(report_or_board)
    for report in report_or_board.reports:
        own |= {f"{report.run}/{name}": draw for name, draw in _build_report_figures(report).items()}
    return own


def _build_report_figures(report: Report) -> dict[str, Draw]:
    from editloupe.evals.report import figures

    draw_by_name: dict[str, Draw] = {}
    titles = report.titles
    if report.by_type:
        draw_by_name["score_per_type"] = lambda: figures.score_per_type({report.run: report}, titles)
    elif by_criterion := _collect_types_by_model(report):
        draw_by_name["types_by_model"] = lambda: figures.types_by_model(by_criterion)
    if len(models := report.by.get("model", {})) > 1:
        draw_by_name["models"] = lambda: figures.leaderboard({**models, **_find_reference(report.rankings)})
    if report.distributions:
        named = {titles[name]: distribution for name, distribution in report.distributions.items()}
        draw_by_name["label_distribution"] = lambda: figures.label_distribution(named)
    if report.areas and all(len(trend.models) == 1 for trend in report.areas.values()):
        draw_by_name["score_by_area"] = lambda: figures.score_by_area(
            {titles[n]: trend for n, trend in report.areas.items()}
        )
    for name, trend in report.areas.items():
        draw_by_name[f"target_sizes_{name}"] = _draw_target_sizes(report, name, trend)
    if report.agreement:
        draw_by_name |= build_agreement_figures(report.agreement, report.score_agreement, titles)
    return draw_by_name


def build_agreement_figures(
    agreement: Agreement, score: ScoreAgreement | None, titles: Mapping[str, str]
) -> dict[str, Draw]:
    """Return functions that draw the figures of agreement with people, by name.

    Args:
        agreement: The agreement on every criterion.
        score: The agreement on the scores of edits.
        titles: Criteria to their titles.
    """
    from editloupe.evals.report import figures

    draw_by_name: dict[str, Draw] = {}
    agreed = agreement.criteria
    matrices = {titles[name]: measures.confusion for name, measures in agreed.items() if measures.confusion}
    if matrices:
        draw_by_name["confusion"] = lambda: figures.confusion_matrix(matrices)
    if score is not None and score.points:
        draw_by_name["agreement_of_scores"] = lambda: figures.scores_against_people(score)
    labelled = {name: measures for name, measures in agreed.items() if measures.n}
    by_type = {name: measures.by_type for name, measures in labelled.items() if measures.by_type}
    if by_type:
        draw_by_name["agreement_by_type"] = lambda: _draw_agreement(by_type, labelled, titles)
    if labelled and len(models := agreement.by.get("model", {})) > 1:
        by_model = {name: {model: own[name] for model, own in models.items()} for name in labelled}
        draw_by_name["agreement_by_model"] = lambda: _draw_agreement(by_model, labelled, titles)
    return draw_by_name


def build_trust_figure(summary: TrustSummary, titles: Mapping[str, str]) -> dict[str, Draw]:
    """Return the function that draws the figure of a trust page, by its name; nothing if there are no labels."""
    if not summary.agreement:
        return {}
    from editloupe.evals.report import figures

    return {"trust": lambda: figures.trust_overview(summary.agreement, summary.models, titles)}


def _find_reference(rankings: Sequence[ModelComparison]) -> dict[str, Estimate]:
    """Return the unedited baseline as a row of a figure, if there is exactly one with a score."""
    if len(rankings) != 1 or rankings[0].reference.overall.value is None:
        return {}
    return {f"({rankings[0].reference.name}: reference)": rankings[0].reference.overall}


MOST_CRITERIA = 5
"""Up to this number of criteria, each has its own panel in addition to the score."""


def _collect_types_by_model(report: Report) -> dict[str, dict[str, dict[str, float | None]]]:
    """Return scores by criterion, model and type, the overall score last; empty if no edit has a type."""
    lines = {label: {**part.by_type, "overall": part.overall} for label, part in report.parts.items() if part.by_type}
    if not lines:
        return {}
    criteria = [
        name
        for name in report.titles
        if any(name in score.criteria for line in lines.values() for score in line.values())
    ]
    tables: dict[str, dict[str, dict[str, float | None]]] = {}
    for name in criteria if len(criteria) <= MOST_CRITERIA else ():
        tables[report.titles[name]] = {
            label: {kind: score.criteria[name].value for kind, score in line.items() if name in score.criteria}
            for label, line in lines.items()
        }
    if len(tables) != 1:
        tables["Score"] = {label: {kind: score.value for kind, score in line.items()} for label, line in lines.items()}
    return tables


def _draw_target_sizes(report: Report, criterion: str, trend: AreaTrend) -> Draw:
    from editloupe.evals.report import figures

    answers = [name for name in report.distributions[criterion].answers if name != UNJUDGED]
    return lambda: figures.target_sizes(trend, report.titles[criterion], answers)


def _draw_agreement(
    groups: Mapping[str, Mapping[str, Measures]], agreed: Mapping[str, CriterionAgreement], titles: Mapping[str, str]
) -> Figure:
    """Draw ρ with people of each group of edits and of all edits, by criterion."""
    from editloupe.evals.report import figures

    lines = {
        titles[name]: [*((group, m.spearman) for group, m in own.items()), ("all edits", agreed[name].spearman)]
        for name, own in groups.items()
    }
    ceilings = {titles[name]: ceiling.spearman for name in groups if (ceiling := agreed[name].ceiling)}
    return figures.whiskers(lines, "Spearman ρ with people", ceilings)


def _build_leaderboard_figures(board: Leaderboard) -> dict[str, Draw]:
    from editloupe.evals.report import figures

    titles = {name: title for report in board.reports for name, title in report.titles.items()}
    draw_by_name: dict[str, Draw] = {
        "leaderboard": lambda: figures.leaderboard(
            {entry.run: entry.overall for entry in board.leaderboard} | _find_reference(board.rankings),
            {entry.run: entry.passport for entry in board.leaderboard},
        )
    }
    parts = {
        report.run if len(report.parts) == 1 else f"{report.run}{SEPARATOR}{label}": part
        for report in board.reports
        for label, part in report.parts.items()
        if part.by_type
    }
    if parts:
        draw_by_name["types_by_run"] = lambda: figures.score_per_type(parts)
    agreed = _collect_agreement(board)
    if agreed:
        ceilings = {
            titles[name]: agreement.ceiling
            for report in board.reports
            if report.agreement
            for name, agreement in report.agreement.criteria.items()
            if agreement.ceiling
        }
        draw_by_name["agreement_by_run"] = lambda: figures.judges_against_people(agreed, ceilings)
    return draw_by_name


def _collect_agreement(board: Leaderboard) -> dict[str, dict[str, Measures]]:
    """Return agreement with people by criterion and judge, or by run if two runs have the same judge and mode."""
    ways = [(report.judge, report.mode) for report in board.reports]
    is_judge_unique = len(set(ways)) == len(ways)
    by_criterion: dict[str, dict[str, Measures]] = {}
    for report, way in zip(board.reports, ways, strict=True):
        label = ", ".join(way) if is_judge_unique else report.run
        for name, measures in report.agreement.criteria.items() if report.agreement else ():
            if measures.n:
                by_criterion.setdefault(report.titles[name], {})[label] = measures
    return by_criterion

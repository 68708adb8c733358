"""The figures of a report, by the names its blocks use; each is drawn when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from editloupe.evals.report.report_records import Leaderboard, Report
from editloupe.evals.stats.agreement.judge_vs_human import CriterionAgreement, Measures
from editloupe.evals.stats.bootstrap import Estimate
from editloupe.evals.stats.comparison.model_comparison import ModelComparison
from editloupe.evals.stats.scores.distribution import AreaTrend
from editloupe.types import UNJUDGED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Draw = Callable[[], "Figure"]


def build_figures(found: Report | Leaderboard) -> dict[str, Draw]:
    """Return what can be drawn; figures of a leaderboard's single reports are named `RUN/figure`."""
    if isinstance(found, Report):
        return _build_report_figures(found)
    own = _build_leaderboard_figures(found)
    for report in found.reports:
        own |= {f"{report.run}/{name}": draw for name, draw in _build_report_figures(report).items()}
    return own


def _build_report_figures(report: Report) -> dict[str, Draw]:
    from editloupe.evals.report import figures

    found: dict[str, Draw] = {}
    titles = report.titles
    if report.by_type:
        found["score_per_type"] = lambda: figures.score_per_type({report.run: report}, titles)
    elif by_criterion := _collect_types_by_model(report):
        found["types_by_model"] = lambda: figures.types_by_model(by_criterion)
    if len(models := report.by.get("model", {})) > 1:
        found["models"] = lambda: figures.leaderboard({**models, **_find_reference(report.rankings)})
    if report.distributions:
        named = {titles[name]: one for name, one in report.distributions.items()}
        found["label_distribution"] = lambda: figures.label_distribution(named)
    if report.areas and all(len(one.models) == 1 for one in report.areas.values()):
        found["score_by_area"] = lambda: figures.score_by_area({titles[n]: one for n, one in report.areas.items()})
    for name, trend in report.areas.items():
        found[f"target_sizes_{name}"] = _draw_target_sizes(report, name, trend)
    if report.agreement:
        agreed = report.agreement.criteria
        matrices = {titles[name]: one.confusion for name, one in agreed.items() if one.confusion}
        if matrices:
            found["confusion"] = lambda: figures.confusion_matrix(matrices)
        labelled = {name: one for name, one in agreed.items() if one.by_type and one.n}
        if labelled:
            found["agreement_by_type"] = lambda: _draw_agreement_by_type(labelled, titles)
        if len(by_model := report.agreement.by.get("model", {})) > 1 and any(one.n for one in agreed.values()):
            found["agreement_by_model"] = lambda: _draw_agreement_by_model(by_model, agreed, titles)
    return found


def _find_reference(rankings: Sequence[ModelComparison]) -> dict[str, Estimate]:
    """Return nothing edited as a line of a figure, where its score is known and there is one."""
    if len(rankings) != 1 or rankings[0].reference.overall.value is None:
        return {}
    return {f"({rankings[0].reference.name}: reference)": rankings[0].reference.overall}


MOST_CRITERIA = 5
"""Criteria up to which each has a panel of its own beside the score."""


def _collect_types_by_model(report: Report) -> dict[str, dict[str, dict[str, float | None]]]:
    """Return criterion to model to type to score, the types' own scores last; nothing where no edit has a type."""
    lines = {label: {**part.by_type, "overall": part.overall} for label, part in report.parts.items() if part.by_type}
    if not lines:
        return {}
    criteria = [
        name for name in report.titles if any(name in one.criteria for line in lines.values() for one in line.values())
    ]
    found: dict[str, dict[str, dict[str, float | None]]] = {}
    for name in criteria if len(criteria) <= MOST_CRITERIA else ():
        found[report.titles[name]] = {
            label: {kind: one.criteria[name].value for kind, one in line.items() if name in one.criteria}
            for label, line in lines.items()
        }
    if len(found) != 1:
        found["Score"] = {label: {kind: one.value for kind, one in line.items()} for label, line in lines.items()}
    return found


def _draw_target_sizes(report: Report, criterion: str, trend: AreaTrend) -> Draw:
    from editloupe.evals.report import figures

    answers = [name for name in report.distributions[criterion].answers if name != UNJUDGED]
    return lambda: figures.target_sizes(trend, report.titles[criterion], answers)


def _draw_agreement_by_type(agreed: Mapping[str, CriterionAgreement], titles: Mapping[str, str]) -> Figure:
    from editloupe.evals.report import figures

    groups = {
        titles[name]: [*((kind, m.spearman) for kind, m in one.by_type.items()), ("all edits", one.spearman)]
        for name, one in agreed.items()
    }
    ceilings = {titles[name]: one.ceiling.spearman for name, one in agreed.items() if one.ceiling}
    return figures.whiskers(groups, "Spearman ρ with people", ceilings)


def _draw_agreement_by_model(
    by_model: Mapping[str, Mapping[str, Measures]], agreed: Mapping[str, CriterionAgreement], titles: Mapping[str, str]
) -> Figure:
    from editloupe.evals.report import figures

    labelled = {name: one for name, one in agreed.items() if one.n}
    groups = {
        titles[name]: [
            *((model, found[name].spearman) for model, found in by_model.items()),
            ("all edits", one.spearman),
        ]
        for name, one in labelled.items()
    }
    ceilings = {titles[name]: one.ceiling.spearman for name, one in labelled.items() if one.ceiling}
    return figures.whiskers(groups, "Spearman ρ with people", ceilings)


def _build_leaderboard_figures(board: Leaderboard) -> dict[str, Draw]:
    from editloupe.evals.report import figures

    titles = {name: title for report in board.reports for name, title in report.titles.items()}
    found: dict[str, Draw] = {
        "leaderboard": lambda: figures.leaderboard(
            {entry.run: entry.overall for entry in board.leaderboard} | _find_reference(board.rankings)
        )
    }
    parts = {
        report.run if len(report.parts) == 1 else f"{report.run} · {label}": part
        for report in board.reports
        for label, part in report.parts.items()
        if part.by_type
    }
    if parts:
        found["types_by_run"] = lambda: figures.score_per_type(parts)
    agreed = _collect_agreement(board)
    if agreed:
        ceilings = {
            titles[name]: one.ceiling
            for report in board.reports
            if report.agreement
            for name, one in report.agreement.criteria.items()
            if one.ceiling
        }
        found["agreement_by_run"] = lambda: figures.judges_against_people(agreed, ceilings)
    return found


def _collect_agreement(board: Leaderboard) -> dict[str, dict[str, Measures]]:
    """Return criterion to judge to its agreement with people; a judge and mode that several runs share go by the run."""
    ways = [(report.judge, report.mode) for report in board.reports]
    found: dict[str, dict[str, Measures]] = {}
    for report, way in zip(board.reports, ways, strict=True):
        label = ", ".join(way) if ways.count(way) == 1 else report.run
        for name, one in report.agreement.criteria.items() if report.agreement else ():
            if one.n:
                found.setdefault(report.titles[name], {})[label] = one
    return found

"""The figures of a report, by the names its blocks use; each is drawn when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from editloupe.evals.analysis.agreement import CriterionAgreement, Measures
from editloupe.evals.report.model import Leaderboard, Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Draw = Callable[[], "Figure"]


def drawings(found: Report | Leaderboard) -> dict[str, Draw]:
    """Return what can be drawn; figures of a leaderboard's single reports are named `RUN/figure`."""
    if isinstance(found, Report):
        return _of_report(found)
    own = _of_leaderboard(found)
    for report in found.reports:
        own |= {f"{report.run}/{name}": draw for name, draw in _of_report(report).items()}
    return own


def _of_report(report: Report) -> dict[str, Draw]:
    from editloupe.evals.report import figures

    found: dict[str, Draw] = {}
    titles = report.titles
    if report.by_type:
        found["score_per_type"] = lambda: figures.score_per_type({report.run: report}, titles)
    if len(models := report.by.get("model", {})) > 1:
        found["models"] = lambda: figures.leaderboard(models)
    if report.distributions:
        named = {titles[name]: one for name, one in report.distributions.items()}
        found["label_distribution"] = lambda: figures.label_distribution(named)
    if report.areas:
        found["score_by_area"] = lambda: figures.score_by_area({titles[n]: one for n, one in report.areas.items()})
    if report.agreement:
        agreed = report.agreement.criteria
        matrices = {titles[name]: one.confusion for name, one in agreed.items() if one.confusion}
        if matrices:
            found["confusion"] = lambda: figures.confusion_matrix(matrices)
        labelled = {name: one for name, one in agreed.items() if one.by_type and one.n}
        if labelled:
            found["agreement_by_type"] = lambda: _by_type(labelled, titles)
        if len(by_model := report.agreement.by.get("model", {})) > 1 and any(one.n for one in agreed.values()):
            found["agreement_by_model"] = lambda: _by_model(by_model, agreed, titles)
    return found


def _by_type(agreed: Mapping[str, CriterionAgreement], titles: Mapping[str, str]) -> Figure:
    from editloupe.evals.report import figures

    groups = {
        titles[name]: [*((kind, m.spearman) for kind, m in one.by_type.items()), ("all edits", one.spearman)]
        for name, one in agreed.items()
    }
    ceilings = {titles[name]: one.ceiling.spearman for name, one in agreed.items() if one.ceiling}
    return figures.whiskers(groups, "Spearman ρ with people", ceilings)


def _by_model(
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


def _of_leaderboard(board: Leaderboard) -> dict[str, Draw]:
    from editloupe.evals.report import figures

    titles = {name: title for report in board.reports for name, title in report.titles.items()}
    found: dict[str, Draw] = {
        "leaderboard": lambda: figures.leaderboard({entry.run: entry.overall for entry in board.leaderboard})
    }
    if any(report.by_type for report in board.reports):
        found["types_by_run"] = lambda: figures.score_per_type({report.run: report for report in board.reports})
    known = dict.fromkeys(name for entry in board.leaderboard for name, rho in entry.agreement.items() if rho.n)
    if known:
        groups = {
            titles[name]: [(e.run, e.agreement[name]) for e in board.leaderboard if name in e.agreement]
            for name in known
        }
        ceilings = {
            titles[name]: one.ceiling.spearman
            for report in board.reports
            if report.agreement
            for name, one in report.agreement.criteria.items()
            if one.ceiling
        }
        found["agreement_by_run"] = lambda: figures.whiskers(groups, "Spearman ρ with people", ceilings)
    return found

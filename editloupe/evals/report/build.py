"""Build the report of a run, and a leaderboard of several runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from editloupe._util.text import merge_equal_notes, number_of, verb
from editloupe.agent.spec_names import PANEL
from editloupe.evals.labels.human import HumanLabels, LabelFiles, load_human_labels
from editloupe.evals.manifests.pairs import PAIRS
from editloupe.evals.report.methods_text import write_methods
from editloupe.evals.report.notable_edits import find_notable_edits
from editloupe.evals.report.report_records import Leaderboard, LeaderboardEntry, Report, UsageTotals
from editloupe.evals.report.table_formats import HIGH, LOW
from editloupe.evals.report.trust_blocks import corrected_table
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.summary import describe_silent_members
from editloupe.evals.stats.agreement.edit_scores import measure_score_agreement
from editloupe.evals.stats.agreement.judge_vs_human import Agreement, measure_agreement
from editloupe.evals.stats.comparison.model_comparison import ModelComparison, compare_models_by_slice
from editloupe.evals.stats.comparison.run_comparison import is_same_judge
from editloupe.evals.stats.intervals import LEVEL, Estimate, format_level
from editloupe.evals.stats.scores import unedited_baseline as ref
from editloupe.evals.stats.scores.distribution import compute_area_trend, count_answers
from editloupe.evals.stats.scores.paper_tables import build_paper_tables
from editloupe.evals.stats.scores.passport import build_passport, compare_passports
from editloupe.evals.stats.scores.run_scores import Score, Scores, UnjudgedRule, compute_scores
from editloupe.evals.stats.scores.run_table import BASELINE_NOTE, RunRow, RunTable, format_version_notes, read_run_table
from editloupe.evals.stats.scores.score_matrix import (
    SEPARATOR,
    find_grouping_fields,
    find_shared_slice_fields,
    format_field,
    group_rows,
    split_into_slices,
)
from editloupe.evals.stats.scores.unedited_baseline import split_off_reference
from editloupe.evals.stats.trust.confidence import describe_contradicted
from editloupe.evals.stats.trust.corrected_scores import CorrectedScores
from editloupe.rubrics.registry import OWN, find_protocol
from editloupe.rubrics.tables import NO_MODEL, Cell, PrintedTable
from editloupe.types import UserError

if TYPE_CHECKING:
    from editloupe.evals.stats.trust.label_queue import LabelQueue


SAME_SCORE = 1e-9
"""Scores that differ by less are equal except for rounding errors."""
RULES_NOTE = (
    "The paper's tables follow the rules listed below them; all other scores of this report follow the paper's text."
)


def build_report(
    run: Run | RunTable | str | Path,
    by: Sequence[str] = (),
    unjudged: UnjudgedRule = "left_out",
    human: HumanLabels | LabelFiles = None,
    level: float = LEVEL,
    protocol: str | None = None,
    intervals: bool = False,
    corrected: bool = False,
    queue: LabelQueue | None = None,
    tables: bool = True,
    rules: Mapping[str, str] | None = None,
) -> Report:
    """Build the report of one run. Scores are always grouped by editing model.

    Args:
        run: A run, its folder, or its table.
        by: Further fields of the edits to group by, such as `style` or `model,style`.
        unjudged: Whether unjudged verdicts are left out or count as the worst answer.
        human: Human labels, or files of them. None reads the labels of the manifest and the studio.
        level: Level of the intervals.
        protocol: Protocol of the verdicts, if the run has several.
        intervals: Whether the paper's tables have an interval for every mean.
        corrected: Whether scores corrected by human labels are added.
        queue: The label queue that the labelled edits were drawn from; its weights enter the corrected scores.
        tables: Whether the paper's tables are computed.
        rules: The value of every rule of the paper's public script, from `choose_rules`. The tables then follow the script.

    Raises:
        UserError: The run cannot be read, or has several protocols and none was chosen.
    """
    full_table = read_run_table(run, protocol)
    table, _ = split_off_reference(full_table)
    fields = tuple(dict.fromkeys(("model", *by)))
    parts = split_into_slices(table)
    rankings = compare_models_by_slice([full_table], level, criteria=False, least=1, slices=parts)
    scores = compute_scores(table, fields, unjudged, level, parts=parts)
    people = load_human_labels(table, human)
    agreement = measure_agreement(table, people, level) if people.given else None
    absent = [field for field in by if field not in scores.by]
    notes = [*_note_missing_paper(table), *(f'No edit has a field "{field}".' for field in absent)]
    notes += [RULES_NOTE] if rules is not None else []
    try:
        fill = 0.0 if unjudged == "worst" else None
        sections = (
            build_paper_tables(table, level=level if intervals else None, fill=fill, parts=[parts], rules=rules)
            if tables
            else ()
        )
    except UserError as error:
        sections = ()
        notes.append(f"The paper's own tables are left out: {error}.")
    printed = tuple(
        replace(section, protocol=table.protocol)
        for section in (*sections, *build_cross_tables(table, scores, intervals))
    )
    corrected_scores = _correct_scores(table, people, queue, level) if corrected else None
    if corrected_scores is not None:
        printed = (*printed, replace(corrected_table(corrected_scores, table.titles), protocol=table.protocol))
    version_sentences = format_version_notes(table.versions)
    passport = build_passport(table, scores.coverage, unjudged, rules)
    printed = tuple(replace(section, notes=(*section.notes, *version_sentences, passport.line)) for section in printed)
    areas = {name: trend for name in table.criteria if (trend := compute_area_trend(table, name, level)) is not None}
    return Report(
        **{
            **dict(scores),
            "notes": (
                *table.notes,
                *scores.notes,
                *_note_mixed_judges(table),
                *notes,
                *list_ranking_notes(rankings),
                *people.notes,
            ),
        },
        run=table.name,
        folder=str(table.folder),
        judge=" + ".join(table.judges),
        mode=" + ".join(table.modes),
        differs=table.differs,
        configuration=table.configuration,
        short_name=table.short_name,
        answer=_summarize(table, scores, level, rankings),
        certainty=tuple(_describe_certainty(table, scores, agreement)),
        baseline=BASELINE_NOTE if table.by_rules else None,
        versions=table.versions,
        version_notes=version_sentences,
        titles=table.titles,
        agreement=agreement,
        score_agreement=None if agreement is None else measure_score_agreement(table, people, level),
        corrected=corrected_scores,
        rankings=rankings,
        tables=printed,
        rules=rules or {},
        passport=passport,
        distributions={name: count_answers(table, name) for name in table.criteria},
        areas=areas,
        instructive=find_notable_edits(table, people),
        spent=_sum_usage(table),
        methods=write_methods(table, scores, level, agreement),
        editloupe=version("editloupe"),
    )


def build_leaderboard(
    reports: Sequence[Report],
    tables: Sequence[RunTable] = (),
    intervals: float | None = None,
    paper_tables: bool = True,
) -> Leaderboard:
    """Rank several reports by overall score among those with the same passport. Runs of the same name are named by their folders.

    Args:
        reports: The reports of the runs.
        tables: The tables of the same runs in the same order. With them, editing models are compared case by case and share the
            paper's tables.
        intervals: Level of the intervals in the paper's tables; None for no intervals.
        paper_tables: Whether the papers' tables are computed.
    """
    groups = dict.fromkeys(report.passport.key for report in reports)
    rankings: tuple[ModelComparison, ...] = ()
    ranks: dict[tuple[str, tuple[str, ...]], tuple[int, int]] = {}
    for key in groups:
        own = [report for report in reports if report.passport.key == key]
        same = [table for report, table in zip(reports, tables, strict=False) if report.passport.key == key]
        compared = rank_runs(same)
        ranks |= find_open_ranks(compared, same)
        if len(own) == 1:  # its report has compared its editing models
            compared = tuple(ranking for ranking in own[0].rankings if len(ranking.models) > 1)
            ranks |= {
                (own[0].folder, (entry.model, *ranking.part)): entry.ranks
                for ranking in compared
                for entry in ranking.models
            }
        group = (" + ".join(report.run for report in own),) if len(groups) > 1 else ()
        rankings += tuple(ranking.model_copy(update={"part": (*group, *ranking.part)}) for ranking in compared)
    names = [report.run for report in reports]
    reports = [
        report.model_copy(update={"run": report.folder}) if names.count(report.run) > 1 else report
        for report in reports
    ]
    first = {key: number for number, key in enumerate(groups)}
    ordered = sorted(reports, key=lambda report: (first[report.passport.key], -_sort_value(report.overall), report.run))
    lines = [(report, label, part) for report in ordered for label, part in report.parts.items()]
    entries: list[LeaderboardEntry] = []
    for report, label, part in sorted(
        lines, key=lambda line: (first[line[0].passport.key], -_sort_value(line[2].overall))
    ):
        ranked = part.overall.value is not None
        # Runs with equal scores share a rank, and the next one counts them all.
        above = [
            entry
            for entry in entries
            if entry.passport == report.passport.key
            and _sort_value(entry.overall) > _sort_value(part.overall) + SAME_SCORE
        ]
        agreed = report.agreement.criteria if report.agreement else {}
        entries.append(
            LeaderboardEntry(
                rank=len(above) + 1 if ranked else None,
                ranks=ranks.get((report.folder, part.group)),
                run=report.run if len(report.parts) == 1 else f"{report.run}{SEPARATOR}{label}",
                model=None if part.group[0] == NO_MODEL else part.group[0],
                judge=report.judge,
                mode=report.mode,
                protocol=report.protocol,
                passport=report.passport.key,
                overall=part.overall,
                criteria=part.overall.criteria,
                coverage=part.coverage,
                agreement={name: measures.spearman for name, measures in agreed.items()},
                pearson={name: measures.pearson for name, measures in agreed.items()},
            )
        )
    notes = merge_equal_notes([(report.run, report.baseline) for report in ordered if report.baseline])
    notes += merge_equal_notes([(report.run, note) for report in ordered for note in report.version_notes])
    notes += _explain_groups(ordered)
    if len({report.unjudged_rule for report in reports}) == 1 and reports[0].unjudged_rule == "worst":
        notes.append("Pessimistic bounds: unjudged verdicts count as the worst answer.")
    return Leaderboard(
        answer=_summarize_board(rankings, entries),
        rankings=rankings,
        leaderboard=tuple(entries),
        tables=tuple(_merge_paper_tables(reports, [split_off_reference(table)[0] for table in tables], intervals))
        if paper_tables
        else (),
        notes=(*notes, *list_ranking_notes(rankings)),
        reports=tuple(ordered),
    )


def _merge_paper_tables(
    reports: Sequence[Report], tables: Sequence[RunTable], intervals: float | None
) -> Iterator[PrintedTable]:
    """Yield the paper's tables per protocol, with the models of all its runs as rows."""
    fill = 0.0 if reports[0].unjudged_rule == "worst" else None
    for protocol in dict.fromkeys(table.protocol for table in tables):
        own = [
            (table, dict(report.rules))
            for report, table in zip(reports, tables, strict=False)
            if table.protocol == protocol
        ]
        for rules in {tuple(sorted(rules.items())): rules for _, rules in own}.values():
            same = [table for table, others in own if others == rules]
            notes = _list_passports([r for r in reports if r.protocol == protocol and dict(r.rules) == rules])
            with suppress(UserError):  # the run's own report has a note on it
                yield from (
                    replace(section, protocol=protocol, notes=(*section.notes, *notes))
                    for section in build_paper_tables(*same, level=intervals, fill=fill, rules=rules or None)
                )


def _list_passports(reports: Sequence[Report]) -> list[str]:
    """Return the passports of a table's rows, with the runs of each if there are several."""
    runs: dict[str, list[str]] = {}
    for report in reports:
        runs.setdefault(report.passport.line, []).append(report.run)
    if len(runs) == 1:
        return list(runs)
    lines = [f"{', '.join(names)}: {line}" for line, names in runs.items()]
    return ["Rows with different passports cannot be compared.", *lines]


def _sort_value(score: Estimate) -> float:
    return -1.0 if score.value is None else score.value


def _explain_groups(reports: Sequence[Report]) -> Iterator[str]:
    """Yield why some runs are ranked apart from the first one."""
    base = reports[0].passport
    groups: dict[str, list[Report]] = {}
    for report in reports:
        groups.setdefault(report.passport.key, []).append(report)
    groups.pop(base.key)
    for others in groups.values():
        reasons = " ".join(compare_passports(base, others[0].passport))
        yield f"Ranked apart from {reports[0].run}: {', '.join(report.run for report in others)}. {reasons}"
    if groups:
        yield "`editloupe compare` compares two runs on the edits they share, `editloupe passport` says what differs."


def _summarize_board(rankings: Sequence[ModelComparison], entries: Sequence[LeaderboardEntry]) -> str:
    groups = len({entry.passport for entry in entries})
    if groups > 1:
        ranked = summarize_ranking(rankings)
        return f"The runs form {groups} groups that are ranked apart, because their scores cannot be compared. {ranked}".strip()
    return summarize_ranking(rankings) if rankings else _summarize_leader(entries)


def _summarize_leader(entries: Sequence[LeaderboardEntry]) -> str:
    best = entries[0]
    if best.overall.value is None:
        return "None of the runs has an overall score."
    rivals = [entry for entry in entries[1:] if entry.overall.value is not None]
    sentence = f"{best.run} leads with {best.overall.format(1)}"
    close = [e.run for e in rivals if (e.overall.high or 0.0) >= (best.overall.low or 0.0)]
    if not rivals:
        return f"{sentence}."
    if close:
        return f"{sentence}; its interval overlaps with that of {', '.join(close)}, so the order among them is not settled."
    return f"{sentence}, ahead of {rivals[0].run} with {rivals[0].overall.format(1)}."


def _correct_scores(table: RunTable, people: HumanLabels, queue: LabelQueue | None, level: float) -> CorrectedScores:
    from editloupe.evals.stats.trust.corrected_scores import correct_scores  # loads scipy's distributions

    return correct_scores(table, people, queue, level)


def _summarize(table: RunTable, scores: Scores, level: float, rankings: Sequence[ModelComparison]) -> str:
    overall = scores.overall
    mode = "" if table.imported else f" in {' + '.join(table.modes)} mode"
    who = f"{' + '.join(table.judges)}{mode}"
    lowest = scores.unjudged_rule == "worst" and scores.coverage.unjudged > 0
    if any(PAIRS in row.edit.extra for row in table.rows):
        candidates = f"Pairs of {number_of(len(table.rows), 'candidate')}, judged by {who}"
        return f"{candidates}: the table has the share in people's order. A mean over winners and losers says nothing."
    if len(scores.parts) > 1:
        bound = " (at least: what is unjudged counts as the worst)" if lowest else ""
        several = (
            f"{number_of(len(scores.parts), 'score')}{bound} from {number_of(len(table.rows), 'edit')}, judged by {who}"
        )
        return f"{several}: {overall.why}. {summarize_ranking(rankings)}".strip()
    if overall.value is None:
        return (
            f"No overall score: {overall.why}. {scores.coverage.judged} of "
            f"{number_of(scores.coverage.units, 'verdict')} by {who}."
        )
    kinds = len([score for score in scores.by_type.values() if score.value is not None])
    scope = number_of(overall.n, "edit")
    scope += f" of {number_of(kinds, 'instruction type')}" if kinds else ""
    bound = "at least " if lowest else ""
    between = (
        f" ({format_level(level)} interval {overall.low:.1f} to {overall.high:.1f})" if overall.low is not None else ""
    )
    sentence = f"Overall score {bound}{overall.value:.1f} of 100{between}, from {scope}, judged by {who}."
    return f"{sentence} {summarize_ranking(rankings)}".strip()


def _describe_certainty(table: RunTable, scores: Scores, agreement: Agreement | None) -> list[str]:
    sentences = []
    coverage = scores.coverage
    if coverage.not_yet:
        sentences.append(
            f"The run is not complete: {coverage.judged} of {number_of(coverage.expected, 'verdict')} judged, "
            f"{coverage.not_yet} not yet. Everything here is about those that are."
        )
    if not coverage.unjudged and not coverage.not_yet:
        sentences.append(
            f"{verb(coverage.units, 'The one verdict was', f'All {coverage.units} verdicts were')} given; nothing is unjudged."
        )
    elif coverage.unjudged:
        reasons = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in coverage.reasons.items())
        fate = "left out" if scores.unjudged_rule == "left_out" else "counted as the worst answer"
        line = (
            f"{coverage.judged} of {number_of(coverage.units, 'verdict')} {verb(coverage.judged, 'was', 'were')} "
            f"given ({coverage.share * 100:.1f} %); "
        )
        line += f"{coverage.unjudged} {verb(coverage.unjudged, 'is', 'are')} unjudged ({reasons}) and {fate}."
        bounds = scores.bounds
        if bounds and bounds.worst is not None and bounds.best is not None:
            line += (
                f" Had all of them been the worst or the best answer, the overall score would be {bounds.worst:.1f} "
            )
            line += f"or {bounds.best:.1f}."
        sentences.append(line)
    if any(judge.startswith(PANEL) for judge in table.judges):
        with Run.open(table.folder) as run:
            sentences += describe_silent_members(run, table.configuration)
    if scores.repeats and scores.repeats.sd is not None:
        sentences.append(
            f"Over {scores.repeats.count} repeats: {scores.repeats.mean:.2f} ± {scores.repeats.sd:.2f} (mean ± SD)."
        )
    if scores.overall.sources is not None and scores.overall.sources < scores.overall.n:
        sentences.append(
            f"The {number_of(scores.overall.n, 'edit')} share {number_of(scores.overall.sources, 'source image')}; intervals "
            "are by source image."
        )
    if scores.overall.low is None and scores.overall.value is not None:
        sentences.append(f"The overall score has {scores.overall.why}.")
    sentences += describe_contradicted(table)
    if agreement is None:
        sentences.append("No human labels: nothing here says how far people would agree with this judge.")
        return sentences
    for criterion, measures in agreement.criteria.items():
        name = table.title_of(criterion)
        if measures.n == 0:
            sentences.append(f"{name}: no edit has both a verdict and a human label.")
            continue
        rho = measures.spearman
        line = (
            f"{name}: Spearman ρ with people {rho.format()}" if rho.value is not None else f"{name}: no ρ ({rho.why})"
        )
        if measures.accuracy.value is not None:
            line += f", same label on {measures.accuracy.value * 100:.0f} %"
        line += f" of {number_of(measures.n, 'edit')}"
        if measures.ceiling and measures.ceiling.spearman.value is not None:
            line += f"; one annotator against the others reaches ρ {measures.ceiling.spearman.format()}"
        sentences.append(f"{line}.")
    return sentences


def _note_mixed_judges(table: RunTable) -> list[str]:
    """Return a note if the verdicts come from several judges, modes or configurations."""
    notes = []
    kinds = table.unit_columns.counts
    pairs = {(kind.judge, kind.mode) for kind in kinds}
    if len(pairs) > 1:
        ways = ", ".join(sorted(f"{judge} in {mode} mode" for judge, mode in pairs))
        notes.append(f"The verdicts of this run come from different judges or modes: {ways}.")
    elif len({kind.configuration for kind in kinds}) > 1:
        notes.append("The verdicts of this run were given under different settings or prompts; see run.json.")
    return notes


def _note_missing_paper(table: RunTable) -> list[str]:
    """Return a note if the run's paper is not installed, so its formulas are not applied."""
    if table.protocol == OWN or find_protocol(table.protocol):
        return []
    return [f"No paper called {table.protocol} is installed, so its own arithmetic and tables are left out."]


def _sum_usage(table: RunTable) -> UsageTotals:
    units = table.unit_columns
    return UsageTotals(
        requests=sum(units.requests.tolist()),
        input_tokens=sum(units.input_tokens.tolist()),
        output_tokens=sum(units.output_tokens.tolist()),
        cost=None if np.isnan(units.cost).any() else sum(units.cost.tolist()),
        seconds=sum(units.seconds.tolist()),
    )


def rank_runs(tables: Sequence[RunTable]) -> tuple[ModelComparison, ...]:
    """Compare the editing models of several runs; empty if judge, protocol or edits have nothing in common."""
    if len(tables) < 2 or any(table.protocol != tables[0].protocol for table in tables):
        return ()
    if any(not is_same_judge(tables[0], other) for other in tables[1:]):
        return ()
    comparisons = compare_models_by_slice(tables, criteria=False, least=1)
    return comparisons if any(pair.cases for comparison in comparisons for pair in comparison.pairs) else ()


def find_open_ranks(
    rankings: Sequence[ModelComparison], tables: Sequence[RunTable]
) -> dict[tuple[str, tuple[str, ...]], tuple[int, int]]:
    """Return the possible ranks of every slice of every run, by run folder and group."""
    entries = {(ranking.part, entry.model): entry.ranks for ranking in rankings for entry in ranking.models}
    fields = find_shared_slice_fields(tables) if rankings else ()
    open_ranks = {}
    for table in tables if rankings else ():
        for part in split_into_slices(ref.split_off_reference(table)[0]):
            model, apart = part.group[0], tuple(format_field(part.table.rows[0].edit, field) for field in fields)
            names = (model, table.name, f"{model} ({table.name})", str(table.folder), f"{model} ({table.folder})")
            matches = [entries[apart, name] for name in dict.fromkeys(names) if (apart, name) in entries]
            if len(matches) == 1:
                open_ranks[str(table.folder), part.group] = matches[0]
    return open_ranks


def summarize_ranking(rankings: Sequence[ModelComparison]) -> str:
    """Summarize which model is best in every group, or whether a single model beats the unedited baseline."""
    sentences = []
    for ranking in rankings:
        sentence = ranking.answer if len(ranking.models) > 1 else warn_below_reference(ranking)
        sentences += [(SEPARATOR.join(ranking.part), sentence)] if sentence else []
    return " ".join(merge_equal_notes(sentences))


def list_ranking_notes(rankings: Sequence[ModelComparison]) -> list[str]:
    """Return notes on a ranking: the baseline, missing cases, and means that rest on unedited outputs."""
    notes = []
    for ranking in rankings:
        sentences = [describe_reference(ranking)]
        if any(entry.lacks for entry in ranking.models):
            counts = ", ".join(sorted(f"{entry.model} {entry.cases}" for entry in ranking.models))
            scope = "scores are over each model's own, tests over those that two share"
            sentences.append(f"The models do not have the same cases ({counts}): {scope}.")
        sentences += [
            ref.format_unedited(entry.model, entry.unedited) for entry in ranking.models if entry.unedited.carried
        ]
        notes += [(SEPARATOR.join(ranking.part), sentence) for sentence in sentences]
    return merge_equal_notes(notes)


def describe_reference(ranking: ModelComparison) -> str:
    """Describe the score of the unedited baseline on these cases, or why it is unknown."""
    reference = ranking.reference
    if reference.overall.value is None:
        return f"What every source handed in unedited would score is not known: {reference.overall.why}."
    origin = "judged like the others" if reference.judged else "by the protocol's own words"
    return (
        f"Every source handed in unedited would score {reference.overall.value:.1f} ({origin}): "
        "the reference for every mean here."
    )


def warn_below_reference(ranking: ModelComparison) -> str:
    """Return a warning if a single model does not clearly beat the unedited baseline, else an empty string."""
    if not ranking.against_reference or ranking.against_reference[0].overall.better == ranking.models[0].model:
        return ""
    if ranking.against_reference[0].overall.difference.low is None:
        return f"An unedited source scores {ranking.reference.overall.value:.1f}; too few source pictures to test the difference."
    return f"That is not clearly better than an unedited source, which scores {ranking.reference.overall.value:.1f}."


def build_cross_tables(table: RunTable, scores: Scores, intervals: bool) -> list[PrintedTable]:
    """Return a table per grouping by several fields: the last field as columns, the others as rows."""
    tables: dict[tuple[str, ...], PrintedTable] = {}
    for fields, groups in scores.by.items():
        names = find_grouping_fields(table, fields)
        if len(names) > 1 and groups and names not in tables:
            tables[names] = _build_cross_table(names, groups, _count_verdicts(table, names[:-1]), intervals)
    return list(tables.values())


def _count_verdicts(table: RunTable, names: Sequence[str]) -> dict[tuple[str, ...], tuple[int, int]]:
    """Count judged and expected verdicts per row, over all its edits, whether or not they enter a score."""
    waiting = group_rows([RunRow(edit, {}, {}) for edit in table.waiting], names)
    counts = {}
    for key, rows in group_rows(table.rows, names).items():
        part = table.with_rows(rows).with_waiting(row.edit for row in waiting.get(key, ()))
        counts[key] = (int(part.unit_columns.judged.sum()), part.expected())
    return counts


def _build_cross_table(
    names: Sequence[str],
    groups: Mapping[str, Score],
    counts: Mapping[tuple[str, ...], tuple[int, int]],
    intervals: bool,
) -> PrintedTable:
    across = list(dict.fromkeys(score.group[-1] for score in groups.values()))
    down: dict[tuple[str, ...], dict[str, Score]] = {}
    for score in groups.values():
        down.setdefault(score.group[:-1], {})[score.group[-1]] = score
    columns = list(names[:-1])
    for value in across:
        columns += [value, f"{value}{LOW}", f"{value}{HIGH}"] if intervals else [value]
    lines = []
    for key, cells in down.items():
        line: list[Cell] = [*key]
        for value in across:
            cell = cells.get(value)
            line.append(cell.value if cell else None)
            if intervals:
                line += [cell.low, cell.high] if cell else [None, None]
        lines.append((*line, *counts[key]))
    title = f"By {', '.join(names[:-1])} and {names[-1]}"
    return PrintedTable(title, (*columns, "judged", "expected"), tuple(lines))


def list_tables(report_or_board: Report | Leaderboard) -> list[PrintedTable]:
    """Return the tables of a report for LaTeX and CSV; the scores by model if the paper has no tables."""
    if report_or_board.tables:
        return list(report_or_board.tables)
    reports = [report_or_board] if isinstance(report_or_board, Report) else list(report_or_board.reports)
    return [section for report in reports if (section := _build_score_table(report))]


def _build_score_table(report: Report) -> PrintedTable:
    criteria = list(report.by_criterion)
    columns = ("model", "overall", *(report.titles[name] for name in criteria), "judged", "expected")
    rows = tuple(
        (
            label,
            part.overall.value,
            *(part.overall.criteria[name].value if name in part.overall.criteria else None for name in criteria),
            part.coverage.judged,
            part.coverage.expected,
        )
        for label, part in report.parts.items()
    )
    return PrintedTable(f"{report.run}: {report.protocol}", columns, rows, (report.passport.line,))

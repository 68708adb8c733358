"""Turn a report or a leaderboard into blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from editloupe._util.text import for_json, number_of, verb
from editloupe.evals.report.block_types import Block, Cases, Drawing, Heading, Paragraph, Points
from editloupe.evals.report.report_records import Leaderboard, Report
from editloupe.evals.report.table_formats import describe_p_value, format_or_dash, merge_intervals
from editloupe.evals.report.trust_blocks import CORRECTED, corrected_blocks
from editloupe.evals.stats.agreement.coefficients import TITLES
from editloupe.evals.stats.agreement.edit_scores import ScoreAgreement
from editloupe.evals.stats.agreement.judge_vs_human import Agreement, AnnotatorAgreement, Measures, RaterAgreement
from editloupe.evals.stats.agreement.people import PeopleAgreement
from editloupe.evals.stats.comparison.model_comparison import ModelComparison
from editloupe.evals.stats.intervals import MIN_SOURCES, Estimate
from editloupe.evals.stats.scores.distribution import WINDOW, SizeTrend
from editloupe.evals.stats.scores.run_scores import Score
from editloupe.evals.stats.scores.score_matrix import SEPARATOR
from editloupe.evals.stats.scores.unedited_baseline import UneditedReference
from editloupe.rubrics.tables import PrintedTable

VERSIONS = "A judge was served in several versions, see above."


def report_blocks(report: Report, level: int = 1, within: str = "") -> Iterator[Block]:
    """Yield the blocks of a report: answer, certainty, tables, notable edits, methods."""
    mode = "imported" if report.passport.imported else f"{report.mode} mode"
    what = " · ".join(filter(None, (report.judge, report.protocol, mode, report.differs)))
    yield Heading(f"{report.run}: {what}", level, folded=level > 1)
    yield Paragraph(report.answer, "answer")
    if report.baseline:
        yield Paragraph(report.baseline, "warning")
    for note in report.version_notes:
        yield Paragraph(note, "warning")
    yield Heading("How sure is that?", level + 1)
    yield Points((*report.certainty, *report.notes, report.passport.line))
    corrected = corrected_blocks(report.corrected, report.titles, level + 1) if report.corrected else ()
    for block in (*_score_blocks(report, level + 1), *corrected, *_agreement_blocks(report, level + 1)):
        if isinstance(block, Drawing):
            name = within + block.name
            yield replace(block, name=name, folder=report.folder, configuration=report.configuration)
        else:
            yield _with_passport(_with_versions(block, report), report) if isinstance(block, PrintedTable) else block
    if report.instructive:
        yield Heading("Edits to look at", level + 1)
        yield Cases(report.folder, report.instructive, report.titles, report.configuration, report.short_name)
    yield Heading("Methods", level + 1)
    yield Paragraph(report.methods, "paste")
    yield Paragraph(for_json(report.passport.model_dump(mode="json"), 2), "json")
    if report.spent.requests:
        cost = "cost unknown" if report.spent.cost is None else f"${report.spent.cost:.2f}"
        tokens = f"{report.spent.input_tokens:,} input and {report.spent.output_tokens:,} output tokens"
        yield Paragraph(f"{report.spent.requests:,} requests, {tokens}, {cost}.")


def _with_versions(grid: PrintedTable, report: Report) -> PrintedTable:
    """Add a note to a table if its judge was served in several versions."""
    if not report.version_notes or report.version_notes[0] in grid.note:
        return grid
    return replace(grid, notes=(*grid.notes, VERSIONS))


def _with_passport(grid: PrintedTable, report: Report) -> PrintedTable:
    """Add the passport's key to a table whose notes do not have it."""
    name = f"Passport {report.passport.key}"
    return grid if name in grid.note else replace(grid, notes=(*grid.notes, f"{name}."))


def _score_blocks(report: Report, level: int) -> Iterator[Block]:
    yield Heading("Scores", level)
    if len(report.parts) == 1:
        yield _build_score_table(report, {**report.by_type, "overall": report.overall}, "type")
    if report.by_level:
        levels = tuple((name, score.format(1), str(score.n)) for name, score in report.by_level.items())
        yield PrintedTable("", ("level", "score", "edits"), levels)
    if report.by_type:
        yield Drawing("score_per_type", "Scores by instruction type with intervals.")
    yield from _table_blocks([table for table in report.tables if table.title != CORRECTED], level + 1)
    if any(ranking.part for ranking in report.rankings):
        for ranking in report.rankings:
            yield Heading(f"Editing models, {SEPARATOR.join(ranking.part)}", level + 1)
            yield build_models_table(ranking)
    for field, values in report.by.items():
        if any(len(score.group) > 1 for score in values.values()):
            continue  # has its own table above
        yield Heading(f"By {field.replace('_', ' ')}", level + 1)
        ranked = sorted(values.items(), key=lambda item: -(item[1].value if item[1].value is not None else -1))
        yield (
            _build_score_table(report, dict(ranked), field)
            if field != "model"
            else _build_model_table(report, dict(ranked))
        )
        if field == "model" and len(values) > 1:
            yield Drawing("models", "Editing models by overall score.")
            yield Drawing("types_by_model", "Scores by instruction type and editing model.")
    yield Heading("Answers", level + 1)
    for criterion, distribution in report.distributions.items():
        lines = tuple((name, *map(str, counts)) for name, counts in distribution.counts.items())
        yield PrintedTable("", (report.titles[criterion], *distribution.answers), lines)
    yield Drawing("label_distribution", "How often each answer was given; numbers are counts.")
    if report.areas:
        yield Heading("Size of the target", level + 1)
        yield Points(tuple(_describe_size_trend(report, criterion) for criterion in report.areas))
        if len(report.parts) == 1:
            yield Drawing(
                "score_by_area", "Score against the area of the target; points are spread a little for the eye."
            )
        for criterion in report.areas:
            yield Drawing(f"target_sizes_{criterion}", f"Size of the targets and score, {report.titles[criterion]}.")


def _table_blocks(tables: Sequence[PrintedTable], level: int) -> Iterator[Block]:
    for table in map(merge_intervals, tables):
        yield Heading(table.title, level)
        yield table


def _describe_size_trend(report: Report, criterion: str) -> str:
    trend = report.areas[criterion]
    if len(trend.models) > 1:
        correlations = "; ".join(f"{model} {_format_correlation(own)}" for model, own in trend.models.items())
        return f"{report.titles[criterion]}: Pearson r of edits with log area, {correlations}."
    correlation = _format_correlation(next(iter(trend.models.values())))
    return f"{report.titles[criterion]}: Pearson r of edits with log area {correlation}."


def _format_correlation(trend: SizeTrend) -> str:
    if trend.r is None or trend.p is None:
        return f"none ({trend.why})"
    windows = "" if trend.window_r is None else f" (of means of {WINDOW} neighbours {trend.window_r:.2f})"
    return f"{trend.r:.2f}, {describe_p_value(trend.p)}, {number_of(trend.n, 'edit')}{windows}"


def _build_score_table(report: Report, lines: Mapping[str, Score], head: str) -> PrintedTable:
    criteria = list(report.by_criterion)
    several = len(criteria) > 1
    columns = [head, "score", *(report.titles[name] for name in criteria if several), "edits", "judged", "unjudged"]
    rows = []
    for name, score in lines.items():
        parts = [score.criteria[c].format(1) if c in score.criteria else "not asked" for c in criteria if several]
        rows.append((name, score.format(1), *parts, str(score.n), str(score.judged), str(score.unjudged)))
    reasons = {name: score.why for name, score in lines.items() if score.why and score.interval_note is None}
    notes = [f"{name}: {why}." for name, why in reasons.items()]
    shown = [part for score in lines.values() for part in (score, *(score.criteria.values() if several else ()))]
    return PrintedTable("", tuple(columns), tuple(rows), (*notes, *explain_missing_intervals(shown)))


def explain_missing_intervals(estimates: Iterable[Estimate]) -> tuple[str, ...]:
    """Return a note on cells that have a reason in place of an interval, none if there are no such cells.

    >>> explain_missing_intervals([Estimate(value=50, n=4, sources=3)])
    ('[3 sources]: an interval needs at least 5 source pictures.',)
    """
    marked = [(estimate.sources or 0, estimate.why) for estimate in estimates if estimate.interval_note]
    few = sorted({sources for sources, _ in marked if sources < MIN_SOURCES})
    notes = []
    if few:
        counts = ", ".join(map(str, few))
        noun = "source" if few == [1] else "sources"
        notes.append(f"[{counts} {noun}]: an interval needs at least {MIN_SOURCES} source pictures.")
    other = dict.fromkeys(why for sources, why in marked if why and sources >= MIN_SOURCES)
    return (*notes, *(f"[{why}]." for why in other))


def _build_model_table(report: Report, lines: Mapping[str, Score]) -> PrintedTable:
    """Build the table of editing models with their possible ranks; the unedited baseline is the last row."""
    plain = _build_score_table(report, lines, "model")
    (ranking,) = report.rankings
    entries = {entry.model: entry for entry in ranking.models}
    rows = []
    for model, row in zip(lines, plain.rows, strict=True):
        entry = entries.get(model)
        unedited = entry.unedited.copies + entry.unedited.alike if entry else 0
        # all verdicts of the model, as in its tables: a score may leave out a level
        part = report.parts.get(model)
        counts = map(str, (part.coverage.edits, part.coverage.judged, part.coverage.unjudged)) if part else row[-3:]
        rows.append((model, format_ranks(entry.ranks) if entry else "–", *row[1:-3], *counts, str(unedited)))
    rows.append(build_reference_row(ranking.reference, plain.columns[2:-3] and list(report.by_criterion), 4))
    note = f"{plain.note} {RANKS} {UNEDITED} {describe_reference_row(ranking.reference)}".strip()
    return PrintedTable("", (plain.columns[0], "rank", *plain.columns[1:], "unedited"), tuple(rows), (note,))


LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def letter_name(index: int) -> str:
    """Return A to Z, then AA, AB and so on.

    >>> letter_name(0), letter_name(25), letter_name(26), letter_name(53)
    ('A', 'Z', 'AA', 'BB')
    """
    more, rest = divmod(index, len(LETTERS))
    return (letter_name(more - 1) if more else "") + LETTERS[rest]


def assign_short_names(models: Sequence[str]) -> list[str]:
    """Assign a letter to every model, or a number if a letter is the name of another model.

    >>> assign_short_names(["painter", "tiny"]), assign_short_names(["A", "B"]), assign_short_names(["painter", "A"])
    (['A', 'B'], ['A', 'B'], ['#1', '#2'])
    """
    letters = [letter_name(index) for index in range(len(models))]
    taken = any(name in letters and name != own for name, own in zip(models, letters, strict=True))
    return [f"#{index}" for index in range(1, len(models) + 1)] if taken else letters


def build_models_table(comparison: ModelComparison) -> PrintedTable:
    """Build a table of editing models with scores, possible ranks and cases; the unedited baseline is the last row."""
    short = assign_short_names([entry.model for entry in comparison.models])
    rows = [
        (
            f"{short[index]} {entry.model}",
            format_ranks(entry.ranks),
            format_or_dash(entry.overall),
            str(entry.cases),
            str(entry.lacks),
            str(entry.unjudged),
            str(entry.unedited.copies + entry.unedited.alike),
        )
        for index, entry in enumerate(comparison.models)
    ]
    return PrintedTable(
        "",
        ("model", "rank", "score", "cases", "lacks", "unjudged", "unedited"),
        (*rows, build_reference_row(comparison.reference, (), 4)),
        (
            f"{comparison.common} of {number_of(comparison.cases, 'case')} "
            f"{verb(comparison.common, 'is', 'are')} common to all models. "
            f"{describe_reference_row(comparison.reference)} "
            f"Rank: the best and worst that the corrected tests leave open. {UNEDITED}",
        ),
    )


RANKS = "Rank: the best and worst that paired tests leave open, corrected for all pairs (`editloupe compare --models`)."
UNEDITED = "Unedited: outputs that are the source itself or got its verdicts."


def format_ranks(span: tuple[int, int]) -> str:
    """Format the range of possible ranks.

    >>> format_ranks((1, 1)), format_ranks((2, 4))
    ('1', '2–4')
    """
    return str(span[0]) if span[0] == span[1] else f"{span[0]}–{span[1]}"


def build_reference_row(reference: UneditedReference, criteria: Sequence[str], more: int) -> tuple[str, ...]:
    """Return the row of the unedited baseline: no rank, its scores, and dashes in further columns."""
    parts = [reference.criteria[name].format(1) if name in reference.criteria else "–" for name in criteria]
    return (f"({reference.name}: reference)", "–", reference.overall.format(1), *parts, *["–"] * more)


def describe_reference_row(reference: UneditedReference) -> str:
    """Explain where the scores of the unedited baseline come from, or why there are none."""
    lacking = f"There is no overall score for it: {reference.overall.why}. " if reference.overall.value is None else ""
    return f"Reference, not ranked: every source handed in unedited. {lacking}{reference.why}"


MEASURES_SHOWN = ("spearman", "pearson", "mae", "accuracy", "kappa", "kappa_quadratic", "krippendorff_alpha_with_judge")


def _agreement_blocks(report: Report, level: int) -> Iterator[Block]:
    if report.agreement is None:
        return
    yield Heading("Agreement with people", level)
    yield Paragraph(f"{describe_labels(report.agreement)} {report.agreement.consensus}")
    yield from build_agreement_tables(report.agreement.criteria, report.titles)
    if report.score_agreement is not None:
        yield build_score_table(report.score_agreement)
        yield Drawing("agreement_of_scores", "Score of each edit by people and by the judge; dashed: equal scores.")
    yield Drawing("confusion", "Labels of people (rows) and of the judge (columns).")
    yield Heading("Agreement by type", level + 1)
    for criterion, measures in report.agreement.criteria.items():
        if measures.by_type:
            yield build_measures_table(report.titles.get(criterion, criterion), measures.by_type)
    yield from build_field_tables(report.agreement, report.titles)
    if len(report.agreement.by.get("model", {})) > 1:
        yield Drawing(
            "agreement_by_model", "Spearman ρ with people, by editing model; dashed: one annotator against the others."
        )
    yield from people_blocks(collect_people(report.agreement), report.titles, level + 1)
    yield Drawing(
        "agreement_by_type", "Spearman ρ with people; dashed: one annotator against the others, with interval."
    )


def describe_labels(agreement: Agreement | PeopleAgreement) -> str:
    """Say where the labels of people come from, and how many each annotator gave."""
    counts = ", ".join(f"{name}: {number_of(count, 'label')}" for name, count in agreement.annotators.items())
    return f"Labels from {agreement.origin} ({counts})."


def format_fields(fields: str) -> str:
    """Format the fields of a grouping.

    >>> format_fields("model,target_size")
    'model and target size'
    """
    return " and ".join(name.strip().replace("_", " ") for name in fields.split(","))


def build_agreement_tables(criteria: Mapping[str, Measures], titles: Mapping[str, str]) -> Iterator[PrintedTable]:
    """Yield a table per criterion with one row per measure, next to the agreement among annotators."""
    for criterion, measures in criteria.items():
        ceiling = getattr(measures, "ceiling", None)
        rows, whys = [], []
        shown: list[Estimate] = []
        for name in MEASURES_SHOWN:
            estimate: Estimate = getattr(measures, name)
            among = getattr(ceiling, name, None) if ceiling else None
            if name == "krippendorff_alpha_with_judge":
                among = measures.krippendorff_alpha_annotators
            reach = "–" if among is None else among.format()
            title = "Krippendorff α (judge as annotator)" if name.endswith("with_judge") else TITLES[name]
            rows.append((title, estimate.format(), reach, str(estimate.n)))
            whys += [f"{title}: {estimate.why}."] if estimate.why and estimate.interval_note is None else []
            shown += [estimate] if among is None else [estimate, among]
        note = " ".join((*dict.fromkeys(whys), *explain_missing_intervals(shown)))
        if measures.left_out:
            note = f"{note} {measures.left_out} labelled edits are unjudged and left out.".strip()
        yield PrintedTable(
            "", (titles.get(criterion, criterion), "judge", "people among themselves", "edits"), tuple(rows), (note,)
        )


def build_measures_table(title: str, lines: Mapping[str, Measures]) -> PrintedTable:
    """Build a table of the main measures with one row per group."""
    columns = ("spearman", "mae", "accuracy", "krippendorff_alpha")
    rows = [
        (name, *(getattr(measures, m).format() for m in columns), str(measures.n)) for name, measures in lines.items()
    ]
    raters = (
        "annotators" if any(measures.raters == "annotators" for measures in lines.values()) else "annotator and judge"
    )
    heads = [f"Krippendorff α, {raters}" if m == "krippendorff_alpha" else TITLES[m] for m in columns]
    absent = [
        f"{name}: {measures.spearman.why}." for name, measures in lines.items() if measures.spearman.value is None
    ]
    notes = (f"No ρ – {' '.join(absent)}",) if absent else ()
    shown = [getattr(measures, m) for measures in lines.values() for m in columns]
    return PrintedTable("", (title, *heads, "edits"), tuple(rows), (*notes, *explain_missing_intervals(shown)))


def build_field_tables(agreement: Agreement, titles: Mapping[str, str]) -> Iterator[PrintedTable]:
    """Yield tables of agreement by editing model and other fields, one per field and criterion."""
    for field, values in agreement.by.items():
        for criterion in agreement.criteria:
            lines = {value: by_criterion[criterion] for value, by_criterion in values.items()}
            if any(measures.n or measures.left_out for measures in lines.values()):
                yield build_measures_table(f"{titles.get(criterion, criterion)}, by {format_fields(field)}", lines)


def build_score_table(score: ScoreAgreement) -> PrintedTable:
    """Build a table of the agreement on the scores of edits: overall, by editing model and by type."""
    models = score.by_model if len(score.by_model) > 1 else {}
    lines = {"score": score, **models, **(score.by_type if len(score.by_type) > 1 else {})}
    measures = ("spearman", "pearson", "mae")
    rows = [(name, *(getattr(line, m).format() for m in measures), str(line.n)) for name, line in lines.items()]
    origin = {
        "formula": "The protocol's formula over the judge's verdicts and over people's labels, from 0 to 100.",
        "ratings": "The protocol's formula over the judge's verdicts, and people's ratings of whole edits, from 0 to 100.",
    }
    return PrintedTable(
        "",
        ("score of an edit", *(TITLES[name] for name in measures), "edits"),
        tuple(rows),
        (
            origin[score.people],
            *score.notes,
            *explain_missing_intervals(getattr(line, m) for line in lines.values() for m in measures),
        ),
    )


def collect_people(agreement: Agreement) -> dict[str, AnnotatorAgreement]:
    """Return the agreement among people by criterion, of criteria on which some edit has two labels."""
    return {name: measures.people for name, measures in agreement.criteria.items() if measures.people is not None}


def people_blocks(
    people_by_criterion: Mapping[str, AnnotatorAgreement], titles: Mapping[str, str], level: int = 2
) -> Iterator[Block]:
    """Yield tables of the agreement among annotators per criterion: overall, by type, and by pairs of annotators."""
    if people_by_criterion:
        yield Heading("People among themselves", level)
    for criterion, people in people_by_criterion.items():
        title = titles.get(criterion, criterion)
        yield build_annotators_table(title, {"all types": people, **people.by_type})
        if people.raters > 2:
            left = f"{people.pairs_left_out} more pairs share fewer edits." if people.pairs_left_out else ""
            pairs = [_annotator_row(" and ".join(pair.names), pair) for pair in people.pairs]
            yield PrintedTable("", (f"{title}, two by two", *_ANNOTATOR_COLUMNS), tuple(pairs), (left,))


def build_annotators_table(title: str, lines: Mapping[str, RaterAgreement]) -> PrintedTable:
    """Build a table of the agreement among annotators with one row per group."""
    shown = [estimate for part in lines.values() for estimate in (part.krippendorff_alpha, part.exact)]
    note = "α is ordinal. same label: share of equal labels among all pairs of labels of the same edit."
    rows = tuple(_annotator_row(name, part) for name, part in lines.items())
    return PrintedTable("", (title, *_ANNOTATOR_COLUMNS), rows, (note, *explain_missing_intervals(shown)))


_ANNOTATOR_COLUMNS = ("Krippendorff α", "same label", "annotators", "edits")


def _annotator_row(name: str, people: RaterAgreement) -> tuple[str, ...]:
    return name, people.krippendorff_alpha.format(), people.exact.format(), str(people.raters), str(people.n)


def leaderboard_blocks(board: Leaderboard) -> Iterator[Block]:
    """Yield the blocks of a leaderboard, followed by every run's report."""
    yield Heading("Leaderboard", 1)
    yield Paragraph(board.answer, "answer")
    if board.notes:
        yield Points(board.notes)
    criteria = list(dict.fromkeys(name for entry in board.leaderboard for name in entry.criteria))
    titles = {name: title for report in board.reports for name, title in report.titles.items()}
    yield build_leaderboard_table(board)
    groups = len({entry.passport for entry in board.leaderboard})
    apart = " Lines are between rows that cannot be compared." if groups > 1 else ""
    yield Drawing("leaderboard", f"Overall scores with intervals.{apart}")
    yield Drawing("types_by_run", "Scores by instruction type, run by run.")
    if any(entry.agreement for entry in board.leaderboard):
        yield Heading("Agreement with people")
        labelled = [name for name in criteria if any(name in entry.pearson for entry in board.leaderboard)]
        measured = [(entry.run, *_format_measures(entry.pearson, labelled)) for entry in board.leaderboard]
        yield PrintedTable("", ("Pearson r with people", *(titles[name] for name in labelled)), tuple(measured))
        yield Drawing(
            "agreement_by_run", "Agreement with people; filled: the best; dashed: one annotator against the others."
        )
    yield from _table_blocks(board.tables, 2)
    for report in board.reports:
        yield from report_blocks(report, level=2, within=f"{report.run}/")


def _format_measures(values: Mapping[str, Estimate], names: Sequence[str]) -> Iterator[str]:
    return (values[name].format() if name in values else "–" for name in names)


def build_leaderboard_table(board: Leaderboard) -> PrintedTable:
    """Build the table of a leaderboard. Ranks count only rows with the same passport."""
    criteria = list(dict.fromkeys(name for entry in board.leaderboard for name in entry.criteria))
    titles = {name: title for report in board.reports for name, title in report.titles.items()}
    labelled = [name for name in criteria if any(name in entry.agreement for entry in board.leaderboard)]
    columns = ["run", "rank", "overall", *(titles[name] for name in criteria)]
    columns += [*(f"ρ, {titles[name]}" for name in labelled), "judge", "mode", "protocol", "passport"]
    passports = [entry.passport for entry in board.leaderboard]
    rows = []
    for entry in board.leaderboard:
        parts = [entry.criteria[name].format(1) if name in entry.criteria else "not asked" for name in criteria]
        coverage = f"{entry.coverage.judged} of {entry.coverage.units}"
        # A row that nothing can be compared with has no rank.
        lone = passports.count(entry.passport) == 1 < len(passports)
        rank = "–" if entry.rank is None or lone else format_ranks(entry.ranks) if entry.ranks else str(entry.rank)
        rows.append(
            (
                *(entry.run, rank, entry.overall.format(1), *parts, *_format_measures(entry.agreement, labelled)),
                *(entry.judge, entry.mode, entry.protocol, entry.passport, coverage),
            )
        )
    note = RANKS if any(entry.ranks for entry in board.leaderboard) else ""
    references: dict[tuple[str, ...], list[str]] = {}
    for ranking in board.rankings:
        row = build_reference_row(ranking.reference, criteria, len(labelled) + 5)
        references.setdefault(row, []).append(SEPARATOR.join(ranking.part))
        words = describe_reference_row(ranking.reference)
        note = note if words in note else f"{note} {words}".strip()
    for (name, *rest), groups in references.items():
        part = ", ".join(filter(None, groups)) if len(references) > 1 or len(groups) == 1 else ""
        rows.append((SEPARATOR.join(filter(None, (name, part))), *rest))
    if labelled:
        note = f"{note} ρ: Spearman's, of the judge with people on all labelled edits of the run.".strip()
    shown = [
        part
        for entry in board.leaderboard
        for part in (entry.overall, *entry.criteria.values(), *entry.agreement.values())
    ]
    lines = dict.fromkeys(report.passport.line for report in board.reports)
    return PrintedTable("", (*columns, "judged"), tuple(rows), (note, *explain_missing_intervals(shown), *lines))


RankingLine = tuple[str, Estimate, tuple[int, int] | None, str]
"""Name, overall score and possible ranks of a row, and what rows must share to be compared."""


def list_ranking_tables(report_or_board: Report | Leaderboard) -> list[PrintedTable]:
    """Return the table of models or runs with score, interval and rank; none if there is only one."""
    if isinstance(report_or_board, Report):
        ranks = {(entry.model, *r.part): entry.ranks for r in report_or_board.rankings for entry in r.models}
        lines: list[RankingLine] = [
            (name, part.overall, ranks.get(part.group), SEPARATOR.join(part.group[1:]))
            for name, part in report_or_board.parts.items()
        ]
        passports = [report_or_board.passport.line]
    else:
        lines = [(entry.run, entry.overall, entry.ranks, entry.passport) for entry in report_or_board.leaderboard]
        passports = list(dict.fromkeys(report.passport.line for report in report_or_board.reports))
    lines.sort(key=lambda line: -1.0 if line[1].value is None else line[1].value, reverse=True)
    return [build_ranking_table(lines, (RANKS, *passports))] if len(lines) > 1 else []


def build_ranking_table(lines: Sequence[RankingLine], notes: Iterable[str]) -> PrintedTable:
    """Build the table of models with score, interval and rank, for a paper.

    Args:
        lines: The rows.
        notes: Sentences below the table.
    """
    rows = [(name, score.format(1), format_ranks(ranks) if ranks else "–") for name, score, ranks, _ in lines]
    tops: dict[str, float] = {}
    for _, score, _, group in lines:
        if score.value is not None:
            tops[group] = max(tops.get(group, score.value), score.value)
    sizes = Counter(group for *_, group in lines)
    best = [
        position
        for position, (_, score, _, group) in enumerate(lines)
        if score.value is not None and sizes[group] > 1 and round(score.value, 1) == round(tops[group], 1)
    ]
    columns = ("model", "score [interval]", "rank")
    return PrintedTable("Scores and ranks", columns, tuple(rows), tuple(notes), best=tuple(best))


def build_blocks(report_or_board: Report | Leaderboard) -> Sequence[Block]:
    """Return all blocks of a report or a leaderboard."""
    return tuple(
        report_blocks(report_or_board) if isinstance(report_or_board, Report) else leaderboard_blocks(report_or_board)
    )

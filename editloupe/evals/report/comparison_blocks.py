"""Turn agreement with people and comparisons of runs or editing models into blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from editloupe._util.text import format_counts, number_of
from editloupe.evals.report.block_types import Block, Heading, Paragraph, Points
from editloupe.evals.report.report_blocks import (
    assign_short_names,
    build_agreement_tables,
    build_annotators_table,
    build_field_tables,
    build_measures_table,
    build_models_table,
    collect_people,
    describe_labels,
    explain_missing_intervals,
    format_fields,
    people_blocks,
)
from editloupe.evals.report.table_formats import format_or_dash, format_p_value
from editloupe.evals.stats.agreement.coefficients import PRIMARY, TITLES
from editloupe.evals.stats.agreement.judge_vs_human import Agreement, Confusion
from editloupe.evals.stats.agreement.people import PeopleAgreement
from editloupe.evals.stats.comparison.model_comparison import ModelComparison, ModelDifference, ModelPair
from editloupe.evals.stats.comparison.paired_differences import OVERALL
from editloupe.evals.stats.comparison.run_comparison import RunComparison, ScoreDifference
from editloupe.evals.stats.intervals import format_level
from editloupe.evals.stats.scores.score_matrix import SEPARATOR
from editloupe.rubrics.tables import PrintedTable

MOST_DISAGREEMENTS = 20
"""Disagreements shown; the JSON form has all of them."""


def agreement_blocks(agreement: Agreement, titles: dict[str, str]) -> Iterator[Block]:
    """Yield the blocks on how well a run agrees with people."""
    yield Heading(
        f"{agreement.run}: {agreement.judge} · {agreement.protocol} · {agreement.mode} mode, against people", 1
    )
    yield Paragraph(summarize_agreement(agreement, titles), "answer")
    if len(agreement.models) > 1:
        yield Paragraph(f"Editing models: {', '.join(agreement.models)}.")
    if agreement.notes:
        yield Points(agreement.notes)
    if not agreement.annotators:
        return
    yield Paragraph(f"{describe_labels(agreement)} {agreement.consensus}")
    yield from build_agreement_tables(agreement.criteria, titles)
    for criterion, measures in agreement.criteria.items():
        if measures.confusion:
            yield build_confusion_table(f"{titles.get(criterion, criterion)}: people ↓, judge →", measures.confusion)
    for criterion, measures in agreement.criteria.items():
        if len(measures.by_type) > 1:
            yield build_measures_table(f"{titles.get(criterion, criterion)}, by type", measures.by_type)
    yield from build_field_tables(agreement, titles)
    yield from people_blocks(collect_people(agreement), titles)


def manifest_blocks(agreement: PeopleAgreement, titles: Mapping[str, str]) -> Iterator[Block]:
    """Yield the blocks on how well people agree on a manifest: α of all criteria in one table, then each criterion."""
    yield Heading(f"{agreement.manifest}: people among themselves · {agreement.protocol}", 1)
    yield Paragraph(describe_labels(agreement))
    if agreement.notes:
        yield Points(agreement.notes)
    people = {name: own.people for name, own in agreement.criteria.items() if own.people is not None}
    if not people:
        yield Paragraph("No edit has labels of two annotators on a criterion, so there is no agreement to measure.")
        return
    kinds = list(dict.fromkeys(kind for own in people.values() for kind in own.by_type))
    rows = [
        (
            kind,
            *(own.by_type[kind].krippendorff_alpha.format() if kind in own.by_type else "–" for own in people.values()),
        )
        for kind in kinds
    ]
    rows.append(("all types", *(own.krippendorff_alpha.format() for own in people.values())))
    shown = [part.krippendorff_alpha for own in people.values() for part in (own, *own.by_type.values())]
    yield PrintedTable(
        "",
        ("Krippendorff α", *(titles.get(name, name) for name in people)),
        tuple(rows),
        ("α is ordinal, from the edits that at least two annotators labelled.", *explain_missing_intervals(shown)),
    )
    yield from people_blocks(people, titles)
    for name, own in agreement.criteria.items():
        for column, values in own.by.items():
            yield build_annotators_table(f"{titles.get(name, name)}, by {format_fields(column)}", values)


def summarize_agreement(agreement: Agreement, titles: dict[str, str]) -> str:
    """Summarize the agreement in a few sentences."""
    if not agreement.annotators:
        return "Nothing to compare with: no edit of this run has a human label."
    parts = []
    for criterion, measures in agreement.criteria.items():
        name, rho = titles.get(criterion, criterion), measures.spearman
        if measures.n == 0:
            parts.append(f"{name}: no edit has both a verdict and a human label.")
            continue
        correlation = f"Spearman ρ {rho.format()}" if rho.value is not None else f"no ρ, for {rho.why}"
        same = "" if measures.accuracy.value is None else f", same label on {measures.accuracy.value * 100:.0f} %"
        parts.append(f"{name}: {correlation}{same} of {number_of(measures.n, 'edit')}.")
    return " ".join(parts)


def build_confusion_table(title: str, confusion: Confusion) -> PrintedTable:
    """Build a confusion matrix as a table."""
    lines = zip(confusion.labels, confusion.counts, strict=True)
    return PrintedTable("", (title, *confusion.labels), tuple((name, *map(str, counts)) for name, counts in lines))


def comparison_blocks(comparison: RunComparison, titles: dict[str, str]) -> Iterator[Block]:
    """Yield the blocks on how two runs differ and which agrees more with people."""
    yield Heading(f"A = {comparison.a} against B = {comparison.b}", 1)
    yield Paragraph(summarize_comparison(comparison, titles), "answer")
    left_out = tuple(f"{number_of(count, 'edit')} not compared: {why}." for why, count in comparison.left_out.items())
    alike = (
        (f"A and B gave the identical picture in {comparison.same_picture} of them.",)
        if comparison.same_picture
        else ()
    )
    yield Points(
        (
            _describe_question(comparison),
            f"A: {comparison.a_title}.",
            f"B: {comparison.b_title}.",
            *alike,
            *left_out,
            *comparison.notes,
        )
    )
    yield Heading("Difference, A − B")
    lines = [
        ("overall", comparison.overall),
        *((titles.get(n, n), difference) for n, difference in comparison.criteria.items()),
    ]
    yield PrintedTable(
        "",
        ("points of 100", "A", "B", "A − B", "p", "edits"),
        tuple((name, *_format_difference(difference), str(difference.difference.n)) for name, difference in lines),
        (
            "p: two-sided, of the paired differences; below 0.05 exactly if the interval excludes 0.",
            *explain_missing_intervals(difference.difference for _, difference in lines),
        ),
    )
    for criterion, difference in comparison.criteria.items():
        if difference.labels:
            name = titles.get(criterion, criterion)
            yield Paragraph(
                f"{name}: same label on {difference.same_label.format()} of {number_of(difference.same_label.n, 'edit')}."
            )
            yield build_confusion_table(f"{name}: B ↓, A →", difference.labels)
    yield from _people_blocks(comparison, titles)
    if comparison.disagreements:
        yield Heading("Where they disagree")
        people = comparison.question == "judges"
        rows = [
            (
                difference.name if people else difference.edit_id,
                titles.get(difference.criterion, difference.criterion),
                _format_label(difference.a, difference.confidence_a),
                _format_label(difference.b, difference.confidence_b),
            )
            + ((format_counts(difference.human) or "–",) if people else ())
            for difference in comparison.disagreements[:MOST_DISAGREEMENTS]
        ]
        more = len(comparison.disagreements) - MOST_DISAGREEMENTS
        note = f"{more} more in the JSON form." if more > 0 else ""
        sure = (
            "Numbers: the judge's confidence."
            if any(d.confidence_a or d.confidence_b for d in comparison.disagreements)
            else ""
        )
        columns = ("edit", "criterion", "A", "B", "people")[: 4 + people]
        yield PrintedTable("", columns, tuple(rows), (sure, note), wraps=True)


def _format_label(label: str, confidence: float | None) -> str:
    return label if confidence is None else f"{label} {confidence:.2f}"


def _describe_question(comparison: RunComparison) -> str:
    if comparison.question == "judges":
        return f"Compared as two judges of the same edited pictures ({number_of(comparison.edits, 'edit')} that both judged)."
    return (
        f"Compared as two editing models on the same sources, instructions and targets "
        f"({number_of(comparison.edits, 'case')} that both were "
        "given and that were judged)."
    )


def _format_difference(difference: ScoreDifference | ModelDifference) -> tuple[str, ...]:
    scores = (format_or_dash(difference.a), format_or_dash(difference.b))
    return (*scores, difference.difference.format(1), format_p_value(difference.p))


def _people_blocks(comparison: RunComparison, titles: dict[str, str]) -> Iterator[Block]:
    if comparison.human:
        yield Heading("Agreement with people")
    for criterion, measures in comparison.human.items():
        ceiling = comparison.ceiling.get(criterion)
        rows = []
        for name, measure in measures.items():
            reach = getattr(ceiling, name, None) if ceiling else None
            ceiling_text = "–" if reach is None else reach.format()
            rows.append(
                (
                    TITLES[name],
                    measure.a.format(),
                    measure.b.format(),
                    measure.difference.format(),
                    ceiling_text,
                )
            )
        columns = (titles.get(criterion, criterion), "A", "B", "A − B", "people among themselves")
        yield PrintedTable(
            "",
            columns,
            tuple(rows),
            (
                f"On {number_of(measures[PRIMARY].a.n, 'edit')} that both judged and people labelled. Only {TITLES[PRIMARY]} "
                "decides which agrees more.",
                *explain_missing_intervals(measure.difference for measure in measures.values()),
            ),
        )


def summarize_comparison(comparison: RunComparison, titles: dict[str, str]) -> str:
    """Summarize which run scores higher and which is closer to people."""
    change = comparison.overall.difference
    shared = f"{change.n} shared {'edits' if comparison.question == 'judges' else 'cases'}"
    if change.value is None:
        answer = f"No overall difference: {change.why}."
    elif change.low is None or change.high is None:
        answer = f"A scores {change.value:+.1f} points against B on {shared} ({change.why})."
    elif comparison.overall.better is None:
        answer = (
            f"A and B cannot be told apart on {shared}: A − B = {change.format(1)} points of 100, "
            f"p {format_p_value(comparison.overall.p)}."
        )
    else:
        higher, lower = ("A", "B") if comparison.overall.better == "a" else ("B", "A")
        answer = f"{higher} scores higher than {lower} on {shared}: A − B = {change.format(1)} points of 100."
    for criterion, measures in comparison.human.items():
        rho = measures[PRIMARY]
        name = titles.get(criterion, criterion)
        if rho.difference.value is None:
            answer += f" {name}: no ρ to compare ({rho.difference.why})."
        elif rho.closer:
            answer += (
                f" {name}: {rho.closer.upper()} agrees more with people (ρ {rho.a.format()} and {rho.b.format()})."
            )
        else:
            answer += f" {name}: neither agrees clearly more with people (ρ {rho.a.format()} and {rho.b.format()})."
    return answer


REFERENCE = "nothing"
"""Name of the unedited baseline in a table of pairs."""


def model_blocks(comparison: ModelComparison, titles: Mapping[str, str]) -> Iterator[Block]:
    """Yield the blocks of a model comparison: answer, models, then a table of pairs per score."""
    names = [entry.model for entry in comparison.models]
    short = dict(zip(names, assign_short_names(names), strict=True)) | {comparison.reference.name: REFERENCE}
    within = f" · {SEPARATOR.join(comparison.part)}" if comparison.part else ""
    yield Heading(f"Editing models in {', '.join(comparison.runs)}{within}", 1)
    yield Paragraph(comparison.answer, "answer")
    question = (
        "Compared as editing models on the same sources and instructions, every pair on the cases that both have."
    )
    level = format_level(comparison.level)
    yield Points((question, f"Judged by {comparison.judge}.", *comparison.notes))
    yield build_models_table(comparison)
    for name in (OVERALL, *dict.fromkeys(name for pair in comparison.pairs for name in pair.criteria)):
        pairs = [pair for pair in comparison.pairs if name == OVERALL or name in pair.criteria]
        yield Heading(titles.get(name, name.capitalize()), 3)
        yield _build_pairs_table(pairs, name, short, level)
    if comparison.against_reference:
        yield Heading("Overall, against nothing edited", 3)
        yield _build_pairs_table(comparison.against_reference, OVERALL, short, level)
    few = [
        _describe_missing_cases(pair, short)
        for pair in comparison.pairs
        if pair.a_lacks or pair.b_lacks or pair.unjudged
    ]
    same = [_describe_identical_pictures(pair, short) for pair in comparison.pairs if pair.same_picture]
    if few or same:
        yield Points((*few, *same))


def _build_pairs_table(pairs: Sequence[ModelPair], name: str, short: Mapping[str, str], level: str) -> PrintedTable:
    rows = []
    for pair in pairs:
        difference = _get_difference(pair, name)
        better = "–" if difference.better is None else short[difference.better]
        rows.append(
            (
                f"{short[pair.a]} − {short[pair.b]}",
                *_format_difference(difference),
                str(difference.difference.n),
                better,
            )
        )
    return PrintedTable(
        "",
        ("pair", "first", "second", "difference", "p", "cases", "better"),
        tuple(rows),
        (
            f"Intervals and p are corrected for the {number_of(len(pairs), 'pair')} of this table: together the intervals "
            f"hold at {level}, and one excludes 0 exactly if the pair can be told apart.",
            *explain_missing_intervals(_get_difference(pair, name).difference for pair in pairs),
        ),
    )


def _get_difference(pair: ModelPair, name: str) -> ModelDifference:
    return pair.overall if name == OVERALL else pair.criteria[name]


def _describe_missing_cases(pair: ModelPair, short: Mapping[str, str]) -> str:
    a, b = short[pair.a], short[pair.b]
    parts = [f"{a} lacks {pair.a_lacks}" if pair.a_lacks else "", f"{b} lacks {pair.b_lacks}" if pair.b_lacks else ""]
    parts.append(f"{pair.unjudged} unjudged for one of them" if pair.unjudged else "")
    return f"{a} and {b}: {number_of(pair.cases, 'case')} compared; {', '.join(filter(None, parts))}."


def _describe_identical_pictures(pair: ModelPair, short: Mapping[str, str]) -> str:
    return (
        f"{short[pair.a]} and {short[pair.b]} gave the identical picture in {pair.same_picture} of "
        f"{number_of(pair.cases, 'case')}."
    )

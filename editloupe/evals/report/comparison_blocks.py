"""Agreement with people, two runs and several editing models against each other as blocks, for `agree` and `compare`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from editloupe._util.text import format_counts, number_of
from editloupe.evals.report.block_types import Block, Heading, Paragraph, Points
from editloupe.evals.report.report_blocks import (
    assign_short_names,
    build_agreement_tables,
    build_field_tables,
    build_measures_table,
    build_models_table,
    format_p_value,
    people_blocks,
)
from editloupe.evals.stats.agreement.coefficients import TITLES
from editloupe.evals.stats.agreement.judge_vs_human import Agreement, Confusion
from editloupe.evals.stats.comparison.model_comparison import ModelComparison, ModelPair, PairDifference
from editloupe.evals.stats.comparison.paired_differences import OVERALL
from editloupe.evals.stats.comparison.run_comparison import Difference, RunComparison
from editloupe.evals.stats.scores.score_matrix import BETWEEN
from editloupe.rubrics.tables import PrintedTable

MOST_DISAGREEMENTS = 20
"""Disagreements listed; the JSON form has all of them."""


def agreement_blocks(found: Agreement, titles: dict[str, str]) -> Iterator[Block]:
    """Tell how well a run agrees with people."""
    yield Heading(f"{found.run}: {found.judge} · {found.protocol} · {found.mode} mode, against people", 1)
    yield Paragraph(summarize_agreement(found, titles), "answer")
    if len(found.models) > 1:
        yield Paragraph(f"Editing models: {', '.join(found.models)}.")
    if found.notes:
        yield Points(found.notes)
    if not found.annotators:
        return
    given = ", ".join(f"{name} {count}" for name, count in found.annotators.items())
    yield Paragraph(f"Labels from {found.origin} ({given}). {found.consensus}")
    yield from build_agreement_tables(found.criteria, titles)
    for criterion, whole in found.criteria.items():
        if whole.confusion:
            yield build_confusion_table(f"{titles.get(criterion, criterion)}: people ↓, judge →", whole.confusion)
    for criterion, whole in found.criteria.items():
        if len(whole.by_type) > 1:
            yield build_measures_table(f"{titles.get(criterion, criterion)}, by type", whole.by_type)
    yield from build_field_tables(found, titles)
    yield from people_blocks(found, titles)


def summarize_agreement(found: Agreement, titles: dict[str, str]) -> str:
    """Return the answer in a sentence or two."""
    if not found.annotators:
        return "Nothing to compare with: no edit of this run has a human label."
    parts = []
    for criterion, whole in found.criteria.items():
        name, rho = titles.get(criterion, criterion), whole.spearman
        if whole.n == 0:
            parts.append(f"{name}: no edit has both a verdict and a human label.")
            continue
        said = f"Spearman ρ {rho.told()}" if rho.value is not None else f"no ρ, for {rho.why}"
        same = "" if whole.accuracy.value is None else f", same label on {whole.accuracy.value * 100:.0f} %"
        parts.append(f"{name}: {said}{same} of {number_of(whole.n, 'edit')}.")
    return " ".join(parts)


def build_confusion_table(title: str, one: Confusion) -> PrintedTable:
    """Show a confusion matrix as a table."""
    lines = zip(one.labels, one.counts, strict=True)
    return PrintedTable("", (title, *one.labels), tuple((name, *map(str, counts)) for name, counts in lines))


def comparison_blocks(found: RunComparison, titles: dict[str, str]) -> Iterator[Block]:
    """Tell how two runs differ, and which agrees more with people."""
    yield Heading(f"A = {found.a} against B = {found.b}", 1)
    yield Paragraph(summarize_comparison(found, titles), "answer")
    left_out = tuple(f"{number_of(count, 'edit')} not compared: {why}." for why, count in found.left_out.items())
    alike = (f"A and B gave the identical picture in {found.same_picture} of them.",) if found.same_picture else ()
    yield Points(
        (_describe_question(found), f"A: {found.a_title}.", f"B: {found.b_title}.", *alike, *left_out, *found.notes)
    )
    yield Heading("Difference, A − B")
    lines = [("overall", found.overall), *((titles.get(n, n), one) for n, one in found.criteria.items())]
    yield PrintedTable(
        "",
        ("points of 100", "A", "B", "A − B", "p", "edits"),
        tuple((name, *_format_difference(one), str(one.difference.n)) for name, one in lines),
        ("p: two-sided sign-flip test on paired differences.",),
    )
    for criterion, one in found.criteria.items():
        if one.labels:
            name = titles.get(criterion, criterion)
            yield Paragraph(f"{name}: same label on {one.same_label.told()} of {number_of(one.same_label.n, 'edit')}.")
            yield build_confusion_table(f"{name}: B ↓, A →", one.labels)
    yield from _people_blocks(found, titles)
    if found.disagreements:
        yield Heading("Where they disagree")
        people = found.question == "judges"
        rows = [
            (one.name if people else one.edit_id, titles.get(one.criterion, one.criterion), one.a, one.b)
            + ((format_counts(one.human) or "–",) if people else ())
            for one in found.disagreements[:MOST_DISAGREEMENTS]
        ]
        more = len(found.disagreements) - MOST_DISAGREEMENTS
        note = f"{more} more in the JSON form." if more > 0 else ""
        yield PrintedTable("", ("edit", "criterion", "A", "B", "people")[: 4 + people], tuple(rows), (note,))


def _describe_question(found: RunComparison) -> str:
    if found.question == "judges":
        return (
            f"Compared as two judges of the same edited pictures ({number_of(found.edits, 'edit')} that both judged)."
        )
    return (
        f"Compared as two editing models on the same sources, instructions and targets "
        f"({number_of(found.edits, 'case')} that both were "
        "given and that were judged)."
    )


def _format_difference(one: Difference) -> tuple[str, str, str, str]:
    numbers = ["–" if value is None else f"{value:.1f}" for value in (one.a, one.b)]
    return numbers[0], numbers[1], one.difference.told(1), format_p_value(one.p)


def _people_blocks(found: RunComparison, titles: dict[str, str]) -> Iterator[Block]:
    if found.human:
        yield Heading("Agreement with people")
    for criterion, measures in found.human.items():
        ceiling = found.ceiling.get(criterion)
        rows = []
        for name, one in measures.items():
            reach = getattr(ceiling, name, None) if ceiling else None
            closer = "–" if one.closer is None else one.closer.upper()
            known = "–" if reach is None else reach.told()
            rows.append((TITLES[name], one.a.told(), one.b.told(), one.difference.told(), closer, known))
        columns = (titles.get(criterion, criterion), "A", "B", "A − B", "closer", "people among themselves")
        yield PrintedTable(
            "",
            columns,
            tuple(rows),
            (f"On {number_of(measures['spearman'].a.n, 'edit')} that both judged and people labelled.",),
        )


def summarize_comparison(found: RunComparison, titles: dict[str, str]) -> str:
    """Return the answer in a few sentences: who scores higher, and who is closer to people."""
    change = found.overall.difference
    shared = f"{change.n} shared {'edits' if found.question == 'judges' else 'cases'}"
    if change.value is None:
        told = f"No overall difference: {change.why}."
    elif change.low is None or change.high is None:
        told = f"A scores {change.value:+.1f} points against B on {shared} ({change.why})."
    elif found.overall.better is None:
        told = (
            f"A and B cannot be told apart on {shared}: A − B = {change.told(1)} points of 100, "
            f"p {format_p_value(found.overall.p)}."
        )
    else:
        higher, lower = ("A", "B") if found.overall.better == "a" else ("B", "A")
        told = f"{higher} scores higher than {lower} on {shared}: A − B = {change.told(1)} points of 100."
    for criterion, measures in found.human.items():
        rho = measures["spearman"]
        name = titles.get(criterion, criterion)
        if rho.difference.value is None:
            told += f" {name}: no ρ to compare ({rho.difference.why})."
        elif rho.closer:
            told += f" {name}: {rho.closer.upper()} agrees more with people (ρ {rho.a.told()} and {rho.b.told()})."
        else:
            told += f" {name}: neither agrees clearly more with people (ρ {rho.a.told()} and {rho.b.told()})."
    return told


REFERENCE = "nothing"
"""How a table of pairs calls the reference."""


def model_blocks(found: ModelComparison, titles: Mapping[str, str]) -> Iterator[Block]:
    """Tell which models differ: the answer, the models, then a table of pairs for every score."""
    names = [one.model for one in found.models]
    short = dict(zip(names, assign_short_names(names), strict=True)) | {found.reference.name: REFERENCE}
    within = f" · {BETWEEN.join(found.part)}" if found.part else ""
    yield Heading(f"Editing models in {', '.join(found.runs)}{within}", 1)
    yield Paragraph(found.answer, "answer")
    asked = "Compared as editing models on the same sources and instructions, every pair on the cases that both have."
    level = f"{found.level * 100:g} %"
    yield Points((asked, f"Judged by {found.judge}.", *found.notes))
    yield build_models_table(found)
    for name in (OVERALL, *dict.fromkeys(name for pair in found.pairs for name in pair.criteria)):
        pairs = [pair for pair in found.pairs if name == OVERALL or name in pair.criteria]
        yield Heading(titles.get(name, name.capitalize()), 3)
        yield _build_pairs_table(pairs, name, short, level)
    if found.against_reference:
        yield Heading("Overall, against nothing edited", 3)
        yield _build_pairs_table(found.against_reference, OVERALL, short, level)
    few = [
        _describe_missing_cases(pair, short) for pair in found.pairs if pair.a_lacks or pair.b_lacks or pair.unjudged
    ]
    same = [_describe_identical_pictures(pair, short) for pair in found.pairs if pair.same_picture]
    if few or same:
        yield Points((*few, *same))


def _build_pairs_table(pairs: Sequence[ModelPair], name: str, short: Mapping[str, str], level: str) -> PrintedTable:
    rows = []
    for pair in pairs:
        one = pair.overall if name == OVERALL else pair.criteria[name]
        better = ["–" if model is None else short[model] for model in (one.better, one.better_holm)]
        rows.append((f"{short[pair.a]} − {short[pair.b]}", *_format_pair(one), str(one.difference.n), *better))
    return PrintedTable(
        "",
        ("pair", "first", "second", "difference", "p", "p Holm", "cases", "better", "Holm"),
        tuple(rows),
        (
            f"p: two-sided sign-flip test on paired differences; p Holm: corrected for the pairs of this table. "
            f"Better: at {level} by the test and the interval, and after the correction; –: not told apart.",
        ),
    )


def _format_pair(one: PairDifference) -> tuple[str, ...]:
    values = ["–" if value is None else f"{value:.1f}" for value in (one.a, one.b)]
    return (*values, one.difference.told(1), format_p_value(one.p), format_p_value(one.p_holm))


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

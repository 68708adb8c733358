"""Editing models against each other as blocks: who is better than whom, and what nothing edited scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from editloupe._util.text import number_of
from editloupe.evals.analysis.model_comparison import ModelComparison, ModelPair, PairDifference
from editloupe.evals.analysis.paired_differences import OVERALL
from editloupe.evals.analysis.parts import BETWEEN
from editloupe.evals.report.block_types import Block, Heading, Paragraph, Points
from editloupe.evals.report.blocks import models_grid, p_value, short_names
from editloupe.rubrics.tables import PrintedTable

REFERENCE = "nothing"
"""How a table of pairs calls the reference."""


def model_blocks(found: ModelComparison, titles: Mapping[str, str]) -> Iterator[Block]:
    """Tell which models differ: the answer, the models, then a table of pairs for every score."""
    names = [one.model for one in found.models]
    short = dict(zip(names, short_names(names), strict=True)) | {found.reference.name: REFERENCE}
    within = f" · {BETWEEN.join(found.part)}" if found.part else ""
    yield Heading(f"Editing models in {', '.join(found.runs)}{within}", 1)
    yield Paragraph(found.answer, "answer")
    asked = "Compared as editing models on the same sources and instructions, every pair on the cases that both have."
    level = f"{found.level * 100:g} %"
    yield Points((asked, f"Judged by {found.judge}.", *found.notes))
    yield models_grid(found)
    for name in (OVERALL, *dict.fromkeys(name for pair in found.pairs for name in pair.criteria)):
        pairs = [pair for pair in found.pairs if name == OVERALL or name in pair.criteria]
        yield Heading(titles.get(name, name.capitalize()), 3)
        yield _pairs(pairs, name, short, level)
    if found.against_reference:
        yield Heading("Overall, against nothing edited", 3)
        yield _pairs(found.against_reference, OVERALL, short, level)
    few = [_lacking(pair, short) for pair in found.pairs if pair.a_lacks or pair.b_lacks or pair.unjudged]
    same = [_alike(pair, short) for pair in found.pairs if pair.same_picture]
    if few or same:
        yield Points((*few, *same))


def _pairs(pairs: Sequence[ModelPair], name: str, short: Mapping[str, str], level: str) -> PrintedTable:
    rows = []
    for pair in pairs:
        one = pair.overall if name == OVERALL else pair.criteria[name]
        better = ["–" if model is None else short[model] for model in (one.better, one.better_holm)]
        rows.append((f"{short[pair.a]} − {short[pair.b]}", *_numbers(one), str(one.difference.n), *better))
    return PrintedTable(
        "",
        ("pair", "first", "second", "difference", "p", "p Holm", "cases", "better", "Holm"),
        tuple(rows),
        (
            f"p: two-sided sign-flip test on paired differences; p Holm: corrected for the pairs of this table. "
            f"Better: at {level} by the test and the interval, and after the correction; –: not told apart.",
        ),
    )


def _numbers(one: PairDifference) -> tuple[str, ...]:
    values = ["–" if value is None else f"{value:.1f}" for value in (one.a, one.b)]
    return (*values, one.difference.told(1), p_value(one.p), p_value(one.p_holm))


def _lacking(pair: ModelPair, short: Mapping[str, str]) -> str:
    a, b = short[pair.a], short[pair.b]
    parts = [f"{a} lacks {pair.a_lacks}" if pair.a_lacks else "", f"{b} lacks {pair.b_lacks}" if pair.b_lacks else ""]
    parts.append(f"{pair.unjudged} unjudged for one of them" if pair.unjudged else "")
    return f"{a} and {b}: {number_of(pair.cases, 'case')} compared; {', '.join(filter(None, parts))}."


def _alike(pair: ModelPair, short: Mapping[str, str]) -> str:
    return (
        f"{short[pair.a]} and {short[pair.b]} gave the identical picture in {pair.same_picture} of "
        f"{number_of(pair.cases, 'case')}."
    )

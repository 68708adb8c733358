"""Pairs of judges' rationales on the same edit and criterion, for people to say which explains the edit better.

One answer weighs the score, the reasoning and how clear it is (Edit-Compass, Figure 3 and Appendix D).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import combinations
from pathlib import Path

from editloupe.evals.preferences.draw_outputs import Drawn, DrawSettings, PictureFiles, some_of_source
from editloupe.evals.preferences.records import OpenPair, Side, content_id, shuffled
from editloupe.evals.stats.comparison.run_comparison import edited
from editloupe.evals.stats.scores.run_table import RunRow, Table
from editloupe.types import UserError, Verdict

QUESTION = "Weigh what was decided, whether the reasoning is right, and whether it lets you follow the decision."


def draw_rationales(tables: Sequence[Table], settings: DrawSettings, folder: Path) -> Drawn:
    """Return a pair for every two judges' rationales about one edited picture and criterion; the first repeat counts."""
    names = _judges(tables)
    wanted = set(settings.dimensions)
    if unknown := wanted - {name for table in tables for name in table.criteria}:
        has = ", ".join(dict.fromkeys(name for table in tables for name in table.criteria))
        raise UserError(f'"{min(unknown)}" was not judged in these runs; there are: {has}')
    files, found = PictureFiles(tables, folder), Drawn()
    held: dict[Hashable, dict[str, tuple[RunRow, Table]]] = {}
    for table, judge in zip(tables, names, strict=True):
        for row in table.rows:
            for criterion in row.units if not wanted else wanted & row.units.keys():
                held.setdefault((row.case, edited(row), criterion), {}).setdefault(judge, (row, table))
    by_source: dict[tuple[str, str], list[OpenPair]] = {}
    together = False
    for (_, _, criterion), by_judge in held.items():  # type: ignore[misc]
        for (one, (first, table)), (two, (second, _)) in combinations(by_judge.items(), 2):
            together = True
            sides = [_side(judge, row, str(criterion)) for judge, row in ((one, first), (two, second))]
            pictures = files.of(first, "source"), files.of(first, "edited")
            if None in sides:
                found.silent += 1
            elif None in pictures:
                found.no_picture += 1
            else:
                pair = _pair(first, table, str(criterion), sides, pictures, settings)
                by_source.setdefault((pair.dimension, pair.source), []).append(pair)
    if not together:
        raise UserError(f"{' and '.join(t.name for t in tables)} have no edit and criterion in common")
    for (criterion, source), listed in by_source.items():
        kept = some_of_source(listed, settings, f"{settings.seed}:{criterion}:{source}")
        found.beyond += len(listed) - len(kept)
        found.pairs += kept
    found.pairs = shuffled(settings.seed, found.pairs)
    return found


def _judges(tables: Sequence[Table]) -> list[str]:
    """Return what judges are called: by their titles or, where the runs have one and the same, by their runs as well."""
    names = [table.title for table in tables]
    if len(set(names)) < 2:
        names = [f"{table.title} in {table.name}" for table in tables]
    if len(set(names)) < 2:
        raise UserError("rationales need two judges: name two runs, or one run and two of its configurations")
    return names


def _side(judge: str, row: RunRow, criterion: str) -> Side | None:
    outcome = row.units[criterion][0].outcome
    if not isinstance(outcome, Verdict) or not (outcome.rationale or "").strip():
        return None
    score = None if outcome.score_100 is None else f"{outcome.score_100:g} of 100"
    return Side(
        key=content_id(judge, outcome.rationale, outcome.label),
        name=judge,
        rationale=outcome.rationale,
        label=outcome.label or score,
    )


def _pair(
    row: RunRow,
    table: Table,
    criterion: str,
    sides: Sequence[Side | None],
    pictures: tuple[str | None, str | None],
    settings: DrawSettings,
) -> OpenPair:
    first, second = sorted((side for side in sides if side), key=lambda side: side.key)
    return OpenPair(
        id=f"rationales_{content_id(row.case, edited(row), criterion, first.key, second.key)}",
        kind="rationales",
        dimension=criterion,
        title=table.title_of(criterion),
        question=QUESTION,
        prompt=row.edit.instruction,
        source=content_id(row.source),
        source_image=str(pictures[0]),
        edited=str(pictures[1]),
        a=first,
        b=second,
        people=settings.people,
        rule=settings.rule,
        fields={"edit_id": row.edit.id, **({"model": row.edit.model} if row.edit.model else {})},
    )

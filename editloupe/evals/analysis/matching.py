"""Which question two runs can answer, and which of their rows belong together.

Two *judges* are compared on the same pictures: source, edited picture and instruction are the same. Two *editing models*
are compared on the same cases: source, instruction, targets and further inputs are the same, the edited picture is not.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Literal

from editloupe.evals.analysis.reference import without_reference
from editloupe.evals.analysis.run_table import RunRow, Table
from editloupe.rubrics.tables import NO_MODEL
from editloupe.types import UserError

Question = Literal["judges", "models"]
Key = Callable[[RunRow], Hashable]


@dataclass(frozen=True)
class Matched:
    """Rows of two runs that belong together, and what each run has beyond them."""

    pairs: tuple[tuple[RunRow, RunRow], ...]
    only_a: tuple[RunRow, ...]
    only_b: tuple[RunRow, ...]


def edited(row: RunRow) -> str:
    """Return what tells edited pictures apart: the content hash, or the path where the run has no hash."""
    return shas[0] if (shas := row.pictures.get("edited")) else str(row.edit.edited)


def picture_of(row: RunRow) -> Hashable:
    """Return what a judge was shown: the pictures before and after, and the instruction."""
    return row.source, edited(row), row.edit.instruction


def case_of(row: RunRow) -> Hashable:
    """Return what two editing models were given alike."""
    return row.case


def match(a: Iterable[RunRow], b: Iterable[RunRow], key: Key) -> Matched:
    """Pair rows of the same key; among several of one key those of the same model and id first, then in their order."""
    rows, others = list(a), list(b)
    partner: dict[int, int] = {}
    taken: set[int] = set()
    keys, other_keys = [key(row) for row in rows], [key(row) for row in others]
    for precise in (lambda row: (row.model, row.edit.id), lambda row: row.edit.id, lambda row: None):
        waiting: dict[Hashable, list[int]] = {}
        for place in reversed(range(len(others))):
            if place not in taken:
                waiting.setdefault((other_keys[place], precise(others[place])), []).append(place)
        for place, row in enumerate(rows):
            if place not in partner and (found := waiting.get((keys[place], precise(row)))):
                partner[place] = found.pop()
                taken.add(partner[place])
    return Matched(
        tuple((rows[place], others[partner[place]]) for place in sorted(partner)),
        tuple(row for place, row in enumerate(rows) if place not in partner),
        tuple(row for place, row in enumerate(others) if place not in taken),
    )


def match_pictures(a: Table, b: Table) -> Matched:
    """Pair rows that show the same pictures; where one run kept no hash of a picture, id and model have to do."""
    found = match(a.rows, b.rows, picture_of)
    more = match(found.only_a, found.only_b, lambda row: (row.edit.id, row.model))
    alike = [pair for pair in more.pairs if _could_be_the_same(*pair)]
    if not alike:
        return found
    left_a, left_b = {id(one) for one, _ in alike}, {id(two) for _, two in alike}
    return Matched(
        (*found.pairs, *alike),
        tuple(row for row in found.only_a if id(row) not in left_a),
        tuple(row for row in found.only_b if id(row) not in left_b),
    )


def _could_be_the_same(one: RunRow, two: RunRow) -> bool:
    """True where nothing that both runs know of an edit differs, and one of them lacks the hash of a picture."""
    roles = ("source", "edited")
    known = [role for role in roles if one.pictures.get(role) and two.pictures.get(role)]
    bare = [role for role in roles if not one.pictures.get(role) and not two.pictures.get(role)]
    return (
        len(known) + len(bare) < len(roles)
        and one.edit.instruction == two.edit.instruction
        and all(one.pictures[role] == two.pictures[role] for role in known)
        and all(getattr(one.edit, role) == getattr(two.edit, role) for role in bare)
    )


def question_of(a: Table, b: Table) -> Question:
    """Return which question two runs answer; where neither fits, or both might, UserError says so."""
    a, b = without_reference(a)[0], without_reference(b)[0]
    same = match_pictures(a, b)
    other = match(same.only_a, same.only_b, case_of).pairs
    if not same.pairs and not other:
        raise UserError(
            f"{a.name} and {b.name} have neither an edited picture nor a source and instruction in common, so there is "
            "nothing to compare"
        )
    judged_alike = same_judge(a, b)
    models = set(a.models) - {NO_MODEL}, set(b.models) - {NO_MODEL}
    other_models = all(models) and not models[0] & models[1]
    if not other:
        return "models" if other_models and judged_alike else "judges"
    if judged_alike:
        return "models"
    if same.pairs and not other_models:
        return "judges"
    seen = f"{len(same.pairs)} edited pictures are" if len(same.pairs) != 1 else "1 edited picture is"
    raise UserError(
        f"{a.name} and {b.name} differ both in the judge ({a.title}; {b.title}) and in the edited pictures, so a difference "
        f"could come from either: judge both with one judge, or name the question: --judges compares the judges where "
        f"the pictures are the same ({seen}), --models takes the verdicts as they are"
    )


def same_judge(a: Table, b: Table) -> bool:
    """True where judge, protocol and mode are the same and no criterion was put in wholly different words."""
    if (a.protocol, a.judges, a.modes) != (b.protocol, b.judges, b.modes):
        return False
    asked = [_asked(table) for table in (a, b)]
    return all(asked[0][name] & asked[1][name] for name in asked[0].keys() & asked[1].keys())


def _asked(table: Table) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for kind in table.unit_columns.counts:
        found.setdefault(kind.criterion, set()).add(kind.asked)
    return found

"""The numbers of EditReward-Compass's public script `eval.py`, from stored verdicts of `editloupe reward`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from editloupe._util.text import number_of
from editloupe.rubrics.editcompass.published import build_asked_rules
from editloupe.rubrics.editcompass.scoring import DIMENSIONS, score_dimension
from editloupe.rubrics.editreward.scoring import PAIRS, is_pair, list_metrics
from editloupe.rubrics.pairs import is_right
from editloupe.rubrics.published import Choices, Models, Published, PublishedTable, RawEdit, Rule
from editloupe.rubrics.tables import Cell

AVERAGE, MISSING = (f"editreward.{name}" for name in ("average", "missing_score"))
RULES = (
    Rule(
        AVERAGE,
        published="none",
        text="pairs",
        values={
            "none": "The script prints no average.",
            "pairs": "AVG is the share of right pairs over all judged pairs, which fits Table 5.",
            "dimensions": "AVG is the mean over the dimensions.",
        },
    ),
    Rule(
        MISSING,
        published="crash",
        text="leave_out",
        values={
            "crash": "A pair without both scores stops the script, which then prints nothing.",
            "leave_out": "A pair without both scores is left out.",
        },
    ),
    *build_asked_rules("editreward"),
)
PairOf = tuple[str, str, str]
"""File, id and dimension of a pair."""


def compute_tables(models: Models, choices: Choices) -> Iterable[PublishedTable]:
    """Yield the table of `eval.py`: accuracy, right pairs and pairs by dimension."""
    columns = tuple(f"{name}{suffix}" for name in DIMENSIONS for suffix in ("", " correct", " total"))
    rows: dict[str, Sequence[Cell]] = {}
    stopped, incomplete, notes = [], [], []
    for model, edits in models.items():
        results = _decide(edits)
        empty = [name for name, own in results.items() if own and all(result is None for result in own)]
        if any(own for name, own in results.items() if name not in empty):
            results |= {name: [] for name in empty}
            notes += [
                f"{model}: no pair of {name} has both scores; the script is then run without --dim {name}."
                for name in empty
            ]
        unjudged = sum(result is None for own in results.values() for result in own)
        if unjudged:
            incomplete.append(f"{number_of(unjudged, 'pair')} of {model}")
        if unjudged and choices[MISSING] == "crash":
            stopped.append(f"{model}: the script stops at a pair without both scores and prints nothing.")
        elif any(results.values()):
            rows[model] = _build_row(results, choices)
    if rows or stopped:
        yield PublishedTable(
            "EditReward-Compass by the rules of its public script",
            columns if choices[AVERAGE] == "none" else (*columns, "AVG"),
            rows,
            concerned={MISSING: ", ".join(incomplete)} if incomplete else {},
            irreproducible=tuple(stopped),
            notes=tuple(notes),
        )


def _build_row(results: dict[str, list[bool | None]], choices: Choices) -> Sequence[Cell]:
    cells: list[Cell] = []
    shares, judged = [], []
    for own in results.values():
        right = [result for result in own if result is not None]
        judged += right
        if right:
            shares.append(fmean(right))
        cells += [shares[-1], sum(right), len(right)] if right else [None, None, None]
    if choices[AVERAGE] != "none":
        cells.append(fmean(judged if choices[AVERAGE] == "pairs" else shares) if judged else None)
    return cells


def _decide(edits: Sequence[RawEdit]) -> dict[str, list[bool | None]]:
    """Return by dimension whether each pair of candidates is right; None if a score is missing."""
    scores: dict[PairOf, dict[str, float | None]] = {}
    labels: dict[PairOf, str] = {}
    for edit in edits:
        for member in edit.edit.extra.get("pairs", ()) if not is_pair(edit.edit) else ():
            dimension = str(member["dimension"])
            pair = (str(member.get("file")), str(member["id"]), dimension)
            scores.setdefault(pair, {})[str(member["role"])] = _score(edit, dimension)
            labels[pair] = str(member["label"])
    results: dict[str, list[bool | None]] = {name: [] for name in DIMENSIONS}
    for pair, sides in scores.items():
        winner, loser = sides.get("winner"), sides.get("loser")
        known = winner is not None and loser is not None
        results[pair[2]].append(is_right(PAIRS.by_scores(winner, loser), labels[pair]) if known else None)  # type: ignore[arg-type]
    return results


def _score(edit: RawEdit, dimension: str) -> float | None:
    """Return a candidate's score of a dimension, or None if a metric that applies has no verdict."""
    values = {name: edit.value(name) for name in list_metrics(edit.edit, dimension)}
    judged = {name: value for name, value in values.items() if value is not None}
    return score_dimension(dimension, judged) if len(judged) == len(values) else None


PUBLISHED = Published(
    source="github.com/bxhsort/Edit-Compass-and-EditReward-Compass at 6ee6caa: EditReward-Compass/eval.py",
    rules=RULES,
    tables=compute_tables,
)

"""The numbers of MagicBrush's public script, from stored measures, and where it differs from the rule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean

from editloupe._util.text import number_of
from editloupe.rubrics.published import Choices, Models, Published, PublishedTable, RawEdit, Rule
from editloupe.rubrics.tables import MEASURED_DIGITS, NO_MODEL, Cell
from editloupe.types import Edit

SINGLE, MULTI = "single-turn", "multi-turn"
"""Values of `Edit.extra["setting"]`: one turn from the true picture before it, or the whole chain of a session."""
MISSING = "magicbrush.missing_output"
RULES = (
    Rule(
        MISSING,
        published="stops",
        text="left_out",
        values={
            "left_out": "A mean is over the pictures that are there and measured; reports count the others as unjudged.",
            "stops": "A model with a missing or unreadable picture has no numbers, because the script stops.",
        },
    ),
)
METRICS = {"l1": "l1", "l2": "l2", "clip_i": "clip-i", "dino": "dino", "clip_t": "clip-t"}
"""Criteria and the script's names for them."""
SETTINGS = ("final_turn", "all_turn")
TITLE = "MagicBrush by its public script"


def is_single(edit: Edit) -> bool:
    """Return whether an edit counts in the single-turn setting."""
    return bool(edit.extra.get("setting", SINGLE) == SINGLE)


def is_final(edit: Edit) -> bool:
    """Return whether an edit is the last picture of a session: its chain, or its only turn."""
    return bool(edit.extra.get("setting") == MULTI or edit.extra.get("turns") == 1)


def find_complete_chains(edits: Iterable[Edit]) -> frozenset[str]:
    """Return the models that were run in the multi-turn setting.

    Those are the models with a chain, and those whose sessions all have a single turn. Others have only some of its pictures.
    """
    chained: dict[str, bool] = {}
    several: dict[str, bool] = {}
    for edit in edits:
        model = edit.model or NO_MODEL
        chained[model] = chained.get(model, False) or edit.extra.get("setting") == MULTI
        several[model] = several.get(model, False) or edit.extra.get("turns") != 1
    return frozenset(model for model in chained if chained[model] or not several[model])


def compute_tables(models: Models, choices: Choices) -> Iterable[PublishedTable]:
    """Yield the script's table: every measure in both settings, with a row per model."""
    rows: dict[str, Sequence[Cell]] = {}
    stopped: list[str] = []
    lacking: dict[str, int] = {}
    for model, edits in models.items():
        chains = find_complete_chains(edit.edit for edit in edits)
        by_setting = {
            "final_turn": [edit for edit in edits if is_final(edit.edit)] if chains else [],
            "all_turn": [edit for edit in edits if is_single(edit.edit)],
        }
        lacking[model] = sum(edit.value("l1") is None for edit in edits if is_final(edit.edit) or is_single(edit.edit))
        stops = choices[MISSING] == "stops" and (lacking[model] or not chains)
        if stops:
            why = f"{number_of(lacking[model], 'picture')} missing" if lacking[model] else "there are no chains"
            stopped.append(f"{model}, because the script stops ({why}).")
        rows[model] = [None if stops else cell for own in by_setting.values() for cell in _average(own)]
    count = sum(lacking.values())
    yield PublishedTable(
        TITLE,
        tuple(f"{setting} {name}" for setting in SETTINGS for name in METRICS.values()),
        rows,
        {MISSING: f"{number_of(count, 'picture')} without a measure"} if count else {},
        tuple(stopped),
        (
            "The script computes in 32-bit numbers, so its last digits differ (below 1e-8 for L1 and L2).",
            "The script also prints CLIP-T of the targets, which says nothing about a model.",
        ),
        digits=MEASURED_DIGITS,
    )


def _average(edits: Sequence[RawEdit]) -> Iterator[Cell]:
    for name in METRICS:
        values = [value for edit in edits if (value := edit.value(name)) is not None]
        yield fmean(values) if values else None


PUBLISHED = Published(
    source="github.com/OSU-NLP-Group/MagicBrush at fcfc892: evaluation/image_eval.py",
    rules=RULES,
    tables=compute_tables,
)

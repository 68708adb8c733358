"""MagicBrush. Its criteria are measured against a target picture, and two more are asked of a judge.

The benchmark is the Parquet tables of its data set, or `images/<ID>/` with `edit_sessions.json` or `edit_turns.json`; captions
are in `local_captions.json`. The outputs of a model are `<ID>/<ID>_1.png`, `<ID>_inde_<K>.png` and `<ID>_iter_<K>.png`. The
tables are the single-turn and the multi-turn one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from editloupe._util.text import number_of
from editloupe.pictures.decode import declared_size, open_mask
from editloupe.pictures.picture_tables import iter_rows
from editloupe.rubrics.case_pictures import build_cases
from editloupe.rubrics.paper import (
    Benchmark,
    Paper,
    check_key,
    check_text,
    find_split,
    make_edit,
    read_json_list,
    read_json_object,
    sole_picture_in,
)
from editloupe.rubrics.protocol import Protocol, average_of
from editloupe.rubrics.published import Choices, Models, Published, PublishedTable, Rule
from editloupe.rubrics.rubric_files import load_rubrics
from editloupe.rubrics.tables import MEASURED_DIGITS, NO_MODEL, Cell, Layout, criterion_columns, mean
from editloupe.types import Box, Edit, UserError

__all__ = ["MAGICBRUSH", "PAPER"]

JUDGED = ("instruction_following", "preservation")
"""The criteria that a judge is asked. Their mean is the score of an edit."""

MAGICBRUSH = Protocol(
    name="magicbrush",
    title="MagicBrush",
    source="Zhang et al., MagicBrush: A Manually Annotated Dataset for Instruction-Guided Image Editing",
    rubrics=load_rubrics(files(__package__), (*JUDGED, "measured")),
    default_mode="plain",
    make_cases=build_cases,
    edit_score=average_of(JUDGED),
    weighting="edits",
    arithmetic=(
        "L1, L2, CLIP-I, DINO and CLIP-T compare an output with its target and are averaged over pictures: single-turn over the "
        "first turn and every later turn that starts from the true picture before it, multi-turn over the last picture of each "
        "chain of edits. The paper has no overall score; an edit's score here is the mean of the two criteria of the judge."
    ),
    formulas={
        "single-turn": "mean over ID_1 and every ID_inde_K",
        "multi-turn": "mean over the last ID_iter_K, or ID_1 of a session of one turn",
        "edit": f"mean({', '.join(JUDGED)})",
    },
)


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
        rows[model] = [
            None if stops else mean(edit.value(name) for edit in own) for own in by_setting.values() for name in METRICS
        ]
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


PUBLISHED = Published(
    source="github.com/OSU-NLP-Group/MagicBrush at fcfc892: evaluation/image_eval.py",
    rules=RULES,
    tables=compute_tables,
)


SESSIONS, TURNS = "edit_sessions.json", "edit_turns.json"
COLUMNS = ("img_id", "turn_index", "source_img", "mask_img", "instruction", "target_img")
"""Columns of the data set's tables."""
SPLIT = "dev"
"""The split that models are compared on if the files of the test split are not used."""
CAPTIONS = ("local_captions.json", "local_descriptions.json")
PICTURES = {"input": "source", "output": "target", "mask": "mask"}
"""Fields of a turn with file names, and what they are."""
MASKS_REMEMBERED = 4096
"""Masks whose boxes are remembered, more than the benchmark has. Each is read once for all models."""


@dataclass(frozen=True)
class SessionTurn:
    """One order of a session, with the pictures before and after it."""

    instruction: str
    source: Path
    target: Path
    mask: Path | None
    caption: str | None


@dataclass(frozen=True)
class Session:
    """The orders of one picture, each after the one before."""

    name: str
    turns: Sequence[SessionTurn]


def read_benchmark(benchmark: Benchmark) -> Iterator[Edit]:
    """Yield the turns of every session with a model's outputs, then its whole chain of edits.

    The chain of a session of several turns is an edit of its own: from the first picture, by all orders, to the last picture.
    """
    for session in _read_sessions(benchmark):
        last = len(session.turns)
        for number, turn in enumerate(session.turns, 1):
            stem = f"{session.name}_1" if number == 1 else f"{session.name}_inde_{number}"
            yield _build_edit(benchmark, session, stem, number, [turn], SINGLE)
        if last > 1:
            yield _build_edit(benchmark, session, f"{session.name}_iter_{last}", last, session.turns, MULTI)


def _build_edit(
    benchmark: Benchmark, session: Session, stem: str, number: int, turns: Sequence[SessionTurn], setting: str
) -> Edit:
    masks = tuple(turn.mask for turn in turns if turn.mask is not None)
    orders = [turn.instruction for turn in turns]
    outputs = benchmark.results / session.name
    caption = turns[-1].caption
    return make_edit(
        f"session {session.name}, turn {number}",
        id=f"{benchmark.model_name}/{stem}",
        source=turns[0].source,
        edited=sole_picture_in(outputs, stem) or outputs / f"{stem}.png",
        instruction=orders[0] if len(orders) == 1 else "\n".join(f"{i}. {order}" for i, order in enumerate(orders, 1)),
        reference=turns[-1].target,
        model=benchmark.model_name,
        turn=number,
        target_boxes=tuple(box for mask in masks if (box := find_box(mask)) is not None),
        more_images={"mask": masks} if masks else {},
        extra={
            "session": session.name,
            "turns": len(session.turns),
            "setting": setting,
            **({"caption": caption} if caption else {}),
        },
    )


def find_part(edit: Edit) -> tuple[str, ...]:
    """Return the setting of an edit. A model may have been run in one of them only."""
    return (str(edit.extra.get("setting") or SINGLE),)


@lru_cache(MASKS_REMEMBERED)
def find_box(mask: Path) -> Box | None:
    """Return the box around the white part of a mask, or None if no pixel is white."""
    corners = open_mask(mask).getbbox()
    return Box.model_validate(corners) if corners else None


def _read_sessions(benchmark: Benchmark) -> Iterator[Session]:
    data = benchmark.data
    captions = _read_captions(data)
    if (data / SESSIONS).is_file():
        by_session: Iterable[tuple[str, Any]] = read_json_object(data / SESSIONS).items()
        file = data / SESSIONS
    elif (data / TURNS).is_file():
        file = data / TURNS
        by_session = itertools.groupby(read_json_list(file), lambda item: str(item.get("input") or "").split("-")[0])
    elif tables := find_split(data, SPLIT):
        yield from _read_tables(tables, captions)
        return
    else:
        raise UserError(f"{data} is not MagicBrush's folder: it has neither {SESSIONS} nor {TURNS} nor Parquet tables")
    for name, items in by_session:
        check_key(name, f"{file}, the ID of a session")
        yield Session(name, list(_read_turns(benchmark, file, name, items, captions.get(name))))


def _read_turns(benchmark: Benchmark, file: Path, session: str, items: Any, captions: Any) -> Iterator[SessionTurn]:
    turns = list(items) if isinstance(items, (list, Iterator)) else []
    if not turns or not all(isinstance(item, dict) for item in turns):
        raise UserError(f"{file}: session {session} must be a list of turns")
    folder = benchmark.data / "images"
    for number, item in enumerate(turns, 1):
        where = f"{file}: session {session}, turn {number}"
        instruction = check_text(item.get("instruction") or "", where, "instruction").strip()
        if not instruction:
            raise UserError(f'{where} has no "instruction"')
        source, target, mask = (_find_picture(where, folder / session, item, field) for field in PICTURES)
        if source is None or target is None:
            raise UserError(f'{where} has no "{"input" if source is None else "output"}"')
        _check_mask(mask, source)
        yield SessionTurn(instruction, source, target, mask, _find_caption(captions, target.name))


def _read_tables(tables: Sequence[Path], captions: Mapping[str, Any]) -> Iterator[Session]:
    rows = (row for path in tables for row in iter_rows(path, [*COLUMNS]))
    for name, group in itertools.groupby(rows, lambda row: str(row[1]["img_id"])):
        turns = []
        for number, (where, row) in enumerate(group, 1):
            check_key(name, f"{where}, img_id")
            if row["turn_index"] != number:
                raise UserError(
                    f"{where}: turn {number} of session {name} is missing; this is turn {row['turn_index']}"
                )
            instruction = str(row["instruction"] or "").strip()
            empty = [column for column in ("source_img", "target_img") if not isinstance(row[column], Path)]
            if empty or not instruction:
                raise UserError(f'{where}: "{empty[0] if empty else "instruction"}" is empty')
            mask = row["mask_img"] if isinstance(row["mask_img"], Path) else None
            _check_mask(mask, row["source_img"])
            caption = _find_caption(captions.get(name), f"{name}-output{number}.png")
            turns.append(SessionTurn(instruction, row["source_img"], row["target_img"], mask, caption))
        yield Session(name, turns)


@lru_cache(MASKS_REMEMBERED)
def _check_mask(mask: Path | None, source: Path) -> None:
    if mask is not None and (size := declared_size(mask)) != (own := declared_size(source)):
        raise UserError(
            f"{mask} is {size[0]} × {size[1]} pixels, and {source.name} {own[0]} × {own[1]}; a mask needs the size of its picture"
        )


def _find_caption(captions: Any, name: str) -> str | None:
    caption = captions.get(name) if isinstance(captions, dict) else None
    return str(caption).strip() or None if caption else None


def _find_picture(where: str, folder: Path, item: Mapping[str, Any], field: str) -> Path | None:
    name = str(item.get(field) or "").strip()
    if not name:
        return None
    if Path(name).name != name:
        raise UserError(f'{where}: "{field}" must be the name of a file in {folder}, not {name!r}')
    if not (folder / name).is_file():
        raise UserError(f"{where}: there is no {PICTURES[field]} picture at {folder / name}")
    return folder / name


def _read_captions(data: Path) -> Mapping[str, Any]:
    file = next((data / name for name in CAPTIONS if (data / name).is_file()), None)
    return read_json_object(file) if file else {}


TITLES = {SINGLE: "MagicBrush, single-turn (all turns)", MULTI: "MagicBrush, multi-turn (final turn)"}


def build_layouts(edits: Sequence[Edit], criteria: Sequence[str]) -> Iterable[Layout]:
    """Yield the single-turn and the multi-turn table: the paper's measures as they are, the judge's criteria from 0 to 100."""
    columns, measures = criterion_columns([MAGICBRUSH.rubric(n) for n in MAGICBRUSH.criteria if n in criteria], (True,))
    chains = find_complete_chains(edits)
    keeps: dict[str, Callable[[Edit], bool]] = {
        SINGLE: is_single,
        MULTI: lambda edit: is_final(edit) and (edit.model or NO_MODEL) in chains,
    }
    for setting, keep in keeps.items():
        if any(map(keep, edits)):
            yield Layout(TITLES[setting], columns, kind=lambda edit: True, keep=keep, measures=measures)


PAPER = Paper(MAGICBRUSH, read=read_benchmark, part=find_part, layouts=build_layouts, published=PUBLISHED)

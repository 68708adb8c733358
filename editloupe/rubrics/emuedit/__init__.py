"""Emu Edit's test set, a table on the hub. Its measures compare an output with the source and with captions of both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from pathlib import Path

from editloupe.pictures.picture_tables import iter_rows
from editloupe.rubrics.case_pictures import build_cases
from editloupe.rubrics.paper import Benchmark, Paper, check_key, check_text, find_split, make_edit, sole_picture_in
from editloupe.rubrics.protocol import Protocol, average_of
from editloupe.rubrics.rubric_files import load_rubrics
from editloupe.rubrics.tables import Layout, criterion_columns
from editloupe.types import Edit, UserError

__all__ = ["EMU_EDIT", "PAPER"]

JUDGED = ("instruction_following", "image_preservation")
"""The criteria that a judge is asked. Their mean is the score of an edit."""

EMU_EDIT = Protocol(
    name="emu-edit",
    title="Emu Edit",
    source="Sheynin et al., Emu Edit: Precise Image Editing via Recognition and Generation Tasks",
    rubrics=load_rubrics(files(__package__), (*JUDGED, "measured")),
    default_mode="plain",
    make_cases=build_cases,
    edit_score=average_of(JUDGED),
    weighting="edits",
    arithmetic=(
        "CLIPdir, CLIPimg, CLIPout, L1 and DINO are means over edits. The paper has no overall score; an edit's score here is "
        "the mean of the two criteria of the judge."
    ),
    formulas={"edit": f"mean({', '.join(JUDGED)})"},
)


COLUMNS = ("idx", "task", "instruction", "image", "input_caption", "output_caption")
SPLIT = "test"


def read_benchmark(benchmark: Benchmark) -> Iterator[Edit]:
    """Yield the rows of the test split with a model's outputs."""
    tables = find_split(benchmark.data, SPLIT)
    if not tables:
        raise UserError(f"{benchmark.data} has no Parquet table of Emu Edit's test set")
    for where, row in (row for path in tables for row in iter_rows(path, [*COLUMNS])):
        key = check_key(row["idx"], where)
        if not isinstance(row["image"], Path):
            raise UserError(f'{where}: "image" is empty')
        captions = {name: str(row[name] or "").strip() for name in ("input_caption", "output_caption")}
        yield make_edit(
            where,
            id=f"{benchmark.model_name}/{key}",
            source=row["image"],
            edited=sole_picture_in(benchmark.results, key) or benchmark.results / f"{key}.png",
            instruction=check_text(row["instruction"], where, "instruction"),
            instruction_type=str(row["task"] or "") or None,
            model=benchmark.model_name,
            extra={name: text for name, text in captions.items() if text},
        )


def build_layouts(edits: Sequence[Edit], criteria: Sequence[str]) -> Iterable[Layout]:
    """Yield the table of all edits: the paper's measures as they are, the judge's criteria from 0 to 100."""
    columns, measures = criterion_columns([EMU_EDIT.rubric(n) for n in EMU_EDIT.criteria if n in criteria], (True,))
    yield Layout("Emu Edit, test set", columns, kind=lambda edit: True, measures=measures)


PAPER = Paper(EMU_EDIT, read=read_benchmark, layouts=build_layouts)

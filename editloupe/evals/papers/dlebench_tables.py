"""DLEBench's tables: the types by model (Table 1), and the same for each criterion (Table 4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from editloupe.evals.papers.layout import Average, Column, Layout, Mean, Value, averages
from editloupe.rubrics.dlebench import DLEBENCH, TYPES
from editloupe.types import Edit

AVERAGE = "Average"


def layouts(edits: Sequence[Edit], criteria: Sequence[str]) -> Iterable[Layout]:
    """Yield Tables 1 and 4; a type is the mean of its criteria, the average the plain mean over the types that are there.

    Types of the user's own come behind the paper's seven. Table 1 needs both criteria and is left out where one was not asked.
    """
    types = list(dict.fromkeys((*TYPES, *(edit.instruction_type for edit in edits if edit.instruction_type))))
    asked = [rubric for rubric in DLEBENCH.rubrics if rubric.criterion in criteria]
    if len(asked) == len(DLEBENCH.rubrics):
        finals = [Average(tuple(Mean(rubric.criterion, (kind,)) for rubric in asked), complete=True) for kind in types]
        yield _layout("DLEBench, Table 1: final scores", types, finals)
    for rubric in asked:
        means = [Mean(rubric.criterion, (kind,)) for kind in types]
        yield _layout(f"DLEBench, Table 4: {rubric.title}", types, means)


def _layout(title: str, types: Sequence[str], values: Sequence[Value]) -> Layout:
    columns = [Column(kind, value) for kind, value in zip(types, values, strict=True)]
    return Layout(title, (*columns, averages(AVERAGE, values)), kind=lambda edit: edit.instruction_type)

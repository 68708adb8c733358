"""The papers' own tables: mean ± SD over repeats, levels, styles, multi-task edits, means over items."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean, stdev

import pytest

from editloupe.evals.analysis.run_rows import table_of
from editloupe.evals.papers.tables import paper_tables
from editloupe.evals.runs.records import Filing
from editloupe.evals.runs.store import Run
from editloupe.rubrics.registry import protocol as find_protocol
from editloupe.rubrics.vibe.scoring import NAMES
from editloupe.types import Edit, Judgement, Verdict


def keep(folder: Path, protocol: str, lines: list[tuple[Edit, int, dict[str, float]]]) -> Path:
    with Run.write(folder) as run:
        for edit, repeat, given in lines:
            verdicts = tuple(Verdict(criterion=c, score=v, score_100=v) for c, v in given.items())
            whole = Judgement(edit=edit, protocol=protocol, mode="plain", judge="openai:x", verdicts=verdicts)
            run.save_all([Filing(whole, repeat)])
    return folder


def edit(number: int, kind: str, **extra: object) -> Edit:
    name = f"{kind}-{number}".replace("+", "_")
    paths = {"source": Path(f"{name}.png"), "edited": Path(f"{name}-e.png")}
    return Edit(id=name, instruction="x", instruction_type=kind, extra=extra, **paths)


def vibe_metrics(kind: str, value: float) -> dict[str, float]:
    """Return metrics whose formula gives back the value."""
    asked = find_protocol("vibe").rubrics_for(edit(0, kind))
    return {rubric.criterion: value for rubric in asked}


def test_vibe_has_mean_and_sd_over_repeats_levels_and_overall(tmp_path: Path) -> None:
    by_task = {task: (10.0 * place, 10.0 * place + 4, 10.0 * place + 8) for place, task in enumerate(NAMES)}
    lines = [
        (edit(n, task), repeat, vibe_metrics(task, value))
        for task, values in by_task.items()
        for repeat, value in enumerate(values)
        for n in range(2)
    ]
    (table,) = paper_tables(table_of(keep(tmp_path / "run", "vibe", lines)))
    rows = {row[0]: row[2] for row in table.rows}
    assert rows["PC"] == "44.00 ± 4.00"
    deictic = [fmean(by_task[t][r] for t in ("AD", "RM", "RP", "TR")) for r in range(3)]
    assert rows["Deictic"] == f"{fmean(deictic):.2f} ± {stdev(deictic):.2f}"
    levels = [
        [
            fmean(by_task[t][r] for t in names)
            for names in (("AD", "RM", "RP", "TR"), ("PC", "RO", "DI"), ("LC", "FS", "BI"))
        ]
        for r in range(3)
    ]
    overall = [fmean(each) for each in levels]
    assert rows["overall"] == f"{fmean(overall):.2f} ± {stdev(overall):.2f}"


def test_vibe_breaks_down_by_style_and_by_number_of_tasks(tmp_path: Path) -> None:
    lines = [
        (edit(1, "AD", style="sketch"), 0, vibe_metrics("AD", 40.0)),
        (edit(2, "RM", style="sketch"), 0, vibe_metrics("RM", 80.0)),
        (edit(3, "RM", style="sketch"), 0, vibe_metrics("RM", 100.0)),
        (edit(4, "DI", style="animation"), 0, vibe_metrics("DI", 70.0)),
        (edit(5, "AD+RM"), 0, vibe_metrics("AD+RM", 60.0)),
        (edit(6, "AD+RM+TR"), 0, vibe_metrics("AD+RM+TR", 30.0)),
    ]
    _, styles, several = paper_tables(table_of(keep(tmp_path / "run", "vibe", lines)))
    assert {row[0]: row[1:] for row in styles.rows} == {
        "sketch": (pytest.approx(65.0), None),
        "animation": (None, pytest.approx(70.0)),
    }
    assert several.rows == (
        ("2 tasks at once", pytest.approx(60.0), 1.0),
        ("3 tasks at once", pytest.approx(30.0), 1.0),
    )


def test_edit_compass_parts_and_overall_are_means_over_items(tmp_path: Path) -> None:
    good = {"instruction_following": 100.0, "unedited_region_consistency": 100.0, "visual_quality": 100.0}
    bad = {**good, "instruction_following": 0.0}
    lines = [(edit(n, "Complex_Instruction", language="en"), 0, good) for n in range(3)]
    lines += [(edit(9, "Complex_Paint_en", language="en"), 0, bad), (edit(1, "ADD", language="en"), 0, bad)]
    by_part, by_task = paper_tables(table_of(keep(tmp_path / "run", "edit-compass", lines)))
    rows = {row[0]: row for row in by_part.rows}
    assert rows["Complex"][4] == pytest.approx((3 * 5 + 1) / 4)
    assert rows["Complex"][1] == pytest.approx((3 * 5 + 1) / 4)
    assert rows["overall, over items"][4] == pytest.approx((3 * 5 + 2) / 5)
    assert {row[0]: row[1] for row in by_task.rows} == {"ADD": 1.0, "Complex_Instruction": 5.0, "Complex_Paint_en": 1.0}

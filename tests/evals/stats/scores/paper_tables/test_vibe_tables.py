"""VIBE's Tables 1 to 5 of three models, cell by cell, against a calculation by hand."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean, stdev

import pytest

from editloupe.cli.main import run as command
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import JudgementRecord
from editloupe.evals.stats.scores.paper_tables import build_paper_tables
from editloupe.evals.stats.scores.run_scores import compute_scores
from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.rubrics.registry import get_protocol as find_protocol
from editloupe.rubrics.vibe import LEVELS, NAMES
from editloupe.types import Judgement, Verdict
from tests.evals.stats.scores.paper_tables.judged_runs import Given, edit, keep, tables

TABLE_1, TABLE_2 = "VIBE, Table 1", "VIBE, Table 2: single and several tasks"
TABLE_3 = "VIBE, Table 3: mean and standard deviation over repeats"
STYLES = "VIBE, Tables 4 and 5: Draft Instantiation by style"
IA, CP, VC = "instruction_adherence", "contextual_preservation", "visual_coherence"
QWEN = {
    "AD": 44.20,
    "RM": 24.88,
    "RP": 30.48,
    "TR": 11.11,
    "RO": 21.33,
    "DI": 54.65,
    "LC": 22.00,
    "FS": 32.38,
    "BI": 3.11,
}
"""Qwen-Image-Edit in Table 1: no Pose Control, so no Morphological average, and 23.42 over all."""


def all_at(kind: str, value: float | None) -> dict[str, float | None]:
    """Metrics whose formula gives the value back."""
    asked = find_protocol("vibe").rubrics_for(edit("x", kind, "m"))
    return {rubric.criterion: value for rubric in asked}


@pytest.mark.parametrize("value", ["count", "leave-out"])
def test_absent_parts_cannot_be_chosen_where_missing_outputs_do_not_count(
    tmp_path: Path, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(tmp_path / "run", "vibe", [(edit("AD", "AD", "qwen"), all_at("AD", 100.0))])
    assert command(["report", str(tmp_path / "run"), "--absent", value]) == 2
    assert "--absent: missing outputs do not count in vibe" in capsys.readouterr().err


def test_a_level_that_lacks_a_task_is_left_out_everywhere_as_in_the_paper(tmp_path: Path) -> None:
    lines: list[Given] = [(edit(task, task, "qwen"), all_at(task, value)) for task, value in QWEN.items()]
    run = keep(tmp_path / "run", "vibe", lines)
    found, printed = compute_scores(run), tables(run)[TABLE_1]["qwen"]
    assert printed["Morphological Avg"] is None
    assert printed["Deictic Avg"] == pytest.approx(27.67, abs=0.005)
    assert printed["Causal Avg"] == pytest.approx(19.16, abs=0.005)
    assert printed["Overall"] == pytest.approx(23.415, abs=0.005)
    assert found.overall.value == pytest.approx(printed["Overall"])
    assert list(found.by_level) == ["AD + RM + RP + TR", "LC + FS + BI"]
    assert "PC + RO + DI has no score, so it is not part of the overall score: no PC." in found.notes


def test_where_no_level_is_whole_that_is_why_there_is_no_overall(tmp_path: Path) -> None:
    found = compute_scores(keep(tmp_path / "run", "vibe", [(edit("AD", "AD", "qwen"), all_at("AD", 50))]))
    assert found.by_type["AD"].value == pytest.approx(50)
    assert (found.overall.value, found.overall.why) == (
        None,
        "none of these types makes a part of the overall by itself",
    )


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Three repeats; a has every task, b lacks Billiards and one verdict, c has a pose alone."""
    folder = tmp_path / "run"
    for repeat, more in enumerate((0.0, 4.0, 8.0)):
        lines: list[Given] = [
            (edit(f"{task}{n}", task, "a", style="sketch"), all_at(task, 10.0 * place + more))
            for place, task in enumerate(NAMES)
            for n in range(2)
        ]
        lines += [
            (edit(f"{task}0", task, "b"), all_at(task, None if (task, repeat) == ("LC", 1) else 50.0 + more))
            for task in NAMES
            if task != "BI"
        ]
        lines.append((edit("PC0", "PC", "c"), all_at("PC", 40.0 + 2 * more)))
        keep(folder, "vibe", lines, repeat)
    return folder


@pytest.mark.long
def test_every_cell_of_table_1(run: Path) -> None:
    found = tables(run)[TABLE_1]
    of_a = {task: 10.0 * place + 4 for place, task in enumerate(NAMES)}
    levels = {f"{level} Avg": fmean(of_a[task] for task in tasks) for level, tasks in LEVELS.items()}
    units = 3 * 2 * sum(len(all_at(task, 0.0)) for task in NAMES)
    counts = {"judged": units, "expected": units}
    assert found["a"] == pytest.approx({**of_a, **levels, "Overall": fmean(levels.values()), **counts})
    of_b = {**dict.fromkeys(NAMES, 54.0), "BI": None}
    units = 3 * sum(len(all_at(task, 0.0)) for task in NAMES if task != "BI")
    levels = {"Deictic Avg": 54.0, "Morphological Avg": 54.0, "Causal Avg": None}
    assert found["b"] == pytest.approx({**of_b, **levels, "Overall": 54.0, "judged": units - 2, "expected": units})
    nothing = dict.fromkeys((*NAMES, "Deictic Avg", "Morphological Avg", "Causal Avg", "Overall"))
    assert found["c"] == pytest.approx({**nothing, "PC": 48.0, "judged": 6, "expected": 6})


def test_every_cell_of_table_3(run: Path) -> None:
    found = tables(run)[TABLE_3]
    for place, task in enumerate(NAMES):
        assert found["a"][task] == pytest.approx(10.0 * place + 4)
        assert found["a"][f"{task} SD"] == pytest.approx(stdev([0, 4, 8]))
    assert (found["b"]["LC"], found["b"]["LC SD"]) == (pytest.approx(54), pytest.approx(stdev([50, 58])))
    assert (found["b"]["BI"], found["b"]["BI SD"]) == (None, None)
    assert (found["c"]["PC"], found["c"]["PC SD"]) == (pytest.approx(48), pytest.approx(stdev([40, 48, 56])))


@pytest.mark.long
def test_the_tables_and_the_scores_are_the_same_numbers(run: Path) -> None:
    printed = tables(run)[TABLE_1]
    for label, part in compute_scores(run).parts.items():
        assert printed[label]["Overall"] == pytest.approx(part.overall.value)
        for task, score in part.by_type.items():
            assert printed[label][task] == pytest.approx(score.value)


@pytest.mark.long
def test_a_missing_verdict_in_one_repeat_has_one_rule_in_tables_and_scores(tmp_path: Path) -> None:
    given = {"1": (100.0, 40.0, 70.0), "2": (30.0, None, 50.0)}
    for repeat in range(3):
        lines: list[Given] = [
            (edit(f"{task}{n}", task, "a"), all_at(task, values[repeat] if task == "AD" else 60.0))
            for task in NAMES
            for n, values in given.items()
        ]
        keep(tmp_path / "run", "vibe", lines, repeat)
    means = [65.0, 40.0, 60.0]  # of the repeats; the mean of the edits' means would be (70 + 40) / 2
    found, printed = compute_scores(tmp_path / "run"), tables(tmp_path / "run")
    assert printed[TABLE_1]["a"]["AD"] == printed[TABLE_3]["a"]["AD"] == pytest.approx(fmean(means))
    assert printed[TABLE_3]["a"]["AD SD"] == pytest.approx(stdev(means))
    assert found.by_type["AD"].value == pytest.approx(fmean(means))
    assert found.repeats is not None
    assert found.repeats.mean == found.overall.value == pytest.approx(printed[TABLE_1]["a"]["Overall"])
    assert found.repeats.mean == pytest.approx(fmean(value for value in found.repeats.values if value is not None))
    first = build_paper_tables(read_run_table(tmp_path / "run"))[0]
    assert "A score is the mean of its repeats' means; without a score in one or more: 1 edit of a." in first.notes


def test_an_edit_without_a_verdict_that_its_score_needs_is_left_out_and_counted(tmp_path: Path) -> None:
    lines: list[Given] = [
        (edit("1", "AD", "a"), {IA: 100.0, CP: None, VC: 100.0}),
        (edit("2", "AD", "a"), all_at("AD", 50.0)),
    ]
    first = build_paper_tables(read_run_table(keep(tmp_path / "run", "vibe", lines)))[0]
    assert first.rows[0][1] == pytest.approx(50)
    assert "An edit counts if all verdicts that its score needs were given; concerned: 1 edit of a." in first.notes


def test_single_double_and_triple_tasks_and_styles(tmp_path: Path) -> None:
    lines: list[Given] = [(edit(task, task, "a"), all_at(task, 80.0)) for task in LEVELS["Deictic"]]
    lines += [
        (edit("x", "AD+RM", "a"), all_at("AD+RM", 60.0)),
        (edit("y", "RP+TR", "a"), all_at("RP+TR", 40.0)),
        (edit("z", "AD+RM+TR", "a"), all_at("AD+RM+TR", 30.0)),
        (edit("x", "AD+RM", "b"), all_at("AD+RM", 20.0)),
        (edit("1", "DI", "a", style="sketch"), all_at("DI", 70.0)),
        (edit("2", "DI", "a", style="animation"), all_at("DI", 90.0)),
        (edit("1", "DI", "c", style="sketch"), all_at("DI", 10.0)),
    ]
    found = tables(keep(tmp_path / "run", "vibe", lines))
    names = ("Single Task", "Double Tasks", "Triple Tasks")
    assert [found[TABLE_2]["a"][name] for name in names] == pytest.approx([80, 50, 30])
    assert [found[TABLE_2]["b"][name] for name in names] == [None, pytest.approx(20), None]
    assert found[STYLES]["a"] == pytest.approx(
        {"Animation": 90, "Sketch": 70, "Real-world": None, "judged": 6, "expected": 6}
    )
    assert found[STYLES]["c"]["Sketch"] == pytest.approx(10)


def test_coherence_is_reported_as_0_where_nothing_of_the_order_was_followed(tmp_path: Path) -> None:
    lines: list[Given] = [
        (edit("1", "AD", "a"), {IA: 0.0, CP: 100.0, VC: 100.0}),
        (edit("2", "AD", "a"), {IA: 100.0, CP: 100.0, VC: 100.0}),
        (edit("3", "AD", "a"), {IA: 0.0, CP: 100.0, VC: None}),
    ]
    run = keep(tmp_path / "run", "vibe", lines)
    one = compute_scores(run).by_type["AD"]
    assert one.criteria[VC].value == pytest.approx(100 / 3)
    assert one.value == pytest.approx(100 / 3)
    assert (one.criteria[VC].judged, one.criteria[VC].unjudged) == (2, 1)
    assert read_run_table(run).scores(VC, "score")[0, 0] == 100, "what the judge said stays as it is"


def test_a_pose_that_shows_no_limb_scores_0_and_is_counted(tmp_path: Path) -> None:
    limbs = ("left_arm", "right_arm", "left_leg", "right_leg")
    verdicts = (
        Verdict(criterion="pose_consistency", score=0.0, score_100=0.0, values=dict.fromkeys(limbs, "N/A")),
        Verdict(criterion="body_identity_context", score=1.0, score_100=100.0),
    )
    folder = keep(tmp_path / "run", "vibe", [(edit("1", "PC", "a"), all_at("PC", 100.0))])
    whole = Judgement(edit=edit("2", "PC", "a"), protocol="vibe", mode="plain", judge="openai:x", verdicts=verdicts)
    with Run.write(folder) as run:
        run.save_all([JudgementRecord(whole)])
    found = compute_scores(folder)
    assert found.by_type["PC"].value == pytest.approx(50)
    assert "Pose Consistency: in 1 of the verdicts nothing could be compared; each counts 0." in found.notes

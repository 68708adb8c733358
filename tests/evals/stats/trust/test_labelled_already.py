"""Edits that people have labelled already are not drawn again, and corrected scores count each of them for itself."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editloupe.cli.main import run as command
from editloupe.evals.labels.human import HumanLabels
from editloupe.evals.runs.merging import merge_runs
from editloupe.evals.stats.scores.run_table import RunTable, read_run_table
from editloupe.evals.stats.trust.calibrate import calibrate
from editloupe.evals.stats.trust.corrected_scores import correct_scores
from editloupe.evals.stats.trust.label_queue import LabelQueue, draw_queue, join_queues
from editloupe.types import UserError
from tests.evals.sample_runs import IF, VC, Line, make_run
from tests.evals.samples import write_manifest
from tests.evals.stats.trust.samples import kind_judge, write_labels

Labels = dict[tuple[str, str], dict[str, float]]


def drawn_names(path: Path) -> set[str]:
    return {json.loads(line)["name"] for line in path.read_text().splitlines()}


def test_labels_of_the_manifest_of_the_studio_and_of_files_are_not_drawn_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole: dict[str, Any] = {IF: "3", VC: "2"}
    lines = [Line(f"e{n}", 3, 3, human=whole if n < 5 else {IF: "3"} if n < 7 else {}) for n in range(40)]
    run = make_run(tmp_path / "run", lines)
    write_labels(run / "labels.jsonl", [{"edit_id": f"e{n}", **whole, "annotator": "Ana"} for n in range(10, 14)])
    files = [write_labels(tmp_path / f"{n}.jsonl", [{"edit_id": f"e{n}", **whole}]) for n in (20, 21)]
    given = [part for file in files for part in ("--human", str(file))]
    out = tmp_path / "q.jsonl"
    assert command(["label-queue", str(run), "--budget", "40", "--tau", "1", "--out", str(out), *given]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "11 edits were left out: people have labelled them already" in said
    assert "2 edits with labels on some criteria only could be drawn" in said
    assert "29 of 40 edits" in said
    left_out = {f"e{n}" for n in (*range(5), *range(10, 14), 20, 21)}
    assert drawn_names(out) == {f"e{n}" for n in range(40)} - left_out
    queue = LabelQueue.read(out)
    assert set(queue.labelled) == left_out
    assert {one.of for one in queue.drawn} == {29}
    assert queue.whole == 40


def test_where_everything_is_labelled_one_sentence_says_so_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run", [Line(f"e{n}", human={IF: "3", VC: "2"}) for n in range(3)])
    assert command(["label-queue", str(run), "--budget", "2"]) == 2
    said = capsys.readouterr().err.strip()
    assert said.endswith(
        "nothing is left to label: the run run has 3 edits that could be drawn, all labelled on every criterion"
    )
    assert len(said.splitlines()) == 1
    assert not (run / "label_queue.jsonl").exists()


def test_of_a_manifest_that_nobody_judged_labelled_edits_are_not_drawn_either(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = write_manifest(tmp_path, 8)
    rows = [json.loads(line) for line in manifest.read_text().splitlines()]
    rows[0]["human"] = {IF: "Wrong Action", VC: "Single Anomaly"}
    rows[1]["human"] = {IF: "Wrong Action"}
    manifest.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    write_labels(tmp_path / "manifest.labels.jsonl", [{"edit_id": "e2", IF: 3, VC: 2, "annotator": "Ana"}])
    named = write_labels(tmp_path / "h.jsonl", [{"edit_id": "e3", IF: 3, VC: 2}])
    out = tmp_path / "q.jsonl"
    asked = ["label-queue", str(manifest), "--budget", "8", "--out", str(out), "--human", str(named)]
    assert command(asked) == 0
    assert "3 edits were left out" in " ".join(capsys.readouterr().err.split())
    assert drawn_names(out) == {"e1", "e4", "e5", "e6", "e7"}
    write_labels(named, [{"edit_id": f"e{n}", IF: 3, VC: 2} for n in range(8)])
    assert command(asked) == 2
    assert "nothing is left to label" in capsys.readouterr().err


@pytest.mark.long
def test_a_queue_survives_its_file_and_one_without_its_first_line_is_refused(tmp_path: Path) -> None:
    table = read_run_table(kind_judge(tmp_path)[0])
    queue, _ = draw_queue(table, 20, labelled=[row.name for row in table.rows[:7]])
    path = tmp_path / "q.jsonl"
    queue.split(["Ana", "Ben"], 5).write(path)
    again = LabelQueue.read(path)
    assert (again.chances, again.labelled) == (queue.chances, queue.labelled)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[1:]))
    with pytest.raises(UserError, match="drawn with 7 labelled edits, but its first line names 0"):
        LabelQueue.read(path)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunTable, Labels, list[str]]:
    """A run, people's labels of all its edits, and the names of edits labelled early: those that people like least."""
    folder, people = kind_judge(tmp_path_factory.mktemp("run"), edits=300, models=("x",))
    table = read_run_table(folder)
    labels: Labels = {(one["edit_id"], c): {"Ana": float(one[c])} for one in people for c in (IF, VC)}
    early = sorted((row.name for row in table.rows), key=lambda name: labels[name, IF]["Ana"])[:120]
    return table, labels, early


def some(labels: Labels, names: set[str]) -> HumanLabels:
    return HumanLabels("people", {place: given for place, given in labels.items() if place[0] in names})


def truth_of(table: RunTable, labels: Labels) -> float:
    found = correct_scores(table, HumanLabels("all", labels)).parts["x"].overall.corrected
    assert found is not None
    return found


@pytest.mark.long
@pytest.mark.parametrize("answered", [1.0, 0.5])
def test_corrected_scores_are_right_on_average_although_the_early_labels_are_of_the_worst_edits(
    run: tuple[RunTable, Labels, list[str]], answered: float
) -> None:
    table, labels, early = run
    truth, held = truth_of(table, labels), 0
    values: dict[str, list[float]] = {"recorded": [], "forgotten": []}
    for seed in range(30):
        queue, _ = draw_queue(table, 60, seed=seed, labelled=early)
        done = [one.name for one in queue.drawn][: round(len(queue.drawn) * answered)]
        human = some(labels, {*early, *done})
        found = correct_scores(table, human, queue).parts["x"].overall
        assert found.corrected is not None
        assert found.low is not None
        assert found.high is not None
        assert found.labels == len(early) + len(done)
        values["recorded"].append(found.corrected)
        held += found.low <= truth <= found.high
        without = correct_scores(table, human, replace(queue, labelled=())).parts["x"].overall.corrected
        values["forgotten"].append(without or 0.0)
    off = {name: abs(np.mean(each) - truth) for name, each in values.items()}
    assert off["recorded"] < 4 * np.std(values["recorded"]) / np.sqrt(30)
    assert off["forgotten"] > 3
    assert held >= 26


@pytest.mark.long
def test_labels_that_were_there_before_the_draw_and_are_missing_now_give_no_number(
    run: tuple[RunTable, Labels, list[str]],
) -> None:
    table, labels, early = run
    queue, _ = draw_queue(table, 60, labelled=early)
    names = {one.name for one in queue.drawn}
    found = correct_scores(table, some(labels, {*early[3:], *names}), queue).parts["x"].overall
    assert found.corrected is None
    assert str(found.why).startswith(
        "3 of the 120 edits here that were labelled before the queue was drawn have no label"
    )
    found = correct_scores(table, some(labels, {*early, *sorted(names)[:6]}), queue).parts["x"].overall
    assert found.why == "6 labels of edits that the queue drew; at least 20 are needed"


@pytest.mark.long
def test_a_second_queue_draws_others_and_both_count_together(run: tuple[RunTable, Labels, list[str]]) -> None:
    table, labels, _ = run
    truth, values = truth_of(table, labels), []
    for seed in range(25):
        first, _ = draw_queue(table, 40, seed=seed)
        once = [one.name for one in first.drawn]
        second, _ = draw_queue(table, 60, seed=1000 + seed, labelled=once)
        assert not set(once) & {one.name for one in second.drawn}
        human = some(labels, {*once, *(one.name for one in second.drawn)})
        found = correct_scores(table, human, join_queues([first, second]))
        assert found.parts["x"].overall.labels == len(first.drawn) + len(second.drawn)
        value = found.parts["x"].overall.corrected
        assert value is not None
        values.append(value)
    assert "40 edits that were labelled before the draw stand for themselves" in found.drawn
    assert abs(np.mean(values) - truth) < 4 * np.std(values) / np.sqrt(25)


@pytest.mark.long
def test_a_calibration_takes_early_labels_as_seldom_as_drawn_ones(run: tuple[RunTable, Labels, list[str]]) -> None:
    table, labels, early = run
    used = []
    for seed in range(30):
        queue, _ = draw_queue(table, 90, tau=1, seed=seed, labelled=early)
        half = [one.name for one in queue.drawn][:45]
        found = calibrate(table, some(labels, {*early, *half}), 0.3, 0.05, queue=queue, seed=seed)
        used.append(found.criteria[IF].labels)
    # 45 of the 180 others are labelled, a quarter, so a quarter of the 120 early ones counts: 75, some of which share a source.
    assert 55 <= np.mean(used) <= 75


def test_a_run_that_grew_after_the_draw_is_told(tmp_path: Path) -> None:
    lines = [Line(f"e{n}", 1 + n % 4, 1 + n % 3, "Change Color") for n in range(60)]
    folder = make_run(tmp_path / "run", lines)
    queue, _ = draw_queue(read_run_table(folder), 40)
    labels = [{"edit_id": one.name, IF: 2, VC: 3} for one in queue.drawn]
    human = write_labels(tmp_path / "h.jsonl", labels)
    assert not any("was drawn from" in note for note in correct_scores(folder, human, queue).notes)
    make_run(folder, [Line(f"f{n}") for n in range(5)])
    notes = correct_scores(folder, human, queue).notes
    assert any("was drawn from 60 edits, but the run has 65" in note for note in notes)


def test_a_merged_run_keeps_the_names_of_edits_labelled_before_a_draw(tmp_path: Path) -> None:
    first = make_run(tmp_path / "one", [Line("x", model="a")], pictures=True)
    second = make_run(tmp_path / "two", [Line("x", model="b"), Line("y", model="b")], pictures=True)
    queue, _ = draw_queue(read_run_table(second), 1, labelled=["x"])
    queue.write(second / "label_queue.jsonl")
    merge_runs([first, second], tmp_path / "both")
    kept = LabelQueue.read(tmp_path / "both" / "label_queue.jsonl")
    assert kept.labelled == ("x@b",)
    kept.check(read_run_table(tmp_path / "both"))

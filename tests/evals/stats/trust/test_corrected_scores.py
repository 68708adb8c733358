"""Corrected scores of a run: by model, type and criterion, with reasons where labels do not suffice."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from editloupe.cli.main import run as command
from editloupe.evals.report.trust_blocks import _explain_missing_types
from editloupe.evals.stats.scores.run_scores import compute_scores
from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.evals.stats.trust import correct_scores, draw_queue
from editloupe.evals.stats.trust.corrected_scores import CorrectedScore, CorrectedSlice
from editloupe.types import UserError
from tests.evals.sample_runs import IF, VC, Line, make_run
from tests.evals.stats.trust.samples import kind_judge, write_labels


@pytest.mark.long
def test_labels_of_every_edit_give_the_score_that_people_as_a_judge_would_give(tmp_path: Path) -> None:
    run, people = kind_judge(tmp_path)
    found = correct_scores(run, write_labels(tmp_path / "all.jsonl", people))
    truth = compute_scores(make_run(tmp_path / "people", _as_lines(run, people)))
    for model in ("x", "y"):
        part, true = found.parts[model], truth.parts[model]
        assert part.overall.corrected == pytest.approx(true.overall.value)
        for kind, score in true.by_type.items():
            assert part.by_type[kind].corrected == pytest.approx(score.value)
            assert part.by_type[kind].criteria[IF].corrected == pytest.approx(score.criteria[IF].value)
        assert part.overall.judge == pytest.approx(compute_scores(run).parts[model].overall.value)
    assert found.drawn.startswith("Every edit has a label")


def _as_lines(run: Path, people: list[dict[str, object]]) -> list[Line]:
    kinds = {(row.edit.id, row.model): row.edit.instruction_type for row in read_run_table(run).rows}
    return [
        Line(str(p["edit_id"]), p[IF], p[VC], type=kinds[str(p["edit_id"]), str(p["model"])], model=str(p["model"]))  # type: ignore[arg-type]
        for p in people
    ]


@pytest.mark.long
def test_a_random_part_of_the_labels_moves_a_kind_judge_towards_people(tmp_path: Path) -> None:
    run, people = kind_judge(tmp_path, edits=300)
    some = np.random.default_rng(0).permutation(len(people))[:160]
    found = correct_scores(run, write_labels(tmp_path / "some.jsonl", [people[place] for place in some]))
    for model in ("x", "y"):
        one = found.parts[model].overall.criteria[IF]
        assert one.judge is not None
        assert one.low is not None
        assert one.high is not None
        assert one.low < 50 < one.high < one.judge + 1
        assert one.worth is not None
        assert one.worth > one.labels
    (pair,) = found.differences
    assert pair.low is not None
    assert pair.low < 0 < (pair.high or 0)


@pytest.mark.long
def test_a_kind_judge_without_a_source_in_common_equals_ppi_python_in_one_type(tmp_path: Path) -> None:
    ppi = pytest.importorskip("ppi_py")
    random = np.random.default_rng(3)
    truth = random.integers(1, 5, 200)
    judge = np.minimum(truth + random.integers(0, 2, 200), 4)
    run = make_run(tmp_path / "run", [Line(f"e{n}", int(judge[n]), "") for n in range(200)])
    labels = write_labels(tmp_path / "h.jsonl", [{"edit_id": f"e{n}", IF: int(truth[n])} for n in range(50)])
    found = correct_scores(run, labels).parts["(no model)"].overall
    y, f = (truth - 1) * 100 / 3, (judge - 1) * 100 / 3
    expected = ppi.ppi_mean_pointestimate(y[:50], f[:50], f[50:]).item()
    assert found.corrected == pytest.approx(expected, abs=1e-9)


def test_few_labels_give_no_number_but_a_reason(tmp_path: Path) -> None:
    run, people = kind_judge(tmp_path)
    one = correct_scores(run, write_labels(tmp_path / "few.jsonl", people[:12])).parts["x"].overall
    assert (one.corrected, one.low, one.labels) == (None, None, 12)
    assert one.why == "12 labels on Instruction Following; at least 20 are needed"


@pytest.mark.parametrize(("label", "low", "high"), [(4, 88.43, 100.0), (1, 0.0, 11.57), (2, 29.48, 41.05)])
def test_labels_that_are_all_the_same_give_an_exact_bound(tmp_path: Path, label: int, low: float, high: float) -> None:
    # 1 − 0.025^(1/30) = 11.57 %: the most edits that may differ if none of 30 does (Clopper and Pearson).
    run = make_run(tmp_path / "run", [Line(f"e{n}", 1 + n % 4, "") for n in range(60)])
    labels = write_labels(tmp_path / "h.jsonl", [{"edit_id": f"e{n}", IF: label} for n in range(30)])
    found = correct_scores(run, labels).parts["(no model)"].overall
    assert found.corrected == pytest.approx((label - 1) * 100 / 3)
    assert (found.low, found.high) == (pytest.approx(low, abs=0.01), pytest.approx(high, abs=0.01))


def test_criteria_whose_labels_do_not_vary_are_bounded_together(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [Line(f"e{n}", 1 + n % 4, 4 - n % 4) for n in range(60)])
    rows = [{"edit_id": f"e{n}", IF: 1, VC: 4} for n in range(30)]
    found = correct_scores(run, write_labels(tmp_path / "h.jsonl", rows)).parts["(no model)"].overall
    assert found.corrected == pytest.approx(50)
    assert (found.low, found.high) == (pytest.approx(50 * 0.8843, abs=0.01), pytest.approx(100 - 50 * 0.8843, abs=0.01))


def test_the_difference_from_a_model_whose_labels_do_not_vary_has_a_width(tmp_path: Path) -> None:
    lines = [Line(f"e{n}", 1 + n % 4, "", model=model) for n in range(40) for model in ("x", "y")]
    run = make_run(tmp_path / "run", lines)
    rows = [{"edit_id": f"e{n}", "model": model, IF: 4} for n in range(30) for model in ("x", "y")]
    (difference,) = correct_scores(run, write_labels(tmp_path / "h.jsonl", rows)).differences
    assert difference.corrected == 0
    assert (difference.low, difference.high) == (pytest.approx(-11.57, abs=0.01), pytest.approx(11.57, abs=0.01))


@pytest.mark.long
def test_labels_picked_by_hand_are_said_to_be_unlike_the_rest(tmp_path: Path) -> None:
    run, people = kind_judge(tmp_path, edits=200, models=("x",))
    table = read_run_table(run)
    low = np.argsort(table.scores(IF)[:, 0], kind="stable")[:60]
    found = correct_scores(run, write_labels(tmp_path / "h.jsonl", [people[place] for place in low]))
    assert any("not a random part" in note for note in found.notes)


@pytest.mark.long
def test_labels_of_a_queue_are_weighed_by_their_probability_and_others_left_out(tmp_path: Path) -> None:
    run, people = kind_judge(tmp_path, edits=300, models=("x",))
    queue, kind = draw_queue(read_run_table(run), 80, tau=0.3, seed=1)
    assert kind == "confidence"
    names = {one.edit_id for one in queue.drawn}
    labels = [p for p in people if p["edit_id"] in names]
    others = [p for p in people if p["edit_id"] not in names][:5]
    found = correct_scores(run, write_labels(tmp_path / "h.jsonl", [*labels, *others]), queue)
    one = found.parts["x"].overall
    assert one.labels == len(labels)
    assert one.low is not None
    truth = np.mean([(p[IF] + p[VC] - 2) * 50 / 3 for p in people])
    assert one.low - 5 < truth < (one.high or 0) + 5
    assert any(note.startswith("5 labelled edits are not in the queue") for note in found.notes)


@pytest.mark.long
def test_a_queue_of_another_run_is_refused(tmp_path: Path) -> None:
    run, people = kind_judge(tmp_path)
    other = make_run(tmp_path / "other", [Line(f"o{n}", 1 + n % 4) for n in range(30)])
    queue, _ = draw_queue(read_run_table(other), 10)
    with pytest.raises(UserError, match="was drawn from another run"):
        correct_scores(run, write_labels(tmp_path / "h.jsonl", people), queue)


@pytest.mark.long
def test_the_report_tells_corrected_scores_in_every_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, people = kind_judge(tmp_path)
    labels = str(write_labels(tmp_path / "h.jsonl", people[20:60] + people[140:180]))
    asked = ["report", str(run), "--human", labels, "--corrected"]
    for kind, wanted in (("text", "as good as"), ("md", "as good as"), ("csv", "as good as"), ("latex", "corrected")):
        assert command([*asked, "--format", kind]) == 0
        assert wanted in capsys.readouterr().out
    assert command([*asked, "--format", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    beside = data["parts"]["x"]["overall"]["corrected"]
    assert {"corrected", "low", "high", "labels"} <= beside.keys()
    assert beside["labels"] == 40
    assert data["parts"]["x"]["overall"]["criteria"][IF]["corrected"]["corrected"] is not None
    assert {"corrected", "low", "high", "labels"} <= set(data["tables"][-1]["columns"])
    assert command([*asked[:2], "--corrected"]) == 2
    assert "no edit of the run run has a label of people" in capsys.readouterr().err


@pytest.mark.long
def test_where_every_edit_has_a_label_it_is_said_that_the_queue_leaves_some_out(tmp_path: Path) -> None:
    run, people = kind_judge(tmp_path)
    queue, _ = draw_queue(read_run_table(run), 60)
    found = correct_scores(run, write_labels(tmp_path / "all.jsonl", people), queue)
    assert "Every edit has a label: without the queue all of them would count." in found.notes


def test_types_with_labels_enough_have_a_reason_of_their_own() -> None:
    enough = CorrectedScore(judge=50, labels=37, why="the labels are of 5 source pictures; at least 10 are needed")
    part = CorrectedSlice(
        overall=enough, by_type={"Change Color": enough, "Change OCR": CorrectedScore(judge=5, labels=3)}
    )
    assert _explain_missing_types(part).text == (
        "No type has a corrected score of its own. Change Color: the labels are of 5 source pictures; at least 10 are needed. "
        "With fewer than 20 labels: Change OCR 3."
    )


@pytest.mark.long
def test_where_no_type_has_labels_enough_that_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, people = kind_judge(tmp_path, models=("x",))
    labels = str(write_labels(tmp_path / "h.jsonl", people[:24]))
    assert command(["report", str(run), "--human", labels, "--corrected", "--format", "md"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    said = "at least 20 labels are needed for each (Change Color 4, Change OCR 4, Removal Object 16)."
    assert told.count(f"No type has a corrected score of its own: {said}") == 1
    assert "on Instruction Following; at least 20" not in told

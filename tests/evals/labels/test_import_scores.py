"""Verdicts that were made elsewhere become a run that the statistics can use."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from editloupe.cli.main import run
from editloupe.evals.labels.import_scores import Scale, import_scores
from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.types import UserError

IF, VC = "instruction_following", "visual_consistency"


def write_csv(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    return write_csv(
        tmp_path / "scores.csv",
        f"picture,model,{IF},{VC}",
        "a,m,Flawless Execution,4",
        "a,n,1,Scene Collapse",
        "b,m,2,",
        "b,n,3,3",
    )


def command(scores: Path, *more: str) -> list[str]:
    named = ["--judge", "theirs", "--protocol", "dlebench", "--columns", "id=picture"]
    return ["import", str(scores), *named, "--out", str(scores.parent / "run"), *more]


def scores_of(folder: Path) -> dict[tuple[str, str, str], Any]:
    return {
        (row.edit.id, row.model, unit.criterion): unit.score if unit.judged else "unjudged"
        for row in read_run_table(folder).rows
        for units in row.units.values()
        for unit in units
    }


def test_labels_and_scores_become_verdicts_and_an_empty_cell_is_unjudged(
    scores: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command(scores)) == 0
    assert "7 verdicts of 4 rows" in (told := capsys.readouterr().err)
    assert "1 cell without a score is unjudged" in told
    kept = scores_of(scores.parent / "run")
    assert kept[("a", "m", IF)] == 4
    assert kept[("a", "n", VC)] == 1
    assert kept[("b", "m", VC)] == "unjudged"
    table = read_run_table(scores.parent / "run")
    assert any("imported" in note for note in table.notes)
    assert table.judges == ("theirs",)
    assert len({row.case for row in table.rows}) == 2, "two models' rows of one id are one case"


def test_a_file_is_imported_once_and_a_corrected_file_replaces_its_scores(
    scores: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = scores.parent / "run"
    import_scores(scores, folder, "theirs", "dlebench", {"id": "picture"})
    before = scores_of(folder)
    assert run(command(scores)) == 0
    assert "8 were there already" in capsys.readouterr().err
    assert scores_of(folder) == before
    write_csv(scores, f"picture,model,{IF},{VC}", "a,m,2,4", "c,m,1,1")
    import_scores(scores, folder, "theirs", "dlebench", {"id": "picture"})
    after = scores_of(folder)
    assert after == {**before, ("a", "m", IF): 2, ("c", "m", IF): 1, ("c", "m", VC): 1}
    assert len(read_run_table(folder).about["configurations"]) == 1


@pytest.mark.long
def test_a_correction_can_be_undone_and_the_same_file_can_be_read_by_other_columns(scores: Path) -> None:
    folder, first = scores.parent / "run", scores.read_text()
    import_scores(scores, folder, "theirs", "dlebench", {"id": "picture"})
    before = scores_of(folder)
    write_csv(scores, f"picture,model,{IF},{VC}", "a,m,2,4")
    assert import_scores(scores, folder, "theirs", "dlebench", {"id": "picture"}).known == 0
    scores.write_text(first)
    assert import_scores(scores, folder, "theirs", "dlebench", {"id": "picture"}).known == 6
    assert scores_of(folder) == before

    numbers = write_csv(scores.parent / "numbers.csv", "id,x,y", "a,1,4")
    for column, score in (("x", 1), ("y", 4), ("x", 1)):
        import_scores(numbers, scores.parent / "other", "theirs", "dlebench", {IF: column})
        assert scores_of(scores.parent / "other") == {("a", "(no model)", IF): score}


def test_rows_without_an_id_are_numbered_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_csv(tmp_path / "scores.csv", f"uid,{IF}", "a,1", "b,2")
    assert run(["import", str(file), "--judge", "j", "--protocol", "dlebench", "--out", str(tmp_path / "run")]) == 0
    assert "2 rows without an id are numbered (--columns id=COLUMN" in capsys.readouterr().err


def test_a_corrected_file_can_take_a_score_back(scores: Path) -> None:
    folder = scores.parent / "run"
    import_scores(scores, folder, "theirs", "dlebench", {"id": "picture"})
    write_csv(scores, f"picture,model,{IF},{VC}", "a,m,,4", "b,m,1,1")
    import_scores(scores, folder, "theirs", "dlebench", {"id": "picture"})
    assert scores_of(folder)[("a", "m", IF)] == "unjudged"


def test_rows_may_hold_one_verdict_each_with_repeat_confidence_and_rationale(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "criterion": IF, "score": 4, "repeat": repeat, "confidence": 0.5, "rationale": "Seen."}
        for repeat in range(2)
    ]
    file = tmp_path / "long.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    import_scores(file, tmp_path / "run", "theirs", "dlebench")
    (row,) = read_run_table(tmp_path / "run").rows
    assert [unit.repeat for unit in row.units[IF]] == [0, 1]
    assert {unit.confidence for unit in row.units[IF]} == {0.5}


def test_criteria_of_ones_own_have_the_scale_of_the_file(tmp_path: Path) -> None:
    file = write_csv(tmp_path / "own.csv", "uid,sc", "a,0.3", "b,1")
    import_scores(file, tmp_path / "run", "theirs", "own", {"id": "uid", "quality": "sc"}, Scale.parse("0..1"))
    assert [unit.score_100 for unit in read_run_table(tmp_path / "run").units] == pytest.approx([30, 100])


def test_numbers_on_another_scale_are_mapped_to_the_criterion_s(tmp_path: Path) -> None:
    file = write_csv(tmp_path / "s.csv", "id,type,instruction_following", "a,Awareness,0", "b,Awareness,5")
    import_scores(file, tmp_path / "run", "theirs", "wiseedit", {"instruction_type": "type"}, Scale.parse("0..10"))
    assert [unit.score for unit in read_run_table(tmp_path / "run").units] == [1.0, 5.5]


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ((f"id,{IF}", "a,67"), f'line 2: "67" is not an answer to {IF}; its labels are'),
        ((f"id,{IF}", "a,1", "a,2"), f'line 3: edit "a" has a second score for {IF}'),
        (("id,quality", "a,1"), "line 2: there is no score"),
        (("id,criterion,score", "a,quality,1"), '"quality" is not a criterion of dlebench'),
        ((f"id,{IF}",), "has no rows"),
        ((f"id,{IF},confidence.{IF}", "a,1,7"), '"confidence" is "7", not a number from 0 to 1'),
    ],
)
def test_a_mistake_names_its_line_and_writes_nothing(tmp_path: Path, lines: tuple[str, ...], sentence: str) -> None:
    file = write_csv(tmp_path / "bad.csv", *lines)
    with pytest.raises(UserError) as refused:
        import_scores(file, tmp_path / "run", "theirs", "dlebench")
    assert sentence in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_a_mistake_in_a_later_part_says_which_rows_are_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("editloupe.evals.labels.import_scores.AT_ONCE", 2)
    file = write_csv(tmp_path / "bad.csv", f"id,{IF}", "a,1", "b,2", "c,67")
    with pytest.raises(UserError, match=r'line 4: "67" is not .*; the first 2 rows are imported'):
        import_scores(file, tmp_path / "run", "theirs", "dlebench")
    assert len(scores_of(tmp_path / "run")) == 2


def test_columns_are_refused_with_results_whose_columns_are_known(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"--columns goes with a file of scores; .* has the columns of the script of GEdit"
    ):
        import_scores(tmp_path, tmp_path / "run", "theirs", "gedit", {"id": "uid"})


def test_a_column_that_must_hold_json_is_refused_with_its_line(tmp_path: Path) -> None:
    file = write_csv(tmp_path / "s.csv", f"id,{IF},boxes", "a,1,[]", "b,2,no")
    with pytest.raises(UserError, match=r"s\.csv, line 3: column boxes must hold JSON for target_boxes"):
        import_scores(file, tmp_path / "run", "theirs", "dlebench", {"target_boxes": "boxes"})


def test_a_check_without_an_answer_leaves_the_criterion_unjudged(tmp_path: Path) -> None:
    answers = ({"localization": 1, "operation": 0, "action": 1}, {"localization": 1, "operation": "", "action": 1})
    file = tmp_path / "s.jsonl"
    rows = [{"id": str(number), "instruction_adherence": each} for number, each in enumerate(answers)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    summary = import_scores(file, tmp_path / "run", "theirs", "vibe", {})
    assert (summary.verdicts, summary.unjudged) == (1, 1)


@pytest.mark.parametrize("text", ["0-10", "1..1", "a..b", "0..inf"])
def test_a_scale_is_two_numbers(text: str) -> None:
    with pytest.raises(UserError, match=r"--scale is LOW\.\.HIGH"):
        Scale.parse(text)


@pytest.mark.long
def test_judged_and_imported_verdicts_are_kept_apart_and_there_is_no_trace(
    scores: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = scores.parent / "run"
    import_scores(scores, folder, "theirs", "dlebench", {"id": "picture"})
    demo = Path("editloupe/demo/pictures")
    pictures = [str(demo / "chelsea.jpg"), str(demo / "cat-eye-edited.jpg")]
    assert run(["judge", *pictures, "Paint it", "--judge", "rules", "--out", str(folder)]) == 2
    assert "holds imported verdicts" in capsys.readouterr().err
    judged, merged = folder.with_name("judged"), folder.with_name("merged")
    assert run(["judge", *pictures, "Paint it", "--judge", "rules", "--out", str(judged)]) == 3
    assert run(["run", "merge", str(folder), str(judged), "--out", str(merged)]) == 2
    assert "judged and imported verdicts are kept apart" in capsys.readouterr().err
    assert not merged.exists()
    assert run(["trace", str(folder), "a"]) == 2
    assert "imported verdicts, which have no traces" in capsys.readouterr().err
    assert run(["fork", str(folder), "a", "--criterion", IF, "--step", "1"]) == 2
    assert "imported verdicts, which have no traces" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.parametrize("words", [["passport", "RUN", "RUN"], ["report", "RUN"], ["run", "info", "RUN"]])
def test_no_mode_is_claimed_for_verdicts_that_were_made_elsewhere(
    words: list[str], scores: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command(scores)) == 0
    assert run([str(scores.parent / "run") if word == "RUN" else word for word in words]) == 0
    text = capsys.readouterr().out
    assert "imported" in text
    assert "plain mode" not in text


def test_report_agree_compare_and_queues_work_on_imported_verdicts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, people = [f"id,model,{IF},{VC}"], ["id,model,rater,instruction_following,visual_consistency"]
    for number in range(40):
        for model, shift in (("m", 0), ("n", 1)):
            lines.append(f"e{number},{model},{(number + shift) % 4 + 1},{number % 3 + 2}")
            people.append(f"e{number},{model},r,{number % 4 + 1},{number % 2 + 3}")
    folder, labels = tmp_path / "run", write_csv(tmp_path / "people.csv", *people)
    import_scores(write_csv(tmp_path / "scores.csv", *lines), folder, "theirs", "dlebench")

    def ask(*arguments: str) -> Mapping[str, Any]:
        assert run([*arguments, "--format", "json"]) == 0
        answer: Mapping[str, Any] = json.loads(capsys.readouterr().out)
        return answer

    report = ask("report", str(folder), "--corrected", "--human", str(labels))
    assert report["corrected"]
    assert report["methods"].startswith("Verdicts of `theirs` on 80 edits")
    assert "were made elsewhere" in report["methods"]
    assert "Settings:" not in report["methods"]
    assert ask("agree", str(folder), "--human", str(labels))[IF]["spearman"]["n"] == 80
    assert run(["compare", str(folder), "--models"]) == 0
    assert "identical picture" not in capsys.readouterr().out, (
        "pictures that were not imported are not known to be equal"
    )
    assert run(["label-queue", str(folder), "--budget", "10"]) == 0
    out = str(tmp_path / "trust.yaml")
    assert run(["calibrate", str(folder), "--human", str(labels), "--out", out]) == 2
    assert "confidence" in capsys.readouterr().err, "one verdict without a confidence cannot be calibrated"


def test_a_column_that_the_file_does_not_have_is_refused_with_those_that_it_has(scores: Path) -> None:
    with pytest.raises(UserError, match=r'scores\.csv has no column "pictur"; its columns are picture, model'):
        import_scores(scores, scores.parent / "run", "theirs", "dlebench", {"id": "pictur", "model": "model"})

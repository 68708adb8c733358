import json
from pathlib import Path

import pytest

from editloupe.cli.main import run as command
from editloupe.evals.labels.files import EditName, parse_label
from editloupe.evals.labels.human import HumanLabels, load_human_labels, merge_labels
from editloupe.evals.labels.label_files import LabelFile
from editloupe.evals.stats.scores.run_table import RunTable, read_run_table
from editloupe.rubrics.model import Check, ChecksAnswer, NumberAnswer, YesNoAnswer
from editloupe.types import UserError
from tests.evals.sample_runs import IF, VC, Line, make_run


@pytest.fixture
def table(tmp_path: Path) -> RunTable:
    lines = [
        Line("a", human={IF: "Flawless Execution", VC: ["Single Anomaly", "Perfect Consistency"]}),
        Line("b", human={IF: ["wrong  action", ""]}),
        Line("c"),
    ]
    return read_run_table(make_run(tmp_path / "run", lines))


def of_people(human: HumanLabels) -> dict[tuple[str, str], dict[str, float]]:
    """What somebody said beside the manifest."""
    manifest = ("annotator 1", "annotator 2")
    told = {place: {who: said for who, said in by.items() if who not in manifest} for place, by in human.given.items()}
    return {place: by for place, by in told.items() if by}


def write(path: Path, *rows: dict[str, object]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def test_labels_of_the_manifest_one_or_one_an_annotator(table: RunTable) -> None:
    human = load_human_labels(table)
    assert human.origin == "the manifest"
    assert human.given["a", IF] == {"annotator 1": 4.0}
    assert human.given["a", VC] == {"annotator 1": 3.0, "annotator 2": 4.0}
    assert human.given["b", IF] == {"annotator 1": 2.0}
    assert ("c", IF) not in human.given
    assert human.annotators == ("annotator 1", "annotator 2")


def test_long_rows_with_names_the_last_label_of_a_name_counts(table: RunTable, tmp_path: Path) -> None:
    rows = [
        {"edit_id": "a", "annotator": "Ada", "criterion": IF, "label": "Wrong Action"},
        {"edit_id": "a", "annotator": "Ada", "criterion": IF, "label": "over modification"},
        {"edit_id": "a", "annotator": "Bo", "criterion": IF, "label": "4"},
        {"edit_id": "b", "annotator": "Bo", "criterion": IF, "label": "Wrong Action"},
        {"edit_id": "b", "annotator": "Bo", "criterion": IF, "label": None},
        {"edit_id": "z", "annotator": "Bo", "criterion": IF, "label": "Wrong Action"},
    ]
    file = tmp_path / "labels.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    human = load_human_labels(table, file)
    assert of_people(human) == {("a", IF): {"Ada": 3.0, "Bo": 4.0}}
    assert human.notes == ("1 labelled edit is not in this run (z).",)


def test_long_csv_rows_may_leave_a_label_empty(table: RunTable, tmp_path: Path) -> None:
    file = tmp_path / "labels.csv"
    file.write_text(f"id,annotator,criterion,label\na,Ada,{IF},Wrong Action\nb,Ada,{IF},\n", "utf-8")
    assert of_people(load_human_labels(table, file)) == {("a", IF): {"Ada": 2.0}}


def test_wide_rows_have_a_column_for_each_criterion(table: RunTable, tmp_path: Path) -> None:
    file = tmp_path / "labels.csv"
    file.write_text(f"edit_id,annotator,{IF},{VC}\na,Ada,Wrong Action,Scene Collapse\nb,Ada,,4\n", "utf-8")
    assert of_people(load_human_labels(table, file)) == {
        ("a", IF): {"Ada": 2.0},
        ("a", VC): {"Ada": 1.0},
        ("b", VC): {"Ada": 4.0},
    }


def test_rows_without_a_name_are_annotators_in_their_order(table: RunTable, tmp_path: Path) -> None:
    file = tmp_path / "labels.csv"
    file.write_text(f"edit_id,criterion,label\na,{IF},1\na,{IF},3\nb,{IF},2\n", "utf-8")
    human = load_human_labels(table, file)
    assert of_people(human) == {
        ("a", IF): {"annotator 1 of labels.csv": 1.0, "annotator 2 of labels.csv": 3.0},
        ("b", IF): {"annotator 1 of labels.csv": 2.0},
    }


def test_rows_like_those_of_a_manifest_are_read_with_a_skipped_label_as_null(table: RunTable, tmp_path: Path) -> None:
    file = tmp_path / "labels.jsonl"
    file.write_text(json.dumps({"id": "a", "human": {IF: [None, "Wrong Action"]}}), "utf-8")
    assert of_people(load_human_labels(table, file)) == {("a", IF): {"annotator 2 of labels.jsonl": 2.0}}


def test_labels_given_in_the_studio_stand_beside_those_of_the_manifest(table: RunTable) -> None:
    rows = [
        {"edit_id": "a", "criterion": IF, "label": "Wrong Action", "annotator": "Ada", "at": "2026-01-01T00:00:00Z"},
        {"edit_id": "c", "criterion": IF, "label": "4", "annotator": "Ada"},
        {"edit_id": "c", "criterion": IF, "label": None, "annotator": "Ada", "undo": True},
        {"edit_id": "c", "target_boxes": [[1, 2, 3, 4]], "annotator": "Ada"},
    ]
    (table.folder / "labels.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n", "utf-8")
    human = load_human_labels(table)
    assert human.origin == "the manifest and labels.jsonl"
    assert human.given["a", IF] == {"annotator 1": 4.0, "Ada": 2.0}
    assert human.given["b", IF] == {"annotator 1": 2.0}
    assert ("c", IF) not in human.given


def test_a_person_is_the_same_in_every_file_and_the_later_label_counts(table: RunTable, tmp_path: Path) -> None:
    first = write(tmp_path / "one.jsonl", *({"edit_id": e, "rater": "Ada", IF: "1"} for e in "abc"))
    second = write(
        tmp_path / "two.jsonl",
        {"edit_id": "b", "annotator": " Ada ", IF: "4"},
        {"edit_id": "c", "rater": "Ada", IF: None},
        {"edit_id": "c", "rater": "Bo", IF: "2"},
    )
    human = load_human_labels(table, [first, second])
    assert of_people(human) == {("a", IF): {"Ada": 1}, ("b", IF): {"Ada": 4}, ("c", IF): {"Bo": 2}}
    assert human.origin == "the manifest, one.jsonl and two.jsonl"
    turned = of_people(load_human_labels(table, [second, first]))
    assert turned == {("a", IF): {"Ada": 1}, ("b", IF): {"Ada": 1}, ("c", IF): {"Ada": 1, "Bo": 2}}


def test_people_without_a_name_are_kept_apart_by_their_files(table: RunTable, tmp_path: Path) -> None:
    files = [
        write(tmp_path / f"{name}.jsonl", {"edit_id": "a", IF: score}, {"edit_id": "c", IF: "1"})
        for name, score in (("ada", "1"), ("bo", "2"))
    ]
    assert load_human_labels(table, files).given["a", IF] == {
        "annotator 1": 4.0,
        "annotator 1 of ada.jsonl": 1.0,
        "annotator 1 of bo.jsonl": 2.0,
    }


def test_a_copy_of_labels_is_no_second_opinion(table: RunTable, tmp_path: Path) -> None:
    rows = ({"edit_id": "a", IF: "4", VC: "3"}, {"edit_id": "a", VC: "4"}, {"edit_id": "b", IF: "2"})
    copy = write(tmp_path / "copy.jsonl", *rows)
    again = load_human_labels(table, [copy, copy])
    assert again.given == load_human_labels(table).given
    assert again.notes[0].startswith("The 3 labels of annotator 1 of copy.jsonl are those of annotator 1, one by one")
    other = write(tmp_path / "other.jsonl", *rows[:2], {"edit_id": "b", IF: "3"})
    assert "annotator 1 of other.jsonl" in load_human_labels(table, other).annotators


def test_a_file_with_names_stands_for_its_unnamed_copy(tmp_path: Path) -> None:
    table = read_run_table(make_run(tmp_path / "many", [Line(f"e{n}") for n in range(10)]))
    rows = [{"edit_id": f"e{n}", IF: str(1 + n % 4)} for n in range(10)]
    named = write(tmp_path / "named.jsonl", *({**row, "rater": "Ada"} for row in rows))
    bare = write(tmp_path / "bare.jsonl", *rows)
    for files in ([named, bare], [bare, named]):
        assert load_human_labels(table, files).annotators == ("Ada",)
    few = [
        write(tmp_path / f"few {file.name}", *map(json.loads, file.read_text().splitlines()[:3]))
        for file in (named, bare)
    ]
    assert set(load_human_labels(table, few).annotators) == {"annotator 1 of few bare.jsonl", "Ada"}


@pytest.fixture
def models(tmp_path: Path) -> RunTable:
    """Two models under the same ids; `b` is the first model's alone."""
    lines = [Line("a", model="A"), Line("b", model="A"), Line("a", 1, model="B", human={IF: "1"})]
    return read_run_table(make_run(tmp_path / "models", lines))


def test_a_label_says_which_model_it_is_about(models: RunTable, tmp_path: Path) -> None:
    file = write(
        tmp_path / "labels.jsonl",
        {"edit_id": "a", "model": "B", "rater": "Ada", IF: "2"},
        {"edit_id": "a", "model": "A", "rater": "Ada", IF: "4"},
        {"edit_id": "b", "rater": "Ada", IF: "3"},
        {"edit_id": "a", "name": "a@B", "rater": "Bo", IF: "1"},
        {"name": "a", "edit_id": "a", "rater": "Bo", IF: "3"},
        {"edit_id": "a@B", "rater": "Cy", IF: "1"},
        {"edit_id": "a", "model": "C", "rater": "Cy", IF: "1"},
    )
    human = load_human_labels(models, file)
    assert human.given == {
        ("a", IF): {"Ada": 4, "Bo": 3},
        ("b", IF): {"Ada": 3},
        ("a@B", IF): {"annotator 1": 1, "Ada": 2, "Bo": 1, "Cy": 1},
    }
    assert human.notes == ("1 labelled edit is not in this run (a of C).",)


def test_a_label_that_fits_several_models_is_refused_and_names_them(models: RunTable, tmp_path: Path) -> None:
    file = write(tmp_path / "labels.jsonl", {"edit_id": "b", IF: "1"}, {"edit_id": "a", IF: "1"})
    with pytest.raises(
        UserError, match=r'labels.jsonl, line 2: "a" fits several edits of this run: a \(A\), a@B \(B\); '
    ):
        load_human_labels(models, file)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            {"edit_id": "a", "criterion": IF, "label": "Great"},
            'line 1: "Great" is not an answer to instruction_following',
        ),
        ({"edit_id": "a", "criterion": IF, "label": "5"}, "its labels are Localization Failure, Wrong Action"),
        ({"criterion": IF, "label": "4"}, "labels.jsonl has no column that names the edit"),
        ({"edit_id": "a", "criterion": IF, "lable": "4"}, '"label" is missing'),
        ({"edit_id": "nobody", "criterion": IF, "label": "4"}, "has no label that fits: its edits are"),
        ({"edit_id": "a", "criterion": "beauty", "label": "4"}, "has no label that fits: its labels are on beauty"),
    ],
)
def test_a_mistake_in_the_file_is_told_with_its_place(
    table: RunTable, tmp_path: Path, line: dict[str, str], sentence: str
) -> None:
    file = tmp_path / "labels.jsonl"
    file.write_text(json.dumps(line), "utf-8")
    with pytest.raises(UserError, match=sentence):
        load_human_labels(table, file)


def test_a_file_that_is_missing_or_of_another_kind_is_one_sentence(table: RunTable, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="was not found"):
        load_human_labels(table, tmp_path / "none.csv")
    (tmp_path / "labels.xlsx").write_bytes(b"PK")
    with pytest.raises(UserError, match=r"is one of \.jsonl, \.ndjson, \.csv, \.parquet"):
        load_human_labels(table, tmp_path / "labels.xlsx")


def test_numbers_and_yes_no_are_read_on_their_own_scales() -> None:
    scale = NumberAnswer(low=1, high=10)
    assert [parse_label(scale, text) for text in ("7", "10.0", "11", "0", "nan", "high")] == [
        7,
        10,
        None,
        None,
        None,
        None,
    ]
    assert [parse_label(YesNoAnswer(), text) for text in ("Yes", "no", "1", "maybe")] == [1, 0, 1, None]


@pytest.mark.parametrize("value", ["67", "100", "-3"])
def test_a_label_that_a_list_of_checks_cannot_give_is_refused_with_line_and_value(tmp_path: Path, value: str) -> None:
    checks = ChecksAnswer(checks=(Check(key="a", question="?"), Check(key="b", question="?")))
    path = write(tmp_path / "h.jsonl", {"edit_id": "e", "quality": 0.5}, {"edit_id": "e", "quality": value})
    with pytest.raises(UserError, match=f'h.jsonl, line 2: "{value}" is not an answer to quality; .* from 0 to 1'):
        merge_labels([EditName("e", "e", None)], {"quality": checks}, [], [LabelFile(path)])


def test_an_adjudicated_label_counts_alone_and_is_no_further_opinion(table: RunTable, tmp_path: Path) -> None:
    file = write(
        tmp_path / "labels.jsonl",
        {"edit_id": "c", "annotator": "Ada", "criterion": IF, "label": 1},
        {"edit_id": "c", "annotator": "Bo", "criterion": IF, "label": 4},
        {"edit_id": "c", "annotator": "Cem", "criterion": IF, "label": 3, "adjudicated": True},
        {"edit_id": "c", "annotator": "Cem", "criterion": IF, "label": 2, "adjudicated": True},
    )
    human = load_human_labels(table, file)
    assert human.given["c", IF] == {"Ada": 1.0, "Bo": 4.0}
    assert human.counting_scores(("c", IF)) == [2.0]
    assert human.counting_scores(("a", VC)) == [3.0, 4.0]
    place = [row.name for row in table.rows].index("c")
    assert sorted(score for score in human.counting_matrix(table.names, IF)[place] if score == score) == [2.0]
    assert sorted(score for score in human.matrix(table.names, IF)[place] if score == score) == [1.0, 4.0]
    taken_back = {"edit_id": "c", "annotator": "Cem", "criterion": IF, "label": None, "adjudicated": True}
    file.write_text(f"{file.read_text('utf-8')}{json.dumps(taken_back)}\n", "utf-8")
    assert load_human_labels(table, file).counting_scores(("c", IF)) == [1.0, 4.0]


def test_label_files_may_have_other_column_names(table: RunTable, tmp_path: Path) -> None:
    path = tmp_path / "study.csv"
    path.write_text("uid,verdict,who\na,Wrong Action,Ana\n")
    columns = {"edit_id": "uid", IF: "verdict", "rater": "who"}
    assert load_human_labels(table, LabelFile(path, columns)).given[("a", IF)]["Ana"] == 2
    with pytest.raises(UserError, match=r'study\.csv has no column "user"; its columns are uid, verdict, who'):
        load_human_labels(table, LabelFile(path, {**columns, "rater": "user"}))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--columns", "edit_id=uid"], "--columns goes with --human"),
        (["--human", "x.csv", "--columns", "edit_di=uid"], "not a field of a file of labels; did you mean edit_id"),
    ],
)
def test_columns_that_name_nothing_are_refused(
    table: RunTable, options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("agree", "report"):
        assert command([name, str(table.folder), *options]) == 2
        assert sentence in capsys.readouterr().err

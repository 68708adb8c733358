"""Label files as people have them: other column names, other words, picture names for ids, and wrong files."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from editloupe.cli.main import run as command
from editloupe.evals.labels import LabelFile, load_human_labels
from editloupe.evals.stats.scores.run_table import RunTable, read_run_table
from editloupe.types import UserError
from tests.evals.sample_runs import IF, VC, Line, make_run

ASKED = "Did it follow, fully?"


@pytest.fixture
def table(tmp_path: Path) -> RunTable:
    return read_run_table(make_run(tmp_path / "run", [Line("a"), Line("b"), Line("c")]))


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def run_agree(table: RunTable, file: Path, *options: str) -> int:
    return command(["agree", str(table.folder), "--human", str(file), *options])


@pytest.mark.parametrize("name", ["a", "a.png", "a.JPG", "pictures/a.png", "b-edited.png", r"C:\study\b-edited.png"])
def test_an_edit_is_found_by_its_id_or_by_the_name_of_a_picture(tmp_path: Path, name: str) -> None:
    table = read_run_table(make_run(tmp_path / "run", [Line("a"), Line("b")]))
    edited = {row.edit.id: row.edit.edited for row in table.rows}
    text = name.replace("b-edited.png", Path(str(edited["b"])).name)
    human = load_human_labels(table, write(tmp_path / "s.csv", f"id,{IF}", f"{text},4"))
    assert list(human.given) == [("b" if "b-edited" in name else "a", IF)]
    assert ("1 edit was found by the file name of a picture." in human.notes) == (name != "a")


def test_a_picture_name_of_several_models_is_refused_unless_a_folder_or_the_model_tells_them_apart(
    tmp_path: Path,
) -> None:
    lines = [Line("a", model="one", source="s"), Line("a", model="two", source="s")]
    table = read_run_table(make_run(tmp_path / "run", lines))
    with pytest.raises(UserError, match=r's\.csv, line 2: "s\.png" fits several edits'):
        load_human_labels(table, write(tmp_path / "s.csv", f"id,{IF}", "s.png,4"))
    human = load_human_labels(table, write(tmp_path / "s.csv", f"id,model,{IF}", "s.png,two,4"))
    assert [row.edit.model for row in table.rows if (row.name, IF) in human.given] == ["two"]


@pytest.mark.parametrize("form", ["wide", "long"])
def test_texts_of_the_file_are_mapped_to_labels_and_criteria(table: RunTable, tmp_path: Path, form: str) -> None:
    wide = ("picture,who,q1,q2", "a,Ada,YES,yes", "b,Ada,can't tell,2", 'c,Bo,"no, sorry",Scene Collapse')
    long = ("picture,who,criterion,label", *("a,Ada,q1,YES", "a,Ada,q2,yes", "b,Ada,q1,can't tell", "b,Ada,q2,2"))
    long = (*long, 'c,Bo,q1,"no, sorry"', "c,Bo,Visual consistency,Scene Collapse")
    columns = {"id": "picture", "rater": "who"} | ({IF: "q1", VC: "q2"} if form == "wide" else {})
    meanings = {"yes": "4", "No, sorry": "Wrong Action", f"{VC}:yes": "3", "can't tell": ""}
    meanings |= {"q1": IF, "q2": VC} if form == "long" else {}
    file = LabelFile(write(tmp_path / "s.csv", *(wide if form == "wide" else long)), columns, meanings)
    assert load_human_labels(table, file).given == {
        ("a", IF): {"Ada": 4.0},
        ("a", VC): {"Ada": 3.0},
        ("b", VC): {"Ada": 2.0},
        ("c", IF): {"Bo": 2.0},
        ("c", VC): {"Bo": 1.0},
    }


def test_a_parquet_file_is_read_with_the_same_options(table: RunTable, tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(arrow.table({"picture": ["a.png", "b"], ASKED: ["yes", None]}), tmp_path / "s.parquet")
    file = LabelFile(tmp_path / "s.parquet", {"id": "picture", IF: ASKED}, {"yes": "4"})
    assert load_human_labels(table, file).given == {("a", IF): {"annotator 1 of s.parquet": 4.0}}


def test_the_command_line_takes_columns_and_texts_with_commas(
    table: RunTable, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "s.csv", f'picture,"{ASKED}"', 'a,"Yes, fully"', "b,No", "c,No")
    columns = f'id=picture,"{IF}={ASKED}"'
    assert run_agree(table, file, "--columns", columns, "--map", '"Yes, fully=4",No=2', "--format", "csv") == 0
    assert f"{IF},all,mae_100,44.4" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("lines", "options", "sentence"),
    [
        (
            ("picture,who", "a,Ada"),
            (),
            "s.csv has no column that names the edit (edit_id, id or name); its columns are",
        ),
        (("Edit-ID,who", "a,Ada"), (), "Edit-ID, who; did you mean --columns 'id=Edit-ID'?"),
        (("id,Instruction Following", "a,4"), (), f"did you mean --columns '{IF}=Instruction Following'?"),
        (("id,q1", "a,4"), (), f"its columns are id, q1; name it with --columns {IF}=COLUMN"),
        ((f"id,{IF}", "x1.png,4", "x2.png,4"), (), "its edits are x1.png, x2.png, and those of the run a, b, c"),
        ((f"id,{IF}",), (), "it has no rows"),
        (("id,criterion,label", "a,beauty,4"), (), f"its labels are on beauty, and the run was asked {IF}, {VC}"),
        ((f"id,{IF}", "a,Yes"), (), '--map "Yes=LABEL" says which of them is meant'),
        ((f"id,{IF}", "a,?"), ("--map", "?="), "all its labels are empty"),
        (("id,q", "a,4"), ("--columns", "instruction_folowing=q"), f"did you mean {IF}?"),
        (("id,q", "a,4"), ("--columns", f"{IF}=qq"), 'has no column "qq"; its columns are id, q'),
        (("id,q", "a,4"), ("--map", "Yes"), '--map takes TEXT=LABEL, such as "Yes=4", not "Yes"'),
        (("id,q", "a,4"), ("--map", "Yes=4,Yes=3"), '--map names "Yes" twice'),
    ],
)
def test_a_wrong_file_is_answered_with_what_it_has(
    table: RunTable,
    tmp_path: Path,
    lines: Sequence[str],
    options: Sequence[str],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_agree(table, write(tmp_path / "s.csv", *lines), *options) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("column", ["picture", "pictur"])
@pytest.mark.parametrize(
    "words",
    [
        ("report", "RUN"),
        ("agree", "RUN"),
        ("trust", "RUN"),
        ("traces", "RUN"),
        ("label-queue", "RUN", "--budget", "1"),
        ("calibrate", "RUN", "--out", "OUT"),
        ("compare", "RUN", "RUN", "--judges"),
    ],
)
def test_every_command_with_labels_reads_them_by_columns_and_map(
    table: RunTable, tmp_path: Path, words: Sequence[str], column: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "s.csv", "picture,q", "a,Yes", "b,Yes", "c,Yes")
    places = {"RUN": str(table.folder), "OUT": str(tmp_path / "trust.yaml")}
    read = ("--human", str(file), "--columns", f"id={column},{IF}=q", "--map", "Yes=4")
    code = command([*(places.get(word, word) for word in words), *read])
    error = capsys.readouterr().err
    assert ('s.csv has no column "pictur"' in error) == (column == "pictur")
    assert code == 2 or column == "picture"
    assert "Yes" not in error

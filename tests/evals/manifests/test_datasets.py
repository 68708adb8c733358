import json
from pathlib import Path
from typing import Any

import pytest

from editloupe.cli.main import run
from editloupe.evals.manifests.cases import IdSet
from editloupe.evals.manifests.layouts import load_manifest
from editloupe.types import Edit, UserError
from tests.evals.samples import write_manifest, write_picture

GOOD = {"id": "a", "source": "s.png", "edited": "e.png", "instruction": "Remove the cat"}


def manifest(folder: Path, *rows: Any) -> Path:
    path = folder / "m.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows) + "\n", "utf-8")
    return path


def test_a_row_becomes_an_edit_with_paths_relative_to_the_manifest(tmp_path: Path) -> None:
    human = {"instruction_following": ["A", "B"], "other": 3}
    row = {**GOOD, "target_boxes": [[1, 2, 3, 4]], "human": human, "scene": 8}
    (edit,) = load_manifest(manifest(tmp_path, row))
    assert edit.source == tmp_path / "s.png"
    assert [list(box) for box in edit.target_boxes] == [[1, 2, 3, 4]]
    assert edit.human == {"instruction_following": ("A", "B"), "other": "3"}
    assert edit.extra == {"scene": 8}


def test_a_missing_id_is_the_name_of_the_edited_picture_and_a_number_becomes_text(tmp_path: Path) -> None:
    rows = [{k: v for k, v in GOOD.items() if k != "id"}, {**GOOD, "id": 7}]
    assert [edit.id for edit in load_manifest(manifest(tmp_path, *rows))] == ["e", "7"]


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("{broken", "this is not JSON"),
        ("[1, 2]", "a line must be a JSON object in braces, not a list"),
        ({**GOOD, "source": None}, '"source" is missing'),
        (
            {**{k: v for k, v in GOOD.items() if k != "edited"}, "editted": "b.png"},
            '"editted" may be a misspelling of it',
        ),
        ({**GOOD, "instruction": "  "}, "the instruction is empty"),
        ({**GOOD, "id": [1]}, '"id" must be a text or a whole number'),
        ({**GOOD, "edited": "../e.png"}, '"edited" leads outside the manifest\'s folder (../e.png)'),
        ({**GOOD, "edited": "/etc/passwd"}, "leads outside"),
        ({**GOOD, "edited": "https://x.org/e.png"}, "is a URL"),
        ({**GOOD, "edited": 5}, '"edited" must be the path of a picture'),
        ({**GOOD, "reference": "a\0b"}, '"reference" must be the path'),
        ({**GOOD, "more_images": {"pose": "../p.png"}}, "leads outside"),
        ({**GOOD, "target_boxes": [[5, 5, 1, 1]]}, "has no area"),
        ({**GOOD, "target_boxes": [[1, 2]]}, "a box has four numbers"),
        ({**GOOD, "human": ["x"]}, '"human" must map'),
        ({**GOOD, "human": {"c": []}}, "no usable label for c"),
        ({**GOOD, "turn": "first"}, '"turn"'),
    ],
)
def test_a_mistake_is_told_with_file_and_line(tmp_path: Path, row: Any, sentence: str) -> None:
    first = {**GOOD, "id": "first"}
    with pytest.raises(UserError) as caught:
        list(load_manifest(manifest(tmp_path, first, "", row)))
    assert str(caught.value).startswith("m.jsonl, line 3: ")
    assert sentence in str(caught.value)


def test_a_link_out_of_the_folder_is_refused_unless_outside_is_allowed(tmp_path: Path) -> None:
    outside = write_picture(tmp_path / "elsewhere" / "x.png", 1)
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "s.png").symlink_to(outside)
    path = manifest(folder, GOOD)
    with pytest.raises(UserError, match="leads outside"):
        list(load_manifest(path))
    assert next(load_manifest(path, allow_outside=True)).source == outside


def test_a_duplicate_id_names_both_lines(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r'm\.jsonl, line 3: the id "a" is already used at m\.jsonl, line 1'):
        list(load_manifest(manifest(tmp_path, GOOD, {**GOOD, "id": "b"}, GOOD)))


def test_ids_that_merely_share_a_hash_are_not_duplicates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IdSet, "add", lambda self, name: True)
    assert len(list(load_manifest(manifest(tmp_path, GOOD, {**GOOD, "id": "b"})))) == 2


def test_the_id_set_knows_every_id_it_was_given() -> None:
    seen = IdSet()
    assert not any(seen.add(f"id{n}") for n in range(5000))
    assert all(seen.add(f"id{n}") for n in range(5000))
    assert len(seen) == 5000


def test_edits_are_streamed_not_collected(tmp_path: Path) -> None:
    edits = load_manifest(manifest(tmp_path, GOOD, "{broken"))
    assert next(edits).id == "a"
    with pytest.raises(UserError, match="line 2"):
        next(edits)


def test_text_that_is_not_utf8_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_bytes(json.dumps(GOOD).encode() + b"\n\xff\xfe\n")
    with pytest.raises(UserError, match="line 2: this is not UTF-8"):
        list(load_manifest(path))


@pytest.mark.parametrize("name", ["nothing.jsonl", "m.txt"])
def test_what_is_no_manifest_is_one_sentence(tmp_path: Path, name: str) -> None:
    (tmp_path / "m.txt").write_text("x")
    with pytest.raises(UserError, match=r"there is no manifest|a manifest is a \.jsonl"):
        load_manifest(tmp_path / name)


def test_csv_and_parquet_say_the_same_as_jsonl(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pytest.importorskip("pyarrow").Table
    row = {**GOOD, "target_boxes": [[1, 2, 3, 4]], "human": {"c": "A"}, "model": "m1", "turn": 2, "note": "x"}
    (wanted,) = load_manifest(manifest(tmp_path, row))
    (tmp_path / "m.csv").write_text(
        "id,source,edited,instruction,target_boxes,human.c,model,turn,note,hint\n"
        'a,s.png,e.png,Remove the cat,"[[1,2,3,4]]",A,m1,2,x,\n'
    )
    parquet.write_table(table.from_pylist([row, {**GOOD, "id": "b"}]), tmp_path / "m.parquet")
    assert list(load_manifest(tmp_path / "m.csv")) == [wanted]
    edits = list(load_manifest(tmp_path / "m.parquet"))
    assert edits[0] == wanted
    assert edits[1] == Edit(**{**GOOD, "id": "b", "source": tmp_path / "s.png", "edited": tmp_path / "e.png"})


def test_a_mistake_in_a_csv_cell_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text("id,source,edited,instruction,target_boxes\na,s.png,e.png,x,oops\n")
    with pytest.raises(UserError, match=r"m\.csv, line 2: column target_boxes must hold JSON"):
        list(load_manifest(tmp_path / "m.csv"))


@pytest.mark.parametrize("text", ["y\tMake it red\nx\tMake it blue\n", "Make it blue\nMake it red\n"])
def test_a_folder_pair_is_read_with_named_or_ordered_instructions(tmp_path: Path, text: str) -> None:
    for name in ("x", "y"):
        write_picture(tmp_path / "sources" / f"{name}.png", 1)
        write_picture(tmp_path / "edits" / f"{name}.jpg", 2)
    (tmp_path / "instructions.txt").write_text(text)
    edits = {edit.id: edit for edit in load_manifest(tmp_path)}
    assert edits["x"].instruction == "Make it blue"
    assert edits["y"].edited == tmp_path / "edits" / "y.jpg"


def test_a_folder_pair_with_too_few_lines_is_one_sentence(tmp_path: Path) -> None:
    write_picture(tmp_path / "sources" / "x.png", 1)
    write_picture(tmp_path / "edits" / "x.png", 2)
    (tmp_path / "instructions.txt").write_text("one\ntwo\n")
    with pytest.raises(UserError, match="2 lines and edits/ has 1 picture"):
        list(load_manifest(tmp_path))


def test_the_fields_of_dlebench_are_mapped_and_the_rest_is_kept(tmp_path: Path) -> None:
    row = {
        "sample_id": 12,
        "source_image": "s.png",
        "edited_image": "e.png",
        "instruction": "x",
        "edit_type": "removal_object",
        "bbox": [1, 2, 3, 4],
        "source_caption": "a cat",
    }
    (edit,) = load_manifest(manifest(tmp_path, row), layout="dlebench")
    assert (edit.id, edit.instruction_type, len(edit.target_boxes)) == ("12", "Removal Object", 1)
    assert edit.extra == {"source_caption": "a cat"}


def test_a_written_manifest_is_read_back(tmp_path: Path) -> None:
    assert [edit.id for edit in load_manifest(write_manifest(tmp_path, 3))] == ["e0", "e1", "e2"]


def test_columns_that_may_be_misspelt_are_listed_once_and_kept(tmp_path: Path) -> None:
    more = {"target_box": [1, 2, 3, 4], "hunan": {"c": "A"}, "refrence": "r.png", "scene": 8}
    rows = [{**GOOD, "id": number, **more} for number in ("a", "b")]
    notes: list[str] = []
    first, *_ = load_manifest(manifest(tmp_path, *rows, {**GOOD, "id": "c", "place": 1}), note=notes.append)
    assert first.extra == more
    assert notes == [
        "not fields of an edit, kept as further columns: target_box (did you mean target_boxes?), hunan (did you mean human?), "
        "refrence (did you mean reference?), scene",
    ]


def test_many_columns_are_listed_with_the_doubtful_first_and_the_rest_counted(tmp_path: Path) -> None:
    notes: list[str] = []
    row = {**GOOD, **{f"column{number}": number for number in range(10)}, "hnt": "x"}
    list(load_manifest(manifest(tmp_path, row), note=notes.append))
    (note,) = notes
    assert note.startswith("not fields of an edit, kept as further columns: hnt (did you mean hint?), column0,")
    assert note.endswith("column6 and 3 more")


def test_a_misspelt_criterion_of_a_human_label_is_reported_and_one_of_another_protocol_is_not(tmp_path: Path) -> None:
    human = {"instruction_folowing": "Wrong Action", "visual_consistency": "Perfect Consistency", "naturalness": "3"}
    notes: list[str] = []
    (edit,) = load_manifest(manifest(tmp_path, {**GOOD, "human": human}), protocol="dlebench", note=notes.append)
    assert edit.human == human
    assert notes == [
        "human labels on instruction_folowing (did you mean instruction_following?) are kept, but the protocol has no "
        "criterion of that name"
    ]


def test_a_batch_prints_misspelt_names_once_although_it_reads_the_manifest_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_manifest(tmp_path, 2)
    rows = [{**json.loads(line), "hunan": {}} for line in path.read_text().splitlines()]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert run(["batch", str(path), "--dry-run", "--out", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().err.count("hunan (did you mean human?)") == 1

"""Released chains: read as they are, with what cannot be read told by its line, and judged like our own."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from editloupe.cli.main import run
from editloupe.evals.edival.files import ChainFile, build_edits, find_results, read_folder
from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.rubrics.edival.pools import read_turn
from editloupe.types import UserError
from tests.conftest import StartServer
from tests.drawn_pictures import save
from tests.evals.edival import evaluate_once
from tests.evals.edival import stand_ins as s
from tests.scripted import say

COLUMNS = (
    *("image_index", "turns", "task_type", "instructions", "format_instructions", "bg_consistency"),
    *("unchanged_objects", "available_objects", "all_objects"),
)
TYPES = ["color_alter", "text_change", "background_change"]
SAID = [
    "Change the color of ceramic white cup to blue",
    "Add text 'HI' on the image",
    "Change the background to park, remain the wooden box, blue cup unchanged",
]
BRACKETS = [
    "Change the color of [ceramic white cup] to [blue]",
    "Add text '[HI]' on the image",
    "Change the background to [park]",
]
CUP, BOX, SIGN = "ceramic white cup", "wooden box", "paper red sign"
POOLS: list[tuple[bool, list[str], list[str], list[str]]] = [
    (True, [BOX, SIGN], [BOX, SIGN, "blue cup"], [CUP, BOX, SIGN, "blue cup"]),
    (True, [BOX, SIGN], [BOX, SIGN, "blue cup"], [CUP, BOX, SIGN, "blue cup", "text"]),
    (False, [BOX], [BOX], [CUP, BOX, SIGN, "blue cup", "text"]),
]


def rows(image: str = "7") -> list[dict[str, Any]]:
    return [
        dict(
            zip(
                COLUMNS,
                (image, turn, TYPES[:turn], SAID[:turn], BRACKETS[:turn], *POOLS[turn - 1]),
                strict=True,
            )
        )
        for turn in (1, 2, 3)
    ]


def write_csv(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)
    return path


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    (tmp_path / "photos").mkdir()
    for name in ("7", "8"):
        save(s.BASE, tmp_path / f"photos/{name}_input_raw.png")
    return tmp_path / "photos"


def imported(file: Path, photos: Path, out: Path) -> int:
    return run(["edival", "import", str(file), "--images", str(photos), "--out", str(out)])


def test_sentences_and_pools_are_taken_as_they_are(tmp_path: Path, photos: Path) -> None:
    lines = [{**row, "difficulty": "hard"} for row in rows()]
    assert imported(write_csv(tmp_path / "released.csv", lines), photos, tmp_path / "chains") == 0
    (chain,) = read_folder(tmp_path / "chains", ChainFile)
    assert [turn.instruction for turn in chain.turns] == SAID
    assert chain.start.all == (CUP, BOX, SIGN), "what the first turn brings was not there before it"
    assert [turn.pools.unchanged for turn in chain.turns] == [tuple(pool[1]) for pool in POOLS]
    assert chain.turns[2].task.unchanged == (BOX, "blue cup")
    assert chain.turns[0].extra == {"difficulty": "hard"}, "an unknown column is kept"
    assert chain.complex["plain"][1] == f"{SAID[0]}. {SAID[1]}", "as the public code joins them"


def test_a_published_chain_is_judged_by_its_own_pools_in_the_public_layout(tmp_path: Path, photos: Path) -> None:
    imported(write_csv(tmp_path / "released.csv", rows()), photos, tmp_path / "chains")
    for mode in ("multipass", "singlepass"):
        (tmp_path / "results/m" / mode).mkdir(parents=True)
        for name in ("7_input_raw", *(f"7_input_raw_turn_{turn}" for turn in (1, 2, 3))):
            save(s.BASE, tmp_path / "results/m" / mode / f"{name}.png")
    chains = read_folder(tmp_path / "chains", ChainFile)
    edits = list(build_edits(find_results(tmp_path / "results", chains), chains, tmp_path / "chains"))
    assert [edit.id for edit in edits] == [f"m/{mode}/7/{turn}" for mode in ("multi", "complex") for turn in (1, 2, 3)]
    turns = [read_turn(edit) for edit in edits]
    assert [turn.all for turn in turns[:3]] == [tuple(pool[3]) for pool in POOLS]
    assert turns[0].names_after == ("blue cup",), "the released name, not the one our rules would make"
    assert turns[5].names_after == ("blue cup", "text", None)
    assert (turns[5].background, len(turns[5].tasks)) == (False, 3)
    assert edits[1].source.name == "7_input_raw_turn_1.png"
    assert edits[4].instruction == f"{SAID[0]}. {SAID[1]}"


def test_photographs_in_a_zip_are_laid_beside_the_chains_and_a_second_call_holds_everything(
    tmp_path: Path, photos: Path, capsys: Any
) -> None:
    with ZipFile(tmp_path / "photos.zip", "w") as archive:
        for path in photos.iterdir():
            archive.write(path, f"inside/{path.name}")
    file = write_csv(tmp_path / "released.csv", rows())
    for told in ("1 chain made", "0 chains made, 1 held before"):
        assert imported(file, tmp_path / "photos.zip", tmp_path / "chains") == 0
        assert told in capsys.readouterr().out
    (chain,) = read_folder(tmp_path / "chains", ChainFile)
    assert (tmp_path / "chains" / chain.image).read_bytes() == (photos / "7_input_raw.png").read_bytes()
    assert not list((tmp_path / "chains/pictures").glob("8*")), "only what a chain needs"


def test_json_lines_with_real_lists_are_the_same(tmp_path: Path, photos: Path) -> None:
    file = tmp_path / "released.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows()))
    assert imported(file, photos, tmp_path / "chains") == 0
    assert imported(write_csv(tmp_path / "a.csv", rows()), photos, tmp_path / "other") == 0
    one, two = (read_folder(tmp_path / name, ChainFile)[0] for name in ("chains", "other"))
    assert one == two


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"instructions": "['Do"}, "line 4: instructions is not a list"),
        ({"instructions": "[" * 100_000}, "line 4: instructions is not a list"),
        ({"turns": "two"}, 'line 4: turns is "two"'),
        ({"task_type": ["a"]}, "line 4: task_type has 1 entries, turns says 3"),
        ({"bg_consistency": "perhaps"}, "line 4: bg_consistency"),
        ({"all_objects": ""}, "line 4: all_objects missing"),
        ({"format_instructions": ["Paint [x]"] * 3}, "turn 1:"),
        ({"instructions": ["Other", *SAID[1:]]}, "the instructions of turn 1 are not those of turn 3"),
    ],
)
def test_a_row_that_cannot_be_read_is_told_by_its_line_and_the_other_chains_are_made(
    change: dict[str, Any], told: str, tmp_path: Path, photos: Path, capsys: Any
) -> None:
    broken = rows("7")
    broken[2] = {**broken[2], **change}
    assert imported(write_csv(tmp_path / "r.csv", [*broken, *rows("8")]), photos, tmp_path / "chains") == 3
    assert told in capsys.readouterr().err
    assert [chain.id for chain in read_folder(tmp_path / "chains", ChainFile)] == ["8"]


def test_a_missing_turn_and_a_missing_photograph_are_told(tmp_path: Path, photos: Path, capsys: Any) -> None:
    file = write_csv(tmp_path / "r.csv", [*rows("7")[1:], *rows("9"), *rows("8")])
    assert imported(file, photos, tmp_path / "chains") == 3
    err = capsys.readouterr().err
    assert "picture 7 has the turns 2, 3" in err
    assert "has no picture 9_input_raw" in err


def test_files_that_are_no_released_chains_are_one_sentence(tmp_path: Path, photos: Path, capsys: Any) -> None:
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n")
    for file, place, told in (
        (other, photos, "image_index, turns, task_type, instructions missing"),
        (tmp_path / "none.csv", photos, "no file of chains"),
        (tmp_path / "x.txt", photos, "released chains are a table"),
        (other, tmp_path / "nowhere", "no folder or zip file"),
        (other, other, "neither a folder nor a zip file"),
    ):
        assert imported(file, place, tmp_path / "chains") == 2
        assert told in capsys.readouterr().err


def test_a_folder_of_the_public_code_with_a_stray_picture_is_refused(tmp_path: Path, photos: Path) -> None:
    imported(write_csv(tmp_path / "released.csv", rows()), photos, tmp_path / "chains")
    chains = read_folder(tmp_path / "chains", ChainFile)
    folder = tmp_path / "results/m/multipass"
    folder.mkdir(parents=True)
    for name, told in (
        ("7_input_raw_turn_4", "not one of the turns"),
        ("9_input_raw_turn_1", "no chain"),
        ("x", "is not called"),
    ):
        file = save(s.BASE, folder / f"{name}.png")
        with pytest.raises(UserError, match=told):
            find_results(tmp_path / "results", chains)
        file.unlink()


@pytest.mark.long
def test_evaluate_judges_an_imported_chain_by_the_published_rules(
    tmp_path: Path, photos: Path, scripted: StartServer
) -> None:
    said = [
        "Change the color of ceramic white cup to blue",
        "Add lamp on the right of ceramic blue cup",
        "Remove wooden box",
    ]
    brackets = [
        "Change the color of [ceramic white cup] to [blue]",
        "Add [lamp] on the [right] of [ceramic blue cup]",
        "Remove [wooden box]",
    ]
    types = ["color_alter", "subject_add", "subject_remove"]
    names = [CUP, BOX, SIGN, "ceramic blue cup", "lamp"]
    unchanged = ([BOX, SIGN], [BOX, SIGN], [SIGN])
    lines = [
        dict(
            zip(
                COLUMNS,
                ("7", n, types[:n], said[:n], brackets[:n], True, unchanged[n - 1], [], names[: 3 + n]),
                strict=True,
            )
        )
        for n in (1, 2, 3)
    ]
    imported(write_csv(tmp_path / "released.csv", lines), photos, tmp_path / "chains")
    folder = tmp_path / "results/m/multipass"
    folder.mkdir(parents=True)
    for turn, picture in enumerate(s.GOOD, 1):
        save(picture, folder / f"7_input_raw_turn_{turn}.png")
    server = scripted(lambda request: say('{"reason": "As asked.", "answer": "yes"}'))
    evaluate_once.run(tmp_path / "chains", tmp_path / "results", tmp_path / "run", server.openai_url)
    rows = read_run_table(tmp_path / "run").rows
    labels = {row.edit.id: {name: units[0].kind.label for name, units in row.units.items()} for row in rows}
    assert {name: one["instruction_following"] for name, one in labels.items()} == {
        f"m/multi/7/{turn}": "yes" for turn in (1, 2, 3)
    }
    assert all(units[0].judged for row in rows for units in row.units.values())

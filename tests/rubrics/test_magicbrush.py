"""MagicBrush's reader: sessions become single turns and whole chains, and what is wrong in the files is one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editloupe.cli.main import run as command
from editloupe.evals.manifests.layouts import load_benchmark, load_outputs
from editloupe.rubrics.magicbrush import MAGICBRUSH
from editloupe.types import Edit, UserError
from tests.conftest import StartServer
from tests.drawn_pictures import save, textured
from tests.evals.stats.scores.paper_tables.conformance import report
from tests.scripted import Request, say

SIZE = (16, 12)


def write_mask(path: Path, *corner: int, size: tuple[int, int] = SIZE) -> None:
    mask = np.zeros((size[1], size[0], 3), np.uint8)
    left, top, right, bottom = corner
    mask[top:bottom, left:right] = 255
    save(mask, path)


def write_benchmark(data: Path, turns: dict[str, int], flat: bool = False) -> Path:
    """Write sessions with so many turns, whose masks are a row of squares."""
    sessions: dict[str, list[dict[str, str]]] = {}
    captions: dict[str, dict[str, str]] = {}
    for name, count in turns.items():
        folder = data / "images" / name
        folder.mkdir(parents=True)
        save(textured(*SIZE, seed=0), folder / f"{name}-input.png")
        sessions[name], captions[name] = [], {}
        for turn in range(1, count + 1):
            save(textured(*SIZE, seed=turn), folder / f"{name}-output{turn}.png")
            write_mask(folder / f"{name}-mask{turn}.png", 4 * turn - 4, 2, 4 * turn, 6)
            before = f"{name}-input.png" if turn == 1 else f"{name}-output{turn - 1}.png"
            sessions[name].append(
                {
                    "input": before,
                    "mask": f"{name}-mask{turn}.png",
                    "output": f"{name}-output{turn}.png",
                    "instruction": f"Order {turn}",
                }
            )
            captions[name][f"{name}-output{turn}.png"] = f"Caption {turn}"
    turns_file = [turn for session in sessions.values() for turn in session]
    name, content = ("edit_turns.json", turns_file) if flat else ("edit_sessions.json", sessions)
    (data / name).write_text(json.dumps(content))
    (data / "local_captions.json").write_text(json.dumps(captions))
    return data


def write_outputs(folder: Path, turns: dict[str, int], chains: bool = True) -> Path:
    for name, count in turns.items():
        (folder / name).mkdir(parents=True)
        save(textured(*SIZE, seed=10 + len(name)), folder / name / f"{name}_1.png")
        for turn in range(2, count + 1):
            save(textured(*SIZE, seed=20 + turn), folder / name / f"{name}_inde_{turn}.png")
            if chains:
                save(textured(*SIZE, seed=30 + turn), folder / name / f"{name}_iter_{turn}.png")
    return folder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_benchmark(tmp_path / "data", {"30": 1, "139": 3})


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return write_outputs(tmp_path / "results" / "m", {"30": 1, "139": 3})


def read(data: Path, results: Path) -> dict[str, Edit]:
    return {edit.id: edit for edit in load_benchmark("magicbrush", data, {"m": results})}


def test_a_session_has_its_turns_and_its_whole_chain(data: Path, results: Path) -> None:
    edits = read(data, results)
    assert list(edits) == ["m/30_1", "m/139_1", "m/139_inde_2", "m/139_inde_3", "m/139_iter_3"]
    second, chain, only = edits["m/139_inde_2"], edits["m/139_iter_3"], edits["m/30_1"]
    images = data / "images" / "139"
    assert (second.source, second.reference) == (images / "139-output1.png", images / "139-output2.png")
    assert (second.instruction, second.turn, second.model) == ("Order 2", 2, "m")
    assert second.more_images == {"mask": (images / "139-mask2.png",)}
    assert [list(box) for box in second.target_boxes] == [[4, 2, 8, 6]]
    assert second.extra == {"session": "139", "turns": 3, "setting": "single-turn", "caption": "Caption 2"}
    assert (chain.source, chain.reference) == (images / "139-input.png", images / "139-output3.png")
    assert chain.instruction == "1. Order 1\n2. Order 2\n3. Order 3"
    assert [list(box) for box in chain.target_boxes] == [[0, 2, 4, 6], [4, 2, 8, 6], [8, 2, 12, 6]]
    assert (chain.extra["setting"], chain.extra["caption"]) == ("multi-turn", "Caption 3")
    assert only.extra["turns"] == 1


def test_a_flat_list_of_turns_is_read_as_the_sessions_are(tmp_path: Path, data: Path, results: Path) -> None:
    flat = write_benchmark(tmp_path / "flat", {"30": 1, "139": 3}, flat=True)
    assert [edit.instruction for edit in read(flat, results).values()] == [
        edit.instruction for edit in read(data, results).values()
    ]


def test_a_session_without_masks_or_captions_is_read_without_them(data: Path, results: Path) -> None:
    sessions = json.loads((data / "edit_sessions.json").read_text())
    del sessions["30"][0]["mask"]
    (data / "edit_sessions.json").write_text(json.dumps(sessions))
    (data / "local_captions.json").unlink()
    only = read(data, results)["m/30_1"]
    assert not only.more_images
    assert not only.target_boxes
    assert "caption" not in only.extra


def test_a_transparent_mask_counts_as_a_white_one(data: Path, results: Path) -> None:
    from PIL import Image

    layer = np.full((SIZE[1], SIZE[0], 4), 80, np.uint8)
    layer[..., 3] = 255
    layer[3:5, 6:9, 3] = 0
    layer[0, 0] = 255  # white of the picture is not the mask's
    Image.fromarray(layer, "RGBA").save(data / "images" / "30" / "30-mask1.png")
    from editloupe.rubrics.magicbrush import find_box

    find_box.cache_clear()
    assert [list(box) for box in read(data, results)["m/30_1"].target_boxes] == [[6, 3, 9, 5]]


def test_a_model_that_was_run_on_single_turns_only_has_no_chains(data: Path, tmp_path: Path) -> None:
    single = write_outputs(tmp_path / "single", {"30": 1, "139": 3}, chains=False)
    outputs = load_outputs(data, {"m": single}, "magicbrush")
    assert [edit.id for edit in outputs.edits()] == ["m/30_1", "m/139_1", "m/139_inde_2", "m/139_inde_3"]
    assert any("no outputs for multi-turn" in note for note in outputs.notes)


def test_a_missing_turn_of_a_model_is_noted_and_stays_in_the_list(data: Path, results: Path) -> None:
    (results / "139" / "139_inde_2.png").unlink()
    outputs = load_outputs(data, {"m": results}, "magicbrush")
    (missing,) = [edit for edit in outputs.edits() if edit.extra.get("output") == "missing"]
    assert missing.id == "m/139_inde_2"
    (note,) = outputs.notes
    assert "139_inde_2.png: they stay unjudged and are not counted" in note


def write_tables(folder: Path, data: Path, skipped: tuple[str, int] | None = None) -> Path:
    """Write the sessions of a folder as the data set's table, with a first row group that ends within a session."""
    pyarrow = pytest.importorskip("pyarrow")
    from tests.pictures.table_files import images, write_table

    rows = [
        (name, number, turn)
        for name, turns in json.loads((data / "edit_sessions.json").read_text()).items()
        for number, turn in enumerate(turns, 1)
        if (name, number) != skipped
    ]

    def pictures(field: str) -> Any:
        return images([(data / "images" / name / turn[field]).read_bytes() for name, _, turn in rows])

    columns = {
        "img_id": pyarrow.array([name for name, _, _ in rows]),
        "turn_index": pyarrow.array([number for _, number, _ in rows], pyarrow.int32()),
        "source_img": pictures("input"),
        "mask_img": pictures("mask"),
        "instruction": pyarrow.array([turn["instruction"] for _, _, turn in rows]),
        "target_img": pictures("output"),
    }
    write_table(folder / "data" / "dev-00000-of-00001-0123456789abcdef.parquet", columns, rows=2)
    write_table(folder / "data" / "train-00000-of-00001-0123456789abcdef.parquet", columns, rows=2)
    return folder


def test_the_tables_of_the_data_set_are_read_as_the_files_are(data: Path, results: Path, tmp_path: Path) -> None:
    from editloupe.pictures.decode import hash_file

    def summarize(edit: Edit) -> Any:
        pictures = {role: [hash_file(path) for path in paths] for role, paths in edit.files.items()}
        return edit.id, edit.instruction, edit.turn, list(map(list, edit.target_boxes)), edit.extra["setting"], pictures

    tables = write_tables(tmp_path / "tables", data)
    assert [*map(summarize, read(tables, results).values())] == [*map(summarize, read(data, results).values())]


def test_a_table_without_a_turn_is_refused(data: Path, results: Path, tmp_path: Path) -> None:
    tables = write_tables(tmp_path / "tables", data, skipped=("139", 2))
    with pytest.raises(UserError, match=r"dev-.*row 3: turn 2 of session 139 is missing; this is turn 3"):
        read(tables, results)


def test_a_table_of_another_data_set_is_refused(results: Path, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from tests.pictures.table_files import write_table

    write_table(tmp_path / "other" / "data" / "test.parquet", {"key": pyarrow.array(["a"])})
    with pytest.raises(UserError, match=r'test.parquet has no column "img_id"; its columns are key'):
        read(tmp_path / "other", results)


def change(edit: Callable[[Any], None]) -> Callable[[Path], None]:
    def apply(data: Path) -> None:
        content = json.loads((data / "edit_sessions.json").read_text())
        edit(content)
        (data / "edit_sessions.json").write_text(json.dumps(content))

    return apply


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (
            lambda data: (data / "edit_sessions.json").unlink(),
            "is not MagicBrush's folder: it has neither edit_sessions",
        ),
        (
            lambda data: (data / "edit_sessions.json").write_text("[1]"),
            "must contain an object",
        ),
        (lambda data: (data / "edit_sessions.json").write_text("{"), "is not JSON"),
        (
            lambda data: write_mask(data / "images" / "139" / "139-mask2.png", 0, 0, 2, 2, size=(8, 8)),
            "139-mask2.png is 8 × 8 pixels, and 139-output1.png 16 × 12; a mask needs the size of its picture",
        ),
        (
            change(lambda sessions: sessions.update({"../30": sessions.pop("30")})),
            "the ID of a session: the key '../30' has a path in it",
        ),
        (
            change(lambda sessions: sessions["30"][0].update({"output": "../139/139-output1.png"})),
            'session 30, turn 1: "output" must be the name of a file in',
        ),
        (
            lambda data: (data / "images" / "139" / "139-output2.png").unlink(),
            "session 139, turn 2: there is no target picture at",
        ),
        (
            change(lambda sessions: sessions["139"][1].update({"instruction": float("nan")})),
            'session 139, turn 2: "instruction" is nan, not a text',
        ),
        (change(lambda sessions: sessions["139"][1].pop("instruction")), 'session 139, turn 2 has no "instruction"'),
        (change(lambda sessions: sessions["139"][1].pop("output")), 'session 139, turn 2 has no "output"'),
        (change(lambda sessions: sessions.update({"30": "x"})), "session 30 must be a list of turns"),
        (lambda data: (data / "images" / "30" / "30-mask1.png").write_bytes(b"x"), "30-mask1.png"),
    ],
)
def test_a_mistake_in_the_files_is_one_sentence(
    data: Path,
    results: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[Path], None],
    sentence: str,
) -> None:
    damage(data)
    options = [
        "--layout",
        "magicbrush",
        "--results",
        f"m={results}",
        "--judge",
        "rules",
        "--out",
        str(tmp_path / "run"),
    ]
    assert command(["batch", str(data), *options]) == 2
    printed = capsys.readouterr().err
    assert sentence in printed
    assert "Traceback" not in printed
    assert len(printed.strip().splitlines()) == 1


def test_only_the_judges_criteria_make_the_score_of_an_edit() -> None:
    edit = Edit(source="a.png", edited="b.png", instruction="x")
    assert MAGICBRUSH.score_of(edit, {"instruction_following": 50.0, "preservation": 100.0, "l1": 3.0}) == 75.0
    assert MAGICBRUSH.score_of(edit, {"instruction_following": 50.0, "l1": 3.0}) is None


@pytest.mark.long
@pytest.mark.parametrize("mode", ["plain", "tools"])
def test_a_judge_sees_source_and_output_and_its_scores_are_beside_the_measures(
    mode: str, data: Path, results: Path, tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(request: Request) -> Any:
        number = 4 if MAGICBRUSH.rubric("preservation").question in request.system else 2
        answers = json.dumps({"reason": "as seen", "score": number})
        return say(f"<Start Thinking>Compared.<End Thinking>\n{answers}" if mode == "tools" else answers)

    server = scripted(answer)
    names = ("instruction_following", "preservation", "l1", "outside_mask")
    criteria = [part for name in names for part in ("--criterion", name)]
    options = [
        "--layout",
        "magicbrush",
        "--results",
        f"m={results}",
        *criteria,
        "--mode",
        mode,
        "--out",
        str(tmp_path / "run"),
    ]
    judge = ["--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "--quiet"]
    assert command(["batch", str(data), *options, *judge]) == 0
    assert len(server.requests) == 2 * 5, "two criteria for four turns and a chain; measures send no request"
    pictures = {len([image for message in request.messages for image in message.images]) for request in server.requests}
    assert pictures == {2}
    row = report(capsys, tmp_path / "run")["MagicBrush, multi-turn (final turn)"]["m"]
    assert (row["Instruction Following"], row["Preservation"]) == (25.0, 75.0)
    assert 0 < row["L1"] < 1
    assert 0 < row["Change outside the mask"] < 1
    server.requests.clear()
    assert command(["batch", str(data), *options, *judge]) == 0
    assert not server.requests, "a second run asks nothing"


def test_a_wrong_folder_of_results_says_what_was_looked_for(data: Path, tmp_path: Path) -> None:
    (tmp_path / "wrong" / "x").mkdir(parents=True)
    with pytest.raises(UserError, match=r"has no output of this benchmark; looked for .*30_1"):
        load_outputs(data, {"m": tmp_path / "wrong"}, "magicbrush")

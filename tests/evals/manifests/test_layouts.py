"""Benchmarks laid out as their authors have them, made here, read into edits and judged through the real client."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from editloupe.cli.main import run
from editloupe.evals.manifests.layouts import layout_help, load_benchmark
from editloupe.evals.stats.scores.paper_tables import build_paper_tables
from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.rubrics.registry import get_protocol as find_protocol
from editloupe.rubrics.registry import papers
from editloupe.types import UserError
from tests.conftest import StartServer
from tests.drawn_pictures import save, textured
from tests.rubrics.samples import reply_for
from tests.scripted import say


def picture(path: Path, seed: int = 0) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    save(textured(64, 48, seed), path)
    return str(path)


def wiseedit(root: Path) -> tuple[Path, Path]:
    """Write two subsets, two models, two languages; one output of the first model is missing in Chinese."""
    data, results = root / "WiseEdit-Benchmark", root / "results"
    for task, subset, inputs in (
        ("WiseEdit/Awareness", "Awareness_1", 1),
        ("WiseEdit/Imagination", "Imagination_2", 2),
        ("WiseEdit-Complex", "WiseEdit_Complex_3", 3),
    ):
        folder = data / task / subset
        names = [f"{task}/{subset}/imgs/{n}.png" for n in range(1, inputs + 1)]
        for name in names:
            picture(data / name)
        picture(folder / "img_ref" / "r.png", 4)
        columns = ["idx", "prompt", "promptcn", *(f"input_{n}" for n in range(1, inputs + 1)), "hint", "ref"]
        with (folder / f"{subset}.csv").open("w", encoding="utf-8-sig", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerow(
                ["7", "Make it red", "变成红色", *names, "It is red", json.dumps([f"{task}/{subset}/img_ref/r.png"])]
            )
            writer.writerow(["8", "Make it blue", "变成蓝色", *names, "", ""])
        for model in ("alpha", "beta"):
            for language in ("en", "cn"):
                for number in ("7", "8"):
                    if (model, subset, language, number) != ("alpha", "Awareness_1", "cn", "8"):
                        seed = 100 + len(list(results.rglob("*.png")))
                        picture(results / model / subset / language / f"{number}.png", seed)
    return data, results


@pytest.mark.long
def test_wiseedits_folders_become_edits_of_both_languages(tmp_path: Path) -> None:
    data, results = wiseedit(tmp_path)
    edits = {edit.id: edit for edit in load_benchmark("wiseedit", data, results / "alpha")}
    assert len(edits) == 3 * 2 * 2
    one = edits["alpha/Awareness_1/cn/7"]
    assert (one.instruction, one.instruction_type, one.hint, one.model) == (
        "变成红色",
        "Awareness",
        "It is red",
        "alpha",
    )
    assert one.source == data / "WiseEdit/Awareness/Awareness_1/imgs/1.png"
    assert one.more_images == {"references": (data / "WiseEdit/Awareness/Awareness_1/img_ref/r.png",)}
    several = edits["alpha/WiseEdit_Complex_3/en/8"]
    assert several.instruction == "Make it blue"
    assert len(several.more_images["inputs"]) == 2
    assert several.extra["inputs"] == 3
    assert "references" not in several.more_images
    missing = [edit.id for edit in edits.values() if edit.extra["output"] == "missing"]
    assert missing == ["alpha/Awareness_1/cn/8"]


def test_a_root_of_results_holds_several_models_and_a_language_can_be_picked(tmp_path: Path) -> None:
    data, results = wiseedit(tmp_path)
    edits = list(load_benchmark("wiseedit", data, results, ("en",)))
    assert {edit.model for edit in edits} == {"alpha", "beta"}
    assert {edit.extra["language"] for edit in edits} == {"en"}
    assert {edit.model for edit in load_benchmark("wiseedit", data, results, model="beta")} == {"beta"}


@pytest.mark.long
def test_wiseedit_is_run_by_one_command_and_missing_outputs_are_shown(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    data, results = wiseedit(tmp_path)
    server = scripted(lambda request: say(reply_for(find_protocol("wiseedit"), request.system)))
    command = [
        "batch",
        str(data),
        "--layout",
        "wiseedit",
        "--results",
        str(results / "alpha"),
        "--protocol",
        "wiseedit",
    ]
    command += ["--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "--out", str(tmp_path / "run"), "--quiet"]
    assert run([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["units"] == told["judged"] == 4 * (4 + 4 + 5)
    assert server.served == told["units"] - 4
    assert run([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["held"] == told["units"]
    tables = {section.title: section for section in build_paper_tables(read_run_table(tmp_path / "run"))}
    chinese = tables["WiseEdit, Table 6: Chinese instructions, all cases"]
    assert chinese.rows == (("alpha", *[50.0] * 5, *[100.0] * 5, None, 16, 16),)
    assert chinese.notes == ("alpha: 1 output is missing and counts 0 on every metric (Supplement C).",)
    single = tables["WiseEdit, Table 6: Chinese instructions, cases with one input picture"]
    assert single.rows[0][6:11] == (None,) * 5
    capsys.readouterr()
    assert run(["report", str(tmp_path / "run")]) == 0
    assert run(["export", str(tmp_path / "run"), "--format", "jsonl"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith('{"edit_id"')]
    assert sum(row["label"] == "missing output" for row in rows) == 4


def compass(root: Path) -> tuple[Path, Path]:
    data, results = root / "Edit-Compass", root / "my-model"
    flags = {"IF": True, "WA": False, "URC": True, "IC": False, "VQ": True}
    items: dict[str, list[dict[str, Any]]] = {
        "Part1/ADD": [{"source_image": "Part1/ADD/image/1.png"}],
        "Part3/Chemical": [{"source_image": "Part3/Chemical/image/1.png", "WA": True, "hints": "It turns blue"}],
        "Part5/Virtual_Try_On": [
            {
                "source_image": "Part5/Virtual_Try_On/a.png",
                "reference_image_path": ["Part5/Virtual_Try_On/b.png", "Part5/Virtual_Try_On/c.png"],
                "IC": True,
            }
        ],
        "Part6/Complex_Paint_en": [
            {
                "source_image": "Part6/Complex_Paint_en/EN/1.png",
                "edit_type": "Complex_paint",
                "sub_type": "Complex_paint_en",
            }
        ],
    }
    for number, (place, listed) in enumerate(items.items()):
        for item in listed:
            names = [item["source_image"], *item.get("reference_image_path", [])]
            for name in [*names, *(n.replace("/EN/", "/image/") for n in names if "/EN/" in n)]:
                picture(data / name, len(name))
        whole = [
            {"save_id": f"s{n}", "prompt_en": "Do it", "prompt_cn": "做吧", "edit_type": "x", **flags, **item}
            for n, item in enumerate(listed)
        ]
        file = data / place / f"{place.split('/')[1]}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(whole, ensure_ascii=False), "utf-8")
        for language in ("en", "cn"):
            picture(results / language / place / "s0.png", 100 + number)
    return data, results


def test_edit_compass_folders_become_items_with_their_booleans(tmp_path: Path) -> None:
    data, results = compass(tmp_path)
    edits = {edit.id: edit for edit in load_benchmark("edit-compass", data, results)}
    assert len(edits) == 4 * 2
    chemical = edits["cn/Part3/Chemical/s0"]
    assert (chemical.instruction, chemical.hint, chemical.model) == ("做吧", "It turns blue", "my-model")
    known = find_protocol("edit-compass")
    asked = {edit.id: [r.name for r in known.rubrics_for(edit)] for edit in edits.values()}
    assert "world_awareness" in asked["en/Part3/Chemical/s0"]
    assert "world_awareness" not in asked["en/Part1/ADD/s0"]
    assert "identity_consistency/multi_image" in asked["en/Part5/Virtual_Try_On/s0"]
    paint = edits["en/Part6/Complex_Paint_en/s0"]
    assert paint.source == data / "Part6/Complex_Paint_en/image/1.png"
    assert paint.more_images["annotated"] == (data / "Part6/Complex_Paint_en/EN/1.png",)
    assert "instruction_following/complex_paint" in asked[paint.id]
    assert len(edits["en/Part5/Virtual_Try_On/s0"].more_images["references"]) == 2


def test_only_paint_tasks_of_edit_compass_have_marked_copies(tmp_path: Path) -> None:
    data, results = tmp_path / "data", tmp_path / "model"
    place = "Part1/Visual_Text_CN"
    picture(data / place / "CN/1.png", 1)
    picture(results / "en" / place / "s0.png", 2)
    item = {"save_id": "s0", "source_image": f"{place}/CN/1.png", "prompt_en": "Write it", "edit_type": "Visual_Text"}
    (data / place / "Visual_Text_CN.json").write_text(json.dumps([item]), "utf-8")
    (edit,) = load_benchmark("edit-compass", data, results)
    assert edit.source == data / place / "CN/1.png"
    assert not edit.more_images


def test_the_judge_of_edit_compass_is_told_its_own_instruction_of_multi_image_items(tmp_path: Path) -> None:
    data, results = compass(tmp_path)
    for place in ("Part5/Virtual_Try_On", "Part1/ADD"):
        file = data / place / f"{place.split('/')[1]}.json"
        items = json.loads(file.read_text("utf-8"))
        items[0] |= {"prompt_en_2": "Put the coat of image 2 on image 1"}
        file.write_text(json.dumps(items), "utf-8")
    edits = {edit.id: edit for edit in load_benchmark("edit-compass", data, results)}
    told = edits["en/Part5/Virtual_Try_On/s0"]
    assert told.instruction == "Put the coat of image 2 on image 1"
    assert told.extra["editor_instruction"] == "Do it"
    assert edits["cn/Part5/Virtual_Try_On/s0"].instruction == "做吧"  # no other one in Chinese
    assert edits["en/Part1/ADD/s0"].instruction == "Do it"


@pytest.mark.long
def test_edit_compass_is_run_by_one_command(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    data, results = compass(tmp_path)
    server = scripted(lambda request: say(reply_for(find_protocol("edit-compass"), request.system)))
    command = ["batch", str(data), "--layout", "edit-compass", "--results", str(results), "--protocol", "edit-compass"]
    command += ["--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "--out", str(tmp_path / "run"), "--quiet"]
    assert run([*command, "--language", "en", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["units"] == told["judged"] == 3 + 4 + 4 + 3
    assert server.served == told["units"] + 4
    tables = {section.title: section for section in build_paper_tables(read_run_table(tmp_path / "run"))}
    main = tables["Edit-Compass, Table 3: English instructions"]
    (row,) = (dict(zip(main.columns, row, strict=True)) for row in main.rows)
    assert (row["Overall AVG"], row["judged"], row["expected"]) == (5.0, 14, 14)
    assert [row[f"World Knowledge {name}"] for name in ("IA", "VC", "VQ")] == [5.0, 5.0, 5.0]


def vibe(root: Path) -> tuple[Path, Path]:
    data, results = root / "VIBE", root / "my-model"
    picture(data / "Common_Corpus/sketch/1.png")
    layer = np.zeros((48, 64, 4), np.uint8)
    layer[5:20, 5:20] = (255, 0, 0, 255)
    for level, task, item in (
        (
            "Level-1-Deictic",
            "Addition",
            {"source": "Common_Corpus/sketch/1.png", "visual_instruction": "annotated_images/1.png"},
        ),
        ("Level-2-Morphological", "Pose_Control", {"source": "imgs/1.png", "visual_instruction": "poses/1.png"}),
        ("Level-3-Causal", "Billiards", {"source": "input/1.png", "target": "target/1.png"}),
    ):
        folder = data / "Tasks" / level / task
        for name in item.values():
            if not name.startswith("Common"):
                picture(folder / name, len(name))
        if task == "Addition":
            Image.fromarray(layer, "RGBA").save(folder / item["visual_instruction"])
        sample = [{"id": f"{task}_0001", "file_paths": item, "text_prompt": {"input_prompt": "Do it"}}]
        (folder / f"{task}.json").write_text(json.dumps(sample), "utf-8")
        made = results / level / task
        picture(made / "imgs" / f"{task}_0001.png", 8)
        saved = [{"id": f"{task}_0001", "saved_image_path": f"imgs/{task}_0001.png"}]
        (made / f"{task}_results.json").write_text(json.dumps(saved), "utf-8")
    return data, results


@pytest.mark.long
def test_vibes_folders_become_samples_and_are_judged_three_times(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    data, results = vibe(tmp_path)
    edits = {edit.instruction_type: edit for edit in load_benchmark("vibe", data, results)}
    assert set(edits) == {"AD", "PC", "BI"}
    assert edits["AD"].extra == {"style": "sketch"}
    assert set(edits["AD"].more_images) == {"layer"}
    assert set(edits["PC"].more_images) == {"pose"}
    assert set(edits["BI"].more_images) == {"golden"}
    server = scripted(lambda request: say(reply_for(find_protocol("vibe"), request.system)))
    command = ["batch", str(data), "--layout", "vibe", "--results", str(results), "--protocol", "vibe", "--quiet"]
    command += ["--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "--out", str(tmp_path / "run"), "--json"]
    assert run(command) == 0
    assert json.loads(capsys.readouterr().out)["units"] == 3 * (3 + 2 + 1)
    means, spread = build_paper_tables(read_run_table(tmp_path / "run"))
    row = dict(zip(means.columns, means.rows[0], strict=True))
    assert (row["AD"], row["Deictic Avg"], row["Overall"]) == (100.0, None, None)
    row = dict(zip(spread.columns, spread.rows[0], strict=True))
    assert (row["AD"], row["AD SD"]) == (100.0, 0.0)


@pytest.mark.long
def test_an_output_of_vibe_without_success_is_not_judged_even_if_there_is_a_picture(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    data, results = vibe(tmp_path)
    listing = results / "Level-1-Deictic" / "Addition" / "Addition_results.json"
    (saved,) = json.loads(listing.read_text("utf-8"))
    picture(listing.parent / "imgs" / "Addition_0002.png", 9)
    samples = data / "Tasks" / "Level-1-Deictic" / "Addition" / "Addition.json"
    (sample,) = json.loads(samples.read_text("utf-8"))
    samples.write_text(json.dumps([sample, {**sample, "id": "Addition_0002"}]), "utf-8")
    listing.write_text(
        json.dumps([{**saved, "status": "failed"}, {"id": "Addition_0002", "status": "success"}]), "utf-8"
    )
    server = scripted(lambda request: say(reply_for(find_protocol("vibe"), request.system)))
    command = ["batch", str(data), "--layout", "vibe", "--results", f"m={results}", "--protocol", "vibe", "--quiet"]
    command += ["--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "--out", str(tmp_path / "run"), "--json"]
    assert run(command) == 3
    printed = capsys.readouterr()
    assert json.loads(printed.out)["judged"] == 3 * (3 + 2 + 1)
    assert "m: 1 output of Addition without the status success, such as Addition_0001: not judged" in printed.err


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        ("wiseedit", "has neither"),
        ("edit-compass", "has no task"),
        ("vibe", "no task folder in common"),
        ("x", "layout"),
    ],
)
def test_a_folder_that_is_no_benchmark_is_told_in_one_sentence(layout: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=words):
        list(load_benchmark(layout, tmp_path, tmp_path))


def test_paths_do_not_lead_out_of_the_benchmark(tmp_path: Path) -> None:
    data, results = compass(tmp_path)
    file = data / "Part1/ADD/ADD.json"
    items = json.loads(file.read_text("utf-8"))
    items[0]["source_image"] = "../../../etc/passwd"
    file.write_text(json.dumps(items), "utf-8")
    with pytest.raises(UserError, match="outside the benchmark"):
        list(load_benchmark("edit-compass", data, results))


def test_the_help_of_layout_names_the_papers_of_the_list() -> None:
    begin = "editloupe, or whose files these are: dlebench, wiseedit, edit-compass, vibe"
    assert layout_help().startswith(begin)
    assert layout_help().endswith(" (with --results).")
    names = re.findall(r"[a-z-]+", layout_help().removesuffix(" (with --results).").partition(": ")[2])
    assert [name for name in names if name != "or"] == [paper.name for paper in papers() if paper.fields or paper.read]


@pytest.mark.long
def test_results_and_a_benchmarks_layout_go_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for more in (["--layout", "wiseedit"], ["--results", str(tmp_path)], ["--layout", "odd"]):
        assert run(["batch", str(tmp_path), "--out", str(tmp_path / "run"), "--judge", "rules", *more]) == 2
        assert capsys.readouterr().err.count("\n") == 1

"""Papers' benchmarks with the outputs of several models, edit by edit: what is there, what is missing, what is absent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from editloupe.evals.manifests import load_outputs
from editloupe.rubrics.registry import get_protocol as find_protocol
from editloupe.types import UserError
from tests.evals.manifests.benchmarks import (
    VIBE_TASKS,
    WISEEDIT_SUBSETS,
    touch,
    write_compass,
    write_vibe,
    write_vibe_results,
    write_wiseedit,
    write_wiseedit_results,
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.mark.long
def test_wiseedit_in_one_language_has_no_failed_case_in_the_other(data: Path, out: Path) -> None:
    write_wiseedit(data)
    write_wiseedit_results(out / "full", WISEEDIT_SUBSETS, ("en", "cn"))
    write_wiseedit_results(out / "english", WISEEDIT_SUBSETS, ("en",), {("Awareness_1", "en", 2)})
    write_wiseedit_results(out / "some", ("Awareness_1", "Imagination_2"), ("cn",))
    write_wiseedit_results(out / "some", ("Awareness_1",), ("en",))
    found = load_outputs(data, {name: out / name for name in ("full", "english", "some")}, "wiseedit")
    edits = {(edit.model, edit.extra["subset"], edit.extra["language"], edit.id[-1]): edit for edit in found.edits()}
    wanted = {("full", subset, language, n) for subset in WISEEDIT_SUBSETS for language in ("en", "cn") for n in "123"}
    wanted |= {("english", subset, "en", n) for subset in WISEEDIT_SUBSETS for n in "123"}
    wanted |= {("some", subset, language, n) for subset in WISEEDIT_SUBSETS for language in ("en", "cn") for n in "123"}
    assert set(edits) == wanted
    for (model, subset, language, number), edit in edits.items():
        assert edit.id == f"{model}/{subset}/{language}/{number}"
        assert edit.edited == out / model / subset / language / f"{number}.png"
        assert edit.instruction == (f"Do {number}" if language == "en" else f"做 {number}")
        assert edit.instruction_type == WISEEDIT_SUBSETS[subset].removeprefix("WiseEdit/")
        assert edit.source == data / WISEEDIT_SUBSETS[subset] / subset / "imgs/0.png"
        assert edit.extra["knowledge_type"] == ("declarative", "procedural", "metacognitive")[int(number) - 1]
    missing = [place for place, edit in edits.items() if edit.extra["output"] == "missing"]
    given = {("Awareness_1", "cn"), ("Imagination_2", "cn"), ("Awareness_1", "en")}
    unhandled = {place for place in wanted if place[0] == "some" and place[1:3] not in given}
    assert set(missing) == {("english", "Awareness_1", "en", "2")} | unhandled
    assert found.models == ("full", "english", "some")
    lacking = out / "english/Awareness_1/en/2.png"
    assert found.notes == (
        "model english: no outputs for cn (12 cases): absent, not counted",
        f"model english: 1 of 12 outputs missing, such as {lacking}: they count 0, by the paper's rule",
        "model some: no outputs for en Interpretation_1 (3 cases), cn Interpretation_1 (3 cases), en Imagination_2 (3 cases), "
        "en WiseEdit_Complex_2 (3 cases), cn WiseEdit_Complex_2 (3 cases): they count 0, by the paper's rule",
    )


@pytest.mark.parametrize("language", ["en", None])
def test_a_manifest_judged_by_wiseedit_has_its_rule_of_unhandled_cases(
    tmp_path: Path, out: Path, language: str | None
) -> None:
    tasks = ("Awareness", "Imagination")
    lines = [
        {
            "id": f"{task}-{number}",
            "source": "source.png",
            "instruction": "Do it",
            "instruction_type": task,
            **({"language": language} if language else {}),
        }
        for task in tasks
        for number in range(2)
    ]
    touch(tmp_path / "source.png", out / "Awareness-0.png", out / "Awareness-1.png")
    manifest = tmp_path / "manifest.jsonl"
    manifest.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    loaded = load_outputs(manifest, {"a": out}, protocol="wiseedit")
    missing = [edit.id for edit in loaded.edits() if edit.extra.get("output") == "missing"]
    assert missing == ["Imagination-0", "Imagination-1"]
    name = f"{language} Imagination" if language else "Imagination"
    assert loaded.notes == (f"model a: no outputs for {name} (2 cases): they count 0, by the paper's rule",)


@pytest.mark.long
def test_edits_come_case_by_case_over_the_models_and_again_each_time(data: Path, out: Path) -> None:
    write_wiseedit(data)
    for name in ("a", "b"):
        write_wiseedit_results(out / name, WISEEDIT_SUBSETS, ("en",))
    edits = load_outputs(data, out, "wiseedit").edits
    first = [(edit.model, edit.id.partition("/")[2]) for edit in edits()]
    assert first[:4] == [(name, f"Awareness_1/en/{number}") for number in "12" for name in "ab"]
    assert [(edit.model, edit.id.partition("/")[2]) for edit in edits()] == first


def test_a_benchmark_without_chinese_instructions_has_no_chinese_cases(data: Path, out: Path) -> None:
    write_wiseedit(data, chinese=False)
    write_wiseedit_results(out / "a", WISEEDIT_SUBSETS, ("en",))
    found = load_outputs(data, out, "wiseedit")
    assert {edit.extra["language"] for edit in found.edits()} == {"en"}
    assert found.notes == ()
    touch(out / "a/Awareness_1/cn/1.png")
    with pytest.raises(UserError, match='Awareness_1, case 1: "idx" or "promptcn" is missing'):
        load_outputs(data, out, "wiseedit")


def test_a_misspelt_subset_is_pointed_at(data: Path, out: Path) -> None:
    write_wiseedit(data)
    write_wiseedit_results(out / "a", WISEEDIT_SUBSETS, ("en",))
    (out / "a/Interpretation_1").rename(out / "a/Interpretaton_1")
    (note,) = load_outputs(data, {"a": out / "a"}, "wiseedit", languages=("en",)).notes
    assert note == (
        "model a: no outputs for en Interpretation_1 (3 cases): they count 0, by the paper's rule; "
        "misspelt: Interpretaton_1?"
    )


def test_pictures_under_other_names_are_a_mistake_and_not_a_subset_that_is_absent(data: Path, out: Path) -> None:
    write_wiseedit(data)
    write_wiseedit_results(out / "a", WISEEDIT_SUBSETS, ("en",))
    touch(out / "a/Awareness_1/cn/case-1.png")
    with pytest.raises(UserError, match=r"Awareness_1/cn has pictures \(case-1.png\), but none .* such as 1\{\.png,"):
        load_outputs(data, out, "wiseedit")


def test_edit_compass_with_two_models_one_of_them_in_english_only(data: Path, out: Path) -> None:
    write_compass(data)
    tasks = ("Part1/ADD", "Part3/Chemical", "Part6/Complex_Instruction")
    touch(*(out / "one" / language / task / f"{n}.jpg" for language in ("en", "cn") for task in tasks for n in "ab"))
    touch(*(out / "two/en" / task / "a.png" for task in tasks[:2]))
    found = load_outputs(data, [f"one={out / 'one'}", f"two={out / 'two'}"], "edit-compass")
    edits = {(edit.model, edit.id): edit for edit in found.edits()}
    wanted = {("one", f"{language}/{task}/{n}") for language in ("en", "cn") for task in tasks for n in "ab"}
    wanted |= {("two", f"en/{task}/{n}") for task in tasks[:2] for n in "ab"}
    assert set(edits) == wanted
    for (model, name), edit in edits.items():
        language, part, task, number = name.split("/")
        assert edit.edited == out / model / language / part / task / f"{number}.{'jpg' if model == 'one' else 'png'}"
        assert edit.source == data / part / task / f"image/{number}.png"
        assert edit.instruction == (f"Do {number}" if language == "en" else f"做 {number}")
        assert (edit.instruction_type, edit.extra["difficulty"]) == (task, "hard" if number == "b" else "easy")
        assert "identity_consistency" not in [
            rubric.criterion for rubric in find_protocol("edit-compass").rubrics_for(edit)
        ]
        assert edit.extra.get("output") == ("missing" if (model, number) == ("two", "b") else None)
    assert found.notes == (
        "model two: no outputs for en Complex_Instruction (2 cases), cn (6 cases): absent, not counted",
        f"model two: 2 of 4 outputs missing, such as {out / 'two/en/Part1/ADD/b.png'}: they stay unjudged and are not counted",
    )


def test_vibe_with_three_models_in_folders_of_levels_and_without(data: Path, out: Path) -> None:
    write_vibe(data)
    write_vibe_results(out / "levels", VIBE_TASKS)
    write_vibe_results(out / "flat", VIBE_TASKS, levels=False)
    write_vibe_results(out / "few", ("Addition",), numbers=(2,))
    found = load_outputs(data, out, "vibe")
    edits = {(edit.model, edit.id): edit for edit in found.edits()}
    wanted = {(model, f"{task}_000{n}") for model in ("levels", "flat") for task in VIBE_TASKS for n in (1, 2)}
    assert set(edits) == wanted | {("few", "Addition_0001"), ("few", "Addition_0002")}
    for (model, name), edit in edits.items():
        task = name.split("_")[0]
        place = out / model / ("" if model == "flat" else VIBE_TASKS[task]) / task
        assert edit.edited == place / "imgs" / f"{name}.png"
        assert edit.instruction_type == {"Addition": "AD", "Removal": "RM", "Billiards": "BI"}[task]
        assert edit.source == data / "Tasks" / VIBE_TASKS[task] / task / f"imgs/{name[-1]}.png"
        assert edit.extra["scene"] == "kitchen"
        assert (
            edit.edited.is_file()
            == (edit.extra.get("output") != "missing")
            == ((model, name) != ("few", "Addition_0001"))
        )
    assert found.notes == (
        "model few: no outputs for Removal (2 cases), Billiards (2 cases): absent, not counted",
        f"model few: 1 of 2 outputs missing, such as {out / 'few/Level-1-Deictic/Addition/imgs/Addition_0001.png'}: "
        "they stay unjudged and are not counted",
    )


@pytest.mark.parametrize("levels", [True, False])
def test_one_models_folder_of_vibe_is_not_taken_for_a_folder_of_models(data: Path, out: Path, levels: bool) -> None:
    write_vibe(data)
    write_vibe_results(out / "mine", VIBE_TASKS, levels)
    found = load_outputs(data, out / "mine", "vibe")
    assert found.models == ("mine",)
    assert len(list(found.edits())) == 6


def test_an_id_that_a_benchmark_has_twice_is_refused(data: Path, out: Path) -> None:
    write_compass(data)
    file = data / "Part1/ADD/ADD.json"
    file.write_text(file.read_text("utf-8").replace('"save_id": "b"', '"save_id": "a"'), "utf-8")
    touch(out / "en/Part1/ADD/a.png")
    with pytest.raises(UserError, match='the benchmark has the id "en/Part1/ADD/a" twice'):
        load_outputs(data, {"m": out}, "edit-compass")


@pytest.mark.parametrize(
    ("layout", "place", "words"),
    [
        (
            "wiseedit",
            "WiseEdit/Awarenes/Awareness_1/Awareness_1.csv",
            "Awarenes is skipped; it is not a task of WiseEdit (Awareness, ",
        ),
        ("edit-compass", "Part1/Repaint/Repaint.json", "Repaint is skipped; it is not a task of Part1 (ADD, "),
        (
            "vibe",
            "Tasks/Level-1-Deictic/Recolor/Recolor.json",
            "Recolor is skipped; it is not one of the tasks (Addition, ",
        ),
    ],
)
def test_a_task_that_the_paper_does_not_have_is_left_out_with_a_word(
    data: Path, out: Path, layout: str, place: str, words: str
) -> None:
    write_wiseedit(data)
    write_compass(data)
    write_vibe(data)
    touch(
        out / "m/Awareness_1/en/1.png", out / "m/en/Part1/ADD/a.png", out / "m/Addition/Addition_0001.png", data / place
    )
    first, *others = load_outputs(data, {"m": out / "m"}, layout).notes
    assert words in first
    assert first.endswith(")")
    assert not any("is skipped" in note for note in others)

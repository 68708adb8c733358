"""ImgEdit-Bench: three scores by type, the layouts of its suites and of its mirror, and one sentence for each mistake in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from editloupe.agent.replies.answers import parse_reply
from editloupe.evals.manifests import load_outputs
from editloupe.pictures.decode import Album
from editloupe.rubrics.imgedit import (
    CRITERION,
    IMGEDIT,
    NAMES,
    PUBLISHED,
    UGE,
    build_layouts,
    compute_tables,
    read_results,
    to_key,
)
from editloupe.rubrics.model import ChecksAnswer
from editloupe.rubrics.published import RawAnswer, RawEdit
from editloupe.types import Edit, UserError
from tests.evals.manifests.benchmarks import touch
from tests.pictures.table_files import images, png, write_table

ITEM = {"id": "animal/7.jpg", "prompt": "Add a hat", "edit_type": "add"}


def edit(kind: str | None) -> Edit:
    return Edit(source=Path("s.png"), edited=Path("e.png"), instruction="x", instruction_type=kind)


def write_data(folder: Path, items: Any, name: str = "basic_edit.json") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(items if isinstance(items, str) else json.dumps(items), "utf-8")
    touch(folder / "pictures/animal/7.jpg")
    return folder


def load(data: Path, results: Path) -> list[Edit]:
    return list(load_outputs(data, {"m": results}, "imgedit").edits())


def write_outputs(folder: Path, *names: str) -> Path:
    touch(*(folder / name for name in names))
    return folder


@pytest.mark.parametrize("kind", NAMES)
def test_each_type_has_its_own_question_about_both_pictures_with_its_three_names(kind: str) -> None:
    (rubric,) = IMGEDIT.rubrics_for(edit(kind))
    assert isinstance(rubric.answer, ChecksAnswer)
    assert (rubric.criterion, rubric.variant) == (CRITERION, kind)
    keys = [to_key(name) for name in NAMES[kind]]
    assert [check.key for check in rubric.answer.checks] == keys
    assert rubric.modes["plain"].images == ("Source Image", "Edited Image")
    assert set(rubric.modes) == {"plain", "tools"}
    for scores, wanted in (((1, 1, 1), 0.0), ((5, 5, 5), 1.0), ((4, 3, 2), 0.5), ((2, 5, 5), 0.75)):
        given = json.dumps({"reason": "seen", **dict(zip(keys, scores, strict=True))})
        answer = parse_reply(given, rubric.answer).answer
        assert answer is not None
        assert answer.score == pytest.approx(wanted)
    for scores in ((0, 1, 1), (6, 5, 5), (4.5, 3, 3), (4, 3)):
        given = json.dumps({"reason": "seen", **dict(zip(keys, scores, strict=False))})
        assert parse_reply(given, rubric.answer).answer is None


def test_the_uge_suite_has_one_score() -> None:
    (rubric,) = IMGEDIT.rubrics_for(edit("UGE"))
    answer = parse_reply('{"reason": "seen", "quality": 3}', rubric.answer).answer
    assert answer is not None
    assert answer.score == 0.5


def test_a_type_may_be_spelt_loosely_but_must_be_known() -> None:
    assert IMGEDIT.normalize_type(edit("Background")).instruction_type == "background"
    assert IMGEDIT.normalize_type(edit("hybrid")).instruction_type == "compose"
    for name in ("painting", None):
        with pytest.raises(UserError, match="which type of ImgEdit-Bench"):
            IMGEDIT.rubrics_for(edit(name))


def test_the_basic_suite_is_read_with_its_pictures_and_flat_outputs(tmp_path: Path) -> None:
    items = {"1082": ITEM, "673": {**ITEM, "edit_type": "style", "difficulty": "hard"}}
    data = write_data(tmp_path / "data/Basic", items).parent
    first, second = load(data, write_outputs(tmp_path / "m", "1082.png"))
    assert (first.id, first.instruction, first.instruction_type) == ("1082", "Add a hat", "add")
    assert first.source == (data / "Basic/pictures/animal/7.jpg").resolve()
    assert first.extra == {"subset": "basic"}
    assert second.edited == tmp_path / "m/673.png"
    assert second.extra == {"subset": "basic", "difficulty": "hard", "output": "missing"}


def test_the_uge_suite_is_read_alone_or_from_a_folder_of_its_own_outputs(tmp_path: Path) -> None:
    uge = {"1": {"id": "animal/7.jpg", "prompt": "Remove the left cup"}}
    alone = write_data(tmp_path / "uge", uge, "UGE_edit.json")
    (one,) = load(alone, write_outputs(tmp_path / "flat", "1.png"))
    assert (one.id, one.instruction_type, one.extra) == ("UGE/1", UGE, {"subset": "uge"})
    both = write_data(write_data(tmp_path / "both/Basic", {"1": ITEM}).parent / "UGE", uge, "UGE_edit.json").parent
    outputs = load_outputs(both, {"m": tmp_path / "flat"}, "imgedit")
    assert [edit.id for edit in outputs.edits()] == ["1"], "outputs outside of UGE/ are those of the basic suite"
    assert any("no outputs for uge (1 case): absent" in note for note in outputs.notes)
    assert [edit.id for edit in load(both, write_outputs(tmp_path / "flat", "UGE/1.png"))] == ["1", "UGE/1"]


def test_edits_in_several_turns_are_left_to_people_and_named(tmp_path: Path) -> None:
    data = write_data(tmp_path / "data", {"1": ITEM})
    (data / "Multiturn").mkdir()
    notes = load_outputs(data, {"m": write_outputs(tmp_path / "m", "1.png")}, "imgedit").notes
    assert any("several turns are judged by people" in note for note in notes)


def test_the_mirror_is_read_with_the_pictures_in_its_tables(tmp_path: Path) -> None:
    columns = {
        "key": ["1", "2"],
        "prompt": ["Add", "Cut"],
        "edit_type": ["add", "extract"],
        "image": images([png(1), png(2)]),
    }
    write_table(tmp_path / "data/data/train-00000-of-00001.parquet", columns)
    first, second = load(tmp_path / "data", write_outputs(tmp_path / "m", "1.png", "2.png"))
    assert (first.id, second.instruction_type) == ("1", "extract")
    assert [Album().open(one.source).size for one in (first, second)] == [(8, 8), (8, 8)]
    assert Album().open(first.source).sha != Album().open(second.source).sha
    write_table(tmp_path / "other/train.parquet", {"key": ["1"], "caption": ["x"]})
    with pytest.raises(UserError, match=r'train\.parquet, row 1: "image" is missing; there is key, caption'):
        load(tmp_path / "other", tmp_path / "m")


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ({"../1": ITEM}, "the key '../1' has a path in it"),
        (
            {"1": {**ITEM, "edit_type": "paint"}},
            r'basic_edit\.json, 1: "paint" is not a type of ImgEdit-Bench; its types',
        ),
        ({"1": {**ITEM, "prompt": " "}}, 'basic_edit.json, 1: "prompt" is missing; there is id, prompt, edit_type'),
        ({"1": {**ITEM, "prompt": float("nan")}}, 'basic_edit.json, 1: "prompt" is nan, not a text'),
        ({"1": {"id": "animal/7.jpg", "prompt": "x"}}, '"edit_type" is missing; there is id, prompt'),
        ({"1": {"prompt": "x"}}, '"id", the path of the source picture, is missing'),
        ({"1": {**ITEM, "id": "animal/8.jpg"}}, "no source picture such as animal/8.jpg in .*; unpack the benchmark's"),
        ({"1": {**ITEM, "id": "../../x.jpg"}}, "leads outside the benchmark's folder"),
        ('{"1": 1}', "must contain an object of objects"),
        ('{"1": {}, "1": {}}', 'basic_edit.json has the key "1" twice'),
        ("{", "is not JSON"),
    ],
)
def test_a_mistake_in_the_list_is_one_sentence(tmp_path: Path, items: Any, message: str) -> None:
    results = write_outputs(tmp_path / "m", "1.png")
    with pytest.raises(UserError, match=message) as caught:
        load(write_data(tmp_path / "data", items), results)
    assert "\n" not in str(caught.value)


def test_a_wrong_folder_two_lists_and_two_files_for_one_key_are_refused(tmp_path: Path) -> None:
    results = write_outputs(tmp_path / "m", "1.png", "1.webp")
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        UserError, match=r"has neither basic_edit\.json nor UGE_edit\.json, nor tables with the columns key"
    ):
        load(tmp_path / "empty", results)
    data = write_data(tmp_path / "data", {"1": ITEM})
    with pytest.raises(UserError, match=r"two pictures for one key: 1\.png and 1\.webp"):
        load(data, results)
    write_data(data / "Basic", {"1": ITEM})
    with pytest.raises(UserError, match="has two files of the suite basic"):
        load(data, results)
    with pytest.raises(UserError, match="has no output of this benchmark"):
        load(write_data(tmp_path / "again", {"1": ITEM}), write_outputs(tmp_path / "n", "deep/1.png"))


def write_reply(folder: Path, reply: Any, name: str = "result.json") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps({"7": reply}), "utf-8")
    return folder


def say(*scores: str) -> str:
    return "\n".join(
        ["Brief reasoning: seen: 2", *(f"{name}: {s}" for name, s in zip(NAMES["style"], scores, strict=True))]
    )


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        (say("4", "3", "2"), 3.0),
        (say("1.", "5", "5"), 11 / 3),
        (say("4/5", "[4]", "**4**"), 4.0),
        (say("5", "5", "5").replace("Style Fidelity:", "- **Style Fidelity:**"), 5.0),
        (say("5", "5", "5").replace(": 5", ":5"), 5.0),
        (say("3", "3", "3") + "\nTotal: 9", 3.0),
        (say("3", "3", "3") + "\nStyle Fidelity: 3", 3.0),
        (say("3", "3", "3") + "\nStyle Fidelity: 4", None),
        (say("4.5", "3", "3"), None),
        (say("0", "1", "1"), None),
        (say("7", "5", "5"), None),
        (say("7", "5", "5")[:-2], None),
        ("The pictures cannot be judged.", None),
        ({"error": "no answer"}, None),
        (3.33, 3.33),
        (0, None),
    ],
)
def test_replies_and_averages_of_the_script_are_read_as_what_they_clearly_say(
    tmp_path: Path, reply: Any, score: float | None
) -> None:
    folder = write_reply(tmp_path / "m", reply)
    write_data(tmp_path, {"7": {**ITEM, "edit_type": "style"}})
    ((where, row),) = read_results(folder)
    assert where == "result.json, 7"
    wanted = None if score is None else pytest.approx((score - 1) / 4)
    assert {**row, CRITERION: None} == {
        "id": "7",
        "model": "m",
        "instruction": "Add a hat",
        "instruction_type": "style",
        "subset": "basic",
        CRITERION: None,
    }
    assert row[CRITERION] == wanted


def test_without_the_list_a_type_is_found_by_its_names_or_asked_for(tmp_path: Path) -> None:
    ((_, row),) = read_results(write_reply(tmp_path / "a", say("4", "4", "4")) / "result.json")
    assert row["instruction_type"] == "style"
    removal = "\n".join(f"{name}: 4" for name in NAMES["remove"])
    for number, reply in enumerate((removal, 3.5, {"error": "x"})):
        with pytest.raises(
            UserError, match=r"the type of this edit is not known; put basic_edit\.json or UGE_edit\.json next"
        ):
            list(read_results(write_reply(tmp_path / f"b{number}", reply)))


@pytest.mark.parametrize(
    ("reply", "score"), [("Fine. Score: 2.", 2), ("Score: 3 (Acceptable)", 3), ("Score: 3.5", None), ("Good.", None)]
)
def test_replies_of_the_uge_suite_have_one_score(tmp_path: Path, reply: str, score: int | None) -> None:
    write_data(tmp_path, {"7": {"id": "animal/7.jpg", "prompt": "x"}}, "UGE_edit.json")
    ((_, row),) = read_results(write_reply(tmp_path / "m", reply))
    assert (row["id"], row["instruction_type"]) == ("UGE/7", UGE)
    assert row[CRITERION] == (None if score is None else (score - 1) / 4)


def test_result_files_in_a_wrong_folder_or_of_other_keys_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no result\.json or average_score\.json"):
        list(read_results(tmp_path))
    write_data(tmp_path, {"8": ITEM})
    with pytest.raises(UserError, match=r"result\.json, 7: the benchmark's list has no such key"):
        list(read_results(write_reply(tmp_path / "m", 3)))
    write_data(tmp_path, {"7": ITEM})
    for other in (ITEM, [3], True):
        with pytest.raises(UserError, match=r"result\.json, 7 is neither a reply, a score nor an error"):
            list(read_results(write_reply(tmp_path / "m", other)))
    write_data(tmp_path, {"8": ITEM}, "UGE_edit.json")
    with pytest.raises(UserError, match="which have the same keys"):
        list(read_results(tmp_path / "m"))
    (tmp_path / "UGE_edit.json").unlink()
    (tmp_path / "m/result.json").write_text("[]")
    with pytest.raises(UserError, match="must contain an object"):
        list(read_results(tmp_path / "m"))


def raw(kind: str, scores: tuple[int, ...], reason: str | None = None, *, missing: bool = False) -> RawEdit:
    names = [to_key(name) for name in NAMES.get(kind, ("quality",))]
    checks = dict(zip(names, map(str, scores), strict=bool(scores)))
    value = (sum(scores) / len(scores) - 1) / 4 if scores else None
    answer = RawAnswer("unjudged" if reason else "judged", value, checks, reason=reason)
    return RawEdit(edit(kind), 0, {CRITERION: answer}, missing)


def compute(edits: list[RawEdit], published: bool = False, table: int = 0, **changes: str) -> dict[str, Any]:
    made = list(compute_tables({"m": edits}, PUBLISHED.choose(changes, published)))[table]
    return dict(zip(made.columns, made.rows["m"], strict=True)) | {"lost": made.irreproducible, **made.concerned}


def test_the_script_rounds_edits_and_types_and_takes_no_overall() -> None:
    edits = [raw("add", (5, 4, 4)), raw("add", (3, 3, 4)), raw("style", (1, 5, 5))]
    script, ours = compute(edits, published=True), compute(edits)
    assert (script["add"], script["style"], script["Overall"]) == (3.83, 3.67, None)
    assert (ours["add"], ours["Overall"]) == (pytest.approx(23 / 6), pytest.approx((23 / 6 + 11 / 3) / 2))
    assert compute(edits, overall="mean_of_edits")["Overall"] == pytest.approx(34 / 9)
    capped = compute(edits, cap="not_above_first")
    assert (capped["style"], capped["imgedit.cap"]) == (1.0, "2 edits of m")


def test_a_failed_request_stops_the_script_and_an_unreadable_reply_is_left_out() -> None:
    unreadable = [raw("add", (5, 5, 5)), raw("add", (), "unreadable_answer")]
    assert compute(unreadable, published=True)["add"] == 5.0
    assert compute(unreadable, failed="zero")["add"] == 2.5
    for failed in (raw("add", (), "model_error"), raw("add", (), "bad_image", missing=True)):
        stopped = compute([*unreadable, failed], published=True)
        assert stopped["add"] is None
        assert "the script stops at 1 edit" in stopped["lost"][0]
        assert compute([*unreadable, failed], published=True, failed="left_out")["add"] == 5.0
    assert compute([*unreadable, raw("add", (), "bad_image", missing=True)], failed="zero")["add"] == 2.5


def test_the_uge_suite_has_a_table_of_its_own() -> None:
    edits = [raw("add", (5, 5, 5)), raw(UGE, (3,)), raw(UGE, (4,)), raw(UGE, (4,))]
    assert compute(edits, published=True, table=1)["UGE"] == 3.67
    assert compute(edits, table=1)["UGE"] == pytest.approx(11 / 3)
    assert compute(edits)["Overall"] == 5.0
    titles = [layout.title for layout in build_layouts([one.edit for one in edits], (CRITERION,))]
    assert titles == ["ImgEdit-Bench", "ImgEdit-Bench, UGE suite"]

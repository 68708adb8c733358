"""KRIS-Bench: what each category is asked and shown, the published layout, the scripts' results, and what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from editloupe.agent.replies.answers import parse_reply
from editloupe.evals.labels.import_scores import import_scores
from editloupe.evals.manifests import load_outputs
from editloupe.evals.stats.scores.paper_tables import build_paper_tables
from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.judge.question_facts import find_inputs
from editloupe.judge.settings import JudgeSettings, build_protocol, find_setup
from editloupe.pictures.decode import Album
from editloupe.rubrics.kris import CATEGORIES, DUAL, GROUPS, IF, KRIS, MULTI, TEMPORAL, VC, VQ, WITH_KNOWLEDGE
from editloupe.rubrics.kris.paper import PUBLISHED, read_reply
from editloupe.rubrics.protocol import MissingInput
from editloupe.types import Edit, UserError
from tests.drawn_pictures import save, textured
from tests.evals.manifests.benchmarks import touch
from tests.evals.stats.scores.paper_tables.judged_runs import edit, keep, tables
from tests.pictures.table_files import image_type, png, write_table

CASE = {"ori_img": "1.jpg", "gt_img": "", "ins_en": "Make it red", "explain_en": ""}


def write_data(data: Path, category: str = "color_change", text: str | None = None, **cases: Any) -> Path:
    """Write a category; each case has the usual fields but for those that are given."""
    folder = data / "KRIS_Bench" / category
    folder.mkdir(parents=True)
    items = {number: {**CASE, **fields} for number, fields in cases.items()}
    (folder / "annotation.json").write_text(json.dumps(items) if text is None else text, "utf-8")
    return data


def load(data: Path, results: Path) -> list[Edit]:
    return list(load_outputs(data, {"m": results}, "kris").edits())


def test_twenty_categories_are_in_seven_groups_and_ten_have_knowledge() -> None:
    assert len(CATEGORIES) == len(set(CATEGORIES)) == 20
    assert (len(GROUPS), len(WITH_KNOWLEDGE)) == (7, 10)
    assert KRIS.modes == ("tools", "plain")


@pytest.mark.parametrize(
    ("category", "asked"),
    [
        ("color_change", {VC: "single", VQ: "", IF: "single"}),
        ("viewpoint_change", {VC: "single", VQ: "", IF: "viewpoint"}),
        ("anomaly_correction", {VC: "single", VQ: "", IF: "anomaly"}),
        ("Multi-Element Composition", {VC: "multi", VQ: "", IF: "multi"}),
        (TEMPORAL, {VC: "temporal", VQ: "", IF: "temporal"}),
        ("chemistry", {VC: "single", VQ: "", DUAL: ""}),
        ("rule-based_reasoning", {VC: "single", VQ: "", DUAL: ""}),
    ],
)
def test_a_category_decides_what_is_asked_and_how(category: str, asked: dict[str, str]) -> None:
    chosen = KRIS.rubrics_for(edit("x", category, "m"))
    assert {rubric.criterion: rubric.variant for rubric in chosen} == asked


def test_the_explanation_is_shown_where_the_benchmark_shows_it() -> None:
    with_hint = {rubric.name for rubric in KRIS.rubrics if "hint" in rubric.tells}
    assert with_hint == {DUAL, f"{IF}/anomaly"}
    assert not KRIS.rubric(VQ).tells


def test_the_scripts_ask_corrections_of_anomalies_without_the_explanation() -> None:
    script = build_protocol(find_setup("kris-published"), "kris", (), JudgeSettings())
    for category in CATEGORIES:
        before, after = (protocol.rubrics_for(edit("x", category, "m")) for protocol in (KRIS, script))
        differ = [own.name for own, other in zip(before, after, strict=True) if own != other]
        assert differ == (["instruction_following/anomaly"] if category == "anomaly_correction" else [])
    assert PUBLISHED.find("anomaly_explanation")


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        ('{"reasoning": "seen", "instruction_score": 5, "knowledge_score": 3}', 0.75),
        ('{"instruction_score": "1", "instruction_reasoning": "no", "knowledge_score": 1}', 0.0),
        ('{"instruction_score": 4}', None),
        ('{"instruction_score": 4, "knowledge_score": null}', None),
        ('{"instruction_score": 4, "knowledge_score": 6}', None),
        ("instruction_score: 4, knowledge_score: 4", None),
    ],
)
def test_instruction_and_knowledge_are_two_scores_of_one_reply(reply: str, score: float | None) -> None:
    answer = parse_reply(reply, KRIS.rubric(DUAL).answer).answer
    assert (answer.score if answer else None) == score


def test_a_case_s_score_counts_the_two_scores_of_one_reply_twice_and_rewards_need_all() -> None:
    chemistry = edit("x", "chemistry", "m")
    assert KRIS.score_of(chemistry, {VC: 100.0, VQ: 0.0, DUAL: 50.0}) == 50
    assert KRIS.score_of(chemistry, {VC: 100.0, VQ: 0.0, DUAL: 25.0}) == 37.5
    assert KRIS.score_of(chemistry, {VC: 100.0, DUAL: 25.0}) is None


def frames(tmp_path: Path, *names: str, **extra: Any) -> Edit:
    pictures = [save(textured(seed=number), tmp_path / name) for number, name in enumerate(names)]
    return Edit(
        id="x",
        source=pictures[0],
        edited=save(textured(seed=9), tmp_path / "edited.png"),
        instruction="Predict",
        instruction_type=TEMPORAL,
        more_images={"inputs": tuple(pictures[1:])},
        extra=extra,
    )


@pytest.mark.parametrize(
    ("names", "extra", "shown"),
    [
        (("10-2.png", "10-3.png", "10-4.png"), {}, ["Frame 1 (generated)", "Frame 2", "Frame 3", "Frame 4"]),
        (("10-1.png", "10-4.png", "10-2.png"), {}, ["Frame 1", "Frame 2", "Frame 3 (generated)", "Frame 4"]),
        (("a.png", "b.png"), {"frames": [1, 2]}, ["Frame 1", "Frame 2", "Frame 3 (generated)"]),
    ],
)
def test_frames_are_shown_in_order_of_time(
    tmp_path: Path, names: tuple[str, ...], extra: dict[str, Any], shown: list[str]
) -> None:
    case = frames(tmp_path, *names, **extra)
    album = Album()
    for rubric in KRIS.rubrics_for(case, [VC, IF]):
        (built,) = KRIS.make_cases(case, rubric, "plain", album)
        assert list(built.pictures) == shown
        generated = next(name for name in built.pictures if "generated" in name)
        assert built.pictures[generated] == album.open(case.edited).sha
    (quality,) = KRIS.make_cases(case, KRIS.rubric(VQ), "plain", album)
    assert list(quality.pictures) == ["Edited Image"]


def test_other_frame_numbers_are_another_question(tmp_path: Path) -> None:
    rubric = KRIS.rubrics_for(edit("x", TEMPORAL, "m"), [VC])[0]
    first, second = (frames(tmp_path, "a.png", "b.png", frames=numbers) for numbers in ([1, 2], [2, 3]))
    assert find_inputs(KRIS, rubric, "plain", first) != find_inputs(KRIS, rubric, "plain", second)


@pytest.mark.parametrize("extra", [{}, *({"frames": numbers} for numbers in ([1], [2, 2], "12", [0, 1], [[1], [2]]))])
def test_frames_without_numbers_are_not_guessed(tmp_path: Path, extra: dict[str, Any]) -> None:
    case = frames(tmp_path, "a.png", "b.png", **extra)
    with pytest.raises(MissingInput, match='which frames its 2 input pictures are; give "frames"'):
        KRIS.make_cases(case, KRIS.rubrics_for(case, [VC])[0], "plain", Album())


def test_the_published_layout_is_read_with_its_lists_of_pictures_and_true_pictures(tmp_path: Path) -> None:
    data = write_data(
        tmp_path / "data", TEMPORAL, **{"10": {"ori_img": ["10-2.jpg", "10-4.jpg"], "gt_img": "10-1.jpg"}}
    )
    write_data(data, MULTI, **{"7": {"ori_img": ["7-1.jpg", "7-2.jpeg"]}})
    write_data(data, "viewpoint_change", **{"6": {"gt_img": "6_gt.jpg", "explain_en": " ", "source_of": "web"}})
    write_data(data, "Other_Things", **{"1": {}})
    results = tmp_path / "m"
    touch(results / TEMPORAL / "10.jpg", results / MULTI / "7.png", results / "viewpoint_change/6.jpg")
    loaded = load_outputs(data, {"m": results}, "kris")
    found = {one.id: one for one in loaded.edits()}
    assert list(found) == ["viewpoint_change/6", f"{TEMPORAL}/10", f"{MULTI}/7"]
    assert found[f"{TEMPORAL}/10"].extra == {"frames": [2, 4]}
    assert [path.name for path in found[f"{MULTI}/7"].more_images["inputs"]] == ["7-2.jpeg"]  # type: ignore[union-attr]
    view = found["viewpoint_change/6"]
    assert (view.reference.name, view.hint, view.extra) == ("6_gt.jpg", None, {"source_of": "web"})  # type: ignore[union-attr]
    assert any("Other_Things is skipped; it is not a category of KRIS-Bench" in note for note in loaded.notes)
    assert load(data / "KRIS_Bench", results) == list(loaded.edits())


def test_a_category_without_outputs_is_absent_and_single_outputs_are_missing(tmp_path: Path) -> None:
    data = write_data(tmp_path / "data", **{"1": {}, "2": {}})
    write_data(data, "chemistry", **{"1": {}})
    touch(tmp_path / "m/color_change/1.jpg")
    loaded = load_outputs(data, {"m": tmp_path / "m"}, "kris")
    assert [(one.id, one.extra.get("output")) for one in loaded.edits()] == [
        ("color_change/1", None),
        ("color_change/2", "missing"),
    ]
    assert any("no outputs for chemistry (1 case): absent, not counted" in note for note in loaded.notes)
    assert any("1 of 2 outputs missing" in note and "stay unjudged" in note for note in loaded.notes)


def test_a_category_without_a_list_of_cases_is_skipped_with_a_note(tmp_path: Path) -> None:
    data = write_data(tmp_path / "data", **{"1": {}})
    (data / "KRIS_Bench/chemistry").mkdir()
    touch(tmp_path / "m/color_change/1.jpg")
    loaded = load_outputs(data, {"m": tmp_path / "m"}, "kris")
    assert len(list(loaded.edits())) == 1
    assert any("chemistry is skipped; it has no annotation.json" in note for note in loaded.notes)


def test_a_mirror_is_read_from_its_tables(tmp_path: Path) -> None:
    import pyarrow

    def cell(*seeds: int) -> list[dict[str, Any]]:
        return [{"bytes": png(seed), "path": None} for seed in seeds]

    instruction = "Based on frames 1, 2, and 4, predict frame 3."
    write_table(
        tmp_path / "data/data/train-00000-of-00001.parquet",
        {
            "ori_images": pyarrow.array([cell(1), cell(2, 3, 4)], pyarrow.list_(image_type())),
            "gt_image": pyarrow.array([None, cell(5)[0]], image_type()),
            "ins_en": ["Make it red", instruction],
            "explain_en": ["", ""],
            "category": ["color_change", TEMPORAL],
            "image_id": [3, 10],
        },
    )
    touch(tmp_path / "m/color_change/3.jpg", tmp_path / f"m/{TEMPORAL}/10.jpg")
    first, second = load(tmp_path / "data", tmp_path / "m")
    assert (first.id, first.more_images, first.reference) == ("color_change/3", {}, None)
    assert (second.id, len(second.more_images["inputs"]), second.extra) == (f"{TEMPORAL}/10", 2, {"frames": [1, 2, 4]})
    assert second.reference
    assert Album().open(second.source).size == (8, 8)


@pytest.mark.parametrize(
    ("number", "seeds", "message"),
    [
        (None, (1, 2), "train-00000-of-00001.parquet, row 1: the key is None, neither a text nor a whole number"),
        (3, (1, None, 2), 'row 1: "ori_images" has an empty cell among its pictures'),
        (3, (), 'row 1: "ori_img" is missing'),
    ],
)
def test_a_mistake_in_a_mirror_is_one_sentence(
    tmp_path: Path, number: int | None, seeds: tuple[int | None, ...], message: str
) -> None:
    import pyarrow

    pictures = [None if seed is None else {"bytes": png(seed), "path": None} for seed in seeds]
    columns = {
        "ori_images": pyarrow.array([pictures], pyarrow.list_(image_type())),
        "ins_en": ["Make it red"],
        "explain_en": [""],
        "category": [TEMPORAL],
        "image_id": pyarrow.array([number], pyarrow.int64()),
    }
    write_table(tmp_path / "data/data/train-00000-of-00001.parquet", columns)
    touch(tmp_path / f"m/{TEMPORAL}/3.jpg")
    with pytest.raises(UserError, match=message):
        load(tmp_path / "data", tmp_path / "m")


@pytest.mark.parametrize(
    ("category", "cases", "message"),
    [
        ("color_change", {"1": {"ins_en": ""}}, 'color_change/annotation.json, case 1: "ins_en" is missing'),
        ("color_change", {"1": {"ori_img": ""}}, 'case 1: "ori_img" is missing'),
        (
            "color_change",
            {"1": {"ori_img": ["1.jpg", "2.jpg"]}},
            "there are 2 input pictures, but cases of color_change have one",
        ),
        ("color_change", {"1": {"ins_en": float("nan")}}, 'case 1: "ins_en" is nan, not a text'),
        ("temporal_prediction", {"1": {"ori_img": ["1-1.jpg", 5, "1-3.jpg"]}}, 'case 1: "ori_img" is 5, not a text'),
        ("color_change", {"../../1": {}}, r"the key '\.\./\.\./1' has a path in it"),
        ("color_change", {"1": {"ori_img": "../../../1.jpg"}}, "leads outside the benchmark's folder"),
        ("colour_change", {"1": {}}, "has no category of KRIS-Bench, such as count_change/annotation.json"),
    ],
)
def test_a_mistake_in_a_case_is_one_sentence(
    tmp_path: Path, category: str, cases: dict[str, Any], message: str
) -> None:
    touch(tmp_path / "m/color_change/1.jpg")
    with pytest.raises(UserError, match=message):
        load(write_data(tmp_path / "data", category, **cases), tmp_path / "m")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "annotation.json is not JSON"),
        ("[]", "annotation.json must contain an object"),
        ('{"1": 5}', "annotation.json must contain an object of objects"),
        ('{"1": {}, "1": {}}', 'annotation.json has the key "1" twice'),
    ],
)
def test_a_file_that_is_no_list_of_cases_is_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load(write_data(tmp_path / "data", text=text), tmp_path)


def test_a_file_in_place_of_the_folder_is_one_sentence(tmp_path: Path) -> None:
    file = write_data(tmp_path / "data", **{"1": {}}) / "KRIS_Bench/color_change/annotation.json"
    with pytest.raises(UserError, match=r"annotation\.json has no category of KRIS-Bench"):
        load(file, tmp_path)


def test_two_outputs_of_one_case_are_refused(tmp_path: Path) -> None:
    data = write_data(tmp_path / "data", **{"1": {}})
    touch(tmp_path / "m/color_change/1.jpg", tmp_path / "m/color_change/1.png")
    with pytest.raises(UserError, match=r"two pictures for one key: 1\.png and 1\.jpg"):
        load(data, tmp_path / "m")


def test_the_tables_leave_an_unjudged_score_out_of_its_case_and_say_so(tmp_path: Path) -> None:
    lines = [
        (edit("1", "color_change", "a"), {VC: 100.0, VQ: 50.0, IF: None}),
        (edit("2", "count_change", "a"), {VC: 0.0, VQ: 0.0, IF: 0.0}),
    ]
    run = keep(tmp_path / "run", "kris", lines)
    printed = tables(run)
    assert printed["KRIS-Bench, by knowledge type"]["a"]["Attribute Perception"] == 37.5
    assert printed["KRIS-Bench, by knowledge type"]["a"]["Overall"] == 37.5
    assert printed["KRIS-Bench, metrics by group"]["a"]["Attribute Perception IF"] == 0
    assert printed["KRIS-Bench, metrics by group"]["a"]["Natural Science KP"] is None
    (first, *_) = build_paper_tables(read_run_table(run))
    assert any(
        "left out of its own mean and of its edit's score; concerned: 1 edit of a" in note for note in first.notes
    )


def write_results(folder: Path, category: str, **cases: Any) -> Path:
    (folder / category).mkdir(parents=True)
    (folder / category / "metrics.json").write_text(json.dumps(cases), "utf-8")
    return folder


def test_the_scripts_results_are_imported_with_both_scores_of_a_reply(tmp_path: Path) -> None:
    scores = {"consistency_score": 5, "quality_score": 3, "instruction_score": 4}
    write_results(tmp_path / "results/a", "color_change", **{"1": {"instruction": "", **scores}})
    dual = {**scores, "knowledge_score": 2, "instruction": "Heat it", "explain": "It melts"}
    write_results(tmp_path / "results/a", "chemistry", **{"1": dual, "2": {**dual, "knowledge_score": None}})
    write_results(tmp_path / "results/b", "chemistry", **{"1": dual})
    summary = import_scores(tmp_path / "results", tmp_path / "run", "gpt-4o", "kris")
    assert (summary.verdicts, summary.unjudged) == (11, 1)
    printed = tables(tmp_path / "run")["KRIS-Bench, metrics by category"]
    assert printed["a"]["chemistry IF"] == printed["b"]["chemistry IF"] == 75
    assert printed["a"]["chemistry KP"] == printed["b"]["chemistry KP"] == 25
    assert printed["a"]["color_change IF"] == 75
    again = import_scores(tmp_path / "results", tmp_path / "run", "gpt-4o", "kris")
    assert again.known == 12
    wrong = write_results(tmp_path / "wrong/c", "color_change", **{"1": {**scores, "quality_score": 7}})
    with pytest.raises(UserError, match='case 1: "7" is not an answer to visual_quality'):
        import_scores(wrong, tmp_path / "other", "gpt-4o", "kris")


@pytest.mark.parametrize(
    ("folder", "message"), [("nothing", "has no results of KRIS-Bench"), ("colours", "colours is not a category")]
)
def test_results_in_a_wrong_folder_are_one_sentence(tmp_path: Path, folder: str, message: str) -> None:
    (tmp_path / "nothing").mkdir()
    write_results(tmp_path, "colours", **{"1": {}})
    with pytest.raises(UserError, match=message):
        import_scores(tmp_path / folder, tmp_path / "run", "x", "kris")


@pytest.mark.parametrize(
    ("reply", "criterion", "category", "scores"),
    [
        ('{"quality_score": 7}', VQ, "color_change", {"VQ": 7}),
        ('{"quality_score": 4., "reasoning": ""}', VQ, "color_change", {"VQ": 4}),
        ('{"quality_score": null} Of 3 cups', VQ, "color_change", {"VQ": 3}),
        ('{"quality_score": null} Of 3 cups', VQ, "chemistry", {}),
        ("Of 3 cups; quality score: 5", VQ, "color_change", {"VQ": 5}),
        ("Of 3 cups; quality score: 5", VQ, MULTI, {"VQ": 3}),
        ("4 out of 5 for 2 cups", VC, TEMPORAL, {"VC": 4}),
        ("Nothing", VC, "color_change", {}),
        ("instruction_score: 4, of 2 cups", DUAL, "chemistry", {"IF": 4}),
        ('{"instruction_score": 2, "knowledge_score": "N/A"}', DUAL, "chemistry", {}),
        ('{"quality_score_of_it": 3}', VQ, "chemistry", {}),
    ],
)
def test_a_reply_is_read_as_the_scripts_read_it(
    reply: str, criterion: str, category: str, scores: dict[str, float]
) -> None:
    assert read_reply(reply, criterion, category) == scores

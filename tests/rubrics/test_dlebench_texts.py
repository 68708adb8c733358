"""The DLEBench rubric texts say what the paper's tables say, and show each mode only what that mode has."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from typing import Any, get_args

import pytest
import yaml

from editloupe.rubrics.case import EDITED, REFERENCE, SOURCE
from editloupe.rubrics.model import Example, LabelAnswer, Rubric
from editloupe.types import Box, Mode

CRITERIA = ("instruction_following", "visual_consistency")
MODES: tuple[Mode, ...] = get_args(Mode)
TYPES = {
    "Change Material",
    "Change Color",
    "Change OCR",
    "Change Shape",
    "Removal Object",
    "Replace Object",
    "Change Count",
}
PARAMETERS = {
    "zoom_in_image": {"bbox_2d", "target_image"},
    "localize_differences": {"comparison_image_1", "comparison_image_2"},
    "detect_object": {"target_image", "detect_object_name"},
}


def raw(criterion: str) -> str:
    return resources.files("editloupe.rubrics.dlebench").joinpath(f"{criterion}.yaml").read_text(encoding="utf-8")


def load(criterion: str) -> Rubric:
    return Rubric.model_validate(yaml.safe_load(raw(criterion)))


def labels(rubric: Rubric) -> LabelAnswer:
    assert isinstance(rubric.answer, LabelAnswer)
    return rubric.answer


def shown(rubric: Rubric, mode: Mode) -> list[Example]:
    return [example for example in rubric.examples if mode in example.modes]


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from texts(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from texts(inner)


def whole_text(rubric: Rubric, mode: Mode) -> str:
    said = rubric.model_dump(include={"title", "question", "steps", "notes", "type_notes", "answer"})
    examples = [example.model_dump(exclude={"modes"}) for example in shown(rubric, mode)]
    return "\n".join(texts([said, rubric.modes[mode].model_dump(), examples]))


@pytest.mark.parametrize("criterion", CRITERIA)
def test_each_file_is_one_rubric_of_the_protocol(criterion: str) -> None:
    rubric = load(criterion)
    assert (rubric.protocol, rubric.criterion) == ("dlebench", criterion)
    assert rubric.title == criterion.replace("_", " ").title()
    assert set(rubric.modes) == set(MODES)


@pytest.mark.parametrize(
    ("criterion", "names"),
    [
        ("instruction_following", ["Localization Failure", "Wrong Action", "Over Modification", "Flawless Execution"]),
        ("visual_consistency", ["Scene Collapse", "Multiple Anomalies", "Single Anomaly", "Perfect Consistency"]),
    ],
)
def test_labels_are_those_of_tables_3_and_5_worst_first(criterion: str, names: list[str]) -> None:
    answer = labels(load(criterion))
    assert [(label.name, label.score) for label in answer.labels] == list(zip(names, (1, 2, 3, 4), strict=True))
    assert [round(answer.score_100(name), 2) for name in names] == [0, 33.33, 66.67, 100]
    assert all(label.meaning and label.when for label in answer.labels)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_the_checks_stand_in_label_order_and_each_ends_in_its_label(criterion: str) -> None:
    rubric = load(criterion)
    names = [label.name for label in labels(rubric).labels]
    assert [[name for name in names if name in step] for step in rubric.steps] == [[name] for name in names]
    assert "order is strict" in rubric.notes[0]


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("mode", MODES)
def test_every_label_has_one_worked_example_in_every_mode(criterion: str, mode: Mode) -> None:
    rubric = load(criterion)
    answers = [example.answer for example in shown(rubric, mode) if example.answer is not None]
    assert sorted(answers) == sorted(label.name for label in labels(rubric).labels)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_an_example_ends_in_calls_or_in_a_label_never_both(criterion: str) -> None:
    for example in load(criterion).examples:
        assert bool(example.calls) != (example.answer is not None), example.instruction


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("mode", MODES)
def test_modes_without_tools_do_not_speak_of_tools(criterion: str, mode: Mode) -> None:
    rubric = load(criterion)
    said = whole_text(rubric, mode).lower()
    if rubric.modes[mode].tools:
        assert "localize_differences" in said
        assert any(example.calls for example in shown(rubric, mode))
    else:
        assert not any(example.calls for example in shown(rubric, mode))
        assert not [word for word in (*PARAMETERS, "tool", "zoom") if word in said]


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("mode", MODES)
def test_only_the_oracle_mode_speaks_of_references_crops_and_white_paint(criterion: str, mode: Mode) -> None:
    said = whole_text(load(criterion), mode).lower()
    found = {word for word in ("reference", "crops", "annotated", "white") if word in said}
    expected = {"instruction_following": {"crops"}, "visual_consistency": {"white"}}[criterion]
    assert found == ({"reference", "annotated", *expected} if mode == "oracle" else set())


@pytest.mark.parametrize("criterion", CRITERIA)
def test_pictures_and_tools_of_the_modes(criterion: str) -> None:
    modes = load(criterion).modes
    assert {mode: text.images for mode, text in modes.items()} == {
        "tools": (SOURCE, EDITED),
        "oracle": (SOURCE, EDITED, REFERENCE),
        "plain": (SOURCE, EDITED),
    }
    assert {mode: text.tools for mode, text in modes.items()} == {
        "tools": True,
        "oracle": criterion == "visual_consistency",
        "plain": False,
    }
    for text in modes.values():
        assert all(name in text.setting for name in text.images)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_example_calls_keep_to_the_tools_contract(criterion: str) -> None:
    for example in load(criterion).examples:
        for call in example.calls:
            assert set(call) == {"name", "parameters"}
            parameters = dict(call["parameters"])
            assert set(parameters) == PARAMETERS[call["name"]]
            if "bbox_2d" in parameters:
                Box.model_validate(parameters.pop("bbox_2d"))
            if "detect_object_name" in parameters:
                assert parameters.pop("detect_object_name") in example.instruction
            assert set(parameters.values()) <= {SOURCE, EDITED}


@pytest.mark.parametrize("criterion", CRITERIA)
def test_one_example_looks_at_the_same_area_of_both_pictures_in_one_turn(criterion: str) -> None:
    pairs = [example.calls for example in shown(load(criterion), "tools") if len(example.calls) == 2]
    assert len(pairs) == 1
    first, second = pairs[0]
    assert first["name"] == second["name"] == "zoom_in_image"
    assert first["parameters"]["bbox_2d"] == second["parameters"]["bbox_2d"]
    assert [call["parameters"]["target_image"] for call in pairs[0]] == [SOURCE, EDITED]


def test_instruction_following_has_a_note_for_every_type_and_consistency_for_known_types_only() -> None:
    assert set(load("instruction_following").type_notes) == TYPES
    assert set(load("visual_consistency").type_notes) <= TYPES


@pytest.mark.parametrize(
    ("criterion", "kind", "phrases"),
    [
        (
            "instruction_following",
            "Removal Object",
            ("Filling the hole", "not Wrong Action unless", "replacement", "deleted", "no Over Modification"),
        ),
        (
            "instruction_following",
            "Replace Object",
            (
                "clearly recognisable",
                "surroundings do not count",
                "unrecognisable",
                "rendering",
                "is Over Modification",
            ),
        ),
        (
            "instruction_following",
            "Change Count",
            ("any number but the exact one is Wrong Action", "too many or too few"),
        ),
        (
            "instruction_following",
            "Change OCR",
            ("cannot be read, is Localization Failure", "misspelt", "Wrong Action"),
        ),
        ("instruction_following", "Change Color", ("faint tint", "different colour Wrong Action", "further parts")),
        ("instruction_following", "Change Material", ("recoloured", "Wrong Action", "Outline")),
        ("instruction_following", "Change Shape", ("slight bend", "different shape", "markings must stay")),
        ("visual_consistency", "Removal Object", ("fill", "belongs to the target", "deleted with it are anomalies")),
        ("visual_consistency", "Replace Object", ("new object is the target", "Neighbours", "are anomalies")),
        ("visual_consistency", "Change Count", ("is a target", "not judged")),
    ],
)
def test_the_exceptions_of_a_type_are_stated(criterion: str, kind: str, phrases: tuple[str, ...]) -> None:
    note = load(criterion).type_notes[kind]
    assert [phrase for phrase in phrases if phrase not in note] == []


@pytest.mark.parametrize(
    ("criterion", "phrases"),
    [
        (
            "instruction_following",
            (
                "target only",
                "worst of their labels",
                "hides whether the edit happened means Localization Failure",
                "other details means Over Modification",
            ),
        ),
        (
            "visual_consistency",
            (
                "outside the target",
                "global changes of texture, grain or lighting",
                "never anomalies",
                "the worst stands",
            ),
        ),
    ],
)
def test_the_rules_that_hold_for_every_type_are_stated(criterion: str, phrases: tuple[str, ...]) -> None:
    notes = " ".join(load(criterion).notes)
    assert [phrase for phrase in phrases if phrase not in notes] == []


@pytest.mark.parametrize("criterion", CRITERIA)
def test_the_answer_format_is_left_to_the_renderer(criterion: str) -> None:
    assert not [
        mark for mark in ("Start Thinking", "Start Final Answer", "tool_call", "JSON") if mark in raw(criterion)
    ]


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("mode", MODES)
def test_the_text_of_a_request_stays_under_1500_words(criterion: str, mode: Mode) -> None:
    assert len(whole_text(load(criterion), mode).split()) < 1500

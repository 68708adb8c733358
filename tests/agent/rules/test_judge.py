import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage

from editloupe.agent.chat_interface import ChatRequest
from editloupe.agent.rules import RulesJudge, instruction_following, regions
from editloupe.judge import Judge
from editloupe.pictures.decode import Album
from editloupe.pictures.encode import EncodingLimits
from editloupe.rubrics.case import Case
from editloupe.types import Edit, Mode
from tests.agent.rules.pictures import BLUE, BOX, GREEN, RED, Pixels, disc, ellipse, ground, make_case, make_edit

CENTRE = (160, 120)
INSTRUCTION = "Change the color of the red disc to blue."
FOLLOWING, CONSISTENCY = "instruction_following", "visual_consistency"


def colour_edit(folder: Path, edited: Pixels, instruction: str = INSTRUCTION, **more: object) -> Edit:
    return make_edit(folder, disc(ground(), CENTRE, RED), edited, disc(ground(), CENTRE, BLUE), instruction, **more)


def ask(
    case: Case,
    album: Album,
    messages: Sequence[AnyMessage] = (),
    tools: Sequence[str] = (),
    may_call: bool = True,
) -> AIMessage:
    offered = [{"type": "function", "function": {"name": name}} for name in tools]
    request = ChatRequest(list(messages), offered, case, album, EncodingLimits(), may_call=may_call)
    return RulesJudge().decide(request).message


def label(message: AIMessage) -> str:
    return str(message.content).split("<Start Final Answer>")[1].split("</Start Final Answer>")[0]


@pytest.mark.long
@pytest.mark.parametrize(
    ("edited", "expected"),
    [
        (disc(ground(), CENTRE, RED), "Localization Failure"),
        (disc(ground(), CENTRE, GREEN), "Wrong Action"),
        (ellipse(ground(), CENTRE, BLUE), "Over Modification"),
        (disc(ground(), CENTRE, BLUE), "Flawless Execution"),
    ],
)
def test_in_oracle_mode_the_four_labels_of_following_come_from_the_crops(
    tmp_path: Path, edited: Pixels, expected: str
) -> None:
    case, album = make_case(colour_edit(tmp_path, edited), FOLLOWING, "oracle")
    assert label(ask(case, album)) == expected


@pytest.mark.long
@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([], "Perfect Consistency"),
        ([(330, 230)], "Single Anomaly"),
        ([(330, 230), (60, 240)], "Multiple Anomalies"),
    ],
)
@pytest.mark.parametrize("mode", ["oracle", "tools", "plain"])
def test_things_that_appeared_elsewhere_are_counted(
    tmp_path: Path, mode: Mode, others: list[tuple[int, int]], expected: str
) -> None:
    edited = disc(ground(), CENTRE, BLUE)
    for place in others:
        edited = disc(edited, place, GREEN, 22)
    verdict = Judge("rules", mode=mode, criteria=[CONSISTENCY]).judge(colour_edit(tmp_path, edited)).verdicts[0]
    assert verdict.status == "judged"
    assert verdict.label == expected


def test_another_scene_behind_the_target_is_a_collapse(tmp_path: Path) -> None:
    other = 255 - ground(7)[:, ::-1] // 2
    case, album = make_case(colour_edit(tmp_path, disc(other, CENTRE, BLUE)), CONSISTENCY, "oracle")
    assert label(ask(case, album)) == "Scene Collapse"


@pytest.mark.parametrize("mode", ["tools", "plain"])
def test_without_any_difference_the_edit_did_not_happen(tmp_path: Path, mode: Mode) -> None:
    case, album = make_case(colour_edit(tmp_path, disc(ground(), CENTRE, RED)), FOLLOWING, mode)
    assert label(ask(case, album)) == "Localization Failure"


@pytest.mark.parametrize("mode", ["tools", "plain"])
def test_the_asked_colour_in_the_right_shape_is_flawless_without_knowing_the_target(tmp_path: Path, mode: Mode) -> None:
    case, album = make_case(colour_edit(tmp_path, disc(ground(), CENTRE, BLUE)), FOLLOWING, mode)
    assert label(ask(case, album)) == "Flawless Execution"


def test_where_tools_are_offered_the_differences_are_asked_for_first(tmp_path: Path) -> None:
    case, album = make_case(colour_edit(tmp_path, disc(ground(), CENTRE, BLUE)), FOLLOWING, "tools")
    reply = ask(case, album, tools=["zoom_in_image", "localize_differences"])
    assert [call["name"] for call in reply.tool_calls] == ["localize_differences"]
    assert reply.tool_calls[0]["args"] == {"comparison_image_1": "Source Image", "comparison_image_2": "Edited Image"}
    assert "<Start Final Answer>" not in str(reply.content)


@pytest.mark.long
def test_the_decisive_region_is_the_one_zoomed_into(tmp_path: Path) -> None:
    judgement = Judge("rules", mode="tools", criteria=[FOLLOWING]).judge(
        colour_edit(tmp_path, disc(ground(), CENTRE, BLUE))
    )
    calls = [call for step in judgement.traces[0].steps for call in step.calls]
    assert [call.name for call in calls] == ["localize_differences", "zoom_in_image"]
    x1, y1, x2, y2 = calls[1].parameters["bbox_2d"]
    assert x1 <= CENTRE[0] <= x2
    assert y1 <= CENTRE[1] <= y2
    assert (x2 - x1) * (y2 - y1) < 4 * (BOX[2] - BOX[0]) * (BOX[3] - BOX[1])


def test_the_tools_findings_are_used_as_they_are(tmp_path: Path) -> None:
    case, album = make_case(colour_edit(tmp_path, disc(ground(), CENTRE, BLUE)), CONSISTENCY, "oracle")
    call = ask(case, album, tools=["localize_differences"])
    data: dict[str, Any] = {"size": [400, 300], "changed_share": 0.02, "whole_scene": False}
    data["regions"] = [
        {"box": [10, 10, 60, 60], "significance": 0.6},
        {"box": [300, 200, 360, 260], "significance": 0.6},
    ]
    answer = ToolMessage("two places", tool_call_id=call.tool_calls[0]["id"], artifact=data)
    assert label(ask(case, album, [call, answer], ["localize_differences"])) == "Multiple Anomalies"


def test_a_tool_that_failed_is_not_asked_again_and_the_pictures_are_looked_at_instead(tmp_path: Path) -> None:
    case, album = make_case(colour_edit(tmp_path, disc(ground(), CENTRE, BLUE)), CONSISTENCY, "oracle")
    call = ask(case, album, tools=["localize_differences"])
    answer = ToolMessage("it broke", tool_call_id=call.tool_calls[0]["id"], artifact={})
    assert label(ask(case, album, [call, answer], ["localize_differences"])) == "Perfect Consistency"


def test_no_tool_is_called_where_none_may_be(tmp_path: Path) -> None:
    case, album = make_case(colour_edit(tmp_path, disc(ground(), CENTRE, BLUE)), FOLLOWING, "tools")
    reply = ask(case, album, tools=["localize_differences"], may_call=False)
    assert not reply.tool_calls
    assert label(reply)


def test_an_instruction_it_does_not_understand_ends_unjudged(tmp_path: Path) -> None:
    edit = colour_edit(tmp_path, disc(ground(), CENTRE, BLUE), "Make it nicer")
    verdicts = Judge("rules", mode="plain").judge(edit).verdicts
    assert [verdict.status for verdict in verdicts] == ["unjudged", "unjudged"]
    assert all(verdict.status == "unjudged" and verdict.reason == "not_understood" for verdict in verdicts)


def test_the_thought_states_its_numbers_in_the_rubrics_order(tmp_path: Path) -> None:
    case, album = make_case(colour_edit(tmp_path, disc(ground(), CENTRE, BLUE)), FOLLOWING, "oracle")
    thought = str(ask(case, album).content)
    places = [thought.index(question) for question in ("1. Did", "2. Is", "3. Was")]
    assert places == sorted(places)
    assert "difference to the reference over the asked change (0 the same, 1 as far as the source): 0.0" in thought


@pytest.mark.long
def test_the_same_input_gives_the_same_verdict_and_costs_no_tokens(tmp_path: Path) -> None:
    edit = colour_edit(tmp_path, ellipse(ground(), CENTRE, BLUE))
    first, second = (Judge("rules", mode="tools").judge(edit).verdicts for _ in range(2))
    assert first == second
    assert all(verdict.usage.input_tokens == verdict.usage.output_tokens == 0 for verdict in first)


@pytest.mark.long
def test_all_replies_about_an_edit_share_one_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build_scene, scenes = regions.build_scene, []

    def count_scene(source: Pixels, edited: Pixels) -> regions.ScenePair:
        scenes.append(source.shape)
        return build_scene(source, edited)

    monkeypatch.setattr(regions, "build_scene", count_scene)
    with Judge("rules", mode="tools", criteria=[FOLLOWING, CONSISTENCY]) as judge:
        for count in (1, 2):
            judgement = judge.judge(colour_edit(tmp_path, disc(ground(), CENTRE, BLUE)))
            assert [verdict.status for verdict in judgement.verdicts] == ["judged", "judged"]
            assert len(scenes) == count


@pytest.mark.long
def test_no_more_cases_are_measured_at_once_than_there_are_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instruction_following, "_MEASURING", threading.BoundedSemaphore(1))
    under_way, counts = [], []

    def build_slowly(source: Pixels, edited: Pixels) -> regions.ScenePair:
        under_way.append(source)
        time.sleep(0.02)
        counts.append(len(under_way))
        under_way.pop()
        return build_scene(source, edited)

    build_scene = regions.build_scene
    monkeypatch.setattr(regions, "build_scene", build_slowly)
    case, album = make_case(colour_edit(tmp_path, disc(ground(), CENTRE, BLUE)), FOLLOWING, "plain")
    with ThreadPoolExecutor(3) as threads:
        assert len({label(reply) for reply in threads.map(lambda _: ask(case, album), range(3))}) == 1
    assert counts == [1, 1, 1]


@pytest.mark.long
def test_every_verdict_says_how_sure_it_is(tmp_path: Path) -> None:
    verdicts = Judge("rules", mode="oracle").judge(colour_edit(tmp_path, disc(ground(), CENTRE, BLUE))).verdicts
    assert len(verdicts) == 2
    for verdict in verdicts:
        assert verdict.status == "judged"
        assert verdict.confidence is not None
        assert 0.25 < verdict.confidence <= 1


def test_where_a_detector_is_offered_it_says_which_change_is_the_targets(tmp_path: Path) -> None:
    source = disc(disc(ground(), CENTRE, RED), (320, 220), RED)
    edited = disc(disc(ground(), CENTRE, RED), (320, 220), BLUE)
    edit = make_edit(tmp_path, source, edited, edited, "Change the color of the disc to blue.")
    case, album = make_case(edit, FOLLOWING, "tools")
    offered = ["localize_differences", "detect_object"]
    localize = ask(case, album, tools=offered)
    data = {"size": [400, 300], "changed_share": 0.02, "whole_scene": False}
    differences = ToolMessage("one place", tool_call_id=localize.tool_calls[0]["id"])
    differences.artifact = {**data, "regions": [{"box": [290, 190, 350, 250], "significance": 0.7}]}
    detect = ask(case, album, [localize, differences], offered)
    assert detect.tool_calls[0]["args"] == {"target_image": "Source Image", "detect_object_name": "disc"}
    for box, expected in (([292, 192, 348, 248], "Flawless Execution"), ([130, 90, 190, 150], "Localization Failure")):
        seen = ToolMessage("a disc", tool_call_id=detect.tool_calls[0]["id"], artifact={"objects": [{"box": box}]})
        assert label(ask(case, album, [localize, differences, detect, seen], offered)) == expected


def test_a_text_edit_where_nothing_differs_and_the_old_text_is_read_did_not_happen(tmp_path: Path) -> None:
    edit = colour_edit(tmp_path, disc(ground(), CENTRE, RED), 'Change the text on the sign from "MARKET" to "BAKERY".')
    case, album = make_case(edit, FOLLOWING, "tools")
    offered = ["localize_differences", "read_text"]
    localize = ask(case, album, tools=offered)
    data = {"size": [400, 300], "changed_share": 0.0, "whole_scene": False, "regions": []}
    nothing = ToolMessage("no place", tool_call_id=localize.tool_calls[0]["id"], artifact=data)
    read = ask(case, album, [localize, nothing], offered)
    assert read.tool_calls[0]["name"] == "read_text"
    lines = {"lines": [{"text": "MARKET", "box": [10, 10, 60, 30]}]}
    seen = ToolMessage("a word", tool_call_id=read.tool_calls[0]["id"], artifact=lines)
    assert label(ask(case, album, [localize, nothing, read, seen], offered)) == "Localization Failure"

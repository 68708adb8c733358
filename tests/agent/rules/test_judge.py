import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage

from editloupe.agent.chat_interface import ChatRequest
from editloupe.agent.rules import RulesJudge, instruction_following, regions
from editloupe.agent.rules.instructions import Kind
from editloupe.agent.rules.judge import decide_consistency, decide_following, find_anomalies
from editloupe.agent.rules.thresholds import (
    ConsistencyLimits,
    FollowingChecks,
    LogisticCheck,
    Term,
    load_thresholds,
    load_vocabulary,
)
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
def test_a_picture_of_one_colour_is_a_collapse(tmp_path: Path, mode: Mode) -> None:
    edit = colour_edit(tmp_path, np.full_like(ground(), 128))
    answers = {criterion: ask(*make_case(edit, criterion, mode)) for criterion in (FOLLOWING, CONSISTENCY)}
    assert label(answers[FOLLOWING]) == "Localization Failure"
    assert "the target is gone" in str(answers[FOLLOWING].content)
    assert label(answers[CONSISTENCY]) == "Scene Collapse"
    assert "of its contrast is left: it did" in str(answers[CONSISTENCY].content)


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


LIMITS = ConsistencyLimits(significance=0.1, join=0.01, attach=0.2)


def found(*regions: tuple[list[int], float], whole: bool = False) -> dict[str, Any]:
    places = [{"box": box, "significance": weight} for box, weight in regions]
    return {"size": [1000, 1000], "regions": places, "changed_share": 0.8 if whole else 0.01, "whole_scene": whole}


def test_every_number_of_the_table_has_a_name_for_the_thought() -> None:
    steps = [
        getattr(s, c)
        for part in (load_thresholds().oracle, load_thresholds().whole)
        for s in part.values()
        for c in ("hit", "right", "kept")
    ]
    assert {name for step in steps for name in step.terms} <= set(load_vocabulary()["meanings"])


def step(name: str) -> LogisticCheck:
    return LogisticCheck(bias=-5, terms={name: Term(low=0, high=1, weight=10)})


STEPS = FollowingChecks(hit=step("from_source"), right=step("new_colours"), kept=step("structure"))


@pytest.mark.parametrize(
    ("numbers", "label"),
    [
        ((0, 1, 1), "Localization Failure"),
        ((1, 0, 0), "Wrong Action"),
        ((1, 1, 0), "Over Modification"),
        ((1, 1, 1), "Flawless Execution"),
    ],
)
def test_the_first_check_that_fails_gives_the_label(numbers: tuple[float, ...], label: str) -> None:
    decision = decide_following(STEPS, dict(zip(("from_source", "new_colours", "structure"), numbers, strict=True)))
    assert decision.label == label
    assert decision.confidence > 0.9


def test_a_number_at_the_threshold_is_decided_with_low_confidence() -> None:
    assert decide_following(STEPS, {"from_source": 0.5, "new_colours": 0.5, "structure": 0.5}).confidence == 0.125


@pytest.mark.parametrize(
    ("regions", "label"),
    [
        ([], "Perfect Consistency"),
        ([([100, 100, 150, 150], 0.05)], "Perfect Consistency"),
        ([([100, 100, 150, 150], 0.5)], "Single Anomaly"),
        ([([100, 100, 150, 150], 0.5), ([155, 100, 200, 150], 0.5)], "Single Anomaly"),
        ([([100, 100, 150, 150], 0.5), ([700, 100, 750, 150], 0.5)], "Multiple Anomalies"),
    ],
)
def test_distinct_regions_outside_the_target_are_counted(regions: list[tuple[list[int], float]], label: str) -> None:
    differences = found(*regions)
    places = find_anomalies(differences, [(400, 400, 500, 500)], [], LIMITS, instances=False)
    assert decide_consistency(differences, places, LIMITS, "").label == label


def test_what_touches_the_target_is_not_an_anomaly() -> None:
    differences = found(([505, 400, 540, 500], 0.9))
    assert find_anomalies(differences, [(400, 400, 500, 500)], [], LIMITS, instances=False) == []


def test_another_instance_of_a_counted_target_is_not_an_anomaly() -> None:
    differences = found(([100, 100, 200, 200], 0.9), ([600, 100, 640, 130], 0.9))
    places = find_anomalies(differences, [(400, 400, 500, 500)], [], LIMITS, instances=True)
    assert [box for box, _ in places] == [(600, 100, 640, 130)]


def test_a_scene_that_differs_everywhere_has_collapsed_whatever_the_regions_say() -> None:
    differences = found(([0, 0, 1000, 1000], 1.0), whole=True)
    assert decide_consistency(differences, [], LIMITS, "").label == "Scene Collapse"


def test_a_region_near_the_threshold_lowers_the_confidence() -> None:
    differences = found()
    sure = decide_consistency(differences, [((0, 0, 9, 9), 0.6)], LIMITS, "")
    unsure = decide_consistency(differences, [((0, 0, 9, 9), 0.12)], LIMITS, "")
    assert sure.label == unsure.label == "Single Anomaly"
    assert sure.confidence > 0.95 > unsure.confidence


@pytest.mark.parametrize(
    "kind", ["color", "material", "text", "text_unread", "shape", "removal", "replacement", "count"]
)
def test_the_shipped_table_has_steps_for_every_kind(kind: Kind) -> None:
    assert load_thresholds().oracle[kind].hit.terms
    assert load_thresholds().whole[kind].kept.terms

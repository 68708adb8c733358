"""Every rubric of every protocol, through the real clients: what is sent, what is read, what is asked of whom."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from editloupe import Judge, JudgeSettings, Reason, Unjudged, Verdict
from editloupe.rubrics.model import Rubric
from editloupe.rubrics.registry import PROTOCOLS
from editloupe.rubrics.registry import get_protocol as find_protocol
from tests.conftest import StartServer
from tests.drawn_pictures import save, textured
from tests.rubrics.samples import edit_for, good_reply, reply_for
from tests.scripted import Request, call, say

OURS = [known for known in PROTOCOLS if known.name in ("wiseedit", "vibe", "edit-compass", "editreward-compass")]
KINDS = {
    "wiseedit": ("Awareness", "Imagination"),
    "vibe": ("AD", "PC", "RO", "LC", "FS", "BI"),
    "edit-compass": ("Move", "Math", "Virtual_Try_On", "Complex_Instruction", "Complex_Paint_en", "Style_Transfer"),
    "editreward-compass": ("Move", "Virtual_Try_On", "Math"),
}


def judge(server: Any, name: str, provider: str = "openai", **options: Any) -> Judge:
    if provider == "openai":
        return Judge("openai:gpt-4.1", base_url=server.openai_url, protocol=name, **options)
    return Judge("google_genai:gemini-2.5-pro", base_url=server.gemini_url, protocol=name, **options)


def asked(request: Request) -> str:
    return next(line for line in request.system.splitlines() if line.startswith("# Criterion"))


@pytest.mark.long
@pytest.mark.parametrize("provider", ["openai", "google_genai"])
@pytest.mark.parametrize("mode", ["plain", "tools"])
@pytest.mark.parametrize("known", OURS, ids=lambda p: p.name)
def test_every_criterion_an_edit_is_asked_is_judged(
    known: Any, mode: Any, provider: str, tmp_path: Path, scripted: StartServer
) -> None:
    kinds = KINDS[known.name] if provider == "openai" and mode == "plain" else KINDS[known.name][:1]
    server = scripted(lambda request: say(reply_for(known, request.system)))
    opened = judge(server, known.name, provider, mode=mode)
    for kind in kinds:
        edit = edit_for(tmp_path, kind)
        judgement = opened.judge(edit)
        assert [v.criterion for v in judgement.verdicts] == [r.criterion for r in known.rubrics_for(edit)]
        assert all(isinstance(v, Verdict) and v.score_100 == 100 for v in judgement.verdicts), judgement.verdicts
        assert judgement.mode == mode


@pytest.mark.long
@pytest.mark.parametrize("known", OURS, ids=lambda p: p.name)
def test_an_unreadable_answer_to_any_rubric_is_sent_back_with_what_is_wrong_and_then_left_unjudged(
    known: Any, tmp_path: Path, scripted: StartServer
) -> None:
    server = scripted(lambda request: say("later"))
    opened = judge(server, known.name)
    edits = list(candidates(tmp_path, known.name))
    for rubric in known.rubrics:
        edit = next(edit for edit in edits if rubric in known.rubrics_for(edit))
        told = play_one_bad_reply(server, rubric)
        (verdict,) = opened.judge(edit, criteria=[rubric.criterion]).verdicts
        assert isinstance(verdict, Verdict), rubric.name
        assert verdict.score_100 == 100
        assert 'has no "' in told[0]
        server.play(lambda request: say(json.dumps({"differences": "none", "reason": "10/10"})))
        (left,) = opened.judge(edit, criteria=[rubric.criterion]).verdicts
        assert isinstance(left, Unjudged), rubric.name
        assert left.reason == Reason.UNREADABLE


def play_one_bad_reply(server: Any, rubric: Rubric) -> list[str]:
    """Let the model answer badly at first; what it is told then is collected."""
    told: list[str] = []

    def script(request: Request) -> Any:
        if "List of differences" in request.system:
            return say(json.dumps({"differences": "none"}))
        if not any(message.role == "assistant" for message in request.messages):
            return say('{"reason": "I would give it a 7 out of 10, or yes, or MATCH"}')
        told.append(request.messages[-1].text)
        return say(good_reply(rubric.answer))

    server.play(script)
    return told


def candidates(folder: Path, name: str) -> Any:
    kinds = {
        "wiseedit": ("Awareness", "Imagination"),
        "vibe": ("AD", "PC", "RO", "LC", "FS", "BI"),
        "edit-compass": ("Move", "Math", "Virtual_Try_On", "Complex_Instruction", "Complex_Paint_en"),
        "editreward-compass": ("Move", "Math", "Virtual_Try_On", "Complex_Instruction", "Complex_Paint_en"),
    }[name]
    for kind in kinds:
        flags = {"IC": True} if name != "wiseedit" and name != "vibe" else {}
        yield edit_for(folder, kind, extra=flags)
        yield edit_for(folder, kind, extra=flags, roles=("annotated", "pose", "golden", "references"))
    pictures = {role: (save(textured(seed=9), folder / f"{role}.png"),) for role in ("candidate_a", "candidate_b")}
    yield edit_for(folder, "Move", more_images=pictures)


def test_a_provider_that_can_is_held_to_the_answers_schema(tmp_path: Path, scripted: StartServer) -> None:
    server = scripted(lambda request: say(reply_for(find_protocol("vibe"), request.system)))
    edit = edit_for(tmp_path, "LC")
    judge(server, "vibe", criteria=["lighting_direction"]).judge(edit)
    form = server.requests[0].body["response_format"]["json_schema"]
    assert form["strict"] is True
    assert form["schema"]["properties"]["direction"] == {"type": "string", "enum": ["0", "0.5", "1"]}
    assert list(form["schema"]["properties"])[:2] == ["step_by_step", "reason"]
    assert "nothing else" in server.requests[0].system
    judge(server, "vibe", "google_genai", criteria=["lighting_direction"]).judge(edit)
    config = server.requests[-1].body["generationConfig"]
    assert config["responseMimeType"] == "application/json"
    assert config["responseJsonSchema"]["required"] == ["reason", "direction", "physics"]


@pytest.mark.parametrize(
    ("model", "setting", "written"),
    [
        ("gpt-4o", "auto", True),
        ("gpt-4.1-mini", "auto", True),
        ("gpt-5.1", "auto", False),
        ("gpt-4o", "off", False),
        ("gpt-5.1", "on", True),
    ],
)
def test_a_model_without_reasoning_of_its_own_writes_it_down_first(
    model: str, setting: Any, written: bool, tmp_path: Path, scripted: StartServer
) -> None:
    reply = '{"step_by_step": "First the hat, then the rest.", "reason": "seen", "score": 4}'
    server = scripted(say(reply))
    settings = JudgeSettings(written_reasoning=setting)
    with Judge(
        f"openai:{model}",
        base_url=server.openai_url,
        protocol="edit-compass",
        criteria=["visual_quality"],
        settings=settings,
    ) as judge:
        judgement = judge.judge(edit_for(tmp_path, "ADD"))
        facts = judge.question_spec(edit_for(tmp_path, "ADD"), "visual_quality").facts
    (request,) = server.requests
    keys = list(request.body["response_format"]["json_schema"]["schema"]["properties"])
    assert keys == (["step_by_step"] if written else []) + ["reason", "score"]
    assert ("step by step and as long as needed" in request.system) is written
    assert facts.get("written_reasoning", False) is written
    assert judgement.traces[0].steps[0].thought == "First the hat, then the rest."


def test_a_server_that_cannot_and_tools_mode_are_asked_in_words_only(tmp_path: Path, scripted: StartServer) -> None:
    server = scripted(lambda request: say(reply_for(find_protocol("vibe"), request.system)))
    edit = edit_for(tmp_path, "FS")
    Judge("openai:my-own-model", base_url=server.openai_url, protocol="vibe").judge(edit)
    judge(server, "vibe", mode="tools").judge(edit)
    assert not any("response_format" in request.body for request in server.requests)
    assert all("<Start Thinking>" in request.system for request in server.requests)


def test_a_user_can_turn_the_schema_off_and_on(tmp_path: Path, scripted: StartServer) -> None:
    server = scripted(lambda request: say(reply_for(find_protocol("vibe"), request.system)))
    edit = edit_for(tmp_path, "BI")
    judge(server, "vibe", settings=JudgeSettings(structured="off")).judge(edit)
    own = JudgeSettings(structured="on")
    Judge("openai:my-own-model", base_url=server.openai_url, protocol="vibe", settings=own).judge(edit)
    assert ["response_format" in request.body for request in server.requests] == [False, True]


def test_visual_quality_sees_the_edited_picture_alone_and_no_instruction(tmp_path: Path, scripted: StartServer) -> None:
    for name in ("wiseedit", "edit-compass"):
        server = scripted(lambda request, name=name: say(reply_for(find_protocol(name), request.system)))
        edit = edit_for(tmp_path, "Awareness" if name == "wiseedit" else "ADD")
        judge(server, name, criteria=["visual_quality"]).judge(edit)
        (request,) = server.requests
        assert len(request.images) == 1
        assert "Put the hat" not in request.text


def test_hints_and_reference_pictures_go_to_two_metrics_of_wiseedit_only(tmp_path: Path, scripted: StartServer) -> None:
    server = scripted(lambda request: say(reply_for(find_protocol("wiseedit"), request.system)))
    judge(server, "wiseedit").judge(edit_for(tmp_path, "WiseEdit-Complex"))
    by_title = {asked(request): request for request in server.requests}
    assert len(by_title) == 5
    for title, request in by_title.items():
        guided = title.endswith(("Instruction Following", "Knowledge Fidelity"))
        assert ("stands on the left" in request.text) is guided, title
        assert ("Reference Image" in request.text) is guided, title


def test_a_missing_output_of_wiseedit_counts_zero_is_shown_as_missing_and_asks_nobody(
    tmp_path: Path, scripted: StartServer
) -> None:
    server = scripted(lambda request: say("never asked"))
    edit = edit_for(tmp_path, "Interpretation", edited=tmp_path / "none.png", extra={"output": "missing"})
    opened = judge(server, "wiseedit")
    judgement = opened.judge(edit)
    assert {v.criterion for v in judgement.verdicts} == {
        "instruction_following",
        "detail_preserving",
        "visual_quality",
        "knowledge_fidelity",
    }
    for verdict in judgement.verdicts:
        assert isinstance(verdict, Verdict)
        assert (verdict.label, verdict.score, verdict.score_100) == ("missing output", 0, 0)
    assert server.served == 0
    assert opened.inputs_key(edit, "visual_quality", {})


def test_differences_are_listed_first_and_told_with_the_question(tmp_path: Path, scripted: StartServer) -> None:
    server = scripted(lambda request: say(reply_for(find_protocol("edit-compass"), request.system)))
    judgement = judge(server, "edit-compass", criteria=["unedited_region_consistency"]).judge(edit_for(tmp_path, "ADD"))
    first, second = server.requests
    assert len(first.images) == 2
    assert "Put the hat" not in first.text
    assert "listed beforehand:\n> 1. the hat on the left is new" in second.text
    (trace,) = judgement.traces
    assert [step.index for step in trace.steps] == [0, 1]
    assert judgement.verdicts[0].usage.requests == 2
    assert len(trace.prompt) == 4


def test_differences_may_come_from_the_tool_whose_crops_are_shown(tmp_path: Path, scripted: StartServer) -> None:
    before = textured(320, 240)
    after = before.copy()
    after[60:110, 90:150] = (230, 20, 20)
    edit = edit_for(
        tmp_path, "ADD", source=save(before, tmp_path / "b.png"), edited=save(after, tmp_path / "a.png"), more_images={}
    )
    server = scripted(lambda request: say(reply_for(find_protocol("edit-compass"), request.system)))
    opened = judge(
        server,
        "edit-compass",
        criteria=["unedited_region_consistency"],
        settings=JudgeSettings(differences="tool"),
    )
    judgement = opened.judge(edit)
    (request,) = server.requests
    assert "listed beforehand:\n> About" in request.text
    assert len(request.images) == 3
    assert judgement.traces[0].steps[0].observations[0].tool == "localize_differences"
    assert opened.describe()["settings"]["differences"] == "tool"


def test_an_unreadable_list_of_differences_leaves_the_criterion_unjudged(tmp_path: Path, scripted: StartServer) -> None:
    server = scripted(lambda request: say("It all looks fine."))
    (left,) = (
        judge(server, "edit-compass", criteria=["unedited_region_consistency"])
        .judge(edit_for(tmp_path, "ADD"))
        .verdicts
    )
    assert isinstance(left, Unjudged)
    assert left.detail.startswith("List of differences")


def test_tools_mode_lets_a_paper_without_tools_look_closer(tmp_path: Path, scripted: StartServer) -> None:
    def script(request: Request) -> Any:
        if not any(message.role == "assistant" for message in request.messages):
            return call("zoom_in_image", bbox_2d=[10, 10, 60, 60], target_image="Edited Image")
        return say(reply_for(find_protocol("wiseedit"), request.system))

    server = scripted(script)
    opened = judge(server, "wiseedit", mode="tools", criteria=["visual_quality"])
    judgement = opened.judge(edit_for(tmp_path, "Awareness"))
    assert judgement.traces[0].steps[0].observations[0].tool == "zoom_in_image"
    assert opened.describe()["mode"] == "tools"
    assert find_protocol("wiseedit").default_mode == "plain"


def test_a_missing_picture_or_task_is_told_in_one_sentence(tmp_path: Path, scripted: StartServer) -> None:
    server = scripted(lambda request: say("never asked"))
    with pytest.raises(Exception, match=r'no picture in the role "pose"; give it with --image pose=FILE'):
        judge(server, "vibe", criteria=["pose_consistency"]).judge(edit_for(tmp_path, "PC", roles=()), strict=True)
    with pytest.raises(Exception, match="which task of WiseEdit"):
        judge(server, "wiseedit").judge(edit_for(tmp_path, None), strict=True)
    (judgement,) = judge(server, "wiseedit").batch([edit_for(tmp_path, "Painting")])
    assert {v.reason for v in judgement.verdicts if isinstance(v, Unjudged)} == {Reason.MISSING_INPUT}
    assert len(judgement.verdicts) == 5


def test_the_embedded_judge_says_that_it_does_not_know_these_rubrics(tmp_path: Path) -> None:
    (left,) = (
        Judge("rules", protocol="wiseedit", criteria=["visual_quality"]).judge(edit_for(tmp_path, "Awareness")).verdicts
    )
    assert isinstance(left, Unjudged)
    assert left.reason == Reason.NOT_UNDERSTOOD

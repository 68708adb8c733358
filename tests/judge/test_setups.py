"""A set-up is data under one name: it decides what goes over the wire, single options go before it, and a run records it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from editloupe import Edit, Judge, JudgeSettings, UserError
from editloupe.cli.main import run
from editloupe.judge.settings import Setup, find_setup, setup_names
from editloupe.rubrics.edival.rules import load_paper_settings
from editloupe.rubrics.registry import get_protocol as find_protocol
from editloupe.rubrics.rewording import NoteChanges
from editloupe.tools.settings import GROUNDING_DINO, ToolSettings
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair
from tests.scripted import Request, call, final, think_and_call_text

OURS = "# By type of instruction"
NOTES = "protocol: dlebench\nmode_notes:\n visual_consistency:\n  oracle:"


@pytest.fixture
def edit(tmp_path: Path) -> Edit:
    before, after = edit_pair(tmp_path)
    return Edit(
        source=before,
        edited=after,
        instruction="Change the color of the patch to red",
        instruction_type="Change Color",
        hint="It is on the left.",
    )


@pytest.fixture
def quick_paper(tmp_path: Path) -> Path:
    """The paper's set-up with an enhancer that costs nothing; everything else is the paper's."""
    content = find_setup("dlebench-paper").model_dump(mode="json", exclude_defaults=True)
    content["tools"] |= {"enhancer": "none"}
    file = tmp_path / "quick.yaml"
    file.write_text(json.dumps(content | {"name": "quick"}))
    return file


def looking(request: Request) -> Any:
    if len(request.images) == 2:
        pair = {"comparison_image_1": "Source Image", "comparison_image_2": "Edited Image"}
        return think_and_call_text("I compare.", call("localize_differences", **pair))
    return final("Perfect Consistency" if "Perfect Consistency" in request.system else "Flawless Execution")


def test_there_are_ours_and_one_a_paper_that_differs() -> None:
    papers = ("dlebench-paper", "edit-compass-published", "edival-paper", "kris-published", "risebench-published")
    assert setup_names() == ("default", *papers, "vibe-published", "wiseedit-published")
    assert find_setup(None) == find_setup("default")
    assert find_setup("default").judge_settings() == JudgeSettings()
    assert find_setup("default").tool_settings() == ToolSettings.from_environment()


@pytest.mark.long
def test_the_paper_is_asked_with_its_pictures_tools_and_texts(
    edit: Edit, quick_paper: Path, scripted: StartServer
) -> None:
    server = scripted(looking)
    spec = "google_genai:gemini-3-pro"
    with Judge(spec, base_url=server.gemini_url, setup=quick_paper) as judge:
        judgement = judge.judge(edit)
    assert judgement.judged
    for request in server.requests:
        assert "tools" not in request.body  # called in the text
        assert "<tool_call>" in request.system
        assert '"zoom_in_image"' in request.system
        assert '"localize_differences"' in request.system
        assert '"read_text"' not in request.system
        assert OURS not in request.system
        assert "has already discounted" not in request.system
        assert "strictly pixel by pixel" in request.system
        assert "in absolute pixels" in request.system
        assert edit.instruction in request.text
        assert "Hint" not in request.text
        assert "Change Color" not in request.text
        assert "in pixels of the picture as shown" in request.text
    first = [request for request in server.requests if len(request.images) == 2]
    assert [len(request.images) for request in first] == [2, 2]
    data = judgement.traces[0].steps[0].observations[0].data
    assert len(data["crops"]) <= 3
    assert "global_change" not in data


def test_without_it_the_same_model_is_asked_our_way(edit: Edit, scripted: StartServer) -> None:
    server = scripted(lambda request: final("Wrong Action"))
    with Judge("google_genai:gemini-3-pro", base_url=server.gemini_url, criteria=["instruction_following"]) as judge:
        judge.judge(edit)
    (request,) = server.requests
    assert "tools" in request.body
    assert OURS in request.system
    assert "thousandths" in request.text


def test_the_papers_tools_are_set_as_the_paper_has_them() -> None:
    tools = find_setup("dlebench-paper").tool_settings()
    assert tools.offered == ("zoom_in_image", "localize_differences", "detect_object")
    assert (tools.comparison, tools.max_regions, tools.tile_levels) == ("pixels", 3, ())
    assert (tools.enhancer, tools.network_share, tools.read_text) == ("realesrgan", 1, "off")
    assert 4 * (tools.enhance_up_to or 0) >= 2 * JudgeSettings().long_side


def test_objects_are_matched_as_the_paper_does() -> None:
    chosen = find_setup("edival-paper")
    assert chosen.rule_settings() == load_paper_settings()
    assert chosen.tool_settings().detector == GROUNDING_DINO == "IDEA-Research/grounding-dino-tiny"
    with Judge("rules", setup="edival-paper") as judge, Judge("rules", protocol="edival") as other:
        assert judge.protocol == "edival"
        assert [one.key for one in judge.question_specs()] != [one.key for one in other.question_specs()]


def test_a_set_up_goes_before_the_environment_and_single_settings_before_the_set_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EDITLOUPE_ENHANCER", "fast")
    monkeypatch.setenv("EDITLOUPE_DEVICE", "cpu")
    chosen = find_setup("dlebench-paper")
    assert (chosen.tool_settings().enhancer, chosen.tool_settings().device) == ("realesrgan", "cpu")
    assert chosen.tool_settings(ToolSettings(max_regions=7)).max_regions == 7
    assert chosen.tool_settings(ToolSettings(max_regions=7)).comparison == "pixels"
    assert chosen.judge_settings(JudgeSettings(tool_calls="auto", max_turns=3)) == JudgeSettings(
        tells=("instruction",), our_notes=False, tool_calls="auto", coordinates="pixels", max_turns=3
    )
    changed = chosen.with_settings(judging={"coordinates": "auto"}, tools={"max_regions": 5})
    assert changed.judge_settings().coordinates == "auto"
    assert changed.tool_settings().max_regions == 5


@pytest.mark.long
def test_options_go_before_the_set_up_and_the_run_records_what_holds(
    edit: Edit, quick_paper: Path, tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server, out = scripted(looking), tmp_path / "run"
    pictures = [str(edit.source), str(edit.edited), edit.instruction]
    asked = ["--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "--setup", str(quick_paper)]
    changed = ["--tool-set", "max_regions=5", "--tools", "localize_differences", "--coordinates", "auto"]
    assert run(["judge", *pictures, *asked, *changed, "--out", str(out), "--json"]) == 0
    capsys.readouterr()
    assert '"zoom_in_image"' not in server.requests[0].system.partition("</tools>")[0]
    (about,) = json.loads((out / "run.json").read_text())["configurations"]
    assert about["setup"]["name"] == "quick"
    assert about["setup"]["tools"]["max_regions"] == 5
    assert about["setup"]["judging"]["tool_calls"] == "text"
    assert about["settings"]["coordinates"] == "auto"
    assert about["tools"]["localize_differences"]["comparison"] == "pixels"


@pytest.mark.long
@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("judging: {max_turns: many}", "judging.max_turns: Input should be a valid integer"),
        ("judging: {max_turns: -3}", "judging.max_turns: Input should be greater than or equal to 1"),
        ("judging: {long_side: 0}", "judging.long_side: Input should be greater than or equal to 64"),
        ("judging: {retry: {limit_pauses: []}}", "judging.retry.limit_pauses"),
        ("tools: {workers: -1}", "workers must be at least 1"),
        ("judging: {magic: 1}", "judging.magic: Extra inputs are not permitted"),
        ("tools: {magic: 1}", '"magic" is not a tool setting'),
        ("tools: {max_regions: 0}", "max_regions must be at least 1"),
        ("magic: 1", "magic: Extra inputs are not permitted"),
        ("rules: {margin: 1}", "rules need a protocol, and none is named"),
        ("protocol: dlebench\nrules: {margin: 1}", "DLEBench has no rules that can be set"),
        ("protocol: edival\nrules: {margin: 1}", "setting margin"),
        ("protocol: gedit\nrules: {average: [tasks]}", "gedit.average is tasks or edits, not \"['tasks']\""),
        (f"{NOTES} {{replac: {{a: b}}}}", "mode_notes.visual_consistency.oracle.changes.replac: Extra inputs"),
        (f"{NOTES} a text", "mode_notes.visual_consistency.oracle.list: Input should be a valid tuple"),
        ("- a list", "must hold a set-up"),
    ],
)
def test_a_mistake_in_a_file_is_one_sentence(
    content: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(content)
    with pytest.raises(UserError) as raised:
        find_setup(file)
    assert sentence in str(raised.value)
    assert run(["batch", "x.jsonl", "--out", str(tmp_path / "run"), "--setup", str(file)]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (f"{NOTES} {{replace: {{nowhere: b}}}}", '"nowhere" is in none of the notes; it must be in exactly one'),
        (f"{NOTES} {{replace: {{Ignore the: b}}}}", '"Ignore the" is in 2 of the notes; it must be in exactly one'),
        (
            f"{NOTES} {{replace: {{white areas: b, which hide: c}}}}",
            '"which hide" is in a note that is already replaced',
        ),
    ],
)
def test_a_note_that_cannot_be_replaced_is_one_sentence(
    content: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(content)
    given = ["batch", "x.jsonl", "--out", str(tmp_path / "run"), "--setup", str(file), "--judge", "openai:gpt-4.1"]
    assert run([*given, "--base-url", "http://127.0.0.1:9/v1"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert f"the set-up mine: mode_notes of visual_consistency, oracle: replace: {sentence}" in line


def test_a_set_up_changes_single_notes_or_all_of_them(tmp_path: Path) -> None:
    usual = find_protocol("dlebench").rubric("visual_consistency").modes["oracle"].notes
    file = tmp_path / "mine.yaml"
    for changes, notes in (
        ("{add: [Count twice.]}", (*usual, "Count twice.")),
        ("{replace: {white areas: One.}}", ("One.", *usual[1:])),
        ("{replace: {white areas: [One., Two.], Think first: []}}", ("One.", "Two.", *usual[1:3], *usual[4:])),
        ("[Count twice.]", ("Count twice.",)),
    ):
        file.write_text(f"{NOTES} {changes}")
        changed = find_setup(file).reword(find_protocol("dlebench"))
        assert changed.rubric("visual_consistency").modes["oracle"].notes == notes
        assert changed.rubric("instruction_following") == find_protocol("dlebench").rubric("instruction_following")


def test_a_set_up_words_the_sentences_around_a_rubric_where_a_file_does_not(tmp_path: Path) -> None:
    setup, words = tmp_path / "mine.yaml", tmp_path / "words.yaml"
    setup.write_text("protocol: dlebench\nwording: {reminder: Mind the form., judge: 'Label {title}.'}\n")
    words.write_text("extends: dlebench/visual_consistency\nwording: {judge: 'Answer on {title}.'}\n")
    with Judge("rules", setup=setup, rubrics=[words]) as judge:
        wordings = {name: judge.rubric(name).wording for name in judge.criteria}
    assert {name: (own.reminder, own.judge) for name, own in wordings.items()} == {
        "instruction_following": ("Mind the form.", "Label {title}."),
        "visual_consistency": ("Mind the form.", "Answer on {title}."),
    }
    setup.write_text("protocol: dlebench\nwording: {remind: Mind the form.}\n")
    with pytest.raises(UserError, match=r'wording: .*there is no sentence "remind"'):
        find_setup(setup)


def test_a_tool_that_is_not_offered_is_named_nowhere(edit: Edit, scripted: StartServer) -> None:
    server = scripted(lambda request: final("Single Anomaly" if "Scene Collapse" in request.system else "Wrong Action"))
    for offered in (("zoom_in_image",), ("localize_differences",)):
        with Judge("openai:gpt-4.1", base_url=server.openai_url, tools=ToolSettings(offered=offered)) as judge:
            assert judge.judge(edit).judged
        for request in server.requests[-2:]:
            named = {name for name in ("zoom_in_image", "localize_differences") if name in request.system}
            assert named == set(offered)


@pytest.mark.parametrize("name", setup_names())
def test_a_bundled_set_up_changes_single_notes_only(name: str) -> None:
    given = [notes for modes in find_setup(name).mode_notes.values() for notes in modes.values()]
    assert all(isinstance(notes, NoteChanges) for notes in given)


def test_an_unknown_name_tells_the_known_ones() -> None:
    with pytest.raises(UserError, match='"mine" is neither a set-up nor a file; there are: default, dlebench-paper'):
        Judge("rules", setup="mine")


def test_no_tools_at_all_is_plain_mode_where_there_is_one() -> None:
    none = ToolSettings(offered=())
    with Judge("rules", tools=none) as judge:
        assert judge.mode == "plain"
    with pytest.raises(UserError, match="tools mode of DLEBench uses tools, and none is offered"):
        Judge("rules", mode="tools", tools=none)


def test_tools_take_at_least_one_of_the_pictures(edit: Edit) -> None:
    with pytest.raises(UserError, match="names none of the pictures that the judge sees; these are: Source Image, Ed"):
        Judge("rules", tools=ToolSettings(pictures=("Source",)))
    Judge("rules", tools=ToolSettings(pictures=("Source",)), mode="plain").close()
    Judge("rules", tools=ToolSettings(pictures=("Edited Image",))).close()


def test_a_set_up_of_a_program_needs_no_file(edit: Edit) -> None:
    mine = Setup(name="mine", mode="plain", tools={"max_regions": 2})
    with Judge("rules", setup=mine) as judge:
        assert judge.mode == "plain"
        assert judge.describe()["setup"] == {"name": "mine", "mode": "plain", "tools": {"max_regions": 2}}

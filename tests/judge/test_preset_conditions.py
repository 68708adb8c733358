"""What is sent under every preset, mode by mode: the paper's conditions reach the judge of each criterion."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from editloupe import Edit, Judge
from editloupe.cli.main import run
from editloupe.judge.settings import find_setup
from editloupe.rubrics.registry import get_protocol
from tests.conftest import StartServer
from tests.drawn_pictures import save, textured
from tests.rubrics.test_paper_conditions import conditions, setups_of
from tests.scripted import Answer, Request, final

IF, VC = "instruction_following", "visual_consistency"
NO_NETWORK = {"enhancer": "none"}
"""The enhancer decides no word, and its network is not installed everywhere."""
STRICT = "any visible difference outside the white is an anomaly"
TRUTH = "take it for the truth about them"
TEXT_RULES = "the instruction's text rules"


@pytest.fixture
def edit(tmp_path: Path) -> Edit:
    before = textured(160, 120)
    after = before.copy()
    after[40:60, 50:80] = (255, 0, 0)
    return Edit(
        id="cup",
        source=save(before, tmp_path / "before.png"),
        edited=save(after, tmp_path / "after.png"),
        reference=save(after[::-1], tmp_path / "reference.png"),
        instruction="Change the color of the cup to red",
        instruction_type="Change Color",
        target_boxes=((50, 40, 80, 60),),
    )


def answer(request: Request) -> Answer:
    return final("Single Anomaly" if "Scene Collapse" in request.system else "Wrong Action")


def sent_text(edit: Edit, setup: str, mode: str, criterion: str, scripted: StartServer) -> str:
    """Return the text of the one request that a criterion takes, on one line."""
    server = scripted(answer)
    chosen = find_setup(setup).with_settings(judging={}, tools=NO_NETWORK)
    with Judge(
        "openai:gpt-4.1", base_url=server.openai_url, protocol="dlebench", setup=chosen, mode=mode, criteria=[criterion]
    ) as judge:
        assert judge.judge(edit).judged
    (request,) = server.requests
    return " ".join(f"{request.system} {request.text}".split())


@pytest.mark.long
@pytest.mark.parametrize("criterion", [IF, VC])
@pytest.mark.parametrize("mode", get_protocol("dlebench").modes)
@pytest.mark.parametrize("setup", setups_of("dlebench"))
def test_every_condition_of_the_paper_is_sent_in_its_modes(
    setup: str, mode: str, criterion: str, edit: Edit, scripted: StartServer
) -> None:
    sent = sent_text(edit, setup, mode, criterion, scripted).casefold()
    for condition in conditions("dlebench")[criterion]:
        part, _, of_mode = condition.part.partition("/")
        if part != "modes" or of_mode == mode:
            assert condition.find_word(setup) in sent, condition


@pytest.mark.parametrize("setup", setups_of("dlebench"))
def test_a_criterion_is_sent_its_own_rule_about_the_reference(setup: str, edit: Edit, scripted: StartServer) -> None:
    follows, consistent = (sent_text(edit, setup, "oracle", criterion, scripted) for criterion in (IF, VC))
    assert (TEXT_RULES in follows, STRICT in follows, TRUTH in follows) == (True, False, False)
    assert (TEXT_RULES in consistent, STRICT in consistent, TRUTH in consistent) == (False, True, True)


@pytest.mark.parametrize("mode", ["tools", "oracle"])
def test_the_papers_preset_says_how_its_own_tools_look(mode: str, edit: Edit, scripted: StartServer) -> None:
    sent = sent_text(edit, "dlebench-paper", mode, VC, scripted)
    assert "has already discounted" not in sent
    assert "in the numbers stated with each picture" not in sent
    assert "compares the whole pictures strictly pixel by pixel" in sent
    assert "The name given to detect_object is made of words of the instruction." in sent
    assert "Give coordinates in absolute pixels of each picture at its stated size." in sent


OLD_NOTES = (
    "Ignore the white areas, which hide the target, and judge all that is visible beside them.",
    "The reference is one good way to meet the instruction and shows how the surroundings should come out; the "
    "instruction's text rules.",
)


@pytest.mark.long
def test_units_of_an_older_wording_of_the_preset_are_announced_before_they_are_asked_again(
    edit: Edit, tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only visual_consistency in oracle mode was worded differently; the other criterion's verdicts stand."""
    server = scripted(answer)
    content = find_setup("dlebench-paper").model_dump(mode="json", exclude_defaults=True)
    content["tools"] |= NO_NETWORK
    files = {name: tmp_path / name / "dlebench-paper.yaml" for name in ("old", "new")}
    for name, file in files.items():
        file.parent.mkdir()
        if name == "old":
            content["mode_notes"][VC]["oracle"] = OLD_NOTES
        else:
            content["mode_notes"] = find_setup("dlebench-paper").model_dump(mode="json")["mode_notes"]
        file.write_text(json.dumps(content))
    line = edit.model_dump(mode="json", include={"id", "source", "edited", "reference", "instruction", "target_boxes"})
    line |= {role: Path(line[role]).name for role in ("source", "edited", "reference")}
    manifest = tmp_path / "manifest.jsonl"
    manifest.write_text(json.dumps(line))
    given = ["batch", str(manifest), "--out", str(tmp_path / "run"), "--mode", "oracle", "--judge", "openai:gpt-4.1"]
    given += ["--base-url", server.openai_url]
    assert run([*given, "--setup", str(files["old"]), "--quiet"]) == 0
    assert server.served == 2
    again = [*given, "--setup", str(files["new"])]
    sentence = "the wording of visual_consistency changed: 1 unit of visual_consistency, "
    capsys.readouterr()
    assert run([*again, "--dry-run"]) == 0
    printed = capsys.readouterr()
    assert f"{sentence}judged again; --keep uses the old verdicts" in " ".join((printed.out + printed.err).split())
    assert server.served == 2
    assert run([*again, "--quiet", "--keep"]) == 0
    assert f"{sentence}the old verdicts are used" in capsys.readouterr().err
    assert server.served == 2

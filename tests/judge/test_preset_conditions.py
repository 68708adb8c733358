"""What is sent under every preset, mode by mode: the paper's conditions reach the judge of each criterion."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest

from editloupe import Edit, Judge
from editloupe.cli.main import run
from editloupe.graphs import edival
from editloupe.judge.settings import find_setup
from editloupe.rubrics.model import MeasuredAnswer
from editloupe.rubrics.protocol import MissingInput
from editloupe.rubrics.registry import get_protocol
from editloupe.types import Box
from tests.conftest import StartServer
from tests.drawn_pictures import save, textured
from tests.evals.edival import stand_ins as s
from tests.rubrics.samples import ROLES, edit_for, good_reply
from tests.rubrics.test_paper_conditions import FOLDERS, asked_protocol, conditions, own_rubrics, setups_of
from tests.scripted import Answer, Request, final, say

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


CANDIDATES = ("candidate_a", "candidate_b")
ASKED = [
    pytest.param(name, setup, mode, id=f"{name}, {setup}, {mode}")
    for name in FOLDERS
    for setup in setups_of(name)
    for mode in get_protocol(name).modes
]


NOT_ASKED = {"kris-published": {"instruction_following/anomaly"}}
"""Rubrics that a preset leaves out, because the public script never asks them."""
FURTHER_TYPES = {"imgedit": ("uge",)}
"""Types of a benchmark's further suites."""
VARIED = (
    {},
    {"reference": None},
    {"hint": None},
    {"extra": {"reasoning_img": True}, "reference": None},
    {"extra": {"reasoning_wo_ins": True}, "hint": None},
)
"""Fields on which the choice of a rubric may depend, besides the type and the pictures."""


def edits_for(name: str, setup: str, folder: Path) -> list[Edit]:
    """Return edits that together are asked by every rubric of a protocol that is its own."""
    protocol, missing = asked_protocol(name, setup), {rubric.name for rubric in own_rubrics(name, setup)}
    pictures = edit_for(folder, roles=(*ROLES, *CANDIDATES))
    roles = pictures.more_images
    several = {role: files for role, files in roles.items() if role not in CANDIDATES}
    single = {role: files for role, files in several.items() if role != "inputs"}
    known = {
        "reference": folder / "references.png",
        "target_boxes": (Box(x1=10, y1=10, x2=40, y2=30),),
        "extra": dict.fromkeys(("IF", "WA", "URC", "IC", "VQ"), True),
    }
    edits = []
    missing -= NOT_ASKED.get(setup, set())
    missing -= {rubric.name for rubric in protocol.rubrics if isinstance(rubric.answer, MeasuredAnswer)}
    kinds = (*(protocol.types or (None,)), *FURTHER_TYPES.get(name, ()))
    for varied, kind, more in product(VARIED, kinds, (single, several, roles)):
        extra = {**known["extra"], "frames": [*range(1, 2 + len(more.get("inputs", ())))], **varied.get("extra", {})}
        fields = {**known, **varied, "extra": extra, "instruction_type": kind, "more_images": more}
        edit = pictures.model_copy(update=fields)
        try:
            reached = {rubric.name for rubric in protocol.rubrics_for(edit)}
        except MissingInput:
            continue
        if reached & missing:
            edits.append(edit)
            missing -= reached
    assert not missing
    return edits


def sent_by_rubric(
    name: str, setup: str, mode: str, edits: list[Edit], scripted: StartServer, **judging: object
) -> dict[str, str]:
    """Judge edits under a preset; return the texts that were sent for each rubric, on one line."""
    protocol, sent = asked_protocol(name, setup), dict[str, str]()

    def reply(request: Request) -> Answer:
        first = [r for r in protocol.rubrics if r.stage and r.stage.question.strip() in request.system]
        asked = [r for r in protocol.rubrics if f"# Criterion: {r.title}\n{r.question.strip()}" in request.system]
        for rubric in first or asked:
            sent[rubric.name] = " ".join(f"{sent.get(rubric.name, '')} {request.system} {request.text}".split())
        stage = first[0].stage if first else None
        return say(json.dumps({stage.key: "none"}) if stage else good_reply(asked[0].answer))

    server = scripted(reply)
    chosen = find_setup(setup).with_settings(judging=judging, tools=NO_NETWORK)
    criteria = [r.criterion for r in protocol.rubrics if not isinstance(r.answer, MeasuredAnswer)]
    with Judge(
        "openai:gpt-4.1", base_url=server.openai_url, protocol=name, setup=chosen, mode=mode, criteria=criteria
    ) as judge:
        for edit in edits:
            assert judge.judge(edit).judged
    return sent


@pytest.mark.long
@pytest.mark.parametrize(("name", "setup", "mode"), ASKED)
def test_every_condition_of_a_paper_is_sent_under_every_preset_in_its_modes(
    name: str, setup: str, mode: str, tmp_path: Path, scripted: StartServer
) -> None:
    sent = sent_by_rubric(name, setup, mode, edits_for(name, setup, tmp_path), scripted)
    measured = {rubric.name for rubric in get_protocol(name).rubrics if isinstance(rubric.answer, MeasuredAnswer)}
    for rubric_name, listed in conditions(FOLDERS[name]).items():
        if rubric_name in NOT_ASKED.get(setup, ()) or rubric_name in measured:
            continue
        for condition in listed:
            part, _, of_mode = condition.part.partition("/")
            if part != "modes" or of_mode == mode:
                condition.check(setup, sent[rubric_name])


QUESTIONS = {
    "color_alter": {"type": "color_alter", "object": "ceramic white cup", "color": "blue"},
    "material_alter": {"type": "material_alter", "object": "ceramic white cup", "material": "wood"},
    "text_change": {"type": "text_change", "object": "paper red sign", "text": "HELLO"},
    "text_change_anywhere": {"type": "text_change", "text": "HELLO"},
    "background_change": {"type": "background_change", "background": "beach"},
    "precheck_subject_replace": {"type": "subject_replace", "object": "wooden box", "new_object": "lamp"},
}
"""EdiVal-Agent's questions about parts of an edit, and a task that leads to each."""


@pytest.mark.long
@pytest.mark.parametrize("setup", setups_of("edival"))
def test_every_condition_of_edivals_questions_is_sent(
    setup: str, tmp_path: Path, scripted: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edival, "find_detector", lambda toolbox, rules: s.ColorFinder())
    server = scripted(lambda _: say('{"reason": "seen", "answer": "yes", "text": "HELLO"}'))
    before = save(s.BASE, tmp_path / "before.png")
    after = save(
        s.scene(("ceramic white cup", s.CUP), ("lamp", s.BOX), ("paper red sign", s.SIGN)), tmp_path / "after.png"
    )
    for name, listed in conditions("edival").items():
        task, mode = QUESTIONS.get(name), "plain" if name == IF else "tools"
        if mode == "tools" and (task is None or (name.startswith("precheck") and setup == "default")):
            continue  # prompts of other steps, and a question that is not asked by default
        edit = Edit(source=before, edited=after, instruction="Do it", extra={"edival": task} if task else {})
        server.requests.clear()
        with Judge("openai:gpt-4.1", base_url=server.openai_url, protocol="edival", setup=setup, mode=mode) as judge:
            assert judge.judge(edit).judged, name
        sent = " ".join(" ".join(f"{request.system} {request.text}" for request in server.requests).split())
        for condition in listed:
            if condition.part != "modes/tools":
                condition.check(setup, sent)


@pytest.mark.long
def test_what_is_ours_is_sent_by_default_and_not_without_our_notes(tmp_path: Path, scripted: StartServer) -> None:
    edits = edits_for("wiseedit", "default", tmp_path)
    usual = sent_by_rubric("wiseedit", "default", "plain", edits, scripted)
    papers = sent_by_rubric("wiseedit", "default", "plain", edits, scripted, our_notes=False)
    for rubric in own_rubrics("wiseedit"):
        assert all(words in usual[rubric.name] and words not in papers[rubric.name] for words in rubric.ours)
        assert rubric.ours or usual[rubric.name] == papers[rubric.name]


@pytest.mark.long
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
    assert "detect_object" not in sent, "it has no weights here and is not offered"
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

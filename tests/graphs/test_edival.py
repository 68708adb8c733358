"""`--protocol edival` on ordinary edits: detector-backed checks through the same Judge as every other protocol."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from editloupe import Edit, Judge, UserError, Verdict
from editloupe.cli.main import run as command
from editloupe.graphs import edival
from editloupe.types import Unjudged
from tests.conftest import StartServer
from tests.drawn_pictures import save
from tests.evals.edival import stand_ins as s
from tests.scripted import say

WITHOUT_BOX = s.scene(("ceramic white cup", s.CUP), ("paper red sign", s.SIGN))
Make = Callable[..., Edit]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Edits of the painted scene, looked at by the scripted detector."""
    monkeypatch.setattr(edival, "find_detector", lambda toolbox, rules: s.ColorFinder())

    def edit(after: Any, instruction: str, **more: Any) -> Edit:
        before = save(s.BASE, tmp_path / "before.png")
        return Edit(source=before, edited=save(after, tmp_path / "after.png"), instruction=instruction, **more)

    return edit


def test_a_removal_is_decided_by_boxes_and_nobody_is_asked(make: Make) -> None:
    judge = Judge("rules", protocol="edival")
    assert judge.mode == "tools"
    judgement = judge.judge(make(WITHOUT_BOX, "Remove the wooden box."))
    (verdict,) = judgement.verdicts
    assert isinstance(verdict, Verdict)
    assert (verdict.label, verdict.score_100) == ("yes", 100)
    assert verdict.values["by"] == ["detector"]
    assert verdict.usage.requests == 0
    (trace,) = judgement.traces
    assert [call.name for call in trace.steps[0].calls] == ["detect_object", "detect_object"]
    kept = judge.judge(make(s.BASE, "Remove the wooden box.")).verdicts[0]
    assert isinstance(kept, Verdict)
    assert kept.label == "no"


def test_a_color_is_asked_of_the_lmm_about_the_crop(make: Make, scripted: StartServer) -> None:
    server = scripted(s.seeing)
    judge = Judge("openai:gpt-4.1", protocol="edival", base_url=server.openai_url)
    edit = make(s.GOOD[0], "Change the color of the ceramic white cup to blue")
    (verdict,) = judge.judge(edit).verdicts
    assert isinstance(verdict, Verdict)
    assert verdict.label == "yes"
    assert verdict.usage.requests == 1
    assert verdict.rationale == "The cup is blue."


def test_plain_mode_is_the_lmm_alone_on_both_pictures(make: Make, scripted: StartServer) -> None:
    server = scripted(lambda _: say('{"reason": "It is gone.", "answer": "yes"}'))
    judge = Judge("openai:gpt-4.1", protocol="edival", mode="plain", base_url=server.openai_url)
    (verdict,) = judge.judge(make(WITHOUT_BOX, "Take away that thing")).verdicts
    assert isinstance(verdict, Verdict)
    assert verdict.label == "yes"
    assert len(server.requests[0].messages[-1].images) == 2


def test_an_instruction_that_cannot_be_read_is_the_users_mistake_or_unjudged(make: Make) -> None:
    judge = Judge("rules", protocol="edival")
    edit = make(WITHOUT_BOX, "Tidy the kitchen up")
    with pytest.raises(UserError, match="manifest line"):
        judge.judge(edit, strict=True)
    (outcome,) = judge.judge(edit).verdicts
    assert isinstance(outcome, Unjudged)
    told = make(
        WITHOUT_BOX, "Tidy the kitchen up", extra={"edival": {"type": "subject_remove", "object": "wooden box"}}
    )
    (verdict,) = judge.judge(told).verdicts
    assert isinstance(verdict, Verdict)


@pytest.mark.long
def test_a_manifest_is_judged_and_reported_beside_people(make: Make, tmp_path: Path, capsys: Any) -> None:
    make(WITHOUT_BOX, "x")
    lines = [
        {"id": "gone", "instruction": "Remove the wooden box.", "human": {"instruction_following": "yes"}},
        {"id": "moved", "instruction": "Remove the lamp.", "human": {"instruction_following": "no"}},
    ]
    rows = [{"source": "before.png", "edited": "after.png", **line} for line in lines]
    manifest = tmp_path / "edits.jsonl"
    manifest.write_text("\n".join(map(json.dumps, rows)))
    out = str(tmp_path / "run")
    assert command(["batch", str(manifest), "--out", out, "--protocol", "edival", "--judge", "rules", "-q"]) == 0
    assert command(["export", out, "--format", "jsonl"]) == 0
    found = {row["edit_id"]: row["label"] for row in map(json.loads, capsys.readouterr().out.splitlines()[-2:])}
    assert found == {"gone": "yes", "moved": "no"}
    assert command(["report", out]) == 0


@pytest.mark.models
def test_real_weights_are_loaded_by_the_command(tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("torch")
    from tests.tools.tiny_grounding import save_tiny_grounding_dino

    weights = save_tiny_grounding_dino(tmp_path / "weights")
    before, after = (str(save(p, tmp_path / n)) for p, n in ((s.BASE, "a.png"), (WITHOUT_BOX, "b.png")))
    asked = ["judge", before, after, "Change the count of the red cup to 3", "--protocol", "edival", "--judge", "rules"]
    code = command([*asked, "--detector", str(weights), "--device", "cpu", "--json"])
    (verdict,) = json.loads(capsys.readouterr().out)["verdicts"]
    assert code == 0
    assert verdict["label"] == "no", "random weights find no cup surely enough"
    assert "asked" in verdict["rationale"]


@pytest.mark.models
def test_without_a_detector_the_edit_is_unjudged_and_says_what_to_do(tmp_path: Path) -> None:
    before, after = save(s.BASE, tmp_path / "a.png"), save(WITHOUT_BOX, tmp_path / "b.png")
    judge = Judge("rules", protocol="edival")
    (outcome,) = judge.judge(Edit(source=before, edited=after, instruction="Remove the wooden box.")).verdicts
    assert isinstance(outcome, Unjudged)
    assert "the detector could not be used" in outcome.detail
    assert "run `editloupe weights fetch grounding-dino-tiny`" in outcome.detail

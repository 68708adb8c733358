"""`editloupe edival baselines` with a scripted LMM, the scripted detector's run, and CLIP's real loading code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from editloupe.cli.main import run
from tests.conftest import StartServer
from tests.evals.edival import stand_ins as s
from tests.evals.edival.evaluate_once import run as evaluate
from tests.scripted import Answer, Request, say


def answering(request: Request) -> Answer:
    """About a crop it looks; shown two pictures it always says yes."""
    if sum(len(message.images) for message in request.messages) == 2:
        return say('{"reason": "Looks fine.", "answer": "yes"}')
    return s.seeing(request)


@pytest.fixture
def judged(tmp_path: Path, scripted: StartServer) -> str:
    """A run of two models on one chain, one that does everything and one that does nothing, with labels of two people."""
    s.kitchen_chain(tmp_path / "chains", s.save_base(tmp_path / "photos"))
    s.put(tmp_path / "results", "good", "multi", dict(enumerate(s.GOOD, 1)))
    s.put(tmp_path / "results", "good", "complex", {3: s.GOOD[2]})
    s.put(tmp_path / "results", "lazy", "multi", dict.fromkeys((1, 2, 3), s.BASE))
    url = scripted(answering).openai_url
    evaluate(tmp_path / "chains", tmp_path / "results", tmp_path / "run", url)
    rows = [f"{m}/multi/kitchen/{n},{w}" for m, w in (("good", "yes"), ("lazy", "no")) for n in (1, 2, 3)]
    lines = ["edit_id,criterion,label,rater"]
    for row in rows:
        edit, word = row.split(",")
        lines += [f"{edit},instruction_following,{word},Ana", f"{edit},instruction_following,{word},Bo"]
    lines[-1] = lines[-1].replace(",no,", ",yes,")
    lines.append("good/complex/kitchen/3,instruction_following,yes,Ana")
    (tmp_path / "labels.csv").write_text("\n".join(lines) + "\n")
    return url


def command(root: Path, *more: str) -> int:
    return run(
        [
            "edival",
            "baselines",
            str(root / "run"),
            "--human",
            str(root / "labels.csv"),
            "--out",
            str(root / "alone"),
            *more,
        ]
    )


def lmm(url: str) -> list[str]:
    return ["--judge", "openai:gpt-4.1", "--base-url", url, "-q"]


@pytest.mark.long
def test_the_lmm_alone_is_judged_and_set_against_people(tmp_path: Path, judged: str, capsys: Any) -> None:
    assert command(tmp_path, *lmm(judged), "--format", "json") == 0
    told = capsys.readouterr()
    facts = json.loads(told.out)
    assert facts["methods"] == ["EdiVal-IF", "LMM alone"]
    assert (facts["ratings"], facts["labelled"], facts["compared"]) == ("each", 6, 6)
    overall = {one["method"]: one for one in facts["agreements"] if one["kind"] == "overall"}
    assert overall["EdiVal-IF"]["ratings"] == 12
    assert overall["EdiVal-IF"]["accuracy"] == pytest.approx(11 / 12), "on the sixth edit one says yes and one says no"
    assert overall["LMM alone"]["accuracy"] == pytest.approx(7 / 12)
    assert facts["people"] == pytest.approx(5 / 6)
    assert any("1 edit with as many yes as no is left out" in note for note in facts["notes"])
    assert any("several instructions" in note for note in facts["notes"])
    assert "6 judged" in told.err
    assert command(tmp_path, "--ratings", "majority", "--format", "json") == 0
    (agreed,) = (one for one in json.loads(capsys.readouterr().out)["agreements"] if one["kind"] == "overall")
    assert (agreed["edits"], agreed["accuracy"], agreed["kappa"]) == (5, 1, pytest.approx(1))


@pytest.mark.long
def test_several_lmms_share_a_table_and_a_bar_chart(tmp_path: Path, judged: str, capsys: Any) -> None:
    """One LMM after another with the same folder, and a run of its own that `batch` made."""
    assert command(tmp_path, *lmm(judged)) == 0
    capsys.readouterr()
    other = ["--judge", "openai:gpt-5.1", "--base-url", judged, "-q"]
    charts = tmp_path / "charts"
    assert command(tmp_path, *other, "--figures", str(charts), "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["methods"] == ["EdiVal-IF", "gpt-4.1", "gpt-5.1"]
    assert "agreement with people" in (charts / "agreement-with-people.svg").read_text()
    assert command(tmp_path, "--lmm", str(tmp_path / "alone/lmm"), "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["methods"] == ["EdiVal-IF", "LMM alone"], "the newest of that run"


@pytest.mark.long
def test_a_set_up_and_other_words_hold_for_the_lmm_alone(tmp_path: Path, scripted: StartServer, judged: str) -> None:
    server = scripted(answering)
    (tmp_path / "words.yaml").write_text("extends: edival/instruction_following\nquestion: Was it done as told?\n")
    asked = ["--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "-q"]
    more = ["--setup", "edival-paper", "--rubric", str(tmp_path / "words.yaml"), "--seed", "7"]
    assert command(tmp_path, *asked, *more) == 0
    assert server.requests[0].body["seed"] == 7
    assert "Was it done as told?" in server.requests[0].system
    assert '"name": "edival-paper"' in (tmp_path / "alone/lmm/run.json").read_text()


@pytest.mark.long
def test_a_second_time_nobody_is_asked_and_the_tables_are_the_same(tmp_path: Path, judged: str, capsys: Any) -> None:
    assert command(tmp_path, *lmm(judged)) == 0
    first = capsys.readouterr()
    assert command(tmp_path, *lmm(judged)) == 0
    again = capsys.readouterr()
    assert again.out == first.out
    assert "6 held before" in again.err
    assert "Figure 4" in first.out
    assert "Table 13" in first.out


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "words"), [("t.tex", r"\toprule"), ("t.csv", "PLCC"), ("t.html", "<table"), ("t.md", "|")]
)
def test_the_tables_go_to_a_file_in_the_format_of_its_name(
    tmp_path: Path, judged: str, capsys: Any, name: str, words: str
) -> None:
    assert command(tmp_path, "--report", str(tmp_path / name)) == 0
    assert words in (tmp_path / name).read_text()
    told = capsys.readouterr()
    assert told.out == ""
    assert "left out" in told.err, "no LMM was named"


@pytest.mark.models
def test_clips_direction_is_measured_once_and_kept(
    tmp_path: Path, judged: str, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    from editloupe.tools.models.features import ClipEncoder
    from tests.tools.tiny_models import save_tiny_clip

    weights = str(save_tiny_clip(tmp_path / "clip"))
    assert command(tmp_path, "--clip", weights, "--device", "cpu", "--format", "json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["methods"] == ["EdiVal-IF", "CLIP_dir"]
    assert facts["compared"] == 6
    kept = (tmp_path / "alone/clip.jsonl").read_text().splitlines()
    assert len(kept) == 6
    monkeypatch.setattr(ClipEncoder, "direction", lambda *_: pytest.fail("it was measured already"))
    assert command(tmp_path, "--clip", weights, "--device", "cpu", *lmm(judged), "--format", "json") == 0
    both = json.loads(capsys.readouterr().out)
    assert both["methods"] == ["EdiVal-IF", "LMM alone", "CLIP_dir"]
    assert [a for a in both["agreements"] if a["method"] == "CLIP_dir"] == [
        a for a in facts["agreements"] if a["method"] == "CLIP_dir"
    ]


@pytest.mark.long
def test_mistakes_are_one_sentence(tmp_path: Path, judged: str, capsys: Any) -> None:
    (tmp_path / "none.csv").write_text("edit_id,criterion,label\nnobody,instruction_following,yes\n")
    folder, labels = str(tmp_path / "run"), str(tmp_path / "labels.csv")
    for arguments, sentence in (
        ([folder, "--human", labels, "--out", folder], "must be another folder"),
        ([folder, "--human", str(tmp_path / "none.csv"), "--out", "x"], "has no label that fits"),
        ([str(tmp_path), "--human", labels, "--out", "x"], "is not a run"),
        ([folder, "--human", labels, "--out", "x", "--format", "pdf"], "--format is one of"),
        ([folder, "--human", labels, "--out", "x", "--ratings", "most"], "--ratings is one of each, majority"),
        ([folder, "--human", labels, "--out", "x", "--clip", str(tmp_path)], "CLIP cannot be used"),
    ):
        assert run(["edival", "baselines", *arguments]) == 2
        told = capsys.readouterr().err
        assert sentence in told
        assert "Traceback" not in told

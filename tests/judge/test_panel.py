"""A panel asked through real clients: all are asked at once, the run keeps each reply, and each has a trace of its own."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from editloupe.cli.main import run as command
from editloupe.evals.runs.store import Run
from editloupe.judge import Judge
from editloupe.judge.plans import Panel, plan_of
from editloupe.types import Reason, UserError, Verdict
from tests.conftest import StartServer
from tests.evals.samples import write_manifest
from tests.judge.samples import BAD, GOOD, IF, LARGE, QUICK, SMALL, batch, run
from tests.scripted import Answer, Request, fault, final, say

GEMINI = "google_genai:gemini-2.5-flash"
PANEL = f"panel:{SMALL},{LARGE},openai:gpt-4.1-third"


def divided(request: Request) -> Answer:
    return final(BAD if "large" in request.model else GOOD)


@pytest.mark.long
def test_a_panel_speaks_to_several_providers_and_the_majority_stands(
    scripted: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = scripted(divided)
    monkeypatch.setenv("GOOGLE_API_KEY", "k")
    file = tmp_path / "panel.yaml"
    file.write_text(
        f"members:\n- judge: {SMALL}\n  base_url: {server.openai_url}\n- judge: {LARGE}\n  base_url: {server.openai_url}\n"
        f"- judge: {GEMINI}\n  base_url: {server.gemini_url}\n"
    )
    with Judge(f"panel:{file}", mode="plain", criteria=[IF], settings=QUICK) as judge:
        assert judge.spec == f"panel:{SMALL},{LARGE},{GEMINI}"
        from editloupe.evals.manifests.layouts import load_manifest

        (edit,) = load_manifest(write_manifest(tmp_path, 1))
        found = judge(edit)
    (verdict,) = found.verdicts
    assert isinstance(verdict, Verdict)
    assert (verdict.label, verdict.confidence) == (GOOD, pytest.approx(2 / 3))
    assert {request.provider for request in server.requests} == {"openai", "gemini"}
    assert [(trace.part, trace.judge) for trace in found.traces] == [
        ("member 1", SMALL),
        ("member 2", LARGE),
        ("member 3", GEMINI),
    ]
    assert [one.judge for one in verdict.served] == [SMALL, LARGE, GEMINI]


@pytest.mark.long
def test_a_panel_in_a_batch_is_continued_and_a_member_judged_alone_is_not_paid_again(
    scripted: StartServer, tmp_path: Path
) -> None:
    server, manifest = scripted(divided), write_manifest(tmp_path, 3)
    run(batch(server, SMALL, manifest, tmp_path / "run"))
    run(batch(server, PANEL, manifest, tmp_path / "run"))
    assert Counter(request.model for request in server.requests) == {
        "gpt-4.1-small": 3,
        "gpt-4.1-large": 3,
        "gpt-4.1-third": 3,
    }
    again = run(batch(server, PANEL, manifest, tmp_path / "run"))
    assert (server.served, again.tally.held) == (9, 3)


@pytest.mark.long
def test_a_member_that_cannot_be_read_is_said_and_too_few_leave_the_edit_unjudged(
    scripted: StartServer, tmp_path: Path
) -> None:
    def mostly_noise(request: Request) -> Answer:
        return final(GOOD) if "small" in request.model else say("I would rather not.")

    server = scripted(mostly_noise)
    run(batch(server, PANEL, write_manifest(tmp_path, 1), tmp_path / "run"))
    with Run.open(tmp_path / "run") as opened:
        (unit,) = opened.units()
    assert getattr(unit.outcome, "reason", None) == Reason.UNREADABLE
    assert "1 of 3 judges answered" in getattr(unit.outcome, "detail", "")
    assert [one.reason for one in unit.outcome.opinions] == [None, Reason.UNREADABLE, Reason.UNREADABLE]


@pytest.mark.long
def test_a_member_that_is_down_is_named_in_the_summary_and_in_the_report(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = scripted(lambda request: fault(500) if "third" in request.model else final(GOOD))
    manifest, out = write_manifest(tmp_path, 2), tmp_path / "run"
    run(batch(server, PANEL, manifest, out))
    given = ["--judge", PANEL, "--base-url", server.openai_url, "--mode", "plain", "--criterion", IF, "--quiet"]
    assert command(["batch", str(manifest), "--out", str(out), *given]) == 0
    said = "openai:gpt-4.1-third gave no verdict on 2 units (model_error); the other judges of the panel decided these."
    assert said in capsys.readouterr().out
    assert command(["report", str(out), "--format", "md"]) == 0
    assert said in " ".join(capsys.readouterr().out.replace("\\", "").split())


@pytest.mark.long
def test_the_command_judges_by_a_panel_and_shows_who_said_what(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = scripted(divided)
    write_manifest(tmp_path, 1)
    files = [str(tmp_path / "img" / name) for name in ("s0.png", "e0.png")]
    given = ["--judge", PANEL, "--base-url", server.openai_url, "--mode", "plain", "--criterion", IF]
    assert command(["judge", *files, "Do it", *given]) == 0
    assert f"member 2, {LARGE}: {BAD}" in capsys.readouterr().out
    assert command(["judge", *files, "Do it", *given, "--json"]) == 0
    (verdict,) = json.loads(capsys.readouterr().out)["verdicts"]
    assert [one["label"] for one in verdict["opinions"]] == [GOOD, BAD, GOOD]
    assert len(verdict["trace"]) == 3


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("panel:rules", "at least two"),
        ("panel:rules,rules", "listed twice"),
        ("panel:rules,nobody:x", "is not a judge"),
        ("panel:rules,cascade:x.yaml", "cannot be one of the judges"),
        ("panel:missing.yaml", "cannot be read"),
        ("cascade:missing.yaml", "cannot be read"),
    ],
)
def test_a_mistake_in_a_panel_is_one_sentence_and_exit_code_2(
    spec: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    manifest = write_manifest(tmp_path, 1)
    assert command(["batch", str(manifest), "--out", str(tmp_path / "run"), "--judge", spec]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert "Traceback" not in said
    with pytest.raises(UserError, match=sentence):
        plan_of(spec)


@pytest.mark.parametrize("judge", ["3", "''"])
def test_a_member_that_is_no_text_is_named_by_its_number(judge: str, tmp_path: Path) -> None:
    file = tmp_path / "panel.yaml"
    file.write_text(f"members:\n- judge: rules\n- judge: {judge}\n", encoding="utf-8")
    with pytest.raises(UserError, match="judge of member 2 must be a text"):
        plan_of(f"panel:{file}")


def test_rules_in_a_panel_have_no_server() -> None:
    plan = plan_of("panel:rules,openai:a", "http://localhost:1/v1")
    assert isinstance(plan, Panel)
    assert [member.base_url for member in plan.members] == [None, "http://localhost:1/v1"]

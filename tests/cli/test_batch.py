"""The commands batch and export as a user runs them: words, exit codes, files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from editloupe.cli.main import run
from tests.conftest import StartServer
from tests.evals.samples import write_manifest
from tests.scripted import Answer, Request, ScriptedServer, final, say


def answers(request: Request) -> Answer:
    return final("Perfect Consistency" if "Scene Collapse" in request.system else "Wrong Action")


def command(server: ScriptedServer, manifest: Path, out: Path, *more: str) -> list[str]:
    judge = ["--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "--mode", "plain"]
    return ["batch", str(manifest), "--out", str(out), *judge, *more]


@pytest.mark.long
def test_all_judged_is_0_with_scores_cost_and_what_to_do_next(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = scripted(answers)
    assert run(command(server, write_manifest(tmp_path, 3), tmp_path / "run", "--repeats", "2")) == 0
    told = capsys.readouterr()
    assert "instruction_following" in told.out
    assert "6 of 6" in told.out
    assert "12 judged, 0 unjudged" in told.out
    assert "$0.00" in told.out
    assert f"editloupe report {tmp_path / 'run'}" in told.err


@pytest.mark.long
def test_something_unjudged_is_3_and_names_an_edit_to_look_at(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = scripted(lambda request: say("who knows") if "Do 1" in request.text else answers(request))
    assert run(command(server, write_manifest(tmp_path, 2), tmp_path / "run")) == 3
    told = capsys.readouterr().err
    assert "2 unjudged (unreadable_answer)" in told
    assert f"editloupe trace {tmp_path / 'run'} e1" in told
    assert "--retry-unjudged" in told


@pytest.mark.long
def test_replies_cut_off_by_the_length_limit_are_named_and_a_longer_limit_judges_anew(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def by_limit(request: Request) -> Answer:
        enough = request.body.get("max_completion_tokens", 0) >= 500
        return answers(request) if enough else answers(request).but(finish="length")

    server = scripted(by_limit)
    manifest, out = write_manifest(tmp_path, 1), tmp_path / "run"
    assert run(command(server, manifest, out, "--max-repairs", "0")) == 3
    told = capsys.readouterr().err
    assert "2 unjudged (truncated)" in told
    assert "--max-output-tokens" in told
    assert run(command(server, manifest, out, "--max-repairs", "0")) == 3
    assert server.served == 2
    assert run(command(server, manifest, out, "--max-repairs", "0", "--retry-unjudged")) == 3
    assert server.served == 4
    assert run(command(server, manifest, out, "--max-repairs", "0", "--max-output-tokens", "500")) == 0
    assert server.served == 6


@pytest.mark.long
def test_what_failed_is_told_apart_from_what_the_judge_left_open(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = write_manifest(tmp_path, 2)
    (tmp_path / "img" / "e1.png").unlink()
    assert run(command(scripted(answers), manifest, tmp_path / "run")) == 3
    told = capsys.readouterr().err
    assert "2 unjudged (bad_image)" in told
    assert "correct what these edits lack in the manifest or its pictures, then run the same command again" in told
    assert "retry what failed" not in told
    assert "--retry-unjudged" not in told


def test_a_label_that_its_criterion_does_not_have_is_refused_before_anything_is_asked(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server, manifest = scripted(answers), write_manifest(tmp_path, 2)
    rows = [json.loads(line) for line in manifest.read_text().splitlines()]
    rows[1]["human"] = {"instruction_following": ["wrong action", "", "Wrong Acton"], "beauty": "any"}
    manifest.write_text("\n".join(map(json.dumps, rows)))
    assert run(command(server, manifest, tmp_path / "run")) == 2
    told = capsys.readouterr().err
    assert 'edit "e1": "Wrong Acton" is not an answer to instruction_following; its labels are Localization' in told
    assert server.served == 0
    assert not (tmp_path / "run").exists()


@pytest.mark.long
def test_a_cap_is_3_and_says_that_a_higher_one_continues(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = scripted(answers)
    given = command(server, write_manifest(tmp_path, 9), tmp_path / "run", "--max-tokens", "500", "--concurrency", "1")
    assert run(given) == 3
    assert "continue with a higher cap" in capsys.readouterr().err
    assert server.served <= 5


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--executor", "moon"], "--executor is local, ray or batch-api"),
        (["--layout", "moon"], "--layout is one of editloupe, dlebench"),
        (["--price", "cheap"], "a price is INPUT,OUTPUT"),
        (["--mode", "moon"], "mode"),
        (["--limit", "0"], "limit"),
    ],
)
def test_a_mistake_is_2_with_one_sentence(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], sentence: str
) -> None:
    server = scripted(answers)
    assert run(command(server, write_manifest(tmp_path, 1), tmp_path / "run", *more)) == 2
    told = capsys.readouterr().err
    assert sentence in told
    assert len(told.strip().splitlines()) == 1
    assert server.served == 0


def test_a_dry_run_says_units_tokens_and_cost(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = scripted(answers)
    assert run(command(server, write_manifest(tmp_path, 4), tmp_path / "run", "--dry-run", "--limit", "3")) == 0
    assert capsys.readouterr().out.startswith("6 units to judge: about 6 requests, ")
    assert not (tmp_path / "run").exists()


@pytest.mark.long
def test_a_dry_run_of_a_panel_counts_every_judge(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
    manifest = str(write_manifest(tmp_path, 2))
    requests = []
    for judge in ("openai:gpt-5.1", "panel:openai:gpt-5.1,openai:gpt-4.1,rules"):
        assert run(["batch", manifest, "--out", str(tmp_path / "run"), "--judge", judge, "--dry-run"]) == 0
        count = re.search(r"about (\d+) requests", capsys.readouterr().out)
        requests.append(int(count[1]) if count else 0)
    assert requests[1] == 2 * requests[0] > 0


@pytest.mark.long
def test_a_dry_run_of_a_whole_run_says_that_nothing_is_left(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = command(scripted(answers), write_manifest(tmp_path, 1), tmp_path / "run", "--quiet")
    assert run(given) == 0
    capsys.readouterr()
    assert run([*given, "--dry-run"]) == 0
    assert capsys.readouterr().out == "0 units to judge: nothing of the manifest is left\n"


@pytest.mark.long
def test_the_embedded_judge_is_announced_needs_no_server_and_costs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EDITLOUPE_JUDGE", raising=False)
    manifest = write_manifest(tmp_path, 2, size=(160, 120))
    code = run(["batch", str(manifest), "--out", str(tmp_path / "run"), "--json"])
    printed = capsys.readouterr()
    assert "judged by the embedded `rules`" in printed.err
    facts = json.loads(printed.out)
    assert code in (0, 3)
    assert facts["judged"] + sum(facts["unjudged"].values()) == 4
    assert facts["usage"]["requests"] == 0


@pytest.mark.long
def test_export_writes_rows_to_the_terminal_or_a_file(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run([*command(scripted(answers), write_manifest(tmp_path, 2), tmp_path / "run"), "--quiet"])
    capsys.readouterr()
    assert run(["export", str(tmp_path / "run")]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["edit_id"] for row in rows] == ["e0", "e0", "e1", "e1"]
    assert run(["export", str(tmp_path / "run"), "--format", "csv", "--out", str(tmp_path / "rows.csv")]) == 0
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 5


@pytest.mark.long
@pytest.mark.parametrize("more", [["--format", "xml"], ["--format", "parquet"], ["--images"]])
def test_an_export_that_makes_no_sense_is_2(tmp_path: Path, more: list[str], scripted: StartServer) -> None:
    run([*command(scripted(answers), write_manifest(tmp_path, 1), tmp_path / "run"), "--quiet"])
    assert run(["export", str(tmp_path / "run"), *more]) == 2

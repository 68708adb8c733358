"""A run whose judge was served in two versions says so in every table; one without that fact opens as before."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from editloupe.cli.main import run as command
from editloupe.evals.runs.run_folder import FILE
from editloupe.evals.runs.store import Run
from editloupe.evals.stats.scores.run_table import read_run_table
from tests.conftest import StartServer
from tests.evals.sample_runs import Line, make_run
from tests.evals.samples import write_manifest
from tests.judge.samples import GOOD, IF, batch, edit_number, run
from tests.scripted import Answer, Request, final

MODEL = "openai:gpt-4.1"
SAID = f"{MODEL} was served in 2 versions: gpt-4.1-a, fingerprint fp_1, tier default (3 verdicts) and gpt-4.1-b"


def moving(request: Request) -> Answer:
    """Serve the first three edits by one version and the last by another."""
    if edit_number(request) < 3:
        return final(GOOD).but(served="gpt-4.1-a", fingerprint="fp_1")
    return final(GOOD).but(served="gpt-4.1-b")


@pytest.fixture
def moved(scripted: StartServer, tmp_path: Path) -> Path:
    run(batch(scripted(moving), MODEL, write_manifest(tmp_path, 4), tmp_path / "run"))
    return tmp_path / "run"


@pytest.mark.long
def test_every_step_records_what_served_it(moved: Path) -> None:
    with Run.open(moved) as opened:
        (first,), (last,) = (opened.load_trace(name) for name in ("e0", "e3"))
    assert first.steps[0].served is not None
    assert (first.steps[0].served.model, first.steps[0].served.fingerprint) == ("gpt-4.1-a", "fp_1")
    assert (first.steps[0].served.tier, last.steps[0].served and last.steps[0].served.model) == ("default", "gpt-4.1-b")


@pytest.mark.long
def test_every_table_says_so(moved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for kind in ("text", "md", "html", "json"):
        assert command(["report", str(moved), "--format", kind]) == 0
        told = " ".join(capsys.readouterr().out.replace("│", " ").replace("\\_", "_").split())
        assert SAID in told, kind
        if kind == "json":
            found = json.loads(told)
            assert [one["verdicts"] for one in found["versions"]] == [3, 1]
            assert all(any(SAID in note for note in table["notes"]) for table in found["tables"])
        elif kind == "md":
            assert "A judge was served in several versions, see above." in told


@pytest.mark.long
def test_two_runs_of_different_versions_say_so_when_they_are_compared(scripted: StartServer, tmp_path: Path) -> None:
    from editloupe.evals.stats.scores.run_table import find_warnings

    manifest = write_manifest(tmp_path, 1)
    tables = []
    for version in ("v1", "v2"):
        server = scripted(final(GOOD).but(served=version))
        run(batch(server, MODEL, manifest, tmp_path / version))
        tables.append(read_run_table(tmp_path / version))
    assert not find_warnings(tables[0])
    assert "served in 2 versions: v1" in find_warnings(*tables)[0]


@pytest.mark.long
def test_a_reply_that_is_kept_knows_its_version_again(scripted: StartServer, moved: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(moved / FILE)) as db:
        for table in ("answers", "units", "traces", "steps"):
            db.execute(f"DELETE FROM {table}")
        db.commit()
    server = scripted(moving)
    run(batch(server, MODEL, tmp_path / "manifest.jsonl", moved))
    assert server.served == 0
    assert len(read_run_table(moved).versions) == 2


@pytest.mark.long
def test_the_route_of_a_proxy_is_recorded(scripted: StartServer, tmp_path: Path) -> None:
    server = scripted(final(GOOD), headers={"x-litellm-model-id": "deployment-7"})
    run(batch(server, MODEL, write_manifest(tmp_path, 1), tmp_path / "run"))
    (version,) = read_run_table(tmp_path / "run").versions
    assert version.served.route == "deployment-7"


def test_the_readable_name_of_a_deployment_comes_before_its_id(scripted: StartServer, tmp_path: Path) -> None:
    named = {"x-litellm-model-id": "2b6a77c0fe12", "x-litellm-model-name": "openai/gpt-4.1"}
    run(batch(scripted(final(GOOD), headers=named), MODEL, write_manifest(tmp_path, 1), tmp_path / "run"))
    (version,) = read_run_table(tmp_path / "run").versions
    assert (version.served.route, version.served.fallback) == ("openai/gpt-4.1 2b6a77c0", "")


@pytest.mark.long
def test_tables_count_the_verdicts_by_a_fallback_of_a_proxy(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fallen_back = {"x-litellm-attempted-fallbacks": "1", "x-litellm-model-group": "gpt-4.1"}
    server = scripted(lambda _: final(GOOD), headers=fallen_back)
    run(batch(server, "openai:dead", write_manifest(tmp_path, 2), tmp_path / "run"))
    assert command(["report", str(tmp_path / "run")]) == 0
    assert "openai:dead: 2 verdicts by a fallback: gpt-4.1." in " ".join(capsys.readouterr().out.split())
    with Run.open(tmp_path / "run") as opened:
        (trace,) = opened.load_trace("e0")
    assert trace.steps[0].served is not None
    assert trace.steps[0].served.fallback == "gpt-4.1"
    assert command(["trace", str(tmp_path / "run"), "e0"]) == 0
    assert "fallback gpt-4.1" in capsys.readouterr().out


def test_a_reply_without_a_fallback_stores_no_such_field(scripted: StartServer, tmp_path: Path) -> None:
    server = scripted(final(GOOD), headers={"x-litellm-attempted-fallbacks": "0"})
    run(batch(server, MODEL, write_manifest(tmp_path, 1), tmp_path / "run"))
    (version,) = read_run_table(tmp_path / "run").versions
    assert "fallback" not in version.served.model_dump()


def test_gemini_says_its_version_too(scripted: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from editloupe.evals.manifests.layouts import load_manifest
    from editloupe.judge import Judge

    server = scripted(final(GOOD).but(served="gemini-2.5-flash-002"))
    with Judge("google_genai:gemini-2.5-flash", mode="plain", criteria=[IF], base_url=server.gemini_url) as judge:
        (verdict,) = judge(next(iter(load_manifest(write_manifest(tmp_path, 1))))).verdicts
    assert [one.model for one in verdict.served] == ["gemini-2.5-flash-002"]


def test_runs_that_recorded_nothing_open_and_say_nothing(tmp_path: Path) -> None:
    table = read_run_table(make_run(tmp_path / "old", [Line("e0"), Line("e1")]))
    assert table.versions == ()

"""Judges that answer together in the studio: each has its trace, and a page names no files of this machine."""

from __future__ import annotations

import json
from html import unescape
from pathlib import Path

import httpx
import pytest

from tests.conftest import StartServer
from tests.evals.samples import write_manifest
from tests.judge.samples import IF, LARGE, SMALL, Wavering, batch, calibration, run, two_stages
from tests.scripted import final
from tests.servers.studio.conftest import BEARER, Listen, OpenStudio
from tests.servers.studio.test_live import asked, events


@pytest.mark.long
def test_every_stage_has_its_trace_and_the_card_says_what_each_said(
    studio: OpenStudio, scripted: StartServer, tmp_path: Path
) -> None:
    server = scripted(Wavering())
    run(batch(server, f"cascade:{two_stages(server, tmp_path)}", write_manifest(tmp_path, 4), tmp_path / "run"))
    client = studio(runs=(tmp_path / "run",))
    key = client.get("/runs").text.split('href="/runs/')[1].split('"')[0]
    whole = {"edit": "e3", "criterion": IF}
    first = unescape(client.get(f"/runs/{key}/trace", params=whole).text)
    assert f"Stage 1, asked 1 of 2: {SMALL}" in first
    assert f"Stage 2, asked 2 of 2: {LARGE}" in first
    assert "and verdicts are kept from 1 on" in first
    second = client.get(f"/runs/{key}/trace", params={**whole, "part": "stage 2, asked 1 of 2"}).text
    link = unescape(second.split('data-raw="')[1].split('"')[0])
    assert "stage+2" in link
    raw = client.get(link)
    assert raw.status_code == 200
    assert "request" in json.loads(raw.text)
    assert client.get(link.replace("stage+2", "stage+9")).status_code == 404


@pytest.mark.long
def test_the_judge_page_takes_a_panel_and_shows_each_member_on_its_own(
    listen: Listen, scripted: StartServer, tmp_path: Path
) -> None:
    server = scripted(
        lambda request: final("Wrong Action" if "Scene Collapse" not in request.system else "Single Anomaly")
    )
    with httpx.Client(
        base_url=listen(base_urls=(server.openai_url,)), timeout=60, trust_env=False, headers=BEARER
    ) as client:
        body = asked(client, tmp_path, judge=f"panel:{SMALL},{LARGE}", base_url=server.openai_url, mode="plain")
        told = list(events(client, client.post("/judge", json=body).json()["job"]))
    parts = {(data["criterion"], data["part"]) for kind, data in told if kind == "step"}
    assert (IF, f"member 1: {SMALL}") in parts
    assert len(parts) == 4
    assert f"member 2, {LARGE}: Wrong Action" in unescape(told[-2][1]["html"])


def test_a_page_names_no_files_but_the_studio_may_be_started_with_one(
    studio: OpenStudio, scripted: StartServer, tmp_path: Path
) -> None:
    from editloupe.servers.studio.judging.requests import JudgeRequest, build_judge
    from editloupe.servers.studio.settings import StudioSettings
    from editloupe.types import UserError

    server = scripted(Wavering())
    trust = tmp_path / "trust.yaml"
    calibration(server, SMALL, 1.0).write(trust)
    for spec in (f"cascade:{trust}", f"panel:{tmp_path / 'panel.yaml'}"):
        with pytest.raises(UserError, match="names no files"):
            build_judge(JudgeRequest(judge=spec), StudioSettings())
    started = StudioSettings(judge=f"cascade:{trust}", base_urls=(server.openai_url,))
    with pytest.raises(UserError, match="valid for the mode plain"):
        build_judge(JudgeRequest(), started)


@pytest.mark.long
def test_the_runs_page_says_where_a_judge_was_served_in_two_versions(
    studio: OpenStudio, scripted: StartServer, tmp_path: Path
) -> None:
    from tests.evals.report.test_served_versions import MODEL, SAID, moving

    run(batch(scripted(moving), MODEL, write_manifest(tmp_path, 4), tmp_path / "run"))
    client = studio(runs=(tmp_path / "run",))
    key = client.get("/runs").text.split('href="/runs/')[1].split('"')[0]
    assert SAID in unescape(client.get(f"/runs/{key}/charts").text)
    assert SAID in unescape(client.get(f"/runs/{key}").text)
    assert SAID in unescape(client.get("/runs").text)

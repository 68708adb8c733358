"""Forks in the studio: the form at a step, the fork beside its parent, and the Judge page filled in from a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from editloupe.evals.forks import fork, forks_of
from tests.conftest import StartServer
from tests.evals.forks.kept_runs import CRITERION, Kept, script
from tests.servers.studio.conftest import OpenStudio


@pytest.fixture
def kept(tmp_path: Path, scripted: StartServer) -> Kept:
    return Kept(tmp_path, scripted(script), "openai:gpt-4.1")


def body(**more: Any) -> dict[str, Any]:
    return {"edit": "patch", "criterion": CRITERION, "step": 1, **more}


@pytest.mark.long
def test_every_step_of_a_trace_leads_to_its_form(kept: Kept, studio: OpenStudio) -> None:
    client = studio(runs=(kept.run,))
    page = client.get("/runs/run/trace", params={"edit": "patch", "criterion": CRITERION}).text
    assert page.count("Fork from here") == 3
    form = client.get("/runs/run/fork", params=body(step=2))
    assert form.status_code == 200
    assert "50, 30, 110, 80" in form.text
    assert client.get("/runs/run/fork", params=body(step=9)).status_code == 404
    assert client.get("/runs/run/fork", params=body(criterion="taste")).status_code == 404


@pytest.mark.long
def test_a_fork_is_made_and_shown_beside_its_parent(kept: Kept, studio: OpenStudio) -> None:
    client = studio(runs=(kept.run,), base_urls=(kept.server.openai_url,))
    asked = body(dropped=[1], base_url=kept.server.openai_url, times=2)
    told = client.post("/runs/run/fork", json=asked)
    assert told.status_code == 200, told.text
    assert told.json() == {"address": "/runs/run/forks/1", "labels": {"Wrong Action": 2}}
    assert len(kept.more) == 2
    page = client.get("/runs/run/forks/1").text
    for part in ("They differ from step 1 on.", "observation 1 dropped", "2 × Wrong Action", "Flawless Execution"):
        assert part in page
    assert "Fork 1 at step 1" in client.get("/runs/run/trace", params={"edit": "patch"}).text
    assert client.get("/runs/run/forks/3").status_code == 404


@pytest.mark.long
def test_a_run_leads_to_all_its_forks(kept: Kept, studio: OpenStudio, tmp_path: Path) -> None:
    fork(kept.run, "patch", CRITERION, 1, drop=[1], times=3)
    fork(kept.run, "patch", CRITERION, 2)
    fork(kept.run, "patch", CRITERION, 1, drop=[1], out=tmp_path / "forks only")
    client = studio(runs=(kept.run, tmp_path / "forks only"))
    assert 'href="/runs/run/forks">4 forks<' in client.get("/runs/run").text
    listed = client.get("/runs/run/forks").text
    assert listed.count('class="row-link"') == 2
    for part in ("3 × Wrong Action", "step 2 asked again", "Flawless Execution"):
        assert part in listed
    assert listed.count('data-title="Parent"><span class="small">Flawless Execution') == 2
    trace = client.get("/runs/run/trace", params={"edit": "patch"}).text
    assert "Fork 1 at step 1</a> and 2 more: observation 1 dropped → 3 × Wrong Action" in trace
    assert 'href="/runs/forks-only/forks">1 fork<' in client.get("/runs").text
    alone = client.get("/runs/forks-only").text
    assert 'href="/runs/forks-only/forks">1 fork<' in alone
    assert "Charts of the report" not in alone
    assert "No edit matches these filters" not in alone
    assert "holds only forks, no verdicts" in alone
    assert "Instruction Following" in listed, "criteria have the rubric's title"


@pytest.mark.long
def test_a_fork_that_is_not_under_way_cannot_be_stopped(kept: Kept, studio: OpenStudio) -> None:
    told = studio(runs=(kept.run,)).post("/forking/nobody/stop", json={})
    assert told.status_code == 404


@pytest.mark.long
def test_words_and_settings_are_changed_on_the_page(kept: Kept, studio: OpenStudio) -> None:
    client = studio(runs=(kept.run,), base_urls=(kept.server.openai_url,))
    words = f"extends: dlebench/{CRITERION}\nquestion: Is the patch red?"
    asked = body(again=[1], base_url=kept.server.openai_url, wording=words, tools="overview=true\nmax_regions=3")
    told = client.post("/runs/run/fork", json=asked)
    assert told.status_code == 200, told.text
    (made,) = forks_of(kept.run)
    assert {"call 1 carried out again", f"the wording of {CRITERION}"} < set(made.changes)
    assert "Is the patch red?" in json.dumps(kept.more[0].body)


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"step": 7}, "the trace has 3 steps"),
        ({"dropped": [4]}, "there is no observation 4"),
        ({"boxes": {"1": "1,2"}}, "the box of call 1 takes four numbers"),
        ({"base_url": "http://elsewhere.example/v1"}, "this studio asks only the servers it was started with"),
        ({"tools": "cache_folder=looks"}, "cache_folder is not set on the page"),
        ({"setup": "../x"}, 'there is no set-up "../x" here'),
        ({"wording": "extends: nowhere/none"}, "nowhere"),
        ({"times": 99}, "times: Input should be less than or equal to 20"),
        ({"pictures": {"1": "0" * 32}}, "a picture is missing on the server"),
    ],
)
def test_a_mistake_is_one_sentence_and_asks_nothing(
    change: dict[str, Any], sentence: str, kept: Kept, studio: OpenStudio
) -> None:
    client = studio(runs=(kept.run,), base_urls=(kept.server.openai_url,))
    told = client.post("/runs/run/fork", json=body(base_url=kept.server.openai_url) | change)
    assert told.status_code == 400
    assert sentence in told.json()["sentence"]
    assert kept.more == []
    assert forks_of(kept.run) == []


@pytest.mark.long
def test_the_server_a_run_names_is_not_asked_by_the_page(
    kept: Kept, studio: OpenStudio, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = studio(runs=(kept.run,))
    told = client.post("/runs/run/fork", json=body(dropped=[1]))
    assert told.status_code == 400
    assert "needs a key" in told.json()["sentence"]
    assert kept.more == []


@pytest.mark.long
def test_the_judge_page_is_filled_in_from_an_edit_of_a_run(kept: Kept, studio: OpenStudio) -> None:
    client = studio(runs=(kept.run,))
    assert "Judge this edit again" in client.get("/runs/run/trace", params={"edit": "patch"}).text
    page = client.get("/judge", params={"run": "run", "edit": "patch"})
    assert page.status_code == 200
    assert kept.edit.instruction in page.text
    shown = json.loads(page.text.partition('data-asked="')[2].partition('"')[0].replace("&#34;", '"'))
    assert len(shown["source"]) == len(shown["edited"]) == 32
    assert (shown["mode"], shown["judge"]) == ("tools", "openai:gpt-4.1")
    assert client.get(f"/pictures/{shown['source']}").status_code == 200
    assert client.get("/judge", params={"run": "none", "edit": "patch"}).status_code == 404

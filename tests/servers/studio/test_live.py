"""Judging on the page: events as they happen, stopping, what is kept afterwards."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from html import escape, unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from editloupe.evals.runs.store import Run
from editloupe.judge.settings import setup_names
from editloupe.servers.studio.judging.live import LiveJob
from editloupe.servers.studio.judging.requests import JudgeRequest, build_judge
from editloupe.servers.studio.routes.judge import _Events
from editloupe.servers.studio.settings import StudioSettings
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair
from tests.scripted import Request, call, fault, final, say
from tests.servers.studio.conftest import BEARER, Listen, OpenStudio
from tests.servers.studio.samples import HOSTILE, long_trace

Event = tuple[str, dict[str, Any]]
INSTRUCTION = "Change the color of the patch to red"


def client_of(address: str) -> httpx.Client:
    return httpx.Client(base_url=address, timeout=60, trust_env=False, headers=BEARER)


def asked(client: httpx.Client, folder: Path, **changes: object) -> dict[str, Any]:
    shas = [client.post("/uploads", content=path.read_bytes()).json()["sha"] for path in edit_pair(folder)]
    return {
        "source": shas[0],
        "edited": shas[1],
        "instruction": INSTRUCTION,
        "judge": "rules",
        "name": "cup.png",
        **changes,
    }


def events(client: httpx.Client, job: str, after: int = 0) -> Iterator[Event]:
    with client.stream("GET", f"/jobs/{job}/events", headers={"last-event-id": str(after)}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        kind = ""
        for line in answer.iter_lines():
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield kind, json.loads(line.removeprefix("data: "))


def look_then_answer(request: Request) -> Any:
    if not any(message.role == "assistant" for message in request.messages):
        return call("zoom_in_image", bbox_2d=[50, 30, 110, 80], target_image="Edited Image").but(
            text=f"I look. {HOSTILE}"
        )
    return final("Perfect Consistency" if "Perfect Consistency" in request.system else "Flawless Execution")


@pytest.mark.long
def test_the_embedded_judge_is_watched_step_by_step_and_kept(listen: Listen, tmp_path: Path) -> None:
    with client_of(listen(out=tmp_path / "kept")) as client:
        job = client.post("/judge", json=asked(client, tmp_path)).json()["job"]
        told = list(events(client, job))
        kinds = [kind for kind, _ in told]
        assert (kinds[0], kinds[-2], kinds[-1]) == ("begun", "verdicts", "end")
        assert {data["criterion"] for kind, data in told if kind == "step"} == {
            "instruction_following",
            "visual_consistency",
        }
        assert "/trace?edit=cup-" in told[-2][1]["html"]
        for sha in {
            re.split('[/"]', part)[0] for _, data in told for part in data.get("html", "").split('src="/pictures/')[1:]
        }:
            assert client.get(f"/pictures/{sha}").status_code == 200
        again = list(events(client, job, after=2))
        assert again == told[2:]
    with Run.open(tmp_path / "kept") as run:
        assert {unit.criterion for unit in run.units()} == {"instruction_following", "visual_consistency"}


@pytest.mark.long
def test_a_models_steps_arrive_one_by_one_and_its_words_are_escaped(
    listen: Listen, scripted: StartServer, tmp_path: Path
) -> None:
    go_on = threading.Event()

    def wait_before_the_answer(request: Request) -> Any:
        if any(message.role == "assistant" for message in request.messages):
            assert go_on.wait(30)
        return look_then_answer(request)

    server = scripted(wait_before_the_answer)
    with client_of(listen(base_urls=(server.openai_url,))) as client:
        body = asked(client, tmp_path, judge="openai:gpt-4.1", base_url=server.openai_url)
        following = events(client, client.post("/judge", json=body).json()["job"])
        first = [next(following), next(following), next(following)]
        assert [kind for kind, _ in first] == ["begun", "step", "step"]
        assert not go_on.is_set()
        go_on.set()
        rest = list(following)
    assert [kind for kind, _ in rest] == ["step", "step", "verdicts", "end"]
    html = first[1][1]["html"]
    assert "&lt;script&gt;" in html
    assert "<script>" not in html
    assert "zoom_in_image" in html


@pytest.mark.long
def test_stop_ends_the_judging_and_keeps_nothing(listen: Listen, scripted: StartServer, tmp_path: Path) -> None:
    release = threading.Event()

    def never(request: Request) -> Any:
        release.wait(30)
        return say("late")

    server = scripted(never)
    with client_of(listen(base_urls=(server.openai_url,))) as client:
        body = asked(client, tmp_path, judge="openai:gpt-4.1", base_url=server.openai_url)
        job = client.post("/judge", json=body).json()["job"]
        following = events(client, job)
        assert next(following)[0] == "begun"
        assert client.post(f"/jobs/{job}/stop", json={}).status_code == 200
        assert [kind for kind, _ in following] == ["stopped", "end"]
        release.set()
        assert "Open the trace" not in client.get("/runs").text


def test_a_wrong_key_ends_in_one_sentence_without_the_key(
    listen: Listen, scripted: StartServer, tmp_path: Path, monkeypatch: Any
) -> None:
    from tests.scripted import wrong_key

    monkeypatch.setenv("OPENAI_API_KEY", "sk-verysecretvalue123")
    server = scripted(lambda request: wrong_key())
    with client_of(listen(base_urls=(server.openai_url,))) as client:
        body = asked(client, tmp_path, judge="openai:gpt-4.1", base_url=server.openai_url)
        told = list(events(client, client.post("/judge", json=body).json()["job"]))
    assert [kind for kind, _ in told] == ["begun", "failed", "end"]
    assert "key" in told[1][1]["sentence"]
    assert "verysecret" not in json.dumps(told)


@pytest.mark.long
def test_the_same_edit_judged_twice_can_be_compared(listen: Listen, scripted: StartServer, tmp_path: Path) -> None:
    server = scripted(look_then_answer)
    with client_of(listen(base_urls=(server.openai_url,))) as client:
        body = asked(client, tmp_path)
        list(events(client, client.post("/judge", json=body).json()["job"]))
        model = {**body, "judge": "openai:gpt-4.1", "base_url": server.openai_url}
        told = list(events(client, client.post("/judge", json=model).json()["job"]))
        link = told[-2][1]["html"].split('href="')[1].split('"')[0].replace("&amp;", "&")
        page = client.get(f"{link}&beside=here~0").text
    assert "repeat=0&configuration=" in link
    assert "They differ from step 1" in page


@pytest.mark.long
def test_only_so_many_edits_are_judged_at_once(listen: Listen, scripted: StartServer, tmp_path: Path) -> None:
    release = threading.Event()

    def never(request: Request) -> Any:
        release.wait(30)
        return say("late")

    server = scripted(never)
    with client_of(listen(base_urls=(server.openai_url,))) as client:
        body = asked(client, tmp_path, judge="openai:gpt-4.1", base_url=server.openai_url)
        jobs = [client.post("/judge", json=body) for _ in range(5)]
        assert [job.status_code for job in jobs] == [200, 200, 200, 200, 400]
        for job in jobs[:4]:
            client.post(f"/jobs/{job.json()['job']}/stop", json={})
        release.set()


def test_an_unknown_job_is_not_there(listen: Listen) -> None:
    with client_of(listen()) as client:
        assert client.get("/jobs/nothing/events").status_code == 404
        assert client.post("/jobs/nothing/stop", json={}).status_code == 404


KEY = "sk-a-key<with>&signs-12345"


@pytest.mark.long
def test_a_key_that_a_server_echoes_is_on_no_page(
    listen: Listen, scripted: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    def echo(request: Request) -> Any:
        if not any(message.role == "assistant" for message in request.messages):
            look = call("zoom_in_image", bbox_2d=[50, 30, 110, 80], target_image="Edited Image")
            return look.but(text=f"I was asked with {KEY} and look.")
        label = "Perfect Consistency" if "Perfect Consistency" in request.system else "Flawless Execution"
        return say(f"With {KEY} I say: <Start Final Answer>{label}</Start Final Answer>")

    server = scripted(echo)
    with client_of(listen(base_urls=(server.openai_url,))) as client:
        body = asked(client, tmp_path, judge="openai:gpt-4.1", base_url=server.openai_url, instruction=f"Say {KEY}")
        job = client.post("/judge", json=body).json()["job"]
        told = list(events(client, job))
        assert [kind for kind, _ in told][-2:] == ["verdicts", "end"]
        link = unescape(told[-2][1]["html"].split('href="')[1].split('"')[0])
        raw = link.replace("/trace?", "/raw?") + "&step=0"
        pages = [json.dumps(told), *(client.get(path).text for path in (link, raw, "/runs/here", f"/judge?job={job}"))]
    assert "I was asked with" in pages[0]
    assert "I was asked with" in pages[2]
    for page in pages:
        for form in (KEY, escape(KEY), json.dumps(KEY)[1:-1], quote(KEY), "with>&signs", "with&gt;&amp;signs"):
            assert form not in page


def test_a_key_in_a_run_that_others_wrote_is_on_no_page(
    studio: OpenStudio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = long_trace(tmp_path, steps=3, thought=f"The key is {KEY}, see http://me:password1@host/v1.")
    monkeypatch.setenv("GOOGLE_API_KEY", KEY)
    client = studio(runs=(run,))
    where = {"edit": "the-edit/../x", "criterion": "instruction_following", "repeat": 0}
    page = client.get("/runs/run/trace", params=where).text
    raw = client.get("/runs/run/raw", params={**where, "step": 1}).text
    for text in (page, raw):
        assert "The key is [secret], see http://host/v1." in text
        assert "signs-12345" not in text
        assert "password1" not in text


def test_an_error_that_names_the_key_does_not_show_it(
    listen: Listen, scripted: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server = scripted(lambda request: fault(401, f"Incorrect API key provided: {KEY}"))
    with client_of(listen(base_urls=(server.openai_url,))) as client:
        body = asked(client, tmp_path, judge="openai:gpt-4.1", base_url=server.openai_url)
        told = json.dumps(list(events(client, client.post("/judge", json=body).json()["job"])))
    assert '"failed"' in told
    assert "signs-12345" not in told


@pytest.mark.long
def test_a_judging_that_takes_too_long_is_stopped_and_says_so(
    listen: Listen, scripted: StartServer, tmp_path: Path
) -> None:
    release = threading.Event()

    def never(request: Request) -> Any:
        release.wait(30)
        return say("late")

    server = scripted(never)
    with client_of(listen(base_urls=(server.openai_url,), longest=0.5)) as client:
        body = asked(client, tmp_path, judge="openai:gpt-4.1", base_url=server.openai_url)
        told = list(events(client, client.post("/judge", json=body).json()["job"]))
    release.set()
    assert [kind for kind, _ in told] == ["begun", "failed", "end"]
    assert "took longer than" in told[1][1]["sentence"]


@pytest.mark.long
def test_a_server_that_was_not_named_gets_no_request(listen: Listen, scripted: StartServer, tmp_path: Path) -> None:
    named, other = scripted(look_then_answer), scripted(look_then_answer)
    with client_of(listen(base_urls=(named.openai_url,), judge="openai:gpt-4.1")) as client:
        body = asked(client, tmp_path, judge="openai:gpt-4.1")
        refused = client.post("/judge", json={**body, "base_url": other.openai_url})
        assert (refused.status_code, "--base-url" in refused.json()["sentence"]) == (400, True)
        told = list(events(client, client.post("/judge", json=body).json()["job"]))
        assert told[-2][0] == "verdicts"
        own = client.post("/judge", json={**body, "base_url": ""})
        assert "OPENAI_API_KEY" in own.json()["sentence"]
    assert (len(named.requests) > 0, len(other.requests)) == (True, 0)


async def test_a_stream_that_is_left_is_closed_at_once() -> None:
    job = LiveJob(JudgeRequest(), lambda data: data)
    job.tell("begun")
    sent: list[Any] = []
    stream = job.follow()
    response = _Events(stream, media_type="text/event-stream")

    async def gone(message: Any) -> None:
        sent.append(message)
        if len(sent) > 1:
            raise OSError("the browser has left")

    with pytest.raises(OSError, match="left"):
        await response.stream_response(gone)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    assert len(sent) == 2


def test_the_page_offers_the_set_ups_and_judges_with_the_one_chosen(studio: OpenStudio) -> None:
    page = studio().get("/judge").text
    assert all(f'<option value="{name}"' in page for name in setup_names())
    with build_judge(JudgeRequest(judge="rules", setup="edival-paper"), StudioSettings()) as judge:
        assert judge.setup.name == "edival-paper"


def test_a_long_instruction_of_a_run_can_be_judged_again(studio: OpenStudio, tmp_path: Path) -> None:
    source, edited = edit_pair(tmp_path)
    instruction = "Make the patch red. " * 300
    row = {"id": "long", "source": source.name, "edited": edited.name, "instruction": instruction.strip()}
    manifest = tmp_path / "edits.jsonl"
    manifest.write_text(json.dumps(row))
    page = studio(runs=(manifest,)).get("/judge?run=edits&edit=long").text
    filled_in = unescape(page.split('data-asked="')[1].split('"')[0])
    assert JudgeRequest.model_validate_json(filled_in).instruction == instruction.strip()

"""An edit is judged once, in time, and never beyond what the server can hold."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from editloupe.evals.runs.store import Run
from editloupe.pictures.encode import encode
from editloupe.servers.reward import EditScorer, RewardServerSettings
from editloupe.servers.reward.requests import RequestLimits, make_edit
from editloupe.servers.reward.scoring import Busy, JudgementRun
from editloupe.types import Edit, UserError
from tests.conftest import StartServer
from tests.drawn_pictures import textured
from tests.scripted import Request, fault, final, say, wrong_key
from tests.servers.reward.running import INSTRUCTION, asking, b64, labelled, own, png, running


def edit(seed: int, instruction: str = INSTRUCTION) -> Edit:
    found = make_edit(RequestLimits(9, 10**8), b64(png(0)), b64(png(seed)), instruction)
    assert isinstance(found, Edit)
    return found


class Gate:
    """Holds replies back until they may go."""

    def __init__(self) -> None:
        self.open = threading.Event()

    async def __call__(self, request: Request) -> Any:
        while not self.open.is_set():
            await asyncio.sleep(0.01)
        return labelled(request)


@pytest.mark.long
def test_the_same_edit_is_judged_once_in_a_batch_at_the_same_time_and_later(scripted: StartServer) -> None:
    gate = Gate()
    model = scripted(gate, log=False)
    with running(asking(model)) as server, ThreadPoolExecutor(4) as pool:
        body = {"edits": [own(1), own(1, id="other name"), own(2)]}
        waiting = [pool.submit(server.post, "/v1/judge", body) for _ in range(4)]
        gate.open.set()
        answers = [one.result().json()["results"] for one in waiting]
        later = server.post("/v1/judge", body).json()["results"]
        assert model.served == 4  # two edits, two criteria
        assert all([one["score"] for one in found] == [0.5, 0.5, 0.5] for found in (*answers, later))
        assert [one["known"] for one in later] == [True, True, True]
        assert server.metric("edits_total", outcome="judged") == 2
        assert server.metric("edits_total", outcome="known") == 13
        assert server.metric("model_requests_total") == 4


@pytest.mark.long
def test_what_was_not_judged_is_asked_again_when_it_comes_again(scripted: StartServer) -> None:
    replies = iter([say("no"), say("no"), say("no")])
    model = scripted(lambda request: next(replies, None) or labelled(request), log=False)
    with running(asking(model, criteria=["instruction_following"])) as server:
        scores = [server.post("/v1/judge", {"edits": [own(1)]}).json()["results"][0]["score"] for _ in range(2)]
    assert scores == [None, 1.0]
    assert server.scorer.metrics.value("unjudged_total", reason="unreadable_answer") == 1


@pytest.mark.long
def test_beyond_the_queue_a_client_is_sent_away_with_a_time_to_come_back(scripted: StartServer) -> None:
    gate = Gate()
    with running(asking(scripted(gate, log=False)), queue=2) as server, ThreadPoolExecutor(4) as pool:
        first = pool.submit(server.post, "/v1/judge", {"edits": [own(1), own(2)]})
        while server.metric("pending_edits") < 2:
            pass
        full = server.post("/v1/judge", {"edits": [own(3)]})
        assert full.status_code == 429
        assert 1 <= int(full.headers["retry-after"]) <= 60
        assert "try again" in full.json()["error"]
        shared = pool.submit(server.post, "/v1/judge", {"edits": [own(1)]})  # takes no further place
        many = server.post("/v1/judge", {"edits": [own(n) for n in range(3, 6)]})
        assert (many.status_code, "at most 2 edits" in many.json()["error"]) == (400, True)
        gate.open.set()
        assert first.result().status_code == shared.result().status_code == 200
        assert server.post("/v1/judge", {"edits": [own(3)]}).json()["results"][0]["score"] == 0.5
        assert server.metric("requests_total", code="429", dialect="own") == 1


@pytest.mark.long
def test_a_request_is_answered_before_its_client_gives_up_and_the_work_is_not_lost(scripted: StartServer) -> None:
    gate = Gate()
    model = scripted(gate, log=False)
    with running(asking(model), deadline=0.3, concurrency=1) as server:
        late = server.post("/v1/judge", {"edits": [own(n) for n in range(1, 6)]}).json()["results"]
        assert all(one["score"] is None and "not judged within 0.3 s" in one["why"] for one in late)
        assert server.metric("edits_total", outcome="late") == 5
        gate.open.set()
        while server.metric("pending_edits"):
            pass
        begun = model.served
        assert begun <= 4  # what had not begun was let go with the last who waited for it
        assert server.post("/v1/judge", {"edits": [own(1)]}).json()["results"][0]["score"] == 0.5
        assert model.served <= begun + 2


@pytest.mark.long
async def test_scores_that_are_remembered_have_a_limit(scripted: StartServer) -> None:
    async with asking(scripted(labelled, log=False)) as judge:
        scorer = EditScorer(judge, RewardServerSettings(remember=3))
        for seed in range(1, 8):
            await scorer.score([edit(seed)])
        found = await scorer.score([edit(7), edit(1)])
    assert [one.known for one in found] == [True, False]
    assert "editloupe_remembered_edits 3\n" in scorer.metrics.text()


@pytest.mark.long
async def test_an_old_edit_asked_with_more_new_ones_than_are_remembered_keeps_its_score(scripted: StartServer) -> None:
    model = scripted(labelled, log=False)
    async with asking(model) as judge:
        scorer = EditScorer(judge, RewardServerSettings(remember=2))
        await scorer.score([edit(1)])
        found = await scorer.score([edit(1), *(edit(seed) for seed in range(2, 6)), edit(1)])
    assert [one.score for one in found] == [0.5] * 6
    assert [one.known for one in found] == [True, False, False, False, False, True]
    assert model.served == 10


@pytest.mark.long
async def test_the_score_that_was_used_longest_ago_is_forgotten_first(scripted: StartServer) -> None:
    async with asking(scripted(labelled, log=False)) as judge:
        scorer = EditScorer(judge, RewardServerSettings(remember=2))
        for seed in (1, 2, 1, 3):
            await scorer.score([edit(seed)])
        found = await scorer.score([edit(1), edit(2)])
    assert [one.known for one in found] == [True, False]


async def test_a_wrong_key_is_told_and_no_score_is_made_up(scripted: StartServer) -> None:
    async with asking(scripted(lambda _: wrong_key(), log=False)) as judge:
        (found,) = await EditScorer(judge).score([edit(1)])
    assert found.score is None
    assert found.why


async def test_a_server_error_leaves_an_edit_unjudged(scripted: StartServer) -> None:
    async with asking(scripted(lambda _: fault(400, "no"), log=False)) as judge:
        (found,) = await EditScorer(judge).score([edit(1)])
    assert (found.score, found.criterion("instruction_following")) == (None, None)
    assert "server_refused" in found.why_not("instruction_following")


async def test_stopping_answers_whoever_waits(scripted: StartServer) -> None:
    gate = Gate()
    async with asking(scripted(gate, log=False)) as judge:
        scorer = EditScorer(judge, RewardServerSettings(grace=0.05, concurrency=1))
        waiting = asyncio.create_task(scorer.score([edit(n) for n in range(1, 5)]))
        await asyncio.sleep(0.1)
        await scorer.stop()
        found = await waiting
        gate.open.set()
    assert [one.why for one in found] == ["the server was stopped before this edit was judged"] * 4


@pytest.mark.long
async def test_room_is_given_back(scripted: StartServer) -> None:
    async with asking(scripted(labelled, log=False)) as judge:
        scorer = EditScorer(judge, RewardServerSettings(queue=2))
        for seed in range(1, 7, 2):
            await scorer.score([edit(seed), edit(seed + 1)])
        with pytest.raises(Busy):
            await asyncio.gather(scorer.score([edit(20), edit(21)]), scorer.score([edit(22)]))


@pytest.mark.long
def test_a_run_keeps_traces_and_pictures_and_answers_after_a_restart(scripted: StartServer, tmp_path: Path) -> None:
    model = scripted(labelled, log=False)
    folder = tmp_path / "run"
    for start in range(2):
        with running(asking(model), out=folder) as server:
            (found,) = server.post("/v1/judge", {"edits": [own(1, id="one")]}).json()["results"]
            assert (found["score"], found["known"]) == (0.5, bool(start))
            assert found["verdicts"][0]["rationale"]
    assert model.served == 2
    with Run.open(folder) as run:
        (kept,) = run.edits()
        assert kept.edit.id == "one"
        assert [unit.criterion for unit in run.units()] == ["instruction_following", "visual_consistency"]
        assert run.load_trace("one", "instruction_following")
        picture = run.pictures.find(kept.pictures["edited"][0])
        assert picture is not None
        assert picture.read_bytes() == png(1)


@pytest.mark.long
def test_only_criteria_that_the_run_does_not_hold_are_asked_again(scripted: StartServer, tmp_path: Path) -> None:
    asked = {"consistency": 0, "following": 0}
    failing = True

    def consistency_fails(request: Request) -> Any:
        consistency = "Perfect Consistency" in request.system
        asked["consistency" if consistency else "following"] += 1
        return fault(400, "no") if consistency and failing else labelled(request)

    model = scripted(consistency_fails, log=False)
    folder = tmp_path / "run"
    body = {"edits": [own(1, id="one")]}
    for _ in range(2):  # the second server is started on the run of the first
        with running(asking(model), out=folder) as server:
            for _ in range(2):
                (found,) = server.post("/v1/judge", body).json()["results"]
                assert [one["status"] for one in found["verdicts"]] == ["judged", "unjudged"]
                assert (found["score"], found["known"]) == (None, False)
    assert asked == {"consistency": 4, "following": 1}
    failing = False
    with running(asking(model), out=folder) as server:
        (found,) = server.post("/v1/judge", body).json()["results"]
        assert [one["criterion"] for one in found["verdicts"]] == ["instruction_following", "visual_consistency"]
        assert (found["score"], found["known"]) == (0.5, False)
        assert server.metric("model_requests_total") == 1
        assert server.post("/v1/judge", body).json()["results"][0]["known"]
    assert asked == {"consistency": 5, "following": 1}
    with Run.open(folder) as run:
        assert [unit.outcome.status for unit in run.units()] == ["judged", "judged"]
        assert all(run.load_trace("one", criterion) for criterion in ("instruction_following", "visual_consistency"))


@pytest.mark.long
def test_a_run_that_cannot_be_written_stops_the_paying(
    scripted: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: Any) -> None:
        raise UserError("the run cannot be written (no space left)")

    model = scripted(labelled, log=False)
    with running(asking(model), out=tmp_path / "run") as server:
        monkeypatch.setattr(JudgementRun, "_save", full)
        assert server.post("/v1/judge", {"edits": [own(1)]}).json()["results"][0]["score"] == 0.5
        refused = server.post("/v1/judge", {"edits": [own(2)]})
        assert (refused.status_code, "no space left" in refused.json()["error"]) == (503, True)
        assert server.client.get("/health").status_code == 503
    assert model.served == 2
    assert "no space left" in capsys.readouterr().err


async def ask_until_answered(client: httpx.AsyncClient, number: int, size: tuple[int, int]) -> tuple[int, Any, int]:
    """Ask as a patient client does: come back after a second when told to. Every edit has a picture nobody saw before."""
    busy = 0
    edited = textured(*size, 1)
    edited[:4, :4] = number % 256, number // 256, 7
    body = {"source": b64(png(0, size)), "edited": b64(encode(edited)), "instruction": f"Number {number}."}
    while True:
        answer = await client.post("/v1/judge", json={"edits": [body]})
        if answer.status_code == 200:
            return number, answer.json()["results"][0]["score"], busy
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) >= 1
        busy += 1
        await asyncio.sleep(1)


async def ask_by_many(url: str, clients: int, numbers: range, size: tuple[int, int]) -> list[tuple[int, Any, int]]:
    """Have so many clients ask at one time, each one edit after the other."""
    waiting = iter(numbers)

    async def one() -> list[tuple[int, Any, int]]:
        async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False, verify=False) as client:
            return [await ask_until_answered(client, number, size) for number in waiting]

    return sorted([answer for found in await asyncio.gather(*(one() for _ in range(clients))) for answer in found])


def by_number(request: Request) -> Any:
    """Answer with a label that depends on the edit's own number."""
    number = int(str(request.body).rpartition("Number ")[2].partition(".")[0])
    if "Perfect Consistency" in request.system:
        return final(("Scene Collapse", "Perfect Consistency")[number % 2])
    return final(("Localization Failure", "Flawless Execution")[number // 2 % 2])


@pytest.mark.long
@pytest.mark.parametrize(
    ("clients", "requests", "size"),
    [
        pytest.param(16, 60, (64, 48), id="short"),
        pytest.param(200, 2000, (256, 192), id="long", marks=[pytest.mark.slow, pytest.mark.timeout(1200)]),
    ],
)
def test_many_clients_of_a_slow_model_are_all_answered_each_with_its_own_in_bounded_memory(
    scripted: StartServer, clients: int, requests: int, size: tuple[int, int]
) -> None:
    model = scripted(by_number, log=False, delay=0.1)
    with running(asking(model), queue=clients // 2, concurrency=clients // 4) as server:
        found = asyncio.run(ask_by_many(server.url, clients, range(requests // 10), size))
        before = server.metric("resident_bytes")
        found += asyncio.run(ask_by_many(server.url, clients, range(requests // 10, requests), size))
        assert server.metric("pending_edits") == 0
        assert server.metric("edits_total", outcome="judged") == requests
        assert (server.metric("resident_bytes") - before) / 2**20 < 200  # all pictures at once would be more than 800
    assert [(number, score) for number, score, _ in found] == [(n, (n % 2 + n // 2 % 2) / 2) for n in range(requests)]
    assert sum(busy for *_, busy in found) > 0
    assert model.served == 2 * requests


@pytest.mark.long
def test_a_run_records_every_request_and_its_log_does_not_grow(
    scripted: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("editloupe.servers.reward.scoring.CHECKPOINT_EVERY", 0.0)
    model = scripted(labelled, log=False)
    folder, sizes = tmp_path / "run", []
    with running(asking(model), out=folder) as server:
        for seed in range(1, 9):
            server.post("/v1/judge", {"edits": [own(seed)]}).raise_for_status()
            sizes.append((folder / "run.sqlite-wal").stat().st_size)
    assert sizes[-1] < 2 * max(sizes[:2]), "the write-ahead log is moved into the file while the server runs"
    with Run.open(folder) as run:
        assert run.read_spending()[0].requests == model.served == 16

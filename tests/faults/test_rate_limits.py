"""A server that admits so many requests in a while and refuses the rest with 429, without saying how long to wait."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from editloupe import Judge, JudgeSettings, Reason, Unjudged, UserError, Verdict
from editloupe.agent.chat_interface import RetryPolicy
from editloupe.evals.batch.batch import Batch, judge_batch
from editloupe.evals.batch.progress import Progress, Tally
from editloupe.evals.batch.traffic import Limits, TrafficControl
from editloupe.evals.manifests.layouts import load_manifest
from editloupe.evals.runs.store import Run
from editloupe.servers.reward import EditScorer, RewardServerSettings
from tests.conftest import StartServer
from tests.evals.batch import test_interruptions
from tests.evals.batch.test_interruptions import arguments, start, wait_for
from tests.evals.samples import write_manifest
from tests.scripted import Reply, Request, ScriptedServer, fault, final, out_of_quota

processes = test_interruptions.processes
SECOND = 0.01
"""What a second of a real server's minute takes here."""
PAUSES = {
    "limit_pauses": tuple(SECOND * seconds for seconds in (5, 15, 30, 60)),
    "limit_patience": SECOND * 180,
    "limit_window": SECOND * 60,
}
QUICK = RetryPolicy(first_wait=0.005, longest_wait=0.02, **PAUSES)
ENDLESS = RetryPolicy(first_wait=0.005, longest_wait=0.02, limit_pauses=(60.0,))
LIMITED = fault(429, "No deployments available for selected model.")


def always(reply: Reply) -> Callable[[Request], Reply]:
    return lambda request: reply


class ByTheMinute:
    """A script that admits so many requests a minute."""

    def __init__(self, admits: int, reply: Reply | None = None) -> None:
        self.admits, self.reply = admits, reply or final("Wrong Action")
        self.admitted = self.refused = 0
        self._minute: float | None = None
        self._left = admits

    def __call__(self, request: Request) -> Reply:
        now = time.monotonic()
        if self._minute is None or now - self._minute >= 60 * SECOND:
            self._minute, self._left = now, self.admits
        if self._left <= 0:
            self.refused += 1
            return LIMITED
        self._left -= 1
        self.admitted += 1
        return self.reply


def batch(server: ScriptedServer, folder: Path, count: int, retry: RetryPolicy = QUICK, **changes: Any) -> Batch:
    manifest = folder / "manifest.jsonl"
    if not manifest.exists():
        write_manifest(folder, count)

    url, how = server.openai_url, asking(retry)

    def open_judge(**hooks: Any) -> Judge:
        return Judge("openai:gpt-4.1", base_url=url, **how, **hooks)

    return Batch(lambda: load_manifest(manifest), folder / "run", open_judge, **changes)


def asking(retry: RetryPolicy) -> dict[str, Any]:
    settings = JudgeSettings(retry=retry, timeout=10)
    return {"mode": "plain", "criteria": ["instruction_following"], "settings": settings}


def judge(server: ScriptedServer, retry: RetryPolicy = QUICK, spec: str = "openai:gpt-4.1", **hooks: Any) -> Judge:
    return Judge(spec, base_url=server.openai_url, **asking(retry), **hooks)


@pytest.mark.long
def test_a_limit_by_the_minute_costs_time_and_no_verdict(scripted: StartServer, tmp_path: Path) -> None:
    limited = ByTheMinute(12)
    ending = judge_batch(batch(scripted(limited, log=False), tmp_path, 40), quiet=True)
    assert (ending.tally.judged, dict(ending.tally.unjudged)) == (40, {})
    assert limited.admitted == 40
    assert limited.refused < 120, "a pause holds all requests back, and one of them tries the server after it"


@pytest.mark.long
def test_even_three_a_minute_are_enough(scripted: StartServer, tmp_path: Path) -> None:
    ending = judge_batch(batch(scripted(ByTheMinute(3), log=False), tmp_path, 12), quiet=True)
    assert (ending.tally.judged, ending.tally.missing) == (12, 0)


@pytest.mark.long
def test_the_summary_says_that_the_server_limited_the_run(scripted: StartServer, tmp_path: Path) -> None:
    ending = judge_batch(batch(scripted(ByTheMinute(12), log=False), tmp_path, 30), quiet=True)
    assert ending.rate_advice is not None
    assert ending.rate_advice.startswith("the server rate-limited this run (")
    within = judge_batch(batch(scripted(always(final("Wrong Action")), log=False), tmp_path, 30), quiet=True)
    assert within.rate_advice is None


@pytest.mark.long
def test_a_server_that_states_its_limit_is_not_asked_for_more(scripted: StartServer, tmp_path: Path) -> None:
    """The limit is a bucket that fills again, as large providers have it; it holds 20 requests and fills in two seconds."""
    size, second = 20.0, 2.0
    level, at, refused = size, time.monotonic(), 0

    def metered(request: Request) -> Reply:
        nonlocal level, at, refused
        now = time.monotonic()
        level, at = min(size, level + (now - at) * size / second), now
        if level < 1:
            refused += 1
            return LIMITED
        level -= 1
        full_in = (size - level) / size * second
        left = {"limit": f"{size:.0f}", "remaining": str(int(level)), "reset": f"{1000 * full_in:.0f}ms"}
        server.headers.update({f"x-ratelimit-{name}-requests": value for name, value in left.items()})
        return final("Wrong Action")

    server = scripted(metered, log=False)
    ending = judge_batch(batch(server, tmp_path, 40, limits=Limits(concurrency=2)), quiet=True)
    assert (ending.tally.judged, refused) == (40, 0)
    assert ending.rate_advice == (
        "requests were paced to stay within the limits that the server states (openai:gpt-4.1: 20 requests)"
    )


class CountedWaits(TrafficControl):
    """Counts the waits that have begun."""

    waits = 0

    async def pause(self, seconds: float) -> None:
        self.waits += 1
        await super().pause(seconds)


def used_up(limit: int) -> dict[str, str]:
    values = {"limit": str(limit), "remaining": "0", "reset": "1h"}
    return {f"x-ratelimit-{name}-requests": value for name, value in values.items()}


@pytest.mark.long
async def test_cancelled_requests_do_not_hold_up_the_next_one(scripted: StartServer, tmp_path: Path) -> None:
    edits = list(load_manifest(write_manifest(tmp_path, 42)))
    traffic = CountedWaits(Limits())
    server = scripted(always(final("Wrong Action")), headers=used_up(1), log=False)
    async with judge(server, traffic=traffic) as opened:
        await opened.ajudge(edits[0])
        waiting = [asyncio.create_task(opened.ajudge(edit)) for edit in edits[1:41]]
        while traffic.waits < 40:
            await asyncio.sleep(0.01)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        judgement = await asyncio.wait_for(opened.ajudge(edits[41]), 10)
    assert isinstance(judgement.verdicts[0], Verdict)


async def test_requests_that_wait_for_their_turn_end_when_no_more_are_sent(
    scripted: StartServer, tmp_path: Path
) -> None:
    edits = list(load_manifest(write_manifest(tmp_path, 4)))
    traffic = CountedWaits(Limits())
    server = scripted(always(final("Wrong Action")), headers=used_up(1))
    async with judge(server, ENDLESS, traffic=traffic) as opened:
        await opened.ajudge(edits[0])
        waiting = [asyncio.create_task(opened.ajudge(edit)) for edit in edits[1:]]
        while traffic.waits < 3:
            await asyncio.sleep(0.01)
        traffic.stop("interrupted")
        judgements = await asyncio.wait_for(asyncio.gather(*waiting), 5)
    for judgement in judgements:
        (outcome,) = judgement.verdicts
        assert isinstance(outcome, Unjudged)
        assert outcome.reason == Reason.BUDGET
    assert server.served == 1


@pytest.mark.parametrize("limit", ["9" * 400, "0.5"])
def test_a_limit_that_cannot_be_read_costs_no_verdict(scripted: StartServer, tmp_path: Path, limit: str) -> None:
    server = scripted(always(final("Wrong Action")), headers={**used_up(1), "x-ratelimit-limit-requests": limit})
    with judge(server, ENDLESS) as opened:
        judgements = [opened(edit) for edit in load_manifest(write_manifest(tmp_path, 2))]
    assert all(isinstance(judgement.verdicts[0], Verdict) for judgement in judgements)


@pytest.mark.long
def test_a_server_that_refuses_everything_is_given_up_after_three_minutes(
    scripted: StartServer, tmp_path: Path
) -> None:
    server = scripted(always(LIMITED), log=False)
    began = time.monotonic()
    ending = judge_batch(batch(server, tmp_path, 8), quiet=True)
    assert dict(ending.tally.unjudged) == {"model_error": 8}
    assert 1.0 < time.monotonic() - began < 60
    assert ending.rate_advice is not None
    assert ending.rate_advice.endswith("use --rpm N to send fewer requests per minute")


def test_units_given_up_for_a_stated_wait_suggest_a_rate_too(scripted: StartServer, tmp_path: Path) -> None:
    ending = judge_batch(batch(scripted(always(fault(429, retry_after=3600))), tmp_path, 2), quiet=True)
    assert dict(ending.tally.unjudged) == {"model_error": 2}
    assert ending.rate_advice == "the server rate-limited this run; use --rpm N to send fewer requests per minute"


def test_an_empty_account_still_stops_at_once(scripted: StartServer, tmp_path: Path) -> None:
    server = scripted(always(out_of_quota()))
    with pytest.raises(UserError, match="no quota or budget left"):
        judge_batch(batch(server, tmp_path, 2, ENDLESS, limits=Limits(concurrency=1)), quiet=True)
    assert server.served <= 2


def test_a_single_judgement_waits_and_says_so(
    scripted: StartServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (edit,) = load_manifest(write_manifest(tmp_path, 1))
    server = scripted([LIMITED] * 9 + [final("Wrong Action")])
    with judge(server, QUICK.model_copy(update={"limit_pauses": (0.01,)})) as opened:
        (verdict,) = opened(edit).verdicts
    assert isinstance(verdict, Verdict)
    assert server.served == 10, "more than the six requests a failing server is sent"
    assert sum("rate limited by the server" in record.getMessage() for record in caplog.records) == 9


@pytest.mark.long
async def test_a_reward_server_judges_everything_a_limited_server_admits(scripted: StartServer, tmp_path: Path) -> None:
    edits = list(load_manifest(write_manifest(tmp_path, 20)))
    with judge(scripted(ByTheMinute(8), log=False)) as opened:
        scores = await EditScorer(opened, RewardServerSettings(deadline=20)).score(edits)
    assert all(score.score is not None for score in scores)


@pytest.mark.long
async def test_a_reward_server_answers_at_its_deadline_although_requests_pause(
    scripted: StartServer, tmp_path: Path
) -> None:
    edits = list(load_manifest(write_manifest(tmp_path, 2)))
    with judge(scripted(always(LIMITED)), ENDLESS) as opened:
        scorer = EditScorer(opened, RewardServerSettings(deadline=0.5, grace=0.1))
        began = time.monotonic()
        scores = await scorer.score(edits)
        assert time.monotonic() - began < 5
        await scorer.stop()
        assert time.monotonic() - began < 8
    assert [score.score for score in scores] == [None, None]
    assert "not judged within 0.5 s" in str(scores[0].why)


@pytest.mark.long
def test_no_pause_outlasts_the_deadline_of_an_edit(scripted: StartServer, tmp_path: Path) -> None:
    began = time.monotonic()
    ending = judge_batch(batch(scripted(always(LIMITED)), tmp_path, 2, ENDLESS, deadline=0.5), quiet=True)
    assert dict(ending.tally.unjudged) == {"timeout": 2}
    assert time.monotonic() - began < 8


async def test_whoever_pauses_ends_when_no_more_requests_are_sent(scripted: StartServer, tmp_path: Path) -> None:
    server = scripted(always(LIMITED))
    edits = list(load_manifest(write_manifest(tmp_path, 4)))
    traffic = TrafficControl(Limits())
    async with judge(server, ENDLESS, traffic=traffic) as opened:
        judging = [asyncio.create_task(opened.ajudge(edit)) for edit in edits]
        while not traffic.pauses:
            await asyncio.sleep(0.01)
        traffic.stop("interrupted")
        found = await asyncio.wait_for(asyncio.gather(*judging), 5)
    for judgement in found:
        (outcome,) = judgement.verdicts
        assert isinstance(outcome, Unjudged)
        assert outcome.reason == Reason.BUDGET
    assert server.served <= 4


@pytest.mark.long
def test_ctrl_c_during_a_pause_ends_the_command_and_the_run_is_continued(
    scripted: StartServer, processes: Any, tmp_path: Path
) -> None:
    server = scripted(always(LIMITED), log=False)
    given = arguments(server, write_manifest(tmp_path, 3), tmp_path / "run")
    (tmp_path / "log").touch()
    pausing = start(processes, given, tmp_path / "log")
    wait_for(lambda: "rate limited by the server; pausing all requests for 5 s" in (tmp_path / "log").read_text())
    for _ in range(2):
        os.kill(pausing.pid, signal.SIGINT)
        time.sleep(0.2)
    pausing.join(10)
    told = (tmp_path / "log").read_text()
    assert pausing.exitcode == 130, told
    assert "Traceback" not in told
    with Run.open(tmp_path / "run") as run:
        assert not list(run.units())


@pytest.mark.long
async def test_another_judge_of_the_panel_is_not_held_back(scripted: StartServer, tmp_path: Path) -> None:
    def one_is_limited(request: Request) -> Reply:
        return LIMITED if "small" in request.model else final("Wrong Action")

    server = scripted(one_is_limited)
    edits = list(load_manifest(write_manifest(tmp_path, 3)))
    traffic = TrafficControl(Limits())
    async with judge(server, ENDLESS, "panel:openai:gpt-4.1-small,openai:gpt-4.1-large", traffic=traffic) as opened:
        judging = [asyncio.create_task(opened.ajudge(edit)) for edit in edits]
        while sum("large" in request.model for request in server.requests) < 3:
            await asyncio.sleep(0.01)
        traffic.stop("enough")
        await asyncio.wait_for(asyncio.gather(*judging), 5)


def test_progress_says_that_requests_pause() -> None:
    traffic, output = TrafficControl(Limits()), io.StringIO()
    progress = Progress(Tally(total=3), traffic, output)
    traffic.announce_pause = progress.announce_pause
    assert "paused" not in progress.line()
    traffic.pause_requests("openai:x", 30)
    assert progress.line().startswith("rate limited by the server; pausing all requests for 30 s · 0/3 units")
    assert output.getvalue() == "editloupe: rate limited by the server; pausing all requests for 30 s\n"


@pytest.mark.ray
def test_a_cluster_waits_for_a_limited_server_too(cluster: Any, scripted: StartServer, tmp_path: Path) -> None:
    server = scripted(ByTheMinute(4), log=False)
    ending = judge_batch(batch(server, tmp_path, 12, executor="ray", ray_workers=1), quiet=True)
    assert (ending.tally.judged, dict(ending.tally.unjudged)) == (12, {})
    assert ending.rate_advice is not None

"""Judging through batch files, at services that keep the published format: nothing is sent twice, whatever happens between."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from editloupe import Judge, JudgeSettings, UserError, load_manifest
from editloupe.agent.transport.batch_files import (
    MOST_PAGES,
    BatchFiles,
    BatchRefused,
    ListedJob,
    find_job,
    new_mark,
)
from editloupe.cli.main import run as command
from editloupe.evals.batch import batch_api
from editloupe.evals.batch.batch import Batch, Ending, judge_batch
from editloupe.evals.batch.batch_api import FOLDER, BatchApiQueue
from editloupe.evals.batch.stopping import StopControl
from editloupe.evals.batch.traffic import Limits
from editloupe.evals.runs.prices import Price
from editloupe.evals.runs.store import Run
from tests.conftest import StartServer
from tests.evals.samples import write_manifest
from tests.scripted import Answer, Request, ScriptedServer, Usage, fault, final, say
from tests.scripted.batch_service import BatchService

OPENAI, GEMINI = "openai:gpt-4.1", "google_genai:gemini-2.5-flash"
both = pytest.mark.parametrize("spec", [OPENAI, GEMINI])
Judging = Callable[..., Ending]


def answers(request: Request) -> Answer:
    return final("Wrong Action").but(usage=Usage(1000, 100))


class Batches:
    """A server with batch interfaces, and a run into which edits are judged through them."""

    def __init__(self, server: ScriptedServer, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.service = BatchService(answers)
        server.batches = self.service
        self.said: list[str] = []

    def judge(
        self, spec: str = OPENAI, count: int = 4, settings: dict[str, Any] | None = None, **options: Any
    ) -> Ending:
        if not (self.folder / "manifest.jsonl").exists():
            write_manifest(self.folder, count)
        url = self.server.gemini_url if spec.startswith("google") else self.server.openai_url
        mode = options.pop("mode", "plain")

        def opened(**hooks: Any) -> Judge:
            chosen = JudgeSettings(**settings or {})
            return Judge(spec, mode=mode, base_url=url, criteria=["instruction_following"], settings=chosen, **hooks)

        edits = lambda: load_manifest(self.folder / "manifest.jsonl")  # noqa: E731
        batch = Batch(edits, self.folder / "run", opened, executor="batch-api", **{"poll_seconds": 0.01, **options})
        return judge_batch(batch, quiet=True, say=self.said.append)

    def labels(self) -> list[tuple[str, str | None]]:
        with Run.open(self.folder / "run") as run:
            query = "SELECT status, label FROM units ORDER BY rowid"
            return [tuple(row) for row in run.reader().connection.execute(query)]


@pytest.fixture
def batches(scripted: StartServer, tmp_path: Path) -> Batches:
    return Batches(scripted(answers), tmp_path)


@pytest.mark.long
@both
def test_every_edit_is_judged_by_a_line_of_a_file(batches: Batches, spec: str) -> None:
    ending = batches.judge(spec)
    assert (ending.tally.judged, ending.tally.held, ending.complete) == (4, 0, True)
    assert batches.server.served == 0, "nothing went out by itself"
    assert len(batches.service.jobs) == 1
    assert batches.service.asked == 4
    assert batches.labels() == [("judged", "Wrong Action")] * 4
    assert not list((batches.folder / "run" / FOLDER).glob("*.jsonl")), "what was sent is not kept"


@pytest.mark.long
@both
def test_a_second_session_asks_nothing(batches: Batches, spec: str) -> None:
    batches.judge(spec)
    ending = batches.judge(spec)
    assert (ending.tally.judged, ending.tally.held) == (0, 4)
    assert len(batches.service.jobs) == 1


@pytest.mark.long
@both
def test_a_stop_leaves_the_job_running_and_the_next_session_goes_on_with_it(
    batches: Batches, spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches.service.polls_needed = 10**9
    monkeypatch.setattr(batch_api, "_wait", _interrupt)
    ending = batches.judge(spec)
    assert ending.exit_code(unjudged=False) == 130
    assert any("continues at the provider" in one and "curl -X POST" in one for one in batches.said)
    assert not any("cancelled" in name for name in batches.said)
    monkeypatch.undo()
    batches.service.polls_needed = 1
    ending = batches.judge(spec)
    assert ending.tally.judged == 4
    assert len(batches.service.jobs) == 1, "nothing was submitted twice"
    assert batches.service.asked == 4


async def _interrupt(stop: StopControl, seconds: float) -> None:
    stop.requests, stop.why = 1, "interrupted"


@pytest.mark.long
@both
def test_a_job_nobody_heard_of_is_found_by_its_mark(batches: Batches, spec: str) -> None:
    batches.service.lose_next_creation = True
    with pytest.raises(UserError, match="could not be reached"):
        batches.judge(spec)
    assert len(batches.service.jobs) == 1
    assert batches.judge(spec).tally.judged == 4
    assert len(batches.service.jobs) == 1


@pytest.mark.long
@both
def test_a_job_nobody_heard_of_is_found_behind_many_later_ones(batches: Batches, spec: str) -> None:
    batches.service.lose_next_creation = True
    with pytest.raises(UserError, match="could not be reached"):
        batches.judge(spec)
    batches.service.add_jobs(250)
    assert batches.judge(spec).tally.judged == 4
    assert len(batches.service.jobs) == 251, "nothing was submitted twice"


@pytest.mark.long
@both
def test_nothing_is_sent_again_if_the_list_of_jobs_does_not_reach_back(batches: Batches, spec: str) -> None:
    batches.service.lose_next_creation = True
    with pytest.raises(UserError, match="could not be reached"):
        batches.judge(spec)
    batches.service.add_jobs(150)
    batches.service.endless = True
    with pytest.raises(UserError, match=r"editloupe-\S+ was not confirmed.*not sent again"):
        batches.judge(spec)
    assert len(batches.service.jobs) == 151
    batches.service.endless = False
    assert batches.judge(spec).tally.judged == 4, "the next session finds it"


async def test_the_list_of_jobs_is_read_back_to_the_time_of_the_mark() -> None:
    pages = 0

    class Listing:
        async def list_jobs(self, cursor: str | None) -> tuple[list[ListedJob], str | None]:
            nonlocal pages
            pages += 1
            return [ListedJob(f"job{pages}", "another", 1_500_000_000.0)], str(pages)

    assert await find_job(cast(BatchFiles, Listing()), new_mark()) is None
    assert pages == 1
    with pytest.raises(BatchRefused):
        await find_job(cast(BatchFiles, Listing()), "editloupe-0123456789abcdef0123")
    assert pages == 1 + MOST_PAGES, "an older mark has no time"


@pytest.mark.long
def test_what_was_staged_when_the_session_was_killed_is_sent_once(
    batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def killed(desk: BatchApiQueue) -> list[str]:
        raise KeyboardInterrupt

    monkeypatch.setattr(BatchApiQueue, "submit", killed)
    with pytest.raises(KeyboardInterrupt):
        batches.judge()
    assert list((batches.folder / "run" / FOLDER).glob("*.jsonl"))
    monkeypatch.undo()
    assert batches.judge().tally.judged == 4
    assert len(batches.service.jobs) == 1


@pytest.mark.long
def test_a_submission_the_provider_never_saw_is_sent_again(batches: Batches, monkeypatch: pytest.MonkeyPatch) -> None:
    batches.service.refuse = [fault(500)]
    with pytest.raises(UserError, match="answered 500"):
        batches.judge()
    assert not batches.service.jobs
    assert batches.judge().tally.judged == 4
    assert len(batches.service.jobs) == 1


@pytest.mark.long
def test_results_that_were_read_before_a_kill_are_not_asked_for_again(
    batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = BatchApiQueue.collect

    async def then_killed(desk: BatchApiQueue, mark: str, remote: str) -> Any:
        await whole(desk, mark, remote)
        raise KeyboardInterrupt

    monkeypatch.setattr(BatchApiQueue, "collect", then_killed)
    with pytest.raises(KeyboardInterrupt):
        batches.judge()
    monkeypatch.undo()
    assert batches.judge().tally.judged == 4
    assert batches.service.asked == 4


@pytest.mark.long
def test_a_file_has_its_limits_and_partial_results_are_filed_as_they_come(
    batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("editloupe.evals.batch.batch_api.MOST_REQUESTS", 3)
    batches.service.polls_needed = 2
    ending = batches.judge(count=7)
    sizes = [batches.service.files[job.file].count(b"\n") for job in batches.service.jobs.values()]
    assert sizes == [3, 3, 1]
    assert ending.tally.judged == 7
    assert ending.complete


@pytest.mark.long
def test_a_file_has_a_size(batches: Batches, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("editloupe.evals.batch.batch_api.MOST_BYTES", 50_000)
    assert batches.judge(count=4).tally.judged == 4
    files = [batches.service.files[job.file] for job in batches.service.jobs.values()]
    assert len(files) > 1
    assert all(len(content) <= 50_000 for content in files)


@pytest.mark.long
@both
def test_what_expired_is_unjudged_and_asked_again_by_the_next_session(batches: Batches, spec: str) -> None:
    batches.service.expired = {1}
    ending = batches.judge(spec)
    assert (ending.tally.judged, dict(ending.tally.unjudged)) == (3, {"timeout": 1})
    assert ending.complete
    batches.service.expired = set()
    ending = batches.judge(spec)
    assert (ending.tally.judged, ending.tally.held) == (1, 3)
    assert batches.service.asked == 4


@pytest.mark.long
@both
def test_a_refusal_of_one_request_is_that_unit_s_outcome(batches: Batches, spec: str) -> None:
    blocked = fault(400, "Your input was flagged by our safety system")
    batches.service._answer = lambda request: blocked if "Do 1" in request.text else answers(request)
    ending = batches.judge(spec)
    assert (ending.tally.judged, dict(ending.tally.unjudged)) == (3, {"request_refused": 1})
    assert batches.judge(spec).tally.held == 4


@pytest.mark.long
def test_a_server_s_error_in_the_results_is_no_verdict(batches: Batches) -> None:
    batches.service._answer = lambda request: fault(500) if "Do 1" in request.text else answers(request)
    ending = batches.judge()
    assert dict(ending.tally.unjudged) == {"model_error": 1}
    assert batches.service.asked == 4, "it is left to the next session"


@pytest.mark.long
def test_a_reply_that_cannot_be_read_is_sent_back_in_a_further_file(batches: Batches) -> None:
    def script(request: Request) -> Answer:
        first = len(request.messages) == 1
        return say("hmm").but(usage=Usage(1000, 100)) if first and "Do 1" in request.text else answers(request)

    batches.service._answer = script
    ending = batches.judge()
    assert ending.tally.judged == 4
    assert [batches.service.files[job.file].count(b"\n") for job in batches.service.jobs.values()] == [4, 1]


@pytest.mark.long
def test_repeats_are_told_apart(batches: Batches) -> None:
    ending = batches.judge(count=2, repeats=3)
    assert ending.tally.judged == 6
    assert batches.service.asked == 6


@pytest.mark.long
def test_it_costs_half(batches: Batches) -> None:
    ending = batches.judge(price=Price(input=10, output=100))
    assert ending.spending.cost == pytest.approx(4 * (1000 * 10 + 100 * 100) / 1e6 / 2)


def test_a_cap_is_kept_before_anything_goes_out(batches: Batches) -> None:
    ending = batches.judge(limits=Limits(max_tokens=100))
    assert ending.tally.judged == 0
    assert not batches.service.jobs
    assert "leaves no room" in (ending.why or "")
    assert not ending.complete


@pytest.mark.long
def test_what_a_cap_let_through_is_filed_though_it_took_more_than_expected(batches: Batches) -> None:
    batches.service._answer = lambda request: answers(request).but(usage=Usage(50_000, 100))
    ending = batches.judge(limits=Limits(max_tokens=9_000))
    asked = batches.service.asked
    assert 0 < asked < 4
    assert ending.tally.judged == asked
    assert "leaves no room" in (ending.why or "")


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (["--mode", "tools"], "needs --mode plain"),
        (["--mode", "plain", "--judge", "rules"], "needs a model|needs --mode plain|sends no requests"),
        (["--mode", "plain", "--judge", "anthropic:claude-sonnet-5"], "knows no batch interface"),
        (["--mode", "plain", "--judge", f"panel:{OPENAI},openai:gpt-5.1"], "asks one model"),
        (["--mode", "plain", "--judge", "openrouter:openai/gpt-4.1"], "knows no batch interface"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(
    batches: Batches, tmp_path: Path, more: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    import re

    manifest = write_manifest(tmp_path, 1)
    judge = [] if "--judge" in more else ["--judge", OPENAI]
    server = [] if "rules" in more else ["--base-url", batches.server.openai_url]
    line = ["batch", str(manifest), "--out", str(tmp_path / "run"), *judge, *server, *more, "--executor", "batch-api"]
    assert command(line) == 2
    assert re.search(why, capsys.readouterr().err)
    assert batches.server.served == 0


@pytest.mark.long
def test_the_command_says_which_job_it_submitted(
    batches: Batches, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("editloupe.evals.batch.batch.FIRST_POLL", 0.01)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-batch-key-0123456789")
    server = ["--base-url", batches.server.openai_url, "--judge", OPENAI, "--mode", "plain"]
    line = ["batch", str(write_manifest(tmp_path, 2)), "--out", str(tmp_path / "run"), *server]
    assert command([*line, "--criterion", "instruction_following", "--executor", "batch-api", "-q"]) == 0
    told = capsys.readouterr()
    assert "submitted as batch job batch_0" in told.err
    held = b"".join(file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file())
    assert b"sk-batch-key" not in held


@pytest.mark.long
def test_no_key_and_no_picture_stays_beside_the_run(batches: Batches) -> None:
    batches.judge()
    with sqlite3.connect(batches.folder / "run" / FOLDER / "requests.sqlite") as db:
        bodies = [row[0] for row in db.execute("SELECT body FROM requests")]
    assert len(bodies) == 4
    assert all("choices" in json.loads(body) for body in bodies)

"""A fork goes on with the replies of its own trace, whatever else was said about the same edit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from editloupe import Edit, Judge, fork
from editloupe.evals.batch.batch import Batch, judge_batch
from editloupe.evals.forks.fork_judge import JudgeChange
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import find_step_reply
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair
from tests.evals.forks.kept_runs import CRITERION, script, turns
from tests.scripted import Request, ScriptedServer, final


def both_criteria(request: Request) -> Any:
    """The same two looks in the same words for either criterion, and an answer of its own."""
    if "Perfect Consistency" in json.dumps(request.body) and turns(request) == 2:
        return final("Perfect Consistency")
    return script(request)


def judged(folder: Path, server: ScriptedServer, ids: tuple[str, ...] = ("patch",), repeats: int = 1) -> Path:
    before, after = edit_pair(folder)
    about = {"source": before, "edited": after, "instruction": "Change the color of the patch to red"}
    edits = [Edit(id=one, **about) for one in ids]

    def open_judge(**hooks: Any) -> Judge:
        return Judge("openai:gpt-4.1", base_url=server.openai_url, **hooks)

    judge_batch(Batch(edits=lambda: edits, out=folder / "run", open_judge=open_judge, repeats=repeats), quiet=True)
    return folder / "run"


@pytest.mark.long
@pytest.mark.parametrize("criterion", [CRITERION, "visual_consistency"])
def test_words_and_calls_of_another_criterion_are_not_taken_for_the_own(
    criterion: str, tmp_path: Path, scripted: StartServer
) -> None:
    server = scripted(both_criteria)
    run = judged(tmp_path, server, repeats=2)
    for repeat in (0, 1):
        (made,) = fork(
            run, "patch", criterion, 3, repeat=repeat
        )  # the server refuses calls and results that do not belong together
        assert made.outcome.status == "judged"
        assert made.paid.requests == 1
    assert server.refused == []


@pytest.mark.long
def test_an_edit_that_shares_its_unit_with_another_goes_on_from_the_kept_replies(
    tmp_path: Path, scripted: StartServer
) -> None:
    server = scripted(both_criteria)
    run = judged(tmp_path, server, ids=("first", "second"))
    for name in ("first", "second"):
        (made,) = fork(run, name, CRITERION, 3)
        assert made.notes == ()


@pytest.mark.long
def test_a_changed_thought_is_still_said_in_a_fork_of_the_fork(tmp_path: Path, scripted: StartServer) -> None:
    server = scripted(both_criteria)
    run = judged(tmp_path, server)
    (first,) = fork(run, "patch", CRITERION, 1, thought="The edges look soft.")
    asked = len(server.requests)
    fork(run, "patch", CRITERION, 2, parent=first.number)
    assert "The edges look soft." in json.dumps(server.requests[asked].body)


@pytest.mark.long
def test_a_judge_that_writes_its_calls_reads_only_the_changed_one(tmp_path: Path, scripted: StartServer) -> None:
    server = scripted(both_criteria)
    run = judged(tmp_path, server)
    asked = len(server.requests)
    written = JudgeChange(judge="openai:qwen2.5-vl", base_url=server.openai_url)
    fork(run, "patch", CRITERION, 2, boxes={1: (10, 10, 90, 90)}, other=written)
    told = [message.text for message in server.requests[asked].messages if message.role == "assistant"]
    assert "[10, 10, 90, 90]" in told[-1]
    assert "[50, 30, 110, 80]" not in told[-1]


@pytest.mark.long
def test_a_unit_that_was_asked_anew_shows_its_own_reply(tmp_path: Path, scripted: StartServer) -> None:
    server = scripted(both_criteria)
    run = judged(tmp_path, server)
    with Run.open(run) as opened:
        (trace,) = opened.load_trace("patch", CRITERION)
        last = trace.steps[-1]
        old = opened.find_reply(last.reply_key)
        assert old is not None
    text = json.dumps(old).replace("Flawless Execution", "Wrong Action")
    with Run.write(run) as opened:
        opened.keep_reply(f"{last.reply_key}#2", json.loads(text), "patch")
    again = last.model_copy(update={"raw": last.raw.replace("Flawless Execution", "Wrong Action")})
    with Run.open(run) as opened:
        found = [find_step_reply(opened, "patch", step) for step in (last, again)]
    assert [step is not None and "Wrong Action" in json.dumps(step.reply) for step in found] == [False, True]

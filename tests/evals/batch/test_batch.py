"""Batches against a scripted server: what is judged, kept and continued."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import sqlite3
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from editloupe.agent.chat_interface import RetryPolicy
from editloupe.agent.transport.errors import ModelRejected
from editloupe.evals.batch import batch as batch_module
from editloupe.evals.batch.batch import LOOK_AHEAD, Batch, Ending, dry_run, judge_batch
from editloupe.evals.batch.planner import RejudgePolicy
from editloupe.evals.batch.traffic import Limits
from editloupe.evals.manifests.layouts import load_manifest
from editloupe.evals.runs.store import Run
from editloupe.evals.stats.scores.run_scores import compute_criterion_means
from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.graphs.loop import CaseContext, initial_state
from editloupe.judge import Judge, JudgeSettings
from editloupe.pictures.decode import Album, Picture
from editloupe.types import Unjudged, UserError
from tests.conftest import StartServer
from tests.evals.samples import write_manifest
from tests.scripted import Answer, Reply, Request, ScriptedServer, call, drop, fault, final, say, wrong_key

QUICK = RetryPolicy(first_wait=0.01, longest_wait=0.05, max_attempts=12)
LABELS = {"instruction_following": "Wrong Action", "visual_consistency": "Perfect Consistency"}


def criterion_of(request: Request) -> str:
    return "visual_consistency" if "Scene Collapse" in request.system else "instruction_following"


def answers(request: Request) -> Answer:
    return final(LABELS[criterion_of(request)])


def batch(server: ScriptedServer, manifest: Path, out: Path, **changes: Any) -> Batch:
    judge_changes = changes.pop("judge", {})

    def open_judge(**hooks: Any) -> Judge:
        settings = JudgeSettings(retry=QUICK, timeout=10)
        given = {"mode": "plain", "settings": settings, **judge_changes}
        return Judge("openai:gpt-4.1", base_url=server.openai_url, **given, **hooks)

    return Batch(lambda: load_manifest(manifest), out, open_judge, **{"limits": Limits(concurrency=8), **changes})


def run(wanted: Batch) -> Ending:
    return judge_batch(wanted, quiet=True)


def units(out: Path) -> list[tuple[str, str, int, str]]:
    with Run.open(out) as opened:
        return [(u.edit_id, u.criterion, u.repeat, u.outcome.status) for u in opened.units()]


@pytest.mark.long
def test_every_unit_is_judged_once_and_the_same_command_again_asks_nothing(
    scripted: StartServer, tmp_path: Path
) -> None:
    server = scripted(answers)
    wanted = batch(server, write_manifest(tmp_path, 5), tmp_path / "run")
    first = run(wanted)
    assert (first.tally.judged, first.tally.missing, server.served) == (10, 0, 10)
    again = run(wanted)
    assert (again.tally.judged, again.tally.held, server.served) == (0, 10, 10)
    assert len(set(units(tmp_path / "run"))) == 10
    with Run.open(tmp_path / "run") as opened:
        labels = {(u.criterion, getattr(u.outcome, "label", None)) for u in opened.units()}
        assert labels == set(LABELS.items())
        (configuration,) = opened.about()["configurations"]
        assert configuration["spec"] == "openai:gpt-4.1"
        assert set(configuration["rubrics"]) == set(LABELS)


@pytest.mark.long
def test_edits_added_to_the_manifest_are_the_only_ones_judged(scripted: StartServer, tmp_path: Path) -> None:
    server = scripted(answers)
    run(batch(server, write_manifest(tmp_path, 2), tmp_path / "run"))
    manifest = write_manifest(tmp_path, 3)
    assert run(batch(server, manifest, tmp_path / "run")).tally.judged == 2
    assert server.served == 6


@pytest.mark.long
def test_a_changed_picture_or_instruction_is_judged_beside_the_first_and_a_touched_file_is_not(
    scripted: StartServer, tmp_path: Path
) -> None:
    server = scripted(answers)
    manifest = write_manifest(tmp_path, 3)
    run(batch(server, manifest, tmp_path / "run"))
    (tmp_path / "img/e0.png").write_bytes((tmp_path / "img/e1.png").read_bytes())
    (tmp_path / "img/e2.png").touch()
    assert run(batch(server, manifest, tmp_path / "run")).tally.judged == 2
    rows = [json.loads(line) for line in manifest.read_text().splitlines()]
    rows[1]["instruction"] = "Something else"
    manifest.write_text("\n".join(map(json.dumps, rows)))
    assert run(batch(server, manifest, tmp_path / "run")).tally.judged == 2
    assert len(units(tmp_path / "run")) == 10, "nothing judged is replaced"
    replaced = run(batch(server, manifest, tmp_path / "run", again=RejudgePolicy(replace=True)))
    assert replaced.tally.judged == 6
    assert len(units(tmp_path / "run")) == 6


@pytest.mark.long
def test_a_changed_rubric_is_judged_beside_the_first_and_only_where_it_changed(
    scripted: StartServer, tmp_path: Path
) -> None:
    server = scripted(answers)
    manifest = write_manifest(tmp_path, 2)
    run(batch(server, manifest, tmp_path / "run"))
    words = tmp_path / "words.yaml"
    said: list[str] = []
    reworded = batch(server, manifest, tmp_path / "run", judge={"rubrics": [words]})
    words.write_text("extends: dlebench/visual_consistency\nquestion: What else changed?\n")
    assert judge_batch(reworded, quiet=True, say=said.append).tally.judged == 2
    words.write_text("extends: dlebench/visual_consistency\nquestion: What changed besides?\n")
    kept = replace(reworded, again=RejudgePolicy(keep=True))
    assert judge_batch(kept, quiet=True, say=said.append).tally.judged == 0
    changed = "the wording of visual_consistency changed: 2 units of visual_consistency"
    assert said == [f"{changed}, judged again; --keep uses the old verdicts", f"{changed}, the old verdicts are used"]
    with Run.open(tmp_path / "run") as opened:
        assert sorted(one.units for one in opened.configurations()) == [4, 4]
        asked = Counter((u.criterion, u.asked) for u in opened.units())
    assert len(asked) == 4


@pytest.mark.long
def test_repeats_have_replies_of_their_own_and_a_spread(scripted: StartServer, tmp_path: Path) -> None:
    given = Counter[str]()

    def moody(request: Request) -> Answer:
        if criterion_of(request) == "visual_consistency":
            return final("Perfect Consistency")
        given["if"] += 1
        return final("Wrong Action" if given["if"] % 2 else "Flawless Execution")

    server = scripted(moody)
    manifest = write_manifest(tmp_path, 1)
    ending = run(batch(server, manifest, tmp_path / "run", repeats=2))
    assert (ending.tally.judged, server.served) == (4, 4)
    with Run.open(tmp_path / "run") as opened:
        found = {score.criterion: score for score in compute_criterion_means(read_run_table(opened))}
        assert len(opened.load_trace("e0", "instruction_following")) == 2
    assert found["visual_consistency"].deviation == 0
    assert found["instruction_following"].mean == pytest.approx((100 / 3 + 100) / 2)
    assert found["instruction_following"].deviation == pytest.approx(47.14, abs=0.01)


@pytest.mark.long
def test_a_server_full_of_faults_still_ends_with_everything_judged(scripted: StartServer, tmp_path: Path) -> None:
    dice = random.Random(7)

    def faulty(request: Request) -> Reply:
        roll = dice.random()
        if roll < 0.15:
            return fault(429, retry_after=0.01)
        if roll < 0.25:
            return fault(500)
        return drop() if roll < 0.30 else answers(request)

    server = scripted(faulty)
    ending = run(batch(server, write_manifest(tmp_path, 30), tmp_path / "run"))
    assert (ending.tally.judged, ending.tally.missing) == (60, 0)
    assert ending.tally.retried == server.served - 60 > 0


@pytest.mark.long
def test_what_failed_is_tried_again_by_the_same_command_and_what_was_unreadable_only_when_asked(
    scripted: StartServer, tmp_path: Path
) -> None:
    well = False

    def sick(request: Request) -> Reply:
        if well:
            return answers(request)
        return fault(500) if criterion_of(request) == "visual_consistency" else say("no idea, sorry")

    server = scripted(sick)
    manifest = write_manifest(tmp_path, 1)
    settings = JudgeSettings(retry=QUICK.model_copy(update={"max_attempts": 2}), max_repairs=0)
    wanted = batch(server, manifest, tmp_path / "run", judge={"settings": settings})
    assert run(wanted).tally.unjudged == {"model_error": 1, "unreadable_answer": 1}
    well = True
    second = run(wanted)
    assert (second.tally.judged, second.tally.held) == (1, 1)
    third = run(
        batch(
            server, manifest, tmp_path / "run", again=RejudgePolicy(retry_unjudged=True), judge={"settings": settings}
        )
    )
    assert (third.tally.judged, third.tally.held) == (1, 1)
    assert [status for *_, status in units(tmp_path / "run")] == ["judged", "judged"]
    with Run.open(tmp_path / "run") as opened:
        assert [u.tries for u in opened.units()] == [2, 1]


@pytest.mark.long
def test_an_edit_past_its_deadline_is_left_and_the_others_are_judged(scripted: StartServer, tmp_path: Path) -> None:
    def slow(request: Request) -> Answer:
        return answers(request).after(30.0 if "Do 1" in request.text else 0.0)

    server = scripted(slow)
    ending = run(batch(server, write_manifest(tmp_path, 3), tmp_path / "run", deadline=3.0))
    assert (ending.tally.judged, ending.tally.unjudged) == (4, {"timeout": 2})
    with Run.open(tmp_path / "run") as opened:
        left = [u.outcome for u in opened.units("e1")]
    assert all(isinstance(o, Unjudged) and "deadline of 3 s" in o.detail for o in left)


@pytest.mark.long
def test_a_missing_picture_leaves_its_edit_unjudged_and_is_tried_again_when_it_is_there(
    scripted: StartServer, tmp_path: Path
) -> None:
    server = scripted(answers)
    manifest = write_manifest(tmp_path, 2)
    picture = tmp_path / "img/e1.png"
    data = picture.read_bytes()
    picture.unlink()
    wanted = batch(server, manifest, tmp_path / "run")
    assert run(wanted).tally.unjudged == {"bad_image": 2}
    picture.write_bytes(data)
    assert run(wanted).tally.judged == 2


@pytest.mark.long
def test_a_wrong_key_stops_everything_with_one_sentence(scripted: StartServer, tmp_path: Path) -> None:
    server = scripted(lambda request: wrong_key())
    with pytest.raises(ModelRejected, match="was not accepted"):
        run(batch(server, write_manifest(tmp_path, 50), tmp_path / "run"))
    assert server.served <= 24
    assert units(tmp_path / "run") == []


def test_a_mistake_at_the_end_of_the_manifest_is_told_before_anything_is_asked(
    scripted: StartServer, tmp_path: Path
) -> None:
    server = scripted(answers)
    manifest = write_manifest(tmp_path, 3)
    with manifest.open("a") as file:
        file.write("{broken\n")
    with pytest.raises(UserError, match="line 4"):
        run(batch(server, manifest, tmp_path / "run"))
    assert server.served == 0


@pytest.mark.long
def test_no_more_requests_are_under_way_than_allowed(scripted: StartServer, tmp_path: Path) -> None:
    server = scripted(answers, delay=0.02)
    run(batch(server, write_manifest(tmp_path, 12), tmp_path / "run", limits=Limits(concurrency=3)))
    assert server.peak == 3


@pytest.mark.long
def test_a_dry_run_writes_nothing_asks_nothing_and_learns_from_what_was_judged(
    scripted: StartServer, tmp_path: Path
) -> None:
    server = scripted(answers)
    manifest = write_manifest(tmp_path, 4)
    wanted = batch(server, manifest, tmp_path / "run")
    assumed = dry_run(wanted)
    assert (assumed.units, assumed.measured, assumed.usage.requests) == (8, 0, 8)
    assert not (tmp_path / "run").exists()
    first_two: Callable[[], Any] = lambda: list(load_manifest(manifest))[:2]  # noqa: E731
    judge_batch(Batch(first_two, wanted.out, wanted.open_judge), quiet=True)
    before = server.served
    measured = dry_run(wanted)
    assert (measured.units, measured.measured, measured.usage.input_tokens) == (4, 4, 400)
    assert server.served == before


@pytest.mark.long
def test_an_error_inside_one_edit_is_its_outcome_not_the_end_of_the_run(
    scripted: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = scripted(answers)

    def breaks(context: CaseContext) -> Any:
        if context.case.edit.id == "e1":
            raise RuntimeError("a bug")
        return initial_state(context)

    monkeypatch.setattr("editloupe.graphs.engines.initial_state", breaks)
    ending = run(batch(server, write_manifest(tmp_path, 3), tmp_path / "run"))
    assert (ending.tally.judged, ending.tally.unjudged) == (4, {"internal_error": 2})


@pytest.mark.long
def test_slow_edits_do_not_add_up_beyond_those_that_may_be_under_way(
    scripted: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_module, "TICK", 0.01)
    judge_one, under_way, counts = Judge.ajudge, [], []

    async def count(self: Judge, edit: Any, **options: Any) -> Any:
        under_way.append(edit.id)
        counts.append(len(under_way))
        await asyncio.sleep(0.1)
        judgement = await judge_one(self, edit, **options)
        under_way.remove(edit.id)
        return judgement

    monkeypatch.setattr(Judge, "ajudge", count)
    run(batch(scripted(answers), write_manifest(tmp_path, 8), tmp_path / "run", limits=Limits(concurrency=2)))
    assert (len(counts), max(counts)) == (8, 2)


@pytest.mark.long
def test_a_judge_that_raises_on_one_edit_does_not_end_the_run(
    scripted: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = scripted(answers)
    judge_one = Judge.ajudge

    async def breaks(self: Judge, edit: Any, **options: Any) -> Any:
        if edit.id == "e1":
            raise RuntimeError("a bug")
        return await judge_one(self, edit, **options)

    monkeypatch.setattr(Judge, "ajudge", breaks)
    ending = run(batch(server, write_manifest(tmp_path, 3), tmp_path / "run"))
    assert (ending.tally.judged, ending.tally.unjudged) == (4, {"internal_error": 2})


@pytest.mark.long
def test_a_full_disk_ends_the_run_with_an_error_and_not_in_silence(
    scripted: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = scripted(answers)

    def full(self: Run, filings: Any) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Run, "save_all", full)
    with pytest.raises(sqlite3.OperationalError, match="full"):
        run(batch(server, write_manifest(tmp_path, 3), tmp_path / "run"))


@pytest.mark.long
def test_pictures_of_finished_edits_are_let_go_without_the_garbage_collector(
    scripted: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive: weakref.WeakSet[Picture] = weakref.WeakSet()
    most = 0
    judge_one = Judge.ajudge

    async def watched(self: Judge, edit: Any, *, album: Album, **options: Any) -> Any:
        nonlocal most
        judgement = await judge_one(self, edit, album=album, **options)
        alive.update(album._pictures.values())
        most = max(most, len(alive))
        return judgement

    def looks_once(request: Request) -> Answer:
        looked = any(message.role == "assistant" for message in request.messages)
        return (
            answers(request) if looked else call("zoom_in_image", bbox_2d=[1, 1, 20, 20], target_image="Edited Image")
        )

    monkeypatch.setattr(Judge, "ajudge", watched)
    settings = JudgeSettings(tool_calls="native")
    changes: dict[str, Any] = {"judge": {"mode": "tools", "settings": settings}, "limits": Limits(concurrency=4)}
    gc.disable()
    try:
        ending = run(batch(scripted(looks_once), write_manifest(tmp_path, 40), tmp_path / "run", **changes))
    finally:
        gc.enable()
    assert ending.tally.judged == 80
    assert 3 <= most <= 3 * 6, "pictures are held after their edit is written"


@pytest.mark.long
def test_the_manifest_is_read_as_places_become_free(scripted: StartServer, tmp_path: Path) -> None:
    server = scripted(answers)
    manifest = write_manifest(tmp_path, 100)
    taken: list[tuple[int, int]] = []

    def edits() -> Any:
        for number, edit in enumerate(load_manifest(manifest)):
            taken.append((number, server.served))
            yield edit

    wanted = batch(server, manifest, tmp_path / "run", limits=Limits(concurrency=4))
    run(Batch(edits, wanted.out, wanted.open_judge, limits=wanted.limits))
    # Counted, and made known to the run, the manifest was read twice before anything was asked.
    assert not any(served for _, served in taken[:200])
    ahead = [number - served // 2 for number, served in taken[200:]]
    assert len(ahead) == 100
    assert max(ahead) <= 2 * LOOK_AHEAD + 3 + 3


def test_a_manifest_without_edits_is_a_mistake(scripted: StartServer, tmp_path: Path) -> None:
    (tmp_path / "manifest.jsonl").write_text("")
    with pytest.raises(UserError, match="has no edits"):
        run(batch(scripted(answers), tmp_path / "manifest.jsonl", tmp_path / "run"))

"""Servers and batch files on a full disk: one sentence, what is paid for is kept or answered, and the work goes on with room."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from editloupe.evals.batch import batch as batches
from editloupe.evals.runs.store import Run
from editloupe.types import Verdict
from tests.evals.sample_runs import IF, Line, make_run
from tests.evals.samples import write_manifest
from tests.faults.commands import batch_arguments, looks_then_answers
from tests.faults.test_full_disk_commands import Place, command, fill, half_written, place
from tests.scripted.batch_service import BatchService
from tests.servers.reward.running import asking, labelled, own, running
from tests.servers.studio.conftest import OpenStudio, studio
from tests.servers.studio.test_live import asked, events

__all__ = ["place", "studio"]
pytestmark = pytest.mark.long


def enlarge(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=200m", disk], check=True)


def test_a_reward_server_answers_what_is_paid_then_refuses_until_it_is_started_again(place: Place) -> None:
    model, out = place.serve(labelled), place.disk / "run"
    with running(asking(model), out=out) as server:
        ask = lambda seed: server.post("/v1/judge", {"edits": [own(seed)]})  # noqa: E731
        assert ask(1).status_code == 200
        fill(place.disk, 0)
        codes = []
        while 503 not in codes and len(codes) < 200:
            before = model.served
            answer = ask(2 + len(codes))
            codes.append(answer.status_code)
        assert set(codes[:-1]) == {200}, "what was paid for is answered"
        assert "cannot be written" in answer.text
        assert model.served == before, "nothing is paid for that cannot be stored"
        assert server.client.get("/health").json()["status"] == "broken"
    enlarge(place.disk)
    with running(asking(model), out=out) as server:
        before = model.served
        assert server.post("/v1/judge", {"edits": [own(1), own(999)]}).status_code == 200
        assert model.served == before + 2, "one edit is stored, the other is new"
    assert half_written(place.disk) == []


def test_a_batch_through_batch_files_stops_with_a_sentence_and_sends_nothing_twice(
    place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "FIRST_POLL", 0.01)
    server = place.serve(looks_then_answers)
    service = server.batches = BatchService(looks_then_answers)
    manifest = write_manifest(place.files, 6)
    arguments = batch_arguments(server, manifest, place.disk / "run", "--executor", "batch-api", "--mode", "plain")
    refused = 0
    for free in (0, 8, 24, 64, 100, 130, 160, 200, 300):
        fill(place.disk, free * 1024)
        capsys.readouterr()
        code = command(arguments)
        printed = capsys.readouterr().err
        assert code in (0, 2), printed
        assert half_written(place.disk) == []
        if code == 0:
            break
        refused += 1
        assert any(words in printed for words in ("cannot be written", "No space left", "is full")), printed
        assert "Traceback" not in printed
    assert refused, "the disk was never full"
    enlarge(place.disk)
    assert command(arguments) == 0, capsys.readouterr().err
    with Run.open(place.disk / "run") as run:
        assert sum(isinstance(unit.outcome, Verdict) for unit in run.units()) == 12
    assert service.asked == 12, "each request was sent once"


def label(client: Any, folder: Path) -> Any:
    return client.post(
        "/runs/run/labels", json={"annotator": "Ana", "edit": "e1", "criterion": IF, "label": "Wrong Action"}
    )


def note(client: Any, folder: Path) -> Any:
    with Run.open(folder) as run:
        unit = next(unit for unit in run.units() if (unit.edit_id, unit.criterion) == ("e1", IF))
    body = {"edit": "e1", "criterion": IF, "repeat": 0, "asked": unit.asked, "tags": "odd", "note": "x" * 900}
    return client.post("/runs/run/trace/note", json=body)


def subset(client: Any, folder: Path) -> Any:
    return client.post("/runs/run/random-subset", json={"size": 20, "seed": 1})


ACTIONS: dict[str, Callable[[Any, Path], Any]] = {"label": label, "note": note, "subset": subset}


@pytest.mark.parametrize("name", ACTIONS)
def test_the_studio_says_that_the_disk_is_full_and_the_same_action_works_with_room(
    name: str, place: Place, studio: OpenStudio
) -> None:
    run = make_run(place.disk / "run", [Line(f"e{number}") for number in range(60)])
    client = studio(runs=(run,), out=place.disk / "out")
    assert client.get("/runs/run").status_code == 200
    fill(place.disk, 0)
    answer = ACTIONS[name](client, run)
    assert (answer.status_code, "full" in answer.text or "No space left" in answer.text) == (400, True), answer.text
    assert half_written(place.disk) == []
    assert client.get("/runs/run").status_code == 200, "reading goes on"
    enlarge(place.disk)
    answer = ACTIONS[name](client, run)
    assert answer.status_code == 200, answer.text


def test_the_page_says_that_a_judgement_could_not_be_stored_and_the_next_one_is(
    place: Place, studio: OpenStudio
) -> None:
    client = studio(out=place.disk / "out")
    body = asked(client, place.files)
    fill(place.disk, 0)
    job = client.post("/judge", json=body)
    assert job.status_code == 200, job.text
    seen = list(events(client, job.json()["job"]))
    assert [kind for kind, _ in seen][-2:] == ["failed", "end"]
    assert "cannot be written" in seen[-2][1]["sentence"]
    assert "step" in [kind for kind, _ in seen], "what was seen is still on the page"
    enlarge(place.disk)
    again = list(events(client, client.post("/judge", json=body).json()["job"]))
    assert [kind for kind, _ in again][-2:] == ["verdicts", "end"]
    assert "No space left" not in json.dumps(again)

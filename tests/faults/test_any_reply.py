"""Any reply can be kept, told and exported, and a run that holds such a reply goes on."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from editloupe._util.json_safe import DEEPEST, MARK, is_json_safe, sanitize
from editloupe.cli.main import run as command
from editloupe.evals.runs.store import Run
from tests.conftest import StartServer
from tests.evals.samples import write_manifest, write_picture
from tests.scripted import Answer, Call, Request, ScriptedServer, call, final, say

HALF = "\ud83d"


def nested(levels: int) -> dict[str, Any]:
    """A mapping inside a mapping, so many times."""
    found: dict[str, Any] = {}
    for _ in range(levels):
        found = {"a": found}
    return found


def zoom(**changes: Any) -> Answer:
    return call("zoom_in_image", **{"bbox_2d": [1, 1, 20, 20], "target_image": "Edited Image", **changes})


FIRST: dict[str, Answer] = {
    "half an emoji in the thought": say(f"I see {HALF} there."),
    "half an emoji in a parameter": zoom(target_image=f"Edited {HALF}"),
    "half an emoji in a tool's name": call(f"zoom{HALF}", bbox_2d=[1, 1, 2, 2]),
    "parameters nested 150 deep": zoom(more=nested(150)),
    "parameters nested 300 deep": zoom(more=nested(300)),
    "parameters nested 900 deep": zoom(more=nested(900)),
    "parameters nested 900 deep as text": Answer(calls=(Call("zoom_in_image", raw='{"a":' * 900 + "1" + "}" * 900),)),
    "numbers that are none": Answer(
        calls=(Call("zoom_in_image", raw='{"bbox_2d": [NaN, Infinity, -Infinity, 1e999]}'),)
    ),
    "a very long number": Answer(calls=(Call("zoom_in_image", raw='{"bbox_2d": [1, 2, 3, ' + "9" * 4000 + "]}"),)),
    "a number too long to read": Answer(
        calls=(Call("zoom_in_image", raw='{"bbox_2d": [1, 2, 3, ' + "9" * 9000 + "]}"),)
    ),
    "control characters": say("\x1b]0;owned\x07\x9b31m\u202eevil\x00\x7f"),
    "a text of 200 000 letters": say("x" * 200_000),
}


def serve(scripted: StartServer) -> ScriptedServer:
    """Give the first reply of the kind the instruction names, and an answer after that."""
    kinds = list(FIRST)

    def replies(request: Request) -> Answer:
        if any(message.role == "assistant" for message in request.messages):
            return final("Single Anomaly" if "Scene Collapse" in request.system else "Wrong Action")
        number = next(n for n in range(len(kinds)) if f"Do {n}" in request.text.replace(f"Do {n}0", ""))
        return FIRST[kinds[number]]

    return scripted(replies)


def options(server: ScriptedServer) -> list[str]:
    judge = ["--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "--mode", "tools", "--tool-calls", "native"]
    return [*judge, "--criterion", "instruction_following"]


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-0123456789abcdef")


def manifest_of(folder: Path) -> Path:
    write_manifest(folder, 1)
    rows = [
        {"id": f"e{n}", "source": "img/s0.png", "edited": "img/e0.png", "instruction": f"Do {n} please"}
        for n in range(len(FIRST))
    ]
    manifest = folder / "manifest.jsonl"
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return manifest


@pytest.mark.long
def test_a_batch_takes_every_reply_and_every_command_tells_it(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server, manifest, out = serve(scripted), manifest_of(tmp_path), tmp_path / "run"
    batch = ["batch", str(manifest), "--out", str(out), *options(server), "--quiet"]
    assert command(batch) in (0, 3)
    asked = len(server.requests)
    with Run.open(out) as run:
        units = list(run.units())
        assert len(units) == len(FIRST)
        assert run.damage.sentences() == ()
        assert {unit.outcome.status for unit in units[:3]} == {"judged"}
        told = "".join(
            step.model_dump_json() for unit in units for trace in run.load_trace(unit.edit_id) for step in trace.steps
        )
    assert MARK in told
    assert command(batch) in (0, 3)
    assert len(server.requests) == asked
    capsys.readouterr()
    for number in range(len(FIRST)):
        assert command(["trace", str(out), f"e{number}"]) == 0
        assert command(["trace", str(out), f"e{number}", "--json"]) == 0
    for kind in ("text", "md", "html", "json"):
        assert command(["report", str(out), "--format", kind]) == 0
    for kind in ("jsonl", "csv", "parquet"):
        assert command(["export", str(out), "--format", kind, "--out", str(tmp_path / f"x.{kind}")]) == 0
    said = capsys.readouterr().out
    assert not set(said) & set("\x1b\x9b\x07\u202e\x00")


@pytest.mark.long
def test_a_rerun_over_a_run_that_holds_such_a_reply_goes_on(tmp_path: Path, scripted: StartServer) -> None:
    server, manifest, out = scripted(final("Wrong Action")), write_manifest(tmp_path, 1), tmp_path / "run"
    batch = ["batch", str(manifest), "--out", str(out), *options(server), "--quiet"]
    assert command(batch) == 0
    with sqlite3.connect(out / "run.sqlite") as database:
        (text,) = database.execute("SELECT reply FROM replies").fetchone()
        reply = json.loads(text)
        reply["message"]["data"]["content"] = f"{HALF} " + reply["message"]["data"]["content"]
        reply["message"]["data"]["additional_kwargs"]["more"] = nested(700)
        database.execute("UPDATE replies SET reply = ?", (json.dumps(reply),))
        for table in ("units", "traces", "steps"):
            database.execute(f"DELETE FROM {table}")
    assert command(batch) == 0
    assert len(server.requests) == 1
    with Run.open(out) as run:
        assert [unit.outcome.status for unit in run.units()] == ["judged"]
        (trace,) = run.load_trace("e0")
        assert trace.steps[-1].raw.startswith(MARK)


@pytest.mark.long
@pytest.mark.parametrize("reply", ["{", "[]", '{"message": 1}', '{"message": {"type": "ai"}, "usage": {}}', "x" * 99])
def test_a_kept_reply_that_is_none_is_asked_for_again(
    reply: str, tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server, manifest, out = (
        scripted(final("Wrong Action"), final("Wrong Action")),
        write_manifest(tmp_path, 1),
        tmp_path / "run",
    )
    batch = ["batch", str(manifest), "--out", str(out), *options(server), "--quiet"]
    assert command(batch) == 0
    with sqlite3.connect(out / "run.sqlite") as database:
        database.execute("UPDATE replies SET reply = ?", (reply,))
        database.execute("DELETE FROM units")
    assert command(batch) == 0
    assert len(server.requests) == 2
    assert "1 kept reply cannot be read" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.parametrize("kind", list(FIRST))
def test_judge_prints_json_whatever_was_replied(
    kind: str, tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server = scripted(lambda request: FIRST[kind] if len(request.messages) < 3 else final("Wrong Action"))
    source, edited = (str(write_picture(tmp_path / name, seed)) for seed, name in enumerate(("a.png", "b.png")))
    assert command(["judge", source, edited, "Do it", *options(server), "--json", "--out", str(tmp_path / "run")]) in (
        0,
        3,
    )
    said = capsys.readouterr().out
    json.loads(said)
    assert not set(said) & set("\x1b\x9b\u202e\x7f")
    said.encode("utf-8")


def test_what_fits_is_left_alone_and_what_does_not_carries_a_mark() -> None:
    whole = {"a": [1, 2.5, "é", None, True, {"b": ("x",)}]}
    assert is_json_safe(whole)
    for bad in (HALF, {HALF: 1}, nested(DEEPEST + 1), [float("nan")], 10**400):
        assert not is_json_safe(bad)
        assert is_json_safe(sanitize(bad))
        json.dumps(sanitize(bad)).encode()
    assert sanitize(f"a{HALF}b\ude00") == f"a{MARK}b{MARK}"
    assert sanitize("\ud83d\ude00") == "😀"
    assert MARK in json.dumps(sanitize(nested(900)), ensure_ascii=False)

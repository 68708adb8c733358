"""`editloupe judge`: exit codes, one sentence for a mistake, JSON with the documented keys, a trace on disk."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from shlex import quote
from typing import Any

import pytest

from editloupe.cli.main import run
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair, huge_png, save, textured
from tests.scripted import Request, call, final, hang, say, wrong_key

INSTRUCTION = "Change the color of the patch to red"
KEYS = {"criterion", "status", "label", "score", "score_100", "rationale", "steps", "usage", "reason"}


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, str]:
    before, after = edit_pair(tmp_path)
    return str(before), str(after)


def perfect(request: Request) -> Any:
    if not any(message.role == "assistant" for message in request.messages):
        return call("zoom_in_image", bbox_2d=[50, 30, 110, 80], target_image="Edited Image")
    return final("Perfect Consistency" if "Perfect Consistency" in request.system else "Flawless Execution")


def test_a_judged_edit_exits_with_0_and_prints_the_documented_json(
    pair: tuple[str, str], scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server = scripted(perfect)
    code = run(["judge", *pair, INSTRUCTION, "--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "--json"])
    assert code == 0
    shown = json.loads(capsys.readouterr().out)
    assert {"edit", "protocol", "mode", "judge", "verdicts"} <= set(shown)
    assert (shown["protocol"], shown["mode"], shown["judge"]) == ("dlebench", "tools", "openai:gpt-4.1")
    assert [v["criterion"] for v in shown["verdicts"]] == ["instruction_following", "visual_consistency"]
    for verdict in shown["verdicts"]:
        assert set(verdict) >= KEYS
        assert (verdict["status"], verdict["score"], verdict["score_100"], verdict["steps"]) == ("judged", 4, 100, 2)
        assert verdict["usage"]["input_tokens"] == 200


@pytest.mark.long
def test_a_reply_that_was_cut_off_exits_with_3_and_says_what_to_do(
    pair: tuple[str, str], scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server = scripted(lambda _: final("Wrong Action").but(finish="length"))
    given = ["judge", *pair, INSTRUCTION, "--judge", "openai:gpt-4.1", "--base-url", server.openai_url]
    assert run([*given, "--max-output-tokens", "64"]) == 3
    told = capsys.readouterr()
    assert "truncated" in told.out
    assert "--max-output-tokens" in told.out + told.err
    assert {request.body["max_completion_tokens"] for request in server.requests} == {64}
    assert run([*given, "--max-output-tokens", "0"]) == 2


@pytest.mark.long
def test_an_unreadable_judge_exits_with_3(
    pair: tuple[str, str], scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server = scripted(lambda request: say("Hard to say."))
    code = run(["judge", *pair, INSTRUCTION, "--judge", "openai:x", "--base-url", server.openai_url, "--json"])
    assert code == 3
    for verdict in json.loads(capsys.readouterr().out)["verdicts"]:
        assert (verdict["status"], verdict["label"], verdict["score"]) == ("unjudged", None, None)
        assert verdict["reason"] == "unreadable_answer"


def test_a_wrong_key_exits_with_2_and_one_sentence_that_does_not_hold_it(
    pair: tuple[str, str], scripted: StartServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-verysecretvalue123")
    server = scripted(lambda request: wrong_key())
    assert run(["judge", *pair, INSTRUCTION, "--judge", "openai:gpt-4.1", "--base-url", server.openai_url]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "key" in said.err
    assert "verysecret" not in said.err


def mistakes(folder: Path) -> dict[str, tuple[list[str], str]]:
    before, after = (str(path) for path in edit_pair(folder))
    (folder / "text.png").write_text("not a picture")
    (folder / "huge.png").write_bytes(huge_png(60_000, 60_000))
    judge = ["judge", before, after, INSTRUCTION]
    return {
        "missing picture": (["judge", str(folder / "missing.jpg"), after, INSTRUCTION], "there is no picture"),
        "text file": (["judge", before, str(folder / "text.png"), INSTRUCTION], "not a picture"),
        "bomb": (["judge", str(folder / "huge.png"), after, INSTRUCTION], "megapixels"),
        "empty instruction": (["judge", before, after, "  "], "instruction is empty"),
        "box outside": ([*judge, "--target", "500,500,600,600"], "outside"),
        "box without area": ([*judge, "--target", "10,10,10,20"], "not a box"),
        "box of words": ([*judge, "--target", "here"], "not a box"),
        "oracle without boxes": ([*judge, "--mode", "oracle"], "target boxes and a reference"),
        "no such mode": ([*judge, "--mode", "dream"], "--mode"),
        "no such protocol": ([*judge, "--protocol", "x"], "no protocol"),
        "no such criterion": ([*judge, "--criterion", "beauty"], "no criterion"),
        "no such judge": ([*judge, "--judge", "gpt"], "not a judge"),
        "no key": ([*judge, "--judge", "openai:gpt-5.1"], "OPENAI_API_KEY"),
        "no gemini key": ([*judge, "--judge", "google_genai:gemini-3-pro"], "GOOGLE_API_KEY"),
        "server for rules": ([*judge, "--judge", "rules", "--base-url", "http://127.0.0.1:1"], "--base-url"),
        "missing argument": (["judge", before], "Missing argument"),
        "no such command": (["weigh"], "No such command"),
        "no such option": ([*judge, "--colour"], "--colour"),
        "not a number": ([*judge, "--max-turns", "many"], "--max-turns"),
        "out is a file": ([*judge, "--judge", "rules", "--out", before], "before.png"),
    }


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        "missing picture",
        "text file",
        "bomb",
        "empty instruction",
        "box outside",
        "box without area",
        "box of words",
        "oracle without boxes",
        "no such mode",
        "no such protocol",
        "no such criterion",
        "no such judge",
        "no key",
        "no gemini key",
        "server for rules",
        "missing argument",
        "no such command",
        "no such option",
        "not a number",
        "out is a file",
    ],
)
def test_a_mistake_is_one_sentence_and_exit_2(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, words = mistakes(tmp_path)[name]
    assert run(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert words in said.err
    assert "Traceback" not in said.err


@pytest.mark.long
def test_a_dead_server_is_unjudged_not_a_score(pair: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["judge", *pair, INSTRUCTION, "--judge", "openai:x", "--base-url", "http://127.0.0.1:9/v1", "--json"])
    assert code == 3
    assert {v["reason"] for v in json.loads(capsys.readouterr().out)["verdicts"]} == {"model_error"}


@pytest.mark.long
def test_out_keeps_the_trace_and_trace_tells_it(
    pair: tuple[str, str],
    tmp_path: Path,
    scripted: StartServer,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-verysecretvalue123")
    server = scripted(perfect)
    kept = tmp_path / "run"
    judge = ["judge", *pair, INSTRUCTION, "--judge", "openai:gpt-4.1", "--base-url", server.openai_url]
    assert run([*judge, "--out", str(kept)]) == 0
    capsys.readouterr()
    assert run(["trace", str(kept), "after"]) == 0
    story = capsys.readouterr().out
    assert "zoom_in_image" in story
    assert "Flawless Execution" in story
    assert run(["trace", str(kept), "after", "--criterion", "visual_consistency", "--json"]) == 0
    units = json.loads(capsys.readouterr().out)["units"]
    assert [unit["criterion"] for unit in units] == ["visual_consistency"]
    steps = units[0]["traces"][0]["steps"]
    assert steps[0]["observations"][0]["pictures"]
    assert steps[0]["sent"][0]["size"] == [160, 120]
    for file in kept.rglob("*"):
        assert not file.is_file() or b"verysecret" not in file.read_bytes()


@pytest.mark.long
def test_the_hint_names_the_edit_that_was_stored_if_its_id_is_taken(
    pair: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = str(tmp_path / "run")
    for instruction, name in ((INSTRUCTION, "after"), ("Remove the sky", "after~2"), (INSTRUCTION, "after")):
        assert run(["judge", *pair, instruction, "--judge", "rules", "--out", kept, "--quiet"]) in (0, 3)
        assert f"editloupe trace {kept} {quote(name)}" in capsys.readouterr().err.splitlines()[-1]


def test_the_embedded_judge_is_announced_and_needs_nothing(
    pair: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["judge", *pair, INSTRUCTION, "--type", "Change Color"]) in (0, 3)
    said = capsys.readouterr()
    assert "rules" in said.err
    assert "Instruction Following" in said.out


def test_oracle_mode_judges_several_targets_and_takes_the_worst(
    pair: tuple[str, str], tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    def script(request: Request) -> Any:
        if "Perfect Consistency" in request.system:
            return final("Perfect Consistency")
        return final("Wrong Action" if "target 2" in request.messages[0].text else "Flawless Execution")

    reference = save(textured(), tmp_path / "reference.png")
    server = scripted(script)
    targets = ["--target", "60,40,100,70", "--target", "10,10,30,30", "--reference", str(reference)]
    judge = ["judge", *pair, INSTRUCTION, "--mode", "oracle", *targets, "--judge", "openai:gpt-4.1"]
    assert run([*judge, "--base-url", server.openai_url, "--json"]) == 0
    following, consistency = json.loads(capsys.readouterr().out)["verdicts"]
    assert (following["label"], consistency["label"]) == ("Wrong Action", "Perfect Consistency")
    assert [trace["target"] for trace in following["trace"]] == [0, 1]
    for request in server.requests:
        assert len(request.messages[0].images) == 3
        assert bool(request.tools) == ("Perfect Consistency" in request.system)


@pytest.mark.long
def test_ctrl_c_exits_with_130(pair: tuple[str, str], scripted: StartServer) -> None:
    server = scripted(lambda request: hang(30))
    command = [sys.executable, "-m", "editloupe", "judge", *pair, INSTRUCTION, "--judge", "openai:x"]
    process = subprocess.Popen([*command, "--base-url", server.openai_url], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not server.served and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in said

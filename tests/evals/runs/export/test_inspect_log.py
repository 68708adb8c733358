"""A run as an Inspect log: by the published format here, by Inspect's own reader in the long form."""

from __future__ import annotations

import base64
import json
import math
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from editloupe.cli.main import run as command
from editloupe.evals.runs.store import Run
from tests.evals.samples import judgement
from tests.servers.started import command as installed

READER = """
import json, math, sys
from inspect_ai.log import read_eval_log, read_eval_log_sample_summaries

log = read_eval_log(sys.argv[1], resolve_attachments=True)
sample = next(s for s in log.samples if "instruction_following" in s.id)
unjudged = next(s for s in log.samples if "visual_consistency" in s.id)
score = unjudged.scores["visual_consistency"]
images = [part.image for m in sample.messages if isinstance(m.content, list) for part in m.content if part.type == "image"]
print(json.dumps({
    "status": log.status,
    "model": log.eval.model,
    "summaries": len(read_eval_log_sample_summaries(sys.argv[1])),
    "roles": [m.role for m in sample.messages],
    "call": sample.messages[2].tool_calls[0].function,
    "images": [image[:22] for image in images],
    "events": [e.event for e in sample.events],
    "read": [len(e.input) for e in sample.events if e.event == "model"],
    "score": [sample.scores["instruction_following"].value, sample.scores["instruction_following"].answer],
    "unscored": [math.isnan(score.value), score.reason, score.explanation],
    "counts": [(s.name, s.scored_samples, s.unscored_samples) for s in log.results.scores],
}))
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    whole, album = judgement(tmp_path)
    with Run.write(tmp_path / "run") as opened:
        opened.save(whole, album=album)
    assert command(["export", str(tmp_path / "run"), "--format", "inspect", "--out", str(tmp_path / "x.eval")]) == 0
    return tmp_path / "x.eval"


def part(log: Path, name: str) -> Any:
    with zipfile.ZipFile(log) as opened:
        return json.loads(opened.read(name))


def test_the_log_holds_what_the_format_names(log: Path) -> None:
    with zipfile.ZipFile(log) as opened:
        names = opened.namelist()
    samples = [name for name in names if name.startswith("samples/")]
    assert {"_journal/start.json", "summaries.json", "header.json"} <= set(names)
    assert samples == [
        "samples/e0 · instruction_following_epoch_1.json",
        "samples/e0 · visual_consistency_epoch_1.json",
    ]
    header = part(log, "header.json")
    assert (header["version"], header["status"], header["eval"]["model"]) == (2, "success", "openai/gpt-5.1")
    assert header["results"]["total_samples"] == 2
    assert header["results"]["completed_samples"] == 1
    assert [summary["id"] for summary in part(log, "summaries.json")] == [
        Path(s).stem[: -len("_epoch_1")] for s in samples
    ]


def test_a_sample_is_the_conversation_with_calls_and_pictures(log: Path, tmp_path: Path) -> None:
    sample = part(log, "samples/e0 · instruction_following_epoch_1.json")
    roles = [message["role"] for message in sample["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant"]
    assert sample["messages"][2]["tool_calls"][0]["function"] == "zoom_in_image"
    shown = [block["image"] for block in sample["messages"][1]["content"] if block["type"] == "image"]
    assert shown[0].removeprefix("attachment://") in sample["attachments"]
    for data in sample["attachments"].values():
        assert base64.b64decode(data.partition(",")[2])[:4] in (b"\x89PNG", b"\xff\xd8\xff\xe0")
    assert [event["event"] for event in sample["events"]] == ["model", "tool", "model", "score"]
    assert [event.get("input_refs") for event in sample["events"]] == [[[0, 2]], None, [[0, 4]], None]
    assert sample["scores"]["instruction_following"]["answer"] == "Wrong Action"


def test_an_unjudged_unit_is_unscored_and_no_mean_counts_it(log: Path) -> None:
    score = part(log, "samples/e0 · visual_consistency_epoch_1.json")["scores"]["visual_consistency"]
    assert math.isnan(score["value"])
    assert (score["reason"], score["explanation"]) == ("unreadable_answer", "No label.")
    following, consistency = part(log, "header.json")["results"]["scores"]
    assert following["metrics"]["mean"]["value"] == pytest.approx(100 / 3)
    assert (consistency["metrics"], consistency["scored_samples"], consistency["unscored_samples"]) == ({}, 0, 1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--format", "inspect"], "--format inspect needs --out"),
        (["--format", "inspect", "--out", "x.json"], "call it x.eval"),
        (["--format", "jsonl", "--configuration", "x"], '"x" is not a configuration of run'),
        (["--format", "inspect", "--out", "x.eval", "--configuration", "none"], 'has no configuration "none"'),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: list[str], sentence: str, log: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(log.parent)
    capsys.readouterr()
    assert command(["export", "run", *arguments]) == 2
    told = capsys.readouterr().err
    assert sentence in told
    assert len(told.strip().splitlines()) == 1


@pytest.mark.slow
def test_inspects_own_reader_takes_the_log(log: Path) -> None:
    python = Path(installed("inspect", "inspect_ai")).with_name("python")
    done = subprocess.run([python, "-c", READER, str(log)], capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    assert told["roles"] == ["system", "user", "assistant", "tool", "assistant"]
    assert (told["status"], told["model"], told["summaries"]) == ("success", "openai/gpt-5.1", 2)
    assert told["images"] == ["data:image/png;base64,"] * 2
    assert told["events"] == ["model", "tool", "model", "score"]
    assert told["read"] == [2, 4]
    assert told["score"] == [pytest.approx(100 / 3), "Wrong Action"]
    assert told["unscored"] == [True, "unreadable_answer", "No label."]
    assert told["counts"] == [["instruction_following", 1, 0], ["visual_consistency", 0, 1]]

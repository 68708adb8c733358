"""`export --format sft`: traces as conversations to train on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from editloupe.cli.main import run
from editloupe.evals.runs.store import Run
from tests import faulty_judges as faulty
from tests.conftest import StartServer
from tests.scripted import Answer, Request, call, final

pytestmark = pytest.mark.long
SECRET = "sk-keep-me-out-of-training-data"
TEMPLATE = """{% for tool in tools %}[tool {{ tool.function.name }}]{% endfor %}
{%- for message in messages %}<{{ message.role }}>
{%- for part in message.content %}{{ '[image]' if part.type == 'image' else part.text }}{% endfor %}
{%- for call in message.tool_calls %}[call {{ call.function.name }} {{ call.function.arguments | tojson }}]{% endfor %}
{%- endfor %}"""
"""A chat template of the shape that models with pictures and tools have."""


def looks_first(request: Request) -> Answer:
    """Zoom in, then answer from the pixels; leave one edit without a readable answer."""
    if "(1)" in request.text:
        return Answer("I cannot say.")
    if len(request.images) < 3:
        return call("zoom_in_image", bbox_2d=[50, 30, 110, 80], target_image="Edited Image")
    return final(f"{faulty.perfect(request).text}".split(">")[-2].split("<")[0], thought=f"the key is {SECRET}")


@pytest.fixture
def judged(scripted: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of four edits in tools mode, whose second edit is unjudged."""
    server = scripted(looks_first)
    arguments = ["batch", str(faulty.write_edits(tmp_path, 4)), "--out", str(tmp_path / "run"), "--quiet"]
    assert run([*arguments, "--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "--mode", "tools"]) == 3
    # The key was not known to the process that judged, so only the export can take it out.
    monkeypatch.setenv("OTHER_API_KEY", SECRET)
    return tmp_path / "run"


Export = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def export(judged: Path, tmp_path: Path) -> Export:
    def write(*more: str, out: str = "sft") -> list[dict[str, Any]]:
        assert run(["export", str(judged), "--format", "sft", "--out", str(tmp_path / out), *more]) == 0
        return [json.loads(line) for line in (tmp_path / out / "train.jsonl").read_text("utf-8").splitlines()]

    return write


def test_a_row_is_the_conversation_as_it_was_sent(export: Export, tmp_path: Path) -> None:
    rows = export()
    first = rows[0]
    assert (first["edit"], first["criterion"], first["judge"]) == ("e0", "instruction_following", "openai:gpt-4.1")
    assert [message["role"] for message in first["messages"]] == [
        "system", "user", "assistant", "tool", "user", "assistant"
    ]  # fmt: skip
    task = first["messages"][1]["content"]
    assert [part["type"] for part in task] == ["text", "image", "text", "image", "text"]
    assert task[0]["text"].startswith("Source Image")
    assert task[2]["text"].startswith("Edited Image")
    (asked,) = first["messages"][2]["tool_calls"]
    assert asked["function"]["arguments"] == {"bbox_2d": [50, 30, 110, 80], "target_image": "Edited Image"}
    assert first["messages"][3]["tool_call_id"] == asked["id"]
    assert "Flawless Execution" in first["messages"][-1]["content"][0]["text"]
    places = [part for message in first["messages"] for part in message["content"] if part["type"] == "image"]
    assert len(places) == len(first["images"]) == 3
    assert all((tmp_path / "sft" / name).is_file() for name in first["images"])
    offered = json.loads(first["tools"])
    assert [tool["function"]["name"] for tool in offered] == ["zoom_in_image", "localize_differences"]
    assert "Edited Image" in offered[0]["function"]["parameters"]["properties"]["target_image"]["enum"]


def test_pictures_are_copied_once_and_a_second_export_has_the_same_bytes(export: Export, tmp_path: Path) -> None:
    rows = export()
    export(out="again")

    def read_all(folder: Path) -> dict[str, bytes]:
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    files = read_all(tmp_path / "sft")
    assert files == read_all(tmp_path / "again")
    named = [name for row in rows for name in row["images"]]
    assert {name for name in files if name.startswith("images/")} == set(named)
    assert len(set(named)) < len(named)


def test_unjudged_verdicts_are_left_out_and_counted(
    export: Export, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = export()
    assert {row["edit"] for row in rows} == {"e0", "e2", "e3"}
    card = (tmp_path / "sft" / "README.md").read_text("utf-8")
    assert "Left out: 2 verdicts, unjudged" in card
    assert "| openai:gpt-4.1 · tools | 6 |" in card
    assert "| instruction_following · Flawless Execution | 2 |" in card
    assert "licences of the pictures" in card
    assert "left out: 2 unjudged" in capsys.readouterr().err


def test_agreement_with_people_selects_conversations(export: Export, tmp_path: Path) -> None:
    labels = tmp_path / "people.jsonl"
    lines = [
        {"id": "e0", "criterion": "instruction_following", "label": "Flawless Execution"},
        {"id": "e2", "criterion": "instruction_following", "label": "Wrong Action"},
    ]
    labels.write_text("".join(json.dumps({**line, "annotator": "a"}) + "\n" for line in lines), "utf-8")
    (row,) = export("--where", "human = label", "--human", str(labels))
    assert (row["edit"], row["human"]) == ("e0", "Flawless Execution")
    card = (tmp_path / "sft" / "README.md").read_text("utf-8")
    assert "- Filter: `human = label`" in card
    assert "people.jsonl" in card
    assert "Left out: 7 verdicts of the run, not selected" in card
    assert "1 have a label by people; 1 (100.0 %) have the same label" in card


def test_labels_with_other_columns_and_words_select_conversations(export: Export, tmp_path: Path) -> None:
    labels = tmp_path / "people.csv"
    labels.write_text("picture,Did it follow?\ne0,Yes\ne2,No\n", "utf-8")
    named = [
        "--columns",
        'id=picture,instruction_following="Did it follow?"',
        "--map",
        "Yes=Flawless Execution,No=Wrong Action",
    ]
    rows = export("--where", 'human = "Flawless Execution"', "--human", str(labels), *named)
    assert {(row["edit"], row["human"]) for row in rows} == {("e0", "Flawless Execution")}


def test_keys_never_reach_the_training_data(export: Export, tmp_path: Path) -> None:
    assert "[secret]" in json.dumps(export())
    texts = [path.read_text("utf-8") for path in (tmp_path / "sft").glob("*.*")]
    assert not any(SECRET in text or str(tmp_path) in text or "127.0.0.1" in text for text in texts)


def test_a_lost_picture_leaves_its_conversations_out(
    export: Export, judged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Run.open(judged) as opened:
        sha = opened.edit("e0").pictures["edited"][0]
        (opened.pictures.find(sha) or judged).unlink()
    assert {row["edit"] for row in export()} == {"e2", "e3"}
    assert "2 show a picture that the run does not have" in capsys.readouterr().err


def test_a_chat_template_renders_every_row(export: Export) -> None:
    templates = pytest.importorskip("transformers.utils.chat_template_utils")
    for row in export():
        (text,), _ = templates.render_jinja_template(
            conversations=[row["messages"]], tools=json.loads(row["tools"]), chat_template=TEMPLATE
        )
        assert text.startswith("[tool zoom_in_image][tool localize_differences]<system>You are a careful judge")
        assert text.count("[image]") == len(row["images"])
        assert '[call zoom_in_image {"bbox_2d": [50, 30, 110, 80], "target_image": "Edited Image"}]<tool>' in text
        assert text.endswith("</Start Final Answer>")


def test_mistakes_are_refused_and_leave_nothing(
    judged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "sft")
    for arguments, sentence in (
        (["--format", "sft"], "--format sft needs --out"),
        (["--format", "csv", "--where", "label = 'x'"], "--where and --human go with --format sft"),
        (["--format", "sft", "--out", str(judged)], "exists and is not an empty folder"),
        (["--format", "sft", "--out", out, "--where", "label ="], "a value is missing"),
    ):
        assert run(["export", str(judged), *arguments]) == 2
        assert sentence in capsys.readouterr().err
    assert not list(tmp_path.glob("*sft*"))

"""A small request whose every part is wrong takes little memory and gets one sentence."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError, field_validator
from starlette.requests import Request

from editloupe._util.errors import MOST_ERRORS, describe_error, first_error
from editloupe.servers.reward.dialects import JSON_DIALECTS
from editloupe.servers.reward.requests import FEWEST_VALUES, BadRequest, RequestLimits
from editloupe.servers.studio.judging.requests import parse_json
from editloupe.types import Edit

READ = {dialect.name: dialect.read for dialect in JSON_DIALECTS}
LIMITS = RequestLimits(512, 10**8)
COMMON = """
import asyncio, base64, io, json, sys
from PIL import Image

def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:")) / 1024

file = io.BytesIO()
Image.new("RGB", (8, 8)).save(file, "PNG")
PNG = base64.b64encode(file.getvalue()).decode()
COUNT = int(sys.argv[1])
EDIT = {"source": PNG, "edited": PNG, "instruction": "Paint it red"}
NO_BOXES = [[]] * COUNT
NUMBERS = {f"a{number}": 0 for number in range(COUNT // 4)}
"""
SERVE = (
    COMMON
    + """
from editloupe.servers.reward.dialects import JSON_DIALECTS
from editloupe.servers.reward.requests import BadRequest, RequestLimits

history = [{"image_b64": PNG}, {"image_b64": PNG, "text": "Paint it red"}]
label = json.dumps({**EDIT, "target_boxes": NO_BOXES})
read = {one.name: one.read for one in JSON_DIALECTS}
cases = {
    "own edits": ("own", {"edits": [{}] * COUNT}),
    "own boxes": ("own", {"edits": [{**EDIT, "target_boxes": NO_BOXES}]}),
    "own pictures by role": ("own", {"edits": [{**EDIT, "images": NUMBERS}]}),
    "own unknown fields": ("own", {"edits": [], **NUMBERS}),
    "own fields of an edit": ("own", {"edits": [{**EDIT, **NUMBERS}]}),
    "unirl requests": ("unirl", {"requests": [{}] * COUNT}),
    "unirl history": ("unirl", {"requests": [{"history": [0] * COUNT}]}),
    "unirl boxes": ("unirl", {"requests": [{"history": history, "metadata": {"editloupe": {"target_boxes": NO_BOXES}}}]}),
    "flow_factory prompts": ("flow_factory", {"prompt": [0] * COUNT}),
    "flow_factory pictures": ("flow_factory", {"prompt": [], "image": [], "condition_images": [[0] * COUNT]}),
    "openrlhf queries": ("openrlhf", {"query": [0] * COUNT}),
    "openrlhf boxes": ("openrlhf", {"query": ["x"], "labels": [label]}),
}
for name, (dialect, content) in cases.items():
    body = json.dumps(content, separators=(",", ":")).encode()
    assert len(body) < 1_000_000
    before = peak()
    try:
        sentence = read[dialect](body, RequestLimits(512, 10**8)).items[0]
    except BadRequest as error:
        sentence = str(error)
    print(json.dumps([name, peak() - before, sentence]), flush=True)
"""
)
MCP = (
    COMMON
    + """
from editloupe import Judge
from editloupe.servers.mcp.tool_server import create_server

cases = {
    "boxes": {"target_boxes": [["x"]] * COUNT},
    "numbers of a box": {"target_boxes": [["x"] * COUNT]},
    "boxes of no numbers": {"target_boxes": NO_BOXES},
    "criteria": {"criteria": [0] * COUNT},
}
with Judge("rules") as judge:
    server = create_server(judge)
    asyncio.run(server.list_tools())
    for name, arguments in cases.items():
        before = peak()
        result = asyncio.run(server.call_tool("judge_edit", {**EDIT, **arguments}))
        print(json.dumps([name, peak() - before, result.content[0].text]), flush=True)
"""
)
MOST_MEMORY = 100
"""MB by which a request of less than 1 MB may raise the peak; one error of each part would take several hundred."""
on_linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak of memory from /proc")


def measure(script: str, count: int) -> tuple[dict[str, float], dict[str, str]]:
    """Return by how many MB each case raised the peak of memory, and the sentence it got."""
    done = subprocess.run(
        [sys.executable, "-c", script, str(count)], capture_output=True, text=True, timeout=300, check=True
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {name: grown for name, grown, _ in rows}, {name: sentence for name, _, sentence in rows}


@pytest.mark.long
@on_linux
@pytest.mark.timeout(300)
def test_a_small_request_to_the_reward_server_takes_little_memory() -> None:
    grown, sentences = measure(SERVE, 200_000)
    assert {name: size for name, size in grown.items() if size > MOST_MEMORY} == {}
    too_many = "the request: 50000 errors, too many to list"
    expected = {
        "own edits": "at most 512 edits, not 200000",
        "own boxes": "edits.0.target_boxes.0: a box has four numbers",
        "own pictures by role": too_many,
        "own unknown fields": too_many,
        "own fields of an edit": too_many,
        "unirl requests": "at most 512 edits, not 200000",
        "unirl history": "requests.0.history.0: ",
        "unirl boxes": "target_boxes.0: a box has four numbers",
        "flow_factory prompts": "at most 512 edits, not 200000",
        "flow_factory pictures": "condition_images.0.0: ",
        "openrlhf queries": "at most 512 edits, not 200000",
        "openrlhf boxes": "target_boxes.0: a box has four numbers",
    }
    assert {name: sentences[name] for name, part in expected.items() if part not in sentences[name]} == {}


@pytest.mark.long
@on_linux
@pytest.mark.timeout(300)
def test_a_small_call_of_a_tool_takes_little_memory() -> None:
    grown, sentences = measure(MCP, 200_000)
    assert {name: size for name, size in grown.items() if size > MOST_MEMORY} == {}
    assert all(len(sentence) < 300 for sentence in sentences.values()), sentences


@pytest.mark.parametrize(
    ("dialect", "content"),
    [
        ("own", {"edits": [{}] * 3}),
        ("unirl", {"requests": [{}] * 3}),
        ("flow_factory", {"prompt": ["x"] * 3, "image": [0] * 3}),
        ("flow_factory", {"prompt": ["x"], "condition_images": [0] * 3}),
        ("openrlhf", {"query": ["x"], "labels": [0] * 3, "prompts": [0]}),
    ],
)
def test_edits_are_counted_before_they_are_read(dialect: str, content: object) -> None:
    with pytest.raises(BadRequest, match="at most 2 edits, not 3"):
        READ[dialect](json.dumps(content).encode(), RequestLimits(2, 10**8))


@pytest.mark.parametrize("part", [b"{}", b"[]", b"0", b'"a"'])
def test_a_request_of_more_values_than_edits_could_have_is_not_read(part: bytes) -> None:
    body = b'{"edits": [], "other": [' + b",".join([part] * (FEWEST_VALUES + 1)) + b"]}"
    with pytest.raises(BadRequest, match=f"holds more than {FEWEST_VALUES} values"):
        READ["own"](body, RequestLimits(2, 10**8))


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"{", "the request: Invalid JSON: EOF while parsing an object"),
        (b"[]", "the request: Input should be an object"),
        (b"\xff", "the request: Invalid JSON: "),
        (b"[" * 10_000 + b"]" * 10_000, "the request: Invalid JSON: recursion limit exceeded"),
        (b'{"edits": 3}', "edits: Input should be a valid array"),
        (b'{"edits": [3]}', "edits.0: Input should be an object"),
    ],
)
def test_json_that_is_no_request_gets_one_sentence(body: bytes, sentence: str) -> None:
    with pytest.raises(BadRequest) as refused:
        READ["own"](body, LIMITS)
    assert str(refused.value).startswith(sentence)


def test_an_edit_is_refused_at_its_first_wrong_box() -> None:
    with pytest.raises(ValidationError) as refused:
        Edit(source="a.png", edited="b.png", instruction="x", target_boxes=[[]] * 100)  # type: ignore[arg-type]
    assert refused.value.error_count() == 1


class Numbers(BaseModel):
    """A record with as many errors as a test wants."""

    values: dict[str, int]
    thread: int = 0

    @field_validator("thread")
    @classmethod
    def _note_thread(cls, value: int) -> int:
        return threading.get_ident()


def test_more_errors_than_are_read_are_counted() -> None:
    for count, place, sentence in (
        (2, "values.0", "values.0: Input should be a valid integer, unable to parse string as an integer"),
        (MOST_ERRORS + 1, "", f"the file: {MOST_ERRORS + 1} errors, too many to list"),
    ):
        with pytest.raises(ValidationError) as refused:
            Numbers.model_validate({"values": {str(number): "x" for number in range(count)}})
        assert first_error(refused.value).place == place
        assert describe_error(refused.value, whole="the file") == sentence


async def test_the_studio_reads_a_request_in_a_worker_thread() -> None:
    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b'{"values": {}, "thread": 1}', "more_body": False}

    headers = [(b"content-type", b"application/json")]
    request = Request({"type": "http", "method": "POST", "headers": headers}, receive)
    read = await parse_json(request, Numbers)
    assert read.thread not in (1, threading.get_ident())

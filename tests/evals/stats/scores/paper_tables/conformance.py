"""Conformance fixtures: verdicts with the numbers of a public script and of a paper's formula, judged again through `batch`.

The scripted judge recognizes an output by the size of its picture, so every output has a size of its own. It has a colour of its
own too, for protocols that resize what they show.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Hashable, Mapping
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from editloupe.cli.main import run
from editloupe.rubrics.protocol import Protocol
from tests.conftest import StartServer
from tests.scripted import Request

ROOT = Path(os.environ.get("EDITLOUPE_CONFORMANCE", Path(__file__).resolve().parents[6] / "shared" / "conformance"))
SMALLEST, WIDTHS = 70, 60
Cells = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Title of a table to model to column to cell."""
Write = Callable[[Path, Path, "Outputs"], None]
"""Writes a benchmark and the outputs of the models into two folders."""
Reply = Callable[[Any, Request], Any]
"""Returns the judge's reply to a request about an output, which is named by its key."""


def needs_fixtures(name: str, *marks: pytest.MarkDecorator) -> list[pytest.MarkDecorator]:
    """Return the marks of a module that reads the fixtures of a paper."""
    missing = not (ROOT / name).is_dir()
    return [pytest.mark.skipif(missing, reason="the conformance fixtures are not here"), *marks]


@cache
def read_lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (ROOT / name).read_text("utf-8").splitlines()]


@cache
def read_numbers(name: str) -> dict[str, Any]:
    numbers: dict[str, Any] = json.loads((ROOT / name).read_text("utf-8"))
    return numbers


class Outputs:
    """Pictures that a request can be recognized by."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def write(self, path: Path, key: Hashable) -> None:
        number = self._numbers.setdefault(key, len(self._numbers))
        path.parent.mkdir(parents=True, exist_ok=True)
        colour = (90, number // 256, number % 256)
        Image.new("RGB", (SMALLEST + number % WIDTHS, SMALLEST + number // WIDTHS), colour).save(path)

    def find(self, request: Request) -> Any:
        """Return the key of the edited picture, the last of those whose size is an output's."""
        by_number = {number: key for key, number in self._numbers.items()}
        sizes = [image.pixels for message in request.messages for image in message.images]
        numbers = [width - SMALLEST + WIDTHS * (height - SMALLEST) for width, height in sizes]
        return next(by_number[number] for number in reversed(numbers) if number in by_number)

    def find_by_colour(self, request: Request) -> Any:
        """Return the key of the last picture of a request, which must be an output."""
        picture = [image for message in request.messages for image in message.images][-1]
        red, green, blue = Image.open(BytesIO(picture.data)).convert("RGB").getpixel((0, 0))
        assert red == 90
        return next(key for key, number in self._numbers.items() if number == 256 * green + blue)


def judge(data: Path, results: Path, out: Path, protocol: str, url: str, *options: str) -> None:
    """Judge a benchmark with a scripted judge. Outputs that stay unjudged are expected."""
    layout = ["batch", str(data), "--layout", protocol, "--results", str(results), "--out", str(out)]
    assert run([*layout, "--judge", "openai:gpt-4.1", "--base-url", url, "--mode", "plain", "--quiet", *options]) in (
        0,
        3,
    )


def find_asked(protocol: Protocol, request: Request) -> str:
    """Return the criterion that a request asks."""
    (asked,) = {rubric.criterion for rubric in protocol.rubrics if rubric.question in request.system}
    return asked


def judge_once(
    folder: Path, layout: str, scripted: StartServer, write: Write, reply: Reply, *options: str, by_colour: bool = False
) -> Path:
    """Return the run of a benchmark; the first call judges it with the replies of a scripted judge."""
    if not (folder / "run").is_dir():
        outputs = Outputs()
        write(folder / "data", folder / "results", outputs)
        find = outputs.find_by_colour if by_colour else outputs.find
        server = scripted(lambda request: reply(find(request), request), log=False)
        judge(folder / "data", folder / "results", folder / "run", layout, server.openai_url, *options)
    return folder / "run"


def report(capsys: pytest.CaptureFixture[str], out: Path, *options: str) -> Cells:
    capsys.readouterr()
    assert run(["report", str(out), "--format", "json", *options]) == 0
    tables = json.loads(capsys.readouterr().out)["tables"]
    return {
        table["title"]: {row[0]: dict(zip(table["columns"], row, strict=True)) for row in table["rows"]}
        for table in tables
    }

"""Tool calls of one edit: alike ones are carried out once, whoever asks."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from editloupe.graphs.context import ObservationCache
from editloupe.pictures.decode import Album
from editloupe.pictures.encode import EncodingLimits
from editloupe.tools.contract import ToolError, ToolPicture, ToolResult, View
from editloupe.tools.registry import Toolbox, build_toolbox
from editloupe.tools.settings import ToolSettings
from editloupe.types import ToolCall

WIRE = EncodingLimits()


class Counting:
    """A tool that counts its calls and takes its time."""

    name = "look_slowly"
    description = "Looks."

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def schema(self, view: View) -> dict[str, Any]:
        return {"type": "object", "properties": {"where": {"type": "number"}}, "required": ["where"]}

    def unavailable(self) -> str | None:
        return None

    def run(self, parameters: Any, view: View) -> ToolResult:
        self.calls.append(parameters["where"])
        assert self.may_go_on.wait(10)
        if parameters["where"] < 0:
            raise ToolError("There is nothing there.")
        pixels = np.full((10, 10, 3), parameters["where"], np.uint8)
        return ToolResult("Seen.", (ToolPicture(pixels, "a place"),), {"where": parameters["where"]})


@pytest.fixture
def tool() -> Counting:
    return Counting()


@pytest.fixture
def toolbox(tool: Counting) -> Toolbox:
    plain = build_toolbox(ToolSettings())
    return Toolbox((tool,), plain.settings, plain.memory, plain.enhancer)


@pytest.fixture
def view() -> View:
    album = Album()
    return View(album, {"Source Image": album.add(np.zeros((20, 20, 3), np.uint8)).sha}, "Paint it")


def asks(where: float, call_id: str = "c") -> ToolCall:
    return ToolCall(id=call_id, name="look_slowly", parameters={"where": where})


async def test_calls_alike_are_carried_out_once_and_each_gets_its_answer(
    tool: Counting, toolbox: Toolbox, view: View
) -> None:
    observations = ObservationCache()
    first, second = await asyncio.gather(
        *(observations.observe(toolbox, asks(3, name), view, WIRE) for name in ("first", "second"))
    )
    later = await observations.observe(toolbox, asks(3, "later"), view, WIRE)
    assert tool.calls == [3]
    assert [seen.call_id for seen in (first, second, later)] == ["first", "second", "later"]
    assert [seen.cached for seen in (first, second, later)] == [False, True, True]
    assert first.pictures == second.pictures == later.pictures
    assert view.album[first.pictures[0]].pixels[0, 0, 0] == 3


async def test_a_tools_time_is_its_work_and_not_the_waiting_of_whoever_asks_again(
    tool: Counting, toolbox: Toolbox, view: View
) -> None:
    observations = ObservationCache()
    first, second = await asyncio.gather(*(observations.observe(toolbox, asks(3), view, WIRE) for _ in range(2)))
    failed = await observations.observe(toolbox, asks(-1), view, WIRE)
    assert first.seconds > 0
    assert second.seconds == 0
    assert failed.seconds > 0


async def test_other_parameters_other_pictures_and_other_edits_are_other_looks(
    tool: Counting, toolbox: Toolbox, view: View
) -> None:
    observations = ObservationCache()
    other = replace(view, pictures={"Edited Image": view.pictures["Source Image"]})
    for asked, seen in ((asks(1), view), (asks(2), view), (asks(1), other)):
        await observations.observe(toolbox, asked, seen, WIRE)
    await ObservationCache().observe(toolbox, asks(1), view, WIRE)
    assert tool.calls == [1, 2, 1, 1]


async def test_what_cannot_be_carried_out_is_a_sentence_for_everyone_who_asked(
    tool: Counting, toolbox: Toolbox, view: View
) -> None:
    observations = ObservationCache()
    seen = await asyncio.gather(*(observations.observe(toolbox, asks(-1), view, WIRE) for _ in range(2)))
    assert [(one.failed, one.text, one.pictures) for one in seen] == [(True, "There is nothing there.", ())] * 2
    assert tool.calls == [-1]


async def test_one_who_gives_up_does_not_take_the_look_from_the_other(
    tool: Counting, toolbox: Toolbox, view: View
) -> None:
    tool.may_go_on.clear()
    observations = ObservationCache()
    hurried, patient = (asyncio.create_task(observations.observe(toolbox, asks(4), view, WIRE)) for _ in range(2))
    await asyncio.sleep(0.05)
    hurried.cancel()
    await asyncio.sleep(0.01)
    tool.may_go_on.set()
    assert (await patient).text == "Seen."
    assert hurried.cancelled()
    assert tool.calls == [4]

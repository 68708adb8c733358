"""The contexts of the graphs, which hold live objects and settings, and the cache of tool observations.

Each graph has a context of its own, and all of them share one `SharedContext` per edit.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal, Self, cast

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from editloupe.agent.chat_interface import Chat, RetryBudget, StepWatcher
from editloupe.pictures.decode import Album
from editloupe.pictures.encode import EncodingLimits
from editloupe.telemetry.spans import set_observation, tool_span
from editloupe.tools.contract import ToolError, View
from editloupe.tools.registry import Toolbox
from editloupe.types import Observation, Record, ToolCall


class ObservationCache:
    """Runs tool calls in worker threads. Equal calls of an edit's criteria run once. For one edit and one event loop."""

    def __init__(self) -> None:
        self._observed: dict[str, asyncio.Future[Observation]] = {}

    async def observe(self, toolbox: Toolbox, call: ToolCall, view: View, wire: EncodingLimits) -> Observation:
        """Return the observation of a call. An error of the tool becomes a sentence for the model."""
        with tool_span(call) as span:
            observation = await self._observe(toolbox, call, view, wire)
            set_observation(span, observation)
        return observation

    async def _observe(self, toolbox: Toolbox, call: ToolCall, view: View, wire: EncodingLimits) -> Observation:
        key = _key(call, view)
        pending = self._observed.get(key)
        before = pending is not None
        if pending is None:
            pending = self._observed[key] = toolbox.run_in_worker(call.name, _run, toolbox, call, view, wire)
        observation = await asyncio.shield(
            pending
        )  # if one criterion is cancelled, another may still wait for the result
        update = {"call_id": call.id, "cached": observation.cached or before}
        return observation.model_copy(update={**update, "seconds": 0.0 if before else observation.seconds})

    def keep(self, call: ToolCall, view: View, observation: Observation) -> None:
        """Store the observation of an earlier call, so that the call is not run again."""
        self._observed[_key(call, view)] = future = asyncio.get_running_loop().create_future()
        future.set_result(observation)


def _key(call: ToolCall, view: View) -> str:
    return json.dumps([call.name, call.parameters, dict(view.pictures)], default=str)


def _run(toolbox: Toolbox, call: ToolCall, view: View, wire: EncodingLimits) -> Observation:
    """Run a tool, and hash and encode its pictures, outside the event loop.

    The measured time does not include waiting for a thread.
    """
    started = time.perf_counter()
    try:
        result = toolbox.run(call.name, call.parameters, view)
    except ToolError as error:
        return Observation(
            call_id=call.id, tool=call.name, text=str(error), failed=True, seconds=time.perf_counter() - started
        )
    pictures = [view.album.add(picture.pixels) for picture in result.pictures]
    for picture in pictures:
        picture.wire(wire)
    return Observation(
        call_id=call.id,
        tool=call.name,
        text=result.text,
        pictures=tuple(picture.sha for picture in pictures),
        captions=tuple(picture.caption for picture in result.pictures),
        data=result.data,
        seconds=time.perf_counter() - started,
        cached=result.cached,
    )


Differences = Literal["model", "tool"]
"""Who lists the differences if a rubric needs them first."""


class LiveContext:
    """A graph context that holds live objects and has no JSON form.

    Without this class, `/assistants/…/schemas` of `langgraph dev` fails, because pydantic has no schema of a model client. A run
    that its server starts from JSON ends with a TypeError of one sentence; the server hides the text of other errors.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Raise TypeError if required fields are missing, as in a run that a server starts from JSON."""
        required = {each.name for each in fields(cast(Any, cls)) if MISSING is each.default is each.default_factory}
        if not args and not required <= kwargs.keys():
            raise TypeError("this graph needs live objects and cannot be run from JSON; run the graph `judge` instead")
        return super().__new__(cls)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.is_instance_schema(cls)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        description = f"{(cls.__doc__ or '').strip()} Made by the program that runs the graph; it has no JSON form."
        return {"type": "object", "title": cls.__name__, "description": description, "properties": {}}


class LoopLimits(Record):
    """The limits of one case."""

    max_turns: int = 8
    max_repairs: int = 2

    @property
    def recursion_limit(self) -> int:
        """An upper bound of graph steps: three per turn, two per repair, one for the final request."""
        return 3 * self.max_turns + 2 * self.max_repairs + 10


@dataclass(frozen=True)
class SharedContext:
    """The objects and settings with which one edit is judged, shared by all graphs."""

    chat: Chat
    judge: str
    """The spec of the judge, for traces."""
    toolbox: Toolbox
    part: str = ""
    """The judge's position in a panel or a cascade."""
    album: Album = field(default_factory=Album)
    """The edit's pictures."""
    wire: EncodingLimits = EncodingLimits()
    limits: LoopLimits = LoopLimits()
    differences: Differences = "model"
    rules: Record | None = None
    """The settings of the protocol's own rules; None for the published ones."""
    observations: ObservationCache = field(default_factory=ObservationCache)
    """The observations of this edit's tools, shared by its criteria."""
    watcher: StepWatcher | None = None
    repeat: int = 0
    strict: bool = True
    """Whether a missing or broken input raises. If not, the edit ends unjudged."""
    budget: RetryBudget = field(default_factory=RetryBudget)

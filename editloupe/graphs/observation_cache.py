"""What the tools have shown of one edit: a call that two criteria make alike is carried out once, and both are shown it."""

from __future__ import annotations

import asyncio
import json
import time

from editloupe.pictures.encode import WireLimits
from editloupe.telemetry.spans import observed, tool_span
from editloupe.tools.contract import ToolError, View
from editloupe.tools.registry import Toolbox
from editloupe.types import Observation, ToolCall


class ObservationCache:
    """Carries out tool calls in worker threads, each of them once; belongs to one edit and one event loop."""

    def __init__(self) -> None:
        self._observed: dict[str, asyncio.Future[Observation]] = {}

    async def observe(self, toolbox: Toolbox, call: ToolCall, view: View, wire: WireLimits) -> Observation:
        """Return what a call shows; whatever goes wrong with it is a sentence for the model."""
        with tool_span(call) as span:
            seen = await self._observe(toolbox, call, view, wire)
            observed(span, seen)
        return seen

    async def _observe(self, toolbox: Toolbox, call: ToolCall, view: View, wire: WireLimits) -> Observation:
        key = _key(call, view)
        known = self._observed.get(key)
        before = known is not None
        if known is None:
            known = self._observed[key] = toolbox.in_worker(_run, toolbox, call, view, wire)
        seen = await asyncio.shield(known)  # one criterion may give up, the other still wants to see
        seconds = 0.0 if before else seen.seconds
        return seen.model_copy(update={"call_id": call.id, "seconds": seconds, "cached": seen.cached or before})

    def keep(self, call: ToolCall, view: View, seen: Observation) -> None:
        """Take what a call has shown before, instead of carrying it out."""
        self._observed[_key(call, view)] = kept = asyncio.get_running_loop().create_future()
        kept.set_result(seen)


def _key(call: ToolCall, view: View) -> str:
    return json.dumps([call.name, call.parameters, dict(view.pictures)], default=str)


def _run(toolbox: Toolbox, call: ToolCall, view: View, wire: WireLimits) -> Observation:
    """Run a tool and make its pictures ready to be sent: hashing and encoding would hold up the event loop.

    The time that counts is this work's own, without the waiting for a thread before it.
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

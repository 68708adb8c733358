"""The looks taken at one edit: what two criteria ask alike is looked at once, and both are shown it."""

from __future__ import annotations

import asyncio
import json
import time

from editloupe.images import WireLimits
from editloupe.tools.contract import ToolError, View
from editloupe.tools.registry import Toolbox
from editloupe.types import Observation, ToolCall


class Looks:
    """Carries out tool calls in worker threads, each of them once; belongs to one edit and one event loop."""

    def __init__(self) -> None:
        self._taken: dict[str, asyncio.Future[Observation]] = {}

    async def take(self, toolbox: Toolbox, call: ToolCall, view: View, wire: WireLimits) -> Observation:
        """Return what a call shows; whatever goes wrong with it is a sentence for the model."""
        started = time.perf_counter()
        asked = json.dumps([call.name, call.parameters, dict(view.pictures)], default=str)
        taken = self._taken.get(asked)
        before = taken is not None
        if taken is None:
            taken = self._taken[asked] = toolbox.in_worker(_look, toolbox, call, view, wire)
        seen = await asyncio.shield(taken)  # one criterion may give up, the other still wants to see
        seconds = time.perf_counter() - started
        return seen.model_copy(update={"call_id": call.id, "seconds": seconds, "cached": seen.cached or before})


def _look(toolbox: Toolbox, call: ToolCall, view: View, wire: WireLimits) -> Observation:
    """Run a tool and make its pictures ready to be sent: hashing and encoding would hold up the event loop."""
    try:
        result = toolbox.run(call.name, call.parameters, view)
    except ToolError as error:
        return Observation(call_id=call.id, tool=call.name, text=str(error), failed=True)
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
        cached=result.cached,
    )

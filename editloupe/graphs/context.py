"""What a graph works with besides its state: live objects, which a schema can name but nobody can send as JSON.

Every graph has a context of its own, and all of them hold the one `SharedContext` of the edit: nothing is copied from one to
the next.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from editloupe.agent.chat_interface import Chat, RetryBudget
from editloupe.agent.transport.rate_limits import Watcher
from editloupe.graphs.observation_cache import ObservationCache
from editloupe.pictures.decode import Album
from editloupe.pictures.encode import WireLimits
from editloupe.tools.registry import Toolbox
from editloupe.types import Record

Differences = Literal["model", "tool"]
"""Who lists the differences, where a rubric has them listed first."""


class LiveContext:
    """The context of a graph that only a running program can make.

    Without this, `/assistants/…/schemas` of `langgraph dev` fails: pydantic looks for a JSON form of a model client or a toolbox.
    """

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.is_instance_schema(cls)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        description = f"{(cls.__doc__ or '').strip()} Made by the program that runs the graph; it has no JSON form."
        return {"type": "object", "title": cls.__name__, "description": description, "properties": {}}


class LoopLimits(Record):
    """How long one case may go on."""

    max_turns: int = 8
    max_repairs: int = 2

    @property
    def recursion_limit(self) -> int:
        """More graph steps than the limits can lead to: a turn takes three, a repair two, insist one."""
        return 3 * self.max_turns + 2 * self.max_repairs + 10


@dataclass(frozen=True)
class SharedContext:
    """What one edit is judged with, whichever graphs judge it."""

    chat: Chat
    judge: str
    """The spec of the judge, as traces name it."""
    toolbox: Toolbox
    part: str = ""
    """The judge's place among several that answer together."""
    album: Album = field(default_factory=Album)
    """The edit's pictures; they go with it."""
    wire: WireLimits = WireLimits()
    limits: LoopLimits = LoopLimits()
    differences: Differences = "model"
    rules: Record | None = None
    """How the protocol's own rules are set, where it has some; None for the published ones."""
    observations: ObservationCache = field(default_factory=ObservationCache)
    """What the tools have shown of this edit; its criteria share it."""
    watcher: Watcher | None = None
    repeat: int = 0
    strict: bool = True
    """Whether an edit that cannot be judged for want of input raises; else it ends unjudged."""
    budget: RetryBudget = field(default_factory=RetryBudget)

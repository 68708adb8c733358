"""The base of all records."""

from __future__ import annotations

from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, FailFast

T = TypeVar("T")
Sha = str
"""A picture's content hash; the state of a graph and a trace hold these, never pixels."""


class Record(BaseModel):
    """Base of all records: frozen, strict about unknown fields; a number that is none stays visible in JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class StopAtFirst(FailFast):
    """Refuse a sequence at its first wrong item; hashable, as `Annotated[...] | None` needs it to be.

    Pydantic otherwise keeps an error of every item, with which a small request can take all memory.
    """

    def __hash__(self) -> int:
        return hash(self.fail_fast)


Several = Annotated[tuple[T, ...], StopAtFirst()]
"""Values from outside the program, refused at the first wrong one."""

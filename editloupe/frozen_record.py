"""The base of all records."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

Sha = str
"""A picture's content hash; the state of a graph and a trace hold these, never pixels."""


class Record(BaseModel):
    """Base of all records: frozen, strict about unknown fields; a number that is none stays visible in JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

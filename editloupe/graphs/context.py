"""What a graph works with besides its state: live objects, which a schema can name but nobody can send as JSON."""

from __future__ import annotations

from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema


class LiveContext:
    """The context of a graph that only a running program can make.

    Without this, `/assistants/…/schemas` of `langgraph dev` fails: pydantic looks for a JSON form of a model client or a toolbox.
    """

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.is_instance_schema(cls)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        told = f"{(cls.__doc__ or '').strip()} Made by the program that runs the graph; it has no JSON form."
        return {"type": "object", "title": cls.__name__, "description": told, "properties": {}}

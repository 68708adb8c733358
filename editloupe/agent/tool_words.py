"""The texts a judge reads about its tools, in the wording of its rubric.

These are descriptions, results and captions. A wording holds only texts that differ from the tools' own, so that a file
with all texts unchanged asks the same questions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from editloupe.rubrics.wording import Wording, fill_in
from editloupe.tools.contract import Tool, View
from editloupe.tools.detect import DetectObject
from editloupe.tools.localize import LocalizeDifferences, LocalizePixelDifferences
from editloupe.tools.read_text import ReadText
from editloupe.tools.zoom import BOX_UNITS, ZoomInImage
from editloupe.types import Observation

TOOLS = (ZoomInImage, LocalizeDifferences, DetectObject, ReadText)
OTHER_FORMS = (LocalizePixelDifferences,)
"""Variants of the same tools under other settings; their descriptions are defaults too."""
SAID = "{said}"


def default_tool_words() -> dict[str, Any]:
    """Return the tools' own texts, by the fields of a wording."""
    return {
        "tool_descriptions": {tool.name: tool.description for tool in TOOLS},
        "tool_parameters": {tool.name: dict(tool.parameter_words) for tool in TOOLS},
        "box_units": dict(BOX_UNITS),
        "tool_results": {tool.name: SAID for tool in TOOLS},
        "tool_captions": {tool.name: SAID for tool in TOOLS},
    }


def drop_default_words(words: Wording) -> Wording:
    """Return a wording without the texts that equal the tools' own."""
    usual = default_tool_words()
    descriptions = {(tool.name, tool.description) for tool in (*TOOLS, *OTHER_FORMS)}
    parameters = {
        name: changed
        for name, texts in words.tool_parameters.items()
        if (changed := _unlike(texts, usual["tool_parameters"].get(name, {})))
    }
    changes: dict[str, Any] = {
        "tool_descriptions": {
            name: text for name, text in words.tool_descriptions.items() if (name, text) not in descriptions
        },
        "tool_parameters": parameters,
        "box_units": _unlike(words.box_units, usual["box_units"]),
        "tool_results": {name: text for name, text in words.tool_results.items() if text != SAID},
        "tool_captions": {name: text for name, text in words.tool_captions.items() if text != SAID},
    }
    return words.model_copy(update=changes)


def build_functions(tools: Iterable[Tool], view: View, per_mille: bool, words: Wording) -> list[dict[str, Any]]:
    """Return tools as function descriptions in a wording."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": words.tool_descriptions.get(tool.name, tool.description),
                "parameters": _parameters(tool, view, per_mille, words),
            },
        }
        for tool in tools
    ]


def reword_observation(seen: Observation, words: Wording) -> Observation:
    """Return a tool's result and its captions in a wording."""
    if seen.failed:
        text, captions = fill_in(words.tool_error, said=seen.text), seen.captions
    else:
        text = fill_in(words.tool_results.get(seen.tool, SAID), said=seen.text)
        caption = words.tool_captions.get(seen.tool, SAID)
        captions = tuple(fill_in(caption, said=original) for original in seen.captions)
    if (text, captions) == (seen.text, seen.captions):
        return seen
    return seen.model_copy(update={"text": text, "captions": captions})


def _parameters(tool: Tool, view: View, per_mille: bool, words: Wording) -> dict[str, Any]:
    schema = tool.schema(view)
    own: Mapping[str, str] = getattr(tool, "parameter_words", {})
    texts = words.tool_parameters.get(tool.name, {})
    unit_name = "per_mille" if per_mille else "pixels"
    if not texts and unit_name not in words.box_units:
        return schema
    unit = words.box_units.get(unit_name, BOX_UNITS[unit_name])
    properties = {
        name: {**fact, "description": fill_in(text, unit=unit)} if (text := texts.get(name, own.get(name))) else fact
        for name, fact in schema.get("properties", {}).items()
    }
    return {**schema, "properties": properties}


def _unlike(texts: Mapping[str, str], usual: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in texts.items() if usual.get(name) != text}

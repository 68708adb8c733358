"""The tool `detect_object`, which finds objects named in the instruction."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from editloupe._util.text import number_of, quote_line
from editloupe.pictures.decode import Picture
from editloupe.tools import drawing
from editloupe.tools.contract import CachedResult, ToolError, ToolPicture, ToolResult, View
from editloupe.tools.models.detectors import GroundingDino, TiledDetector
from editloupe.tools.models.nanodet import NanoDet, find_class
from editloupe.tools.result_cache import key
from editloupe.tools.settings import NANODET, ToolSettings
from editloupe.types import Box

DEPENDS_ON = ("detector", "precision", "box_threshold", "text_threshold", "tile_levels")
"""The settings that change the result."""
MAX_LISTED = 20
"""The most boxes that are drawn and listed; more could not be distinguished."""
_WORD = re.compile(r"\w+(?:['’-]\w+)*")


def build_detector(settings: ToolSettings) -> TiledDetector:
    """Return the detector of the settings. Its weights are loaded at the first search."""
    return NanoDet(settings) if settings.detector == NANODET else GroundingDino(settings)


class DetectObject:
    """Find an object by its name."""

    name = "detect_object"
    version = "2"
    description = (
        "Finds an object in a picture and returns the picture with numbered boxes drawn round what was found, or says "
        "that nothing was found. The object's name is made of words of the instruction and no others. Not finding an "
        "object is a hint, not a proof, that it is absent: look there yourself."
    )

    parameter_words: ClassVar[Mapping[str, str]] = {
        "target_image": "The picture to search.",
        "detect_object_name": "The object to find, in words of the instruction only, in whatever order.",
    }

    def __init__(self, settings: ToolSettings) -> None:
        self.model = build_detector(settings)
        self._settings = settings

    def resolve_settings(self) -> ToolSettings:
        """Return the settings with the tile levels of this device, as they enter keys."""
        return replace(self._settings, tile_levels=self.model.tile_levels)

    def unavailable(self) -> str | None:
        """Return what is missing on this machine, or None."""
        return self.model.unavailable()

    def schema(self, view: View) -> dict[str, Any]:
        """Return the parameters for these pictures."""
        words = self.parameter_words
        return {
            "type": "object",
            "properties": {
                "target_image": {"type": "string", "enum": list(view.pictures), "description": words["target_image"]},
                "detect_object_name": {"type": "string", "description": words["detect_object_name"]},
            },
            "required": ["target_image", "detect_object_name"],
        }

    def run(self, parameters: Mapping[str, Any], view: View) -> ToolResult:
        """Search the whole picture and its tiles."""
        name, picture = view.picture(parameters.get("target_image"))
        phrase = " ".join(str(parameters.get("detect_object_name") or "").split()).strip(" .,;:!?\"'“”‘’")
        if not phrase:
            raise ToolError("detect_object_name is empty; copy the object's name from the instruction.")
        if not is_named_in(phrase, view.instruction):
            raise ToolError(
                f"{quote_line(phrase)} is not made of words of the instruction; detect_object_name takes its words only: "
                f"{quote_line(view.instruction)}."
            )
        note = ""
        if self._settings.detector == NANODET and (coco_class := find_class(phrase)) != phrase.lower():
            note = f" The detector looked for {quote_line(coco_class)} and did not use other words."
        digest = self.resolve_settings().digest(*DEPENDS_ON)
        result_key = key(self.name, self.version, picture.sha, phrase.lower(), digest)
        cached = view.memory.get(result_key, lambda: self._search(picture, phrase))
        data = {"picture": name, "phrase": phrase, "objects": cached.data["objects"]}
        objects = cached.data["objects"][:MAX_LISTED]
        if not objects:
            return ToolResult(f"No {quote_line(phrase)} was found in {name}.{note}", (), data)
        say = view.frame(name).say
        listed = "; ".join(
            f"{i}. {say(Box.model_validate(o['box']))}, confidence {o['confidence']:.2f}"
            for i, o in enumerate(objects, 1)
        )
        count = len(cached.data["objects"])
        cut = f", the best {MAX_LISTED} of them" if count > MAX_LISTED else ""
        text = f"{quote_line(phrase)} in {name}: {number_of(count, 'box', 'boxes')}{cut}. {listed}.{note}"
        boxes = [Box.model_validate(o["box"]) for o in objects]
        marks = [f"{i}: {o['confidence']:.2f}" for i, o in enumerate(objects, 1)]
        # Drawn each time: a drawing is as large as the picture, and cheaper to make than to cache.
        marked = drawing.draw_boxes(picture.pixels, boxes, marks)
        return ToolResult(text, (ToolPicture(marked, f"{name} with boxes round {quote_line(phrase)}"),), data)

    def _search(self, picture: Picture, phrase: str) -> CachedResult:
        detections = self.model.detect(picture.pixels, phrase)
        objects = [{"box": list(f.box), "confidence": round(f.score, 4), "label": f.label} for f in detections]
        return CachedResult({"objects": objects})


def is_named_in(phrase: str, instruction: str) -> bool:
    """Return whether the phrase occurs in the instruction, or consists of its words in another order.

    Case and spaces are ignored. A word may be used as often as the instruction has it.

    >>> is_named_in("Red  car", "Remove the red\\ncar.")
    True
    >>> is_named_in("yellow bicycle", "Change the bicycle from yellow to black.")
    True
    >>> is_named_in("red bicycle", "Remove the bicycle.")
    False
    """
    if " ".join(phrase.lower().split()) in " ".join(instruction.lower().split()):
        return True
    words = Counter(_WORD.findall(phrase.casefold()))
    return bool(words) and words <= Counter(_WORD.findall(instruction.casefold()))

"""`detect_object`: boxes round an object that the instruction names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from editloupe._util.text import quoted
from editloupe.pictures.decode import Picture
from editloupe.tools import drawing
from editloupe.tools.contract import CachedResult, ToolError, ToolPicture, ToolResult, View
from editloupe.tools.models.detectors import GroundingDino
from editloupe.tools.result_cache import key
from editloupe.tools.settings import ToolSettings
from editloupe.types import Box

DEPENDS_ON = ("detector", "precision", "box_threshold", "text_threshold", "tile_levels")
"""The settings that decide what is found."""
MOST = 20
"""Boxes drawn and named; more could not be told apart."""
_WORD = re.compile(r"\w+(?:['’-]\w+)*")


class DetectObject:
    """Finds an object by its name."""

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
        self.model = GroundingDino(settings)
        self._settings = settings

    def resolve_settings(self) -> ToolSettings:
        """Return the settings with the levels of tiles that this device leads to, as keys hold them."""
        return replace(self._settings, tile_levels=self.model.tile_levels)

    def unavailable(self) -> str | None:
        """Say what is missing on this machine, or None."""
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
        """Search the picture, whole and in tiles."""
        name, picture = view.picture(parameters.get("target_image"))
        phrase = " ".join(str(parameters.get("detect_object_name") or "").split()).strip(" .,;:!?\"'“”‘’")
        if not phrase:
            raise ToolError("detect_object_name is empty; copy the object's name from the instruction.")
        if not is_named_in(phrase, view.instruction):
            raise ToolError(
                f"{quoted(phrase)} is not made of words of the instruction; detect_object_name takes its words only: "
                f"{quoted(view.instruction)}."
            )
        named = key(self.name, self.version, picture.sha, phrase.lower(), self.resolve_settings().digest(*DEPENDS_ON))
        kept = view.memory.get(named, lambda: self._search(picture, phrase))
        data = {"picture": name, "phrase": phrase, "objects": kept.data["objects"]}
        objects = kept.data["objects"][:MOST]
        if not objects:
            return ToolResult(f"No {quoted(phrase)} was found in {name}.", (), data)
        say = view.frame(name).say
        listed = "; ".join(
            f"{i}. {say(Box.model_validate(o['box']))}, confidence {o['confidence']:.2f}"
            for i, o in enumerate(objects, 1)
        )
        found = len(kept.data["objects"])
        count = "1 box" if found == 1 else f"{found} boxes"
        count += f", the best {MOST} of them" if found > MOST else ""
        text = f"{quoted(phrase)} in {name}: {count}. {listed}."
        boxes = [Box.model_validate(o["box"]) for o in objects]
        marks = [f"{i}: {o['confidence']:.2f}" for i, o in enumerate(objects, 1)]
        # Drawn each time: a drawing is as large as the picture, and cheaper to make than to keep.
        marked = drawing.draw_boxes(picture.pixels, boxes, marks)
        return ToolResult(text, (ToolPicture(marked, f"{name} with boxes round {quoted(phrase)}"),), data)

    def _search(self, picture: Picture, phrase: str) -> CachedResult:
        found = self.model.detect(picture.pixels, phrase)
        objects = [{"box": list(f.box), "confidence": round(f.score, 4), "label": f.label} for f in found]
        return CachedResult({"objects": objects})


def is_named_in(phrase: str, instruction: str) -> bool:
    """Whether the phrase occurs in the instruction, or is made of its words in another order; capitals and spaces count nothing.

    A word may be used as often as the instruction has it.

    >>> named_in("Red  car", "Remove the red\\ncar.")
    True
    >>> named_in("yellow bicycle", "Change the bicycle from yellow to black."), named_in("red bicycle", "Remove the bicycle.")
    (True, False)
    """
    if " ".join(phrase.lower().split()) in " ".join(instruction.lower().split()):
        return True
    words = Counter(_WORD.findall(phrase.casefold()))
    return bool(words) and words <= Counter(_WORD.findall(instruction.casefold()))

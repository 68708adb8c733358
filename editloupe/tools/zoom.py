"""The tool `zoom_in_image`, which shows a region of one picture, or of two side by side, from the original pixels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from editloupe.pictures.decode import Picture
from editloupe.tools import drawing, geometry
from editloupe.tools.contract import ToolError, ToolPicture, ToolResult, View
from editloupe.tools.enhance import Enhancer
from editloupe.tools.parameters import read_box
from editloupe.types import Box

BOTH = "both"
BOX_WORDS = "The region [x1, y1, x2, y2] {unit}; x2 > x1 and y2 > y1."
BOX_UNITS = {
    "pixels": "in absolute pixels of the picture at the size it was announced with",
    "per_mille": "in thousandths of the picture's width and height, from 0 to 1000",
}
"""The unit of box coordinates per coordinate system, for the model."""
SMALLEST = 64
"""Default size in pixels of the original to which smaller boxes are grown."""
_PAIR = f'With target_image "{BOTH}" the same region of the first two pictures is shown side by side. '


class ZoomInImage:
    """Show a region closely."""

    name = "zoom_in_image"
    version = "2"
    description = (
        "Shows one region of a picture closely, cut out in full resolution and enlarged where it is small. "
        f"{_PAIR}Use it on the target of the instruction and on everything that looks suspicious."
    )

    parameter_words: ClassVar[Mapping[str, str]] = {"bbox_2d": BOX_WORDS, "target_image": "The picture to look at."}

    def __init__(self, enhancer: Enhancer, smallest: int = SMALLEST, offers_both: bool = True) -> None:
        self._enhancer, self._smallest, self._offers_both = enhancer, smallest, offers_both
        if not offers_both:
            self.description = self.description.replace(_PAIR, "")

    def unavailable(self) -> str | None:
        """Always available."""
        return None

    def schema(self, view: View) -> dict[str, Any]:
        """Return the parameters for these pictures."""
        names = list(view.pictures)
        return {
            "type": "object",
            "properties": {
                "bbox_2d": box_schema(view),
                "target_image": {
                    "type": "string",
                    "enum": [*names, BOTH] if len(names) > 1 and self._offers_both else names,
                    "description": self.parameter_words["target_image"],
                },
            },
            "required": ["bbox_2d", "target_image"],
        }

    def run(self, parameters: Mapping[str, Any], view: View) -> ToolResult:
        """Cut out the region. The box is clipped to the picture and grown if it is tiny."""
        if self._offers_both and str(parameters.get("target_image")).strip().lower() == BOTH:
            return self._show_both(parameters.get("bbox_2d"), view)
        name, picture = view.picture(parameters.get("target_image"))
        requested = read_box(parameters.get("bbox_2d"), name, view.frame(name))
        box = geometry.grow_box(requested, (self._smallest, self._smallest), picture.size)
        crop = self._enhancer.enhance([drawing.crop(picture.pixels, box)], view.memory)
        pixels = crop.pictures[0]
        text = f"{_describe_region(name, requested, box, picture, view)}, shown at {_format_size(pixels.shape)} ({crop.note})."
        caption = f"{name}, region {view.frame(name).say(box)}"
        data = {"pictures": [name], "box": list(box), "asked": list(requested), "enlarged": crop.factor}
        return ToolResult(text, (ToolPicture(pixels, caption),), data)

    def _show_both(self, bbox: Any, view: View) -> ToolResult:
        if len(view.pictures) < 2:
            raise ToolError(f'There is only one picture, so target_image cannot be "{BOTH}".')
        (first, left), (second, right) = (view.picture(name) for name in list(view.pictures)[:2])
        requested = read_box(bbox, first, view.frame(first))
        box = geometry.grow_box(requested, (self._smallest, self._smallest), left.size)
        other = geometry.map_box(box, left.size, right.size)
        pair = drawing.match_sizes(drawing.crop(left.pixels, box), drawing.crop(right.pixels, other))
        crop = self._enhancer.enhance(pair, view.memory)
        each = _format_size(crop.pictures[0].shape)
        text = (
            f"Left of the red line: {_describe_region(first, requested, box, left, view)}. Right: the same place in {second}, "
            f"region {view.frame(second).say(other)}. Each side is shown at {each} ({crop.note})."
        )
        caption = f"{first} | {second}, region {view.frame(first).say(box)}"
        data = {
            "pictures": [first, second],
            "box": list(box),
            "second_box": list(other),
            "asked": list(requested),
            "enlarged": crop.factor,
        }
        return ToolResult(text, (ToolPicture(drawing.join_side_by_side(*crop.pictures), caption),), data)


def box_schema(view: View, words: str = BOX_WORDS) -> dict[str, Any]:
    """Return the JSON schema of a box in the coordinates of this model."""
    per_mille = any(view.frame(name).per_mille for name in view.pictures)
    unit = BOX_UNITS["per_mille" if per_mille else "pixels"]
    return {
        "type": "array",
        "items": {"type": "number"},
        "minItems": 4,
        "maxItems": 4,
        "description": words.format(unit=unit),
    }


def _describe_region(name: str, requested: Box, box: Box, picture: Picture, view: View) -> str:
    frame = view.frame(name)
    grown = f" (grown from {frame.say(requested)} to show its surroundings)" if box != requested else ""
    width, height = box.size
    full_size = f"{picture.size[0]} × {picture.size[1]}"
    return f"{name}, region {frame.say(box)}{grown}, {width} × {height} pixels of the original's {full_size}"


def _format_size(shape: tuple[int, ...]) -> str:
    return f"{shape[1]} × {shape[0]}"

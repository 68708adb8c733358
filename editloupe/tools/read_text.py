"""The tool `read_text`, which reads the text in a picture, for edits that are about text."""

from __future__ import annotations

import importlib.util
import re
import threading
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from editloupe._util.text import quote_line
from editloupe.pictures.pixels import Pixels
from editloupe.tools import drawing, geometry
from editloupe.tools.contract import CachedResult, ToolResult, View
from editloupe.tools.models.loading import import_optional
from editloupe.tools.parameters import read_box
from editloupe.tools.result_cache import key
from editloupe.tools.settings import ToolSettings
from editloupe.tools.zoom import BOX_WORDS, box_schema
from editloupe.types import Box

SMALLEST = 96
"""Smaller regions are grown to this size: a reader needs some margin around the letters."""
WELL_READABLE = 640
"""Regions whose longer side is shorter than this are enlarged before they are read."""
QUICK_SIDE = 320
"""Longer side at which a quick reading looks for lines, unless the region itself is larger."""
DETAILED_SIDE = 736
"""Shorter side at which a detailed reading looks for lines; the default of rapidocr."""
SURE = 0.95
"""A quick reading with a lower confidence is repeated in detail."""
LEAST_LETTERS = 2
"""Quick readings with fewer letters and digits are not repeated; most are round objects read as a dot or an O."""

ABOUT_TEXT = re.compile(
    r"""["“”«»「」『』] | (?<!\w)['‘][^'’]{1,200}['’](?!\w)
    | \b(texts? | words? | letters? | lettering | captions? | titles? | headlines? | slogans? | inscriptions? | watermarks?
        | subtitles? | labels? | fonts? | typed | typeface | spell(ed|ing)? | writ(e|es|ing|ten) | reads? | signs?\ reading
        | says? | digits? | numerals? | (number|license|licence)\ plates?
        | numbers?(\ content)?\ (on|printed|painted|displayed) | the\ number\ \d+\ on
        | (plate|jersey|shirt|house|door|room|page|phone|telephone|serial|race|bib)\ numbers?)\b
    | 文字 | 字母 | 数字 | 车牌 | 标语 | 标题 | 写着 | 字样""",
    re.IGNORECASE | re.VERBOSE,
)


class ReadText:
    """Read text with rapidocr, whose package includes its models."""

    name = "read_text"
    version = "1"
    description = (
        "Reads the text in a picture or in a region of it and returns every line with its position and confidence. "
        "Blurred or decorative letters can be misread: look at them yourself as well."
    )

    parameter_words: ClassVar[Mapping[str, str]] = {
        "target_image": "The picture to read.",
        "bbox_2d": f"{BOX_WORDS} Leave it out to read the whole picture.",
    }

    def __init__(self, settings: ToolSettings) -> None:
        self._always = settings.read_text == "on"
        self._threads = settings.threads
        self._engine: Any = None
        self._lock = threading.Lock()
        self.loads = 0

    def useful(self, instruction: str) -> bool:
        """Return whether the instruction is about text, or the tool is switched on for every edit."""
        return self._always or is_about_text(instruction)

    def unavailable(self) -> str | None:
        """Return what is missing on this machine, or None."""
        absent = [name for name in ("rapidocr", "onnxruntime") if importlib.util.find_spec(name) is None]
        return f"it needs {' and '.join(absent)}: pip install '.[text]'" if absent else None

    def schema(self, view: View) -> dict[str, Any]:
        """Return the parameters for these pictures."""
        words = self.parameter_words
        return {
            "type": "object",
            "properties": {
                "target_image": {"type": "string", "enum": list(view.pictures), "description": words["target_image"]},
                "bbox_2d": box_schema(view, words["bbox_2d"]),
            },
            "required": ["target_image"],
        }

    def run(self, parameters: Mapping[str, Any], view: View) -> ToolResult:
        """Read a region. A small one is enlarged first."""
        name, picture = view.picture(parameters.get("target_image"))
        frame = view.frame(name)
        box = Box(x1=0, y1=0, x2=picture.size[0], y2=picture.size[1])
        if parameters.get("bbox_2d") is not None:
            requested = read_box(parameters["bbox_2d"], name, frame)
            box = geometry.grow_box(requested, (SMALLEST, SMALLEST), picture.size)
        named = key(self.name, self.version, picture.sha, list(box))
        cached = view.memory.get(
            named, lambda: CachedResult({"lines": self.read_lines(drawing.crop(picture.pixels, box), box)})
        )
        lines = cached.data["lines"]
        data = {"picture": name, "box": list(box), "lines": lines}
        where = f"{name}, region {frame.say(box)}"
        if not lines:
            return ToolResult(f"No text was found in {where}.", (), data)
        listed = "; ".join(
            f"{quote_line(line['text'])} at {frame.say(Box.model_validate(line['box']))}, confidence {line['confidence']:.2f}"
            for line in lines
        )
        return ToolResult(f"Text in {where}: {listed}.", (), data)

    def read_line_at(self, pixels: Pixels, at: Box, box: Box) -> dict[str, Any] | None:
        """Read the text that runs through a box of a region: quickly, and in detail if the quick reading is unsure.

        Looking for lines takes most of the time, and needs far fewer pixels than reading them.

        Args:
            pixels: The region.
            at: The box of the region in its picture.
            box: The place of interest, in pixels of the picture.

        Returns:
            Text and confidence as `join_lines_through` returns them, or None if there is no text.
        """
        line = join_lines_through(self.read_lines(pixels, at, quick=True), box)
        if line is None or line["confidence"] >= SURE or min(pixels.shape[:2]) >= DETAILED_SIDE:
            return line
        if sum(map(str.isalnum, line["text"])) < LEAST_LETTERS:
            return line
        return join_lines_through(self.read_lines(pixels, at), box)

    def read_lines(self, pixels: Pixels, at: Box, quick: bool = False) -> list[dict[str, Any]]:
        """Read the lines of text in a region.

        Args:
            pixels: The region.
            at: The box of the region in its picture. The boxes of lines are in pixels of the picture.
            quick: Look for lines at about the region's own size. The lines are read at the same size either way.
        """
        longer = max(pixels.shape[:2])
        factor = max(1.0, min(4.0, WELL_READABLE / longer))
        enlarged = drawing.resize(pixels, (round(pixels.shape[1] * factor), round(pixels.shape[0] * factor)))
        with self._lock:
            engine = self._load()
            detector = _detector(engine)
            limit = ("max", max(QUICK_SIDE, longer)) if quick else ("min", DETAILED_SIDE)
            detector.limit_type, detector.limit_side_len = limit
            result = engine(np.ascontiguousarray(enlarged[..., ::-1]))  # rapidocr reads BGR
        if result is None or result.boxes is None:
            return []
        lines = []
        for corners, text, score in zip(result.boxes, result.txts, result.scores, strict=True):
            (x1, y1), (x2, y2) = corners.min(axis=0) / factor, corners.max(axis=0) / factor
            box = geometry.round_outwards((x1, y1, max(x2, x1 + 1), max(y2, y1 + 1))).clamped(*at.size)
            if box is None or not text.strip():
                continue
            moved = [box.x1 + at.x1, box.y1 + at.y1, box.x2 + at.x1, box.y2 + at.y1]
            lines.append({"text": text, "box": moved, "confidence": round(float(score), 4)})
        return lines

    def _load(self) -> Any:
        """Return the reader; called with the lock held."""
        if self._engine is None:
            options: dict[str, Any] = {"Global.log_level": "error"}
            if self._threads:
                options["EngineConfig.onnxruntime.intra_op_num_threads"] = self._threads
            self._engine = import_optional("rapidocr").RapidOCR(params=options)
            self.loads += 1
        return self._engine


def _detector(engine: Any) -> Any:
    """Return the line detector of rapidocr, which newer releases load at its first use."""
    load = getattr(engine, "_load_det_model", None)
    return engine.text_det if load is None else load()


def join_lines_through(lines: list[dict[str, Any]], box: Box) -> dict[str, Any] | None:
    """Return the text of the lines through a box, in reading order, and the lowest confidence among them.

    >>> here = {"text": "OPEN", "box": [0, 0, 40, 10], "confidence": 0.9}
    >>> there = {"text": "EXIT", "box": [0, 80, 40, 90], "confidence": 1.0}
    >>> join_lines_through([here, there], Box(x1=20, y1=2, x2=30, y2=8))
    {'text': 'OPEN', 'confidence': 0.9}
    """
    through = [line for line in lines if geometry.overlap_area(Box.model_validate(line["box"]), box)]
    if not through:
        return None
    ordered = sorted(through, key=lambda line: (line["box"][1] + line["box"][3], line["box"][0]))
    return {
        "text": " ".join(line["text"] for line in ordered),
        "confidence": min(line["confidence"] for line in ordered),
    }


def is_about_text(instruction: str) -> bool:
    """Return whether an instruction quotes something or names words, letters or a number on something.

    Counts and indices are not text: "the number of birds", "ball number 3".

    >>> is_about_text('Change "OPEN" to "CLOSED"'), is_about_text("Make the child's ball red")
    (True, False)
    """
    return ABOUT_TEXT.search(instruction) is not None

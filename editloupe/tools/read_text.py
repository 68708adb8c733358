"""The tool `read_text`, which reads the text in a picture, for edits that are about text."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from editloupe._util.text import quote_line
from editloupe.pictures.pixels import Pixels
from editloupe.tools import drawing, geometry
from editloupe.tools.contract import CachedResult, ToolError, ToolResult, View
from editloupe.tools.models.weights import (
    CUDA_PROVIDER,
    explain_missing_packages,
    find_cuda_device,
    import_optional,
    release_memory,
)
from editloupe.tools.parameters import read_box
from editloupe.tools.result_cache import key
from editloupe.tools.settings import ToolSettings
from editloupe.tools.zoom import BOX_WORDS, box_schema
from editloupe.types import Box

SMALLEST = 96
"""Smaller regions are grown to this size: a reader needs some margin around the letters."""
WELL_READABLE = 640
"""Regions whose longer side is shorter than this are enlarged before they are read."""
QUICK_SIDE = 160
"""Longer side at which lines are searched around a differing place, unless the place itself is larger."""
SURE = 0.95
"""A line that is read with a lower confidence is searched and read again at twice the size."""
LEAST_LETTERS = 2
"""Lines with fewer letters and digits are not read again; most are round objects read as a dot or an O."""
WHOLE_SIDE = 736
"""Shorter side at which lines are searched in a whole region; the default of rapidocr."""
WHOLE_LINE, SHORT_LINE = 320, 48
"""The least width of a line for the recognizer, which pads shorter ones: the default of rapidocr, and no padding."""
MARGIN = 8
"""Pixels around the lines of a region that are enlarged with them, so that their edges look as in the whole region."""
LEAST_SCORE = 0.5
"""Lines that are read with a lower confidence are dropped; the default of rapidocr."""

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
        self.device = settings.device
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
        packages = explain_missing_packages("text", "rapidocr", "onnxruntime")
        return packages and f"it needs {packages}"

    def note(self) -> str | None:
        """Return a sentence if the reader cannot use the requested device, else None."""
        if self.device in ("auto", "cpu") or self.unavailable() or find_cuda_device(self.device) is not None:
            return None
        return (
            f"{self.name} runs on the CPU: onnxruntime has no provider for {self.device} here "
            "(for CUDA: pip uninstall onnxruntime, then pip install onnxruntime-gpu)"
        )

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
        result_key = key(self.name, self.version, picture.sha, list(box))
        cached = view.memory.get(
            result_key, lambda: CachedResult({"lines": self.read_lines(drawing.crop(picture.pixels, box), box)})
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
        """Read the text that runs through a box of a region, and again at twice the size if the reading is unsure.

        Searching lines takes most of the time, and needs far fewer pixels than reading them. Only the lines through the
        box are read.

        Args:
            pixels: The region.
            at: The box of the region in its picture.
            box: The place of interest, in pixels of the picture.

        Returns:
            Text and confidence as `join_lines_through` returns them, or None if there is no text.
        """
        side = max(QUICK_SIDE, *box.size)
        line = join_lines_through(self.read_lines_through(pixels, at, box, side), box)
        if line is None or line["confidence"] >= SURE or sum(map(str.isalnum, line["text"])) < LEAST_LETTERS:
            return line
        return join_lines_through(self.read_lines_through(pixels, at, box, 2 * side), box)

    def read_lines_through(self, pixels: Pixels, at: Box, box: Box, side: int) -> list[dict[str, Any]]:
        """Read the lines of a region that run through a box.

        Args:
            pixels: The region.
            at: The box of the region in its picture. The boxes of lines are in pixels of the picture.
            box: The place of interest, in pixels of the picture.
            side: The longer side at which lines are searched.
        """
        longer = max(pixels.shape[:2])
        small, factor = _scale(pixels, min(4.0, side / longer))
        with self._lock:
            engine = self._load(("max", side))
            detection = engine(_to_bgr(small), use_det=True, use_cls=False, use_rec=False)
            corners = [c / factor for c in ([] if detection.boxes is None else detection.boxes)]
            boxes = [_place(c, at) for c in corners]
            through = [
                (c, placed)
                for c, placed in zip(corners, boxes, strict=True)
                if placed is not None and geometry.overlap_area(placed, box)
            ]
            if not through:
                return []
            quads = np.array([c for c, _ in through], np.float32)
            left, top, right, bottom = _surround(quads, pixels)
            enlarged, factor = _scale(pixels[top:bottom, left:right], _reading_factor(longer))
            self._load_recognizer(SHORT_LINE)
            cuts = engine.crop_text_regions(_to_bgr(enlarged), (quads - np.array([left, top], np.float32)) * factor)
            # One by one: the recognizer pads the lines of a batch to the widest.
            readings = [engine(cut, use_det=False, use_cls=True, use_rec=True) for cut in cuts]
        return [
            {"text": reading.txts[0], "box": list(placed), "confidence": round(float(reading.scores[0]), 4)}
            for (_, placed), reading in zip(through, readings, strict=True)
            if reading.txts and reading.txts[0].strip() and reading.scores[0] >= LEAST_SCORE
        ]

    def read_lines(self, pixels: Pixels, at: Box) -> list[dict[str, Any]]:
        """Read all lines of text in a region.

        Args:
            pixels: The region.
            at: The box of the region in its picture. The boxes of lines are in pixels of the picture.
        """
        factor = _reading_factor(max(pixels.shape[:2]))
        enlarged, _ = _scale(pixels, factor)
        with self._lock:
            engine = self._load(("min", WHOLE_SIDE))
            self._load_recognizer(WHOLE_LINE)
            result = engine(_to_bgr(enlarged), use_det=True, use_cls=True, use_rec=True)
        release_memory()  # a large region takes some 200 MB
        if result is None or result.boxes is None:
            return []
        lines = []
        for corners, text, score in zip(result.boxes, result.txts, result.scores, strict=True):
            box = _place(corners / factor, at)
            if box is not None and text.strip():
                lines.append({"text": text, "box": list(box), "confidence": round(float(score), 4)})
        return lines

    def _load(self, limit: tuple[str, int]) -> Any:
        """Return the reader, which loads its other models when it first uses them; called with the lock held.

        Args:
            limit: Which side of a picture is limited for the search of lines, and its length.
        """
        if self._engine is None:
            self._engine = self._start()
            self.loads += 1
            release_memory()  # loading takes as much again as the models
        detector = self._engine._load_det_model()
        detector.limit_type, detector.limit_side_len = limit
        return self._engine

    def _load_recognizer(self, line_width: int) -> None:
        """Load the model that reads a line, unless it is loaded; called with the lock held.

        Args:
            line_width: The least width of a line for the recognizer.
        """
        first = self._engine.text_rec is None
        recognizer = self._engine._load_rec_model()
        recognizer.rec_image_shape = [*recognizer.rec_image_shape[:2], line_width]
        if first:
            release_memory()

    def _start(self) -> Any:
        """Return rapidocr on the device of the settings.

        Raises:
            ToolError: If CUDA was requested, and onnxruntime cannot start it.
        """
        options: dict[str, Any] = {"Global.log_level": "error", "Global.text_score": LEAST_SCORE}
        if self._threads:
            options["EngineConfig.onnxruntime.intra_op_num_threads"] = self._threads
        if (number := find_cuda_device(self.device)) is not None:
            options["EngineConfig.onnxruntime.use_cuda"] = True
            options["EngineConfig.onnxruntime.cuda_ep_cfg.device_id"] = number
        engine = import_optional("rapidocr").RapidOCR(params=options)
        detector = engine._load_det_model()
        detector.mean, detector.std = list(detector.mean), list(detector.std)  # else converted slowly at each reading
        if number is not None and self.device != "auto":
            # onnxruntime falls back to the CPU without an error, for instance if a CUDA library is missing.
            providers = detector.session.session.get_providers()
            if CUDA_PROVIDER not in providers:
                raise ToolError(
                    f"{self.name} cannot run on {self.device}: onnxruntime could not start its CUDA provider."
                )
        return engine


def _reading_factor(longer: int) -> float:
    """Return by how much a region with this longer side is enlarged before its lines are cut out and read."""
    return max(1.0, min(4.0, WELL_READABLE / longer))


def _surround(quads: NDArray[np.float32], pixels: Pixels) -> tuple[int, int, int, int]:
    """Return the left, top, right and bottom edge of the part of a region that holds all these corners, with a margin."""
    height, width = pixels.shape[:2]
    (left, top), (right, bottom) = np.floor(quads.min(axis=(0, 1))) - MARGIN, np.ceil(quads.max(axis=(0, 1))) + MARGIN
    return max(0, int(left)), max(0, int(top)), min(width, int(right)), min(height, int(bottom))


def _scale(pixels: Pixels, factor: float) -> tuple[Pixels, NDArray[np.float32]]:
    """Return a region at another size, and the factors of its width and height."""
    height, width = pixels.shape[:2]
    size = max(1, round(width * factor)), max(1, round(height * factor))
    return drawing.resize(pixels, size), np.array([size[0] / width, size[1] / height], np.float32)


def _to_bgr(pixels: Pixels) -> Pixels:
    """Return the pixels as rapidocr reads them."""
    return np.ascontiguousarray(pixels[..., ::-1])


def _place(corners: NDArray[np.float32], at: Box) -> Box | None:
    """Return the box around the corners of a line in a region, in pixels of the picture; None if it is outside."""
    (x1, y1), (x2, y2) = corners.min(axis=0), corners.max(axis=0)
    box = geometry.round_outwards((x1, y1, max(x2, x1 + 1), max(y2, y1 + 1))).clamped(*at.size)
    return box and Box(x1=box.x1 + at.x1, y1=box.y1 + at.y1, x2=box.x2 + at.x1, y2=box.y2 + at.y1)


def join_lines_through(lines: list[dict[str, Any]], box: Box) -> dict[str, Any] | None:
    """Return the text of the lines through a box, in reading order, and the lowest confidence among them.

    >>> sign = {"text": "OPEN", "box": [0, 0, 40, 10], "confidence": 0.9}
    >>> door = {"text": "EXIT", "box": [0, 80, 40, 90], "confidence": 1.0}
    >>> join_lines_through([sign, door], Box(x1=20, y1=2, x2=30, y2=8))
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

"""Detect objects by name with Grounding DINO or OWL-ViT through transformers.

`TiledDetector` searches the whole picture and overlapping tiles of it, to find small objects, and merges the results.
`WholePictureFinder` returns the boxes of the detector as they are, which counting rules need.
"""

from __future__ import annotations

import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path
from typing import Any, Protocol

from editloupe._util.text import shorten_error
from editloupe.pictures.pixels import Pixels
from editloupe.tools.contract import ToolError
from editloupe.tools.geometry import Size, iou, round_outwards, share_inside
from editloupe.tools.models.batching import Batcher
from editloupe.tools.models.weights import (
    explain_missing_device,
    explain_missing_packages,
    explain_missing_weights,
    import_optional,
    load_pretrained,
    locate_weights,
    pick_device,
)
from editloupe.tools.settings import NANODET, ToolSettings
from editloupe.types import Box

OVERLAP = 0.25
"""Share of a side that neighbouring tiles have in common; smaller objects are complete in at least one tile."""
SMALLEST_TILE = 192
"""Detectors enlarge every picture to about 800 pixels. Below this size a tile gains blur, not detail."""
WHOLE = 0.98
"""A box wider and higher than this share of the tile is the detector's way of finding nothing (EdiVal-Agent, Section C.2)."""
SAME = 0.5
"""Boxes with at least this overlap are the same object."""
WITHIN = 0.85
"""A box with at least this share inside another is a part of that object, or the other box is a group."""
CUT_WITHIN = 0.7
"""The same for a box that was cut by its tile and ends where the tile ends."""
AT_EDGE = 2
EDGE_SHARE = 0.08
"""A box counts as cut if it ends within this many pixels and this share of its side of a tile's border, because detectors
are off by some percent. Without the share, parts of objects of 1 % of the picture were kept in addition to the whole,
or two parts passed for members of a group."""


@dataclass(frozen=True)
class Detection:
    """An object that the detector found."""

    box: Box
    score: float
    label: str
    cut: bool = False
    """Whether the box ends at the border of its tile, inside the picture."""


def cut_tiles(picture: Size, levels: Sequence[int]) -> list[Box]:
    """Return `level` × `level` overlapping tiles for every level whose tiles are large enough.

    >>> [list(t) for t in cut_tiles((700, 400), (2,))]
    [[0, 0, 400, 229], [300, 0, 700, 229], [0, 171, 400, 400], [300, 171, 700, 400]]
    """
    tiles = []
    for level in levels:
        columns, rows = _cuts(picture[0], level), _cuts(picture[1], level)
        if min(columns[0][1], rows[0][1]) < SMALLEST_TILE:
            continue
        tiles += [Box(x1=x1, y1=y1, x2=x2, y2=y2) for y1, y2 in rows for x1, x2 in columns]
    return tiles


def to_picture_coordinates(detections: Iterable[Detection], tile: Box, picture: Size) -> list[Detection]:
    """Move detections from a tile to the picture's coordinates. Boxes that fill the tile are dropped."""
    width, height = tile.size
    moved = []
    for item in detections:
        box = item.box.clamped(width, height)
        if box is None or fills_tile(box, (width, height)):
            continue
        near_x, near_y = (AT_EDGE + EDGE_SHARE * side for side in box.size)
        cut = (
            (box.x1 <= near_x and tile.x1 > 0)
            or (box.y1 <= near_y and tile.y1 > 0)
            or (box.x2 >= width - near_x and tile.x2 < picture[0])
            or (box.y2 >= height - near_y and tile.y2 < picture[1])
        )
        at = Box(x1=box.x1 + tile.x1, y1=box.y1 + tile.y1, x2=box.x2 + tile.x1, y2=box.y2 + tile.y1)
        moved.append(replace(item, box=at, cut=cut))
    return moved


def fills_tile(box: Box, size: Size) -> bool:
    """Return whether a box covers practically the whole tile.

    >>> fills_tile(Box.model_validate([0, 0, 99, 100]), (100, 100))
    True
    """
    return box.size[0] > WHOLE * size[0] and box.size[1] > WHOLE * size[1]


def merge_detections(detections: Iterable[Detection]) -> list[Detection]:
    """Return one detection per object, best first.

    Of overlapping boxes the best is kept; complete boxes go before ones cut by a tile. A box around two or more others
    is a group and is dropped. A single box inside another is the same object seen in part, and the better of the two is
    kept.
    """
    ranked = sorted(detections, key=lambda f: (f.cut, -f.score))
    distinct: list[Detection] = []
    for item in ranked:
        if all(iou(item.box, other.box) < SAME for other in distinct):
            distinct.append(item)
    distinct = [
        item for item in distinct if not (item.cut and any(_part_of(item, other, CUT_WITHIN) for other in distinct))
    ]
    groups = {id(f) for f in distinct if sum(_part_of(o, f) and not o.cut for o in distinct) >= 2}
    distinct = [item for item in distinct if id(item) not in groups]
    distinct.sort(key=lambda f: -f.score)
    single: list[Detection] = []
    for item in distinct:
        if not any(_part_of(item, other) or _part_of(other, item) for other in single):
            single.append(item)
    return single


def _part_of(item: Detection, other: Detection, within: float = WITHIN) -> bool:
    return item is not other and item.box.area < other.box.area and share_inside(item.box, other.box) >= within


def _cuts(length: int, parts: int) -> list[tuple[int, int]]:
    """Return the spans of `parts` pieces of a line that overlap by `OVERLAP` of a piece."""
    piece = min(length, round(length / (parts - (parts - 1) * OVERLAP)))
    if parts == 1:
        return [(0, length)]
    return [(start, start + piece) for start in (round(i * (length - piece) / (parts - 1)) for i in range(parts))]


SPECIAL = re.compile(r"\[\w+\]|##")
"""Tokenizer marks that can end up in a label."""
CPU_LEVELS, GPU_LEVELS = (2,), (4,)
"""Default tile levels. On a CPU every pass takes seconds."""
WEIGHTS = ("model.safetensors", "pytorch_model.bin", "model.safetensors.index.json")


def resolve_tile_levels(settings: ToolSettings, device: str | None = None) -> tuple[int, ...]:
    """Return the tile levels of the settings, or else the default of the device.

    Args:
        settings: The settings of the tools.
        device: The device of the detector. Default: the one it would use on this machine.
    """
    if settings.tile_levels is not None:
        return settings.tile_levels
    return CPU_LEVELS if (device or pick_device(settings.device)) == "cpu" else GPU_LEVELS


def levels_in_keys(settings: ToolSettings, resolved: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return tile levels as they enter keys.

    Unset levels that resolve to the CPU default are None, so that keys of runs made on a CPU do not change.
    """
    return settings.tile_levels if settings.tile_levels is not None or resolved == CPU_LEVELS else resolved


class TiledDetector(ABC):
    """Searches pictures whole and in tiles, and merges the results. Weights are loaded at the first search. Thread-safe.

    Searches of concurrent threads share forward passes.

    Args:
        settings: The settings of the tools.
    """

    def __init__(self, settings: ToolSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._loaded: tuple[Any, Any, str] | None = None
        self._failure: str | None = None
        self.loads = 0
        self.queue = Batcher(lambda views: self._batch(*zip(*views, strict=True)), settings.batch_size)
        """The waiting pictures and tiles. Its batches are the forward passes."""

    @abstractmethod
    def unavailable(self) -> str | None:
        """Return what is missing, or None. Looks at the disk of this machine only, never at the network."""

    @abstractmethod
    def _batch(self, pictures: Sequence[Pixels], phrases: Sequence[str]) -> list[list[Detection]]:
        """Run one forward pass, each picture with its own phrase. Called by one thread at a time."""

    @abstractmethod
    def _read_weights(self, device: str) -> tuple[Any, Any]:
        """Return model and processor."""

    @property
    def tile_levels(self) -> tuple[int, ...] | None:
        """The tile levels as they enter keys. Loads no weights."""
        try:
            return levels_in_keys(self._settings, resolve_tile_levels(self._settings))
        except (ImportError, OSError, RuntimeError):  # torch cannot be loaded, and every search says so
            return self._settings.tile_levels

    def detect(self, pixels: Pixels, phrase: str) -> list[Detection]:
        """Return the objects that a phrase names, from the whole picture and its tiles, best first."""
        return self.detect_many([(pixels, phrase)])[0]

    def detect_many(self, searches: Sequence[tuple[Pixels, str]]) -> list[list[Detection]]:
        """Run several searches with the results of `detect`; their pictures and tiles share forward passes.

        Only views of the same size share a pass, because padding pixels changes what the model finds. Phrases may differ in
        length: the attention mask hides their padding.

        Args:
            searches: A picture and a phrase per search.

        Returns:
            The detections per search, best first.
        """
        with self._lock:
            levels = resolve_tile_levels(self._settings, device=self._load()[2])
        views = [(index, box) for index, (pixels, _) in enumerate(searches) for box in _list_views(pixels, levels)]
        results = self.queue.process(
            [(searches[index][0][box.y1 : box.y2, box.x1 : box.x2], searches[index][1]) for index, box in views]
        )
        detections: list[list[Detection]] = [[] for _ in searches]
        for (index, box), result in zip(views, results, strict=True):
            detections[index] += to_picture_coordinates(result, box, _size(searches[index][0]))
        return [merge_detections(items) for items in detections]

    def _load(self) -> tuple[Any, Any, str]:
        """Return model, processor and device; called with the lock held."""
        if self._loaded is not None:
            return self._loaded
        problem = self.unavailable()
        if problem:
            raise ToolError(f"detect_object is not available: {problem}.")
        try:
            device = pick_device(self._settings.device)
            if missing := explain_missing_device(device):
                self._failure = f"the device {device} cannot be used: {missing}"
            else:
                if device == "cpu" and self._settings.threads:
                    import_optional("torch").set_num_threads(self._settings.threads)
                self._loaded = (*self._read_weights(device), device)
        except Exception as error:  # a damaged folder, no connection, a torch and torchvision that do not fit
            self._failure = f"its weights could not be loaded ({shorten_error(error, 200)})"
            raise ToolError(f"detect_object is not available: {self._failure}.") from error
        if self._loaded is None:
            raise ToolError(f"detect_object is not available: {self._failure}.")
        self.loads += 1
        return self._loaded


class GroundingDino(TiledDetector):
    """The Grounding DINO detector, in transformers."""

    def unavailable(self) -> str | None:
        """Return what is missing, or None."""
        if self._failure:
            return self._failure
        if packages := explain_missing_packages("detect", "torch", "transformers"):
            return f"it needs {packages}"
        folder = Path(self._settings.detector).expanduser()
        if folder.is_dir():
            return _missing_in_folder(folder)
        if self._settings.detector_download:
            return None
        missing = explain_missing_weights(self._settings.detector, *WEIGHTS)
        return missing and f"{missing}, or name a folder that holds them (--detector)"

    def _batch(self, pictures: Sequence[Pixels], phrases: Sequence[str]) -> list[list[Detection]]:
        _, processor, _ = self._load()
        inputs, outputs = self._run(pictures, [format_prompt(phrase) for phrase in phrases], padding=True)
        results = processor.post_process_grounded_object_detection(
            outputs,
            inputs["input_ids"],
            threshold=self._settings.box_threshold,
            text_threshold=self._settings.text_threshold,
            target_sizes=[p.shape[:2] for p in pictures],
        )
        # If nothing is found, transformers returns no boxes but one empty label.
        labels = [result.get("text_labels") or result["labels"] for result in results]
        return [
            read_detections(result["boxes"].tolist(), result["scores"].tolist(), map(_clean_label, names), _size(p))
            for result, names, p in zip(results, labels, pictures, strict=True)
        ]

    def _run(self, pictures: Sequence[Pixels], texts: Sequence[Any], padding: bool | str) -> tuple[Any, Any]:
        """Return the inputs and outputs of the model for pictures with a text each, or with a list of phrases each."""
        model, processor, device = self._load()
        inputs = processor(images=list(pictures), text=texts, return_tensors="pt", padding=padding).to(device)
        inputs["pixel_values"] = inputs["pixel_values"].to(model.dtype)
        with import_optional("torch").inference_mode():
            outputs = model(**inputs)
        outputs.logits, outputs.pred_boxes = outputs.logits.float(), outputs.pred_boxes.float()
        return inputs, outputs

    def _read_weights(self, device: str) -> tuple[Any, Any]:
        where, local = locate_weights(self._settings.detector, self._settings.detector_download)
        # Without a backend, transformers would choose by whether torchvision is installed, which changes scores.
        processor = import_optional("transformers").AutoProcessor.from_pretrained(
            where, local_files_only=local, backend="pil"
        )
        auto_class, precision = "AutoModelForZeroShotObjectDetection", self._settings.precision
        return load_pretrained(auto_class, where, local, device, precision), processor


def format_prompt(phrase: str) -> str:
    """Write a phrase as Grounding DINO was trained to read it: lower case, with a full stop.

    >>> format_prompt("  The red Car ")
    'the red car.'
    """
    return " ".join(phrase.lower().split()).rstrip(". ") + "."


def _size(pixels: Pixels) -> Size:
    return pixels.shape[1], pixels.shape[0]


def _list_views(pixels: Pixels, levels: tuple[int, ...]) -> list[Box]:
    width, height = _size(pixels)
    return [Box(x1=0, y1=0, x2=width, y2=height), *cut_tiles((width, height), levels)]


def read_detections(
    boxes: Sequence[Sequence[float]], scores: Sequence[float], labels: Iterable[str], size: Size
) -> list[Detection]:
    """Return a network's boxes as detections. Boxes without area or outside the picture are dropped.

    Args:
        boxes: Four coordinates per box, in pixels of the picture.
        scores: A score per box.
        labels: A label per box; further ones are ignored.
        size: Width and height of the picture.
    """
    return [
        Detection(box, score, label)
        for numbers, score, label in zip(boxes, scores, labels, strict=False)
        if numbers[2] > numbers[0] and numbers[3] > numbers[1] and (box := round_outwards(numbers).clamped(*size))
    ]


def _clean_label(label: object) -> str:
    return SPECIAL.sub("", str(label)).strip(" .")


def _missing_in_folder(folder: Path) -> str | None:
    missing = [name for name in ("config.json", "preprocessor_config.json") if not (folder / name).is_file()]
    if (folder / "processor_config.json").is_file():
        missing = [name for name in missing if name != "preprocessor_config.json"]
    if not any((folder / name).is_file() for name in WEIGHTS):
        missing.append(WEIGHTS[0])
    return f"the folder of the detector's weights lacks {', '.join(missing)}" if missing else None


OWL = ("owlvit", "owlv2")
"""Model types that take a list of phrases per picture instead of one text."""


class Finder(Protocol):
    """Interface of a detector that finds objects by name in a whole picture."""

    @property
    def fingerprint(self) -> str:
        """Everything the boxes depend on except picture and phrase."""

    def unavailable(self) -> str | None:
        """Return what is missing on this machine, or None."""

    def find(self, pixels: Pixels, phrase: str) -> list[Detection]:
        """Return the boxes of a phrase, best first.

        Raises:
            ToolError: If the detector cannot be used.
        """


class WholePictureFinder(GroundingDino):
    """Search whole pictures and return every box above a threshold, without tiling or merging.

    The kind of detector, Grounding DINO or OWL-ViT, is read from its weights.

    Args:
        settings: The settings of the tools.
        floor: The lowest score of a box.
    """

    def __init__(self, settings: ToolSettings, floor: float) -> None:
        super().__init__(replace(settings, box_threshold=floor, tile_levels=()))
        self.fingerprint = self._settings.digest("detector", "precision", "box_threshold", "text_threshold")

    def unavailable(self) -> str | None:
        """Return what is missing, or None."""
        if self._settings.detector == NANODET:
            return "nanodet cannot find objects by free names; use Grounding DINO or OWL-ViT"
        return super().unavailable()

    def find(self, pixels: Pixels, phrase: str) -> list[Detection]:
        """Return every box above the threshold, best first."""
        return self.detect(pixels, phrase)

    def detect_many(self, searches: Sequence[tuple[Pixels, str]]) -> list[list[Detection]]:
        """Run several searches with the results of `find`; pictures of the same size share forward passes."""
        with self._lock:
            self._load()
        return [sorted(result, key=lambda detection: -detection.score) for result in self.queue.process(searches)]

    def _batch(self, pictures: Sequence[Pixels], phrases: Sequence[str]) -> list[list[Detection]]:
        model, processor, _ = self._load()
        if model.config.model_type not in OWL:
            return super()._batch(pictures, phrases)
        _, outputs = self._run(pictures, [[phrase] for phrase in phrases], padding="max_length")
        results = processor.post_process_grounded_object_detection(
            outputs, threshold=self._settings.box_threshold, target_sizes=[p.shape[:2] for p in pictures]
        )
        return [
            read_detections(result["boxes"].tolist(), result["scores"].tolist(), repeat(phrase), _size(p))
            for result, phrase, p in zip(results, phrases, pictures, strict=True)
        ]

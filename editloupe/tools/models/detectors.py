"""Detect objects by name with Grounding DINO or OWL-ViT through transformers.

`TiledDetector` searches the whole picture and tiles of it, and merges the results. `WholePictureFinder` returns the
boxes of the detector as they are, which counting rules need.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from editloupe.pictures.pixels import Pixels
from editloupe.tools.contract import ToolError
from editloupe.tools.geometry import Size, round_outwards
from editloupe.tools.models.batching import Batcher
from editloupe.tools.models.loading import (
    explain_missing_device,
    explain_missing_weights,
    import_optional,
    locate_weights,
    pick_device,
    torch_dtype,
    without_progress_bars,
)
from editloupe.tools.models.tiling import Detection, cut_tiles, merge_detections, to_picture_coordinates
from editloupe.tools.settings import ToolSettings
from editloupe.types import Box

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
    def _read_weights(self) -> tuple[Any, Any, str]:
        """Return model, processor and device."""

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
                self._loaded = self._read_weights()
        except Exception as error:  # a damaged folder, no connection, a torch and torchvision that do not fit
            self._failure = f"its weights could not be loaded ({' '.join(str(error).split())[:200]})"
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
        absent = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
        if absent:
            return f"it needs {' and '.join(absent)}: pip install '.[detect]'"
        where = self._settings.detector
        if Path(where).expanduser().is_dir():
            return _missing_in_folder(Path(where).expanduser())
        missing = None if self._settings.detector_download else explain_missing_weights(where, *WEIGHTS)
        return missing and f"{missing}, or name a folder that holds them (--detector)"

    def _batch(self, pictures: Sequence[Pixels], phrases: Sequence[str]) -> list[list[Detection]]:
        model, processor, device = self._load()
        texts = [format_prompt(phrase) for phrase in phrases]
        inputs = processor(images=list(pictures), text=texts, return_tensors="pt", padding=True)
        inputs = inputs.to(device)
        inputs["pixel_values"] = inputs["pixel_values"].to(model.dtype)
        with import_optional("torch").inference_mode():
            outputs = model(**inputs)
        outputs.logits, outputs.pred_boxes = outputs.logits.float(), outputs.pred_boxes.float()
        results = processor.post_process_grounded_object_detection(
            outputs,
            inputs["input_ids"],
            threshold=self._settings.box_threshold,
            text_threshold=self._settings.text_threshold,
            target_sizes=[p.shape[:2] for p in pictures],
        )
        return [_read_detections(result, _size(p)) for result, p in zip(results, pictures, strict=True)]

    def _read_weights(self) -> tuple[Any, Any, str]:
        transformers = import_optional("transformers")
        where, local = locate_weights(self._settings.detector, self._settings.detector_download)
        device = pick_device(self._settings.device)
        if device == "cpu" and self._settings.threads:
            import_optional("torch").set_num_threads(self._settings.threads)
        with without_progress_bars(transformers):
            # Without a backend, transformers would choose by whether torchvision is installed, which changes scores.
            processor = transformers.AutoProcessor.from_pretrained(where, local_files_only=local, backend="pil")
            model = transformers.AutoModelForZeroShotObjectDetection.from_pretrained(
                where, local_files_only=local, dtype=torch_dtype(self._settings.precision)
            )
        return model.to(device).eval(), processor, device


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


def _read_detections(result: Any, size: Size) -> list[Detection]:
    # If nothing is found, transformers returns no boxes but one empty label, so count the boxes.
    labels = result.get("text_labels") or result["labels"]
    detections = []
    for numbers, score, label in zip(result["boxes"].tolist(), result["scores"].tolist(), labels, strict=False):
        x1, y1, x2, y2 = numbers
        if x2 <= x1 or y2 <= y1:
            continue
        box: Box | None = round_outwards(numbers).clamped(*size)
        if box is not None:
            detections.append(Detection(box, float(score), SPECIAL.sub("", str(label)).strip(" .")))
    return detections


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
        super().__init__(dataclasses.replace(settings, box_threshold=floor, tile_levels=()))
        self.fingerprint = self._settings.digest("detector", "precision", "box_threshold", "text_threshold")

    def unavailable(self) -> str | None:
        """Return what is missing, or None."""
        if self._settings.detector == "nanodet":
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
        model, processor, device = self._load()
        if model.config.model_type not in OWL:
            return super()._batch(pictures, phrases)
        texts = [[phrase] for phrase in phrases]
        inputs = processor(images=list(pictures), text=texts, return_tensors="pt", padding="max_length").to(device)
        inputs["pixel_values"] = inputs["pixel_values"].to(model.dtype)
        with import_optional("torch").inference_mode():
            outputs = model(**inputs)
        outputs.logits, outputs.pred_boxes = outputs.logits.float(), outputs.pred_boxes.float()
        results = processor.post_process_grounded_object_detection(
            outputs, threshold=self._settings.box_threshold, target_sizes=[p.shape[:2] for p in pictures]
        )
        detections: list[list[Detection]] = []
        for picture, phrase, result in zip(pictures, phrases, results, strict=True):
            size = (picture.shape[1], picture.shape[0])
            boxes = [
                (round_outwards(numbers).clamped(*size), score)
                for numbers, score in zip(result["boxes"].tolist(), result["scores"].tolist(), strict=True)
                if numbers[2] > numbers[0] and numbers[3] > numbers[1]
            ]
            detections.append([Detection(box, float(score), phrase) for box, score in boxes if box])
        return detections

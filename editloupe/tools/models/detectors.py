"""Grounding DINO through transformers: found on this machine, loaded once, run in batches."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from editloupe.pictures.pixels import Pixels
from editloupe.tools.contract import ToolError
from editloupe.tools.geometry import Size, round_outwards
from editloupe.tools.models.devices import import_optional, pick_device, torch_dtype
from editloupe.tools.models.tiling import Detection, cut_tiles, merge_detections, to_picture_coordinates
from editloupe.tools.settings import ToolSettings
from editloupe.types import Box

SPECIAL = re.compile(r"\[\w+\]|##")
"""Marks of the tokenizer that can end up in a label."""
CPU_LEVELS, GPU_LEVELS = (2,), (4,)
"""Levels of tiles if none are set; on a CPU every pass takes seconds."""
WEIGHTS = ("model.safetensors", "pytorch_model.bin", "model.safetensors.index.json")


def resolve_tile_levels(settings: ToolSettings, device: str | None = None) -> tuple[int, ...]:
    """Return the levels of tiles that are searched: those that are set, else those of the device.

    Args:
        settings: The settings of the tools.
        device: Where the detector runs; without it, where it would run on this machine.
    """
    if settings.tile_levels is not None:
        return settings.tile_levels
    return CPU_LEVELS if (device or pick_device(settings.device)) == "cpu" else GPU_LEVELS


def levels_in_keys(settings: ToolSettings, resolved: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return levels of tiles as keys hold them.

    Levels that are not set and resolve to a CPU's are None: keys of runs made on a CPU stay what they were before the device
    was looked at.
    """
    return settings.tile_levels if settings.tile_levels is not None or resolved == CPU_LEVELS else resolved


class GroundingDino:
    """The detector; its weights are read at the first picture, by whichever thread comes first."""

    def __init__(self, settings: ToolSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._loaded: tuple[Any, Any, str] | None = None
        self._failure: str | None = None
        self.loads = 0

    def unavailable(self) -> str | None:
        """Say what is missing, or None; looks at this machine's disk only, never at the network."""
        if self._failure:
            return self._failure
        absent = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
        if absent:
            return f"it needs {' and '.join(absent)}: pip install 'editloupe[vision]'"
        where = self._settings.detector
        if Path(where).expanduser().is_dir():
            return _missing_in_folder(Path(where).expanduser())
        if self._settings.detector_download or _in_hub_cache(where):
            return None
        return (
            f'the weights of "{where}" are not on this machine: name a folder that holds them, fetch them with '
            f"`hf download {where}`, or allow the download (--detector-download)"
        )

    @property
    def tile_levels(self) -> tuple[int, ...] | None:
        """The levels of tiles as keys hold them; loads no weights."""
        try:
            return levels_in_keys(self._settings, resolve_tile_levels(self._settings))
        except (ImportError, OSError, RuntimeError):  # torch cannot be loaded, and every search says so
            return self._settings.tile_levels

    def detect(self, pixels: Pixels, phrase: str) -> list[Detection]:
        """Return where the phrase's object is, from the whole picture and from tiles of it, best first."""
        return self.detect_many([(pixels, phrase)])[0]

    def detect_many(self, asked: Sequence[tuple[Pixels, str]]) -> list[list[Detection]]:
        """Answer several searches as `detect` answers each, with their pictures and tiles sharing forward passes.

        Only what has the same size shares a pass: padding pixels changes what the model finds. Phrases may differ, for
        the attention mask hides the padding of the shorter ones.
        """
        with self._lock:
            levels = resolve_tile_levels(self._settings, device=self._load()[2])
            searches: list[tuple[int, Box]] = []
            for index, (pixels, _) in enumerate(asked):
                size = _size(pixels)
                searches += [
                    (index, part) for part in (Box(x1=0, y1=0, x2=size[0], y2=size[1]), *cut_tiles(size, levels))
                ]
            groups: dict[Size, list[tuple[int, Box]]] = {}
            for search in searches:
                groups.setdefault(search[1].size, []).append(search)
            seen: dict[tuple[int, Box], list[Detection]] = {}
            for group in groups.values():
                for start in range(0, len(group), self._settings.batch_size):
                    batch = group[start : start + self._settings.batch_size]
                    pictures = [asked[index][0][part.y1 : part.y2, part.x1 : part.x2] for index, part in batch]
                    results = self._batch(pictures, [asked[index][1] for index, _ in batch])
                    seen.update(zip(batch, results, strict=True))
        found: list[list[Detection]] = [[] for _ in asked]
        for index, part in searches:
            found[index] += to_picture_coordinates(seen[index, part], part, _size(asked[index][0]))
        return [merge_detections(items) for items in found]

    def _batch(self, pictures: Sequence[Pixels], phrases: Sequence[str]) -> list[list[Detection]]:
        """Make one forward pass, each picture with its own phrase; called with the lock held."""
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
        return [_read(result, _size(p)) for result, p in zip(results, pictures, strict=True)]

    def _load(self) -> tuple[Any, Any, str]:
        """Return model, processor and device; called with the lock held."""
        if self._loaded is not None:
            return self._loaded
        problem = self.unavailable()
        if problem:
            raise ToolError(f"detect_object is not available: {problem}.")
        try:
            self._loaded = self._read_weights()
        except Exception as error:  # a damaged folder, no connection, a torch and torchvision that do not fit
            self._failure = f"its weights could not be loaded ({' '.join(str(error).split())[:200]})"
            raise ToolError(f"detect_object is not available: {self._failure}.") from error
        self.loads += 1
        return self._loaded

    def _read_weights(self) -> tuple[Any, Any, str]:
        transformers = import_optional("transformers")
        where = str(Path(self._settings.detector).expanduser())
        where = where if Path(where).is_dir() else self._settings.detector
        local = not self._settings.detector_download or Path(where).is_dir()
        device = pick_device(self._settings.device)
        if device == "cpu" and self._settings.threads:
            import_optional("torch").set_num_threads(self._settings.threads)
        with without_progress_bars(transformers):
            # Without a backend the choice would depend on whether torchvision is installed, and scores with it.
            processor = transformers.AutoProcessor.from_pretrained(where, local_files_only=local, backend="pil")
            model = transformers.AutoModelForZeroShotObjectDetection.from_pretrained(
                where, local_files_only=local, dtype=torch_dtype(self._settings.precision)
            )
        return model.to(device).eval(), processor, device


def format_prompt(phrase: str) -> str:
    """Write a phrase as Grounding DINO was trained to read it: lower case, closed by a full stop.

    >>> prompt("  The red Car ")
    'the red car.'
    """
    return " ".join(phrase.lower().split()).rstrip(". ") + "."


@contextmanager
def without_progress_bars(transformers: Any) -> Iterator[None]:
    """Keep the terminal for what the judge has to say; a download still shows its own progress."""
    log = transformers.utils.logging
    shown = log.is_progress_bar_enabled()
    log.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            log.enable_progress_bar()


def _size(pixels: Pixels) -> Size:
    return pixels.shape[1], pixels.shape[0]


def _read(result: Any, size: Size) -> list[Detection]:
    # Where nothing is found, transformers returns no box but one empty label: the boxes decide how many there are.
    labels = result.get("text_labels") or result["labels"]
    found = []
    for numbers, score, label in zip(result["boxes"].tolist(), result["scores"].tolist(), labels, strict=False):
        x1, y1, x2, y2 = numbers
        if x2 <= x1 or y2 <= y1:
            continue
        box: Box | None = round_outwards(numbers).clamped(*size)
        if box is not None:
            found.append(Detection(box, float(score), SPECIAL.sub("", str(label)).strip(" .")))
    return found


def _missing_in_folder(folder: Path) -> str | None:
    missing = [name for name in ("config.json", "preprocessor_config.json") if not (folder / name).is_file()]
    if (folder / "processor_config.json").is_file():
        missing = [name for name in missing if name != "preprocessor_config.json"]
    if not any((folder / name).is_file() for name in WEIGHTS):
        missing.append(WEIGHTS[0])
    return f"the folder of the detector's weights lacks {', '.join(missing)}" if missing else None


def _in_hub_cache(model_id: str) -> bool:
    """Whether the hub's cache on this disk holds the model; asks nobody."""
    if importlib.util.find_spec("huggingface_hub") is None or not _named_in_hub_cache(model_id):
        return False
    hub = import_optional("huggingface_hub")
    try:
        if not isinstance(hub.try_to_load_from_cache(model_id, "config.json"), str):
            return False
        return any(isinstance(hub.try_to_load_from_cache(model_id, name), str) for name in WEIGHTS)
    except hub.errors.HFValidationError:  # not the form of a model id
        return False


def _named_in_hub_cache(model_id: str) -> bool:
    """Whether the hub's cache has a folder for the model; where it has none, its package need not be loaded to say so."""
    cache = Path(import_optional("huggingface_hub.constants").HF_HUB_CACHE)
    return (cache / f"models--{model_id.replace('/', '--')}").is_dir()


OWL = ("owlvit", "owlv2")
"""Model types that take a list of phrases a picture instead of one text."""


class Finder(Protocol):
    """Somebody who finds objects by name."""

    @property
    def fingerprint(self) -> str:
        """What the boxes depend on besides picture and phrase."""

    def unavailable(self) -> str | None:
        """Say what is missing on this machine, or None."""

    def find(self, pixels: Pixels, phrase: str) -> list[Detection]:
        """Return the boxes of a phrase, best first; raises ToolError where the detector cannot be used."""


class WholePictureFinder(GroundingDino):
    """A detector of transformers, asked for one phrase in one whole picture."""

    def __init__(self, settings: ToolSettings, floor: float) -> None:
        super().__init__(dataclasses.replace(settings, box_threshold=floor, tile_levels=()))
        self.fingerprint = self._settings.digest("detector", "precision", "box_threshold", "text_threshold")

    def find(self, pixels: Pixels, phrase: str) -> list[Detection]:
        """Return every box above the floor, best first."""
        with self._lock:
            return sorted(self._batch([pixels], [phrase])[0], key=lambda found: -found.score)

    def _batch(self, pictures: Sequence[Pixels], phrases: Sequence[str]) -> list[list[Detection]]:
        model, processor, device = self._load()
        if model.config.model_type not in OWL:
            return super()._batch(pictures, phrases)
        asked = [[phrase] for phrase in phrases]
        inputs = processor(images=list(pictures), text=asked, return_tensors="pt", padding="max_length").to(device)
        inputs["pixel_values"] = inputs["pixel_values"].to(model.dtype)
        with import_optional("torch").inference_mode():
            outputs = model(**inputs)
        outputs.logits, outputs.pred_boxes = outputs.logits.float(), outputs.pred_boxes.float()
        results = processor.post_process_grounded_object_detection(
            outputs, threshold=self._settings.box_threshold, target_sizes=[p.shape[:2] for p in pictures]
        )
        found: list[list[Detection]] = []
        for picture, phrase, result in zip(pictures, phrases, results, strict=True):
            size = (picture.shape[1], picture.shape[0])
            boxes = [
                (round_outwards(numbers).clamped(*size), score)
                for numbers, score in zip(result["boxes"].tolist(), result["scores"].tolist(), strict=True)
                if numbers[2] > numbers[0] and numbers[3] > numbers[1]
            ]
            found.append([Detection(box, float(score), phrase) for box, score in boxes if box])
        return found

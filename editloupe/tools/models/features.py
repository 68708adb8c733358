"""How alike two pictures are: by the features of a DINO model through transformers, and by plain pixel differences.

Pictures are prepared here and not by transformers' image processors: that of DINOv3 needs torchvision, which this project does
without. Size, mean and standard deviation come from the model's own preprocessor_config.json.
"""

from __future__ import annotations

import importlib.util
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from editloupe.pictures.pixels import Pixels
from editloupe.tools.contract import ToolError
from editloupe.tools.drawing import resize
from editloupe.tools.models.detectors import without_progress_bars
from editloupe.tools.models.devices import import_optional, pick_device, torch_dtype
from editloupe.tools.result_cache import key
from editloupe.types import Box

DINO_V3 = "facebook/dinov3-vitb16-pretrain-lvd1689m"
"""The paper's choice (Section O.3); `facebook/dinov2-base` is the one it was swapped with."""
CONFIG = "preprocessor_config.json"
Vectors = npt.NDArray[np.float64]
Masks = npt.NDArray[np.bool_]
Masking = Literal["patches", "painted"]
"""How features leave boxes out: by pooling the patches outside them, or by painting them black in both pictures."""


class Features(Protocol):
    """Somebody who turns pictures into vectors."""

    @property
    def fingerprint(self) -> str:
        """What the vectors depend on besides the picture."""

    def unavailable(self) -> str | None:
        """Say what is missing on this machine, or None."""

    def embed(self, pictures: Sequence[Pixels]) -> Vectors:
        """Return one vector a picture; raises ToolError where the model cannot be used."""

    def patches(self, pictures: Sequence[Pixels]) -> Vectors:
        """Return the vectors of a grid of patches, pictures × rows × columns × dimensions."""


@dataclass(frozen=True)
class FeatureSettings:
    """Which model, and where it runs."""

    model: str = DINO_V3
    """A folder, or a model id of the hub."""
    download: bool = False
    """Whether the weights may be fetched from the hub."""
    device: str = "auto"
    precision: str = "float32"
    batch_size: int = 8


@dataclass(frozen=True)
class LoadedModel:
    """A model in memory, and how pictures are made ready for it."""

    model: Any
    device: str
    size: tuple[int, int]
    mean: Vectors
    deviation: Vectors


class DinoFeatures:
    """A DINO model; its weights are read at the first picture."""

    def __init__(self, settings: FeatureSettings | None = None) -> None:
        self._settings = settings or FeatureSettings()
        self._lock = threading.Lock()
        self._loaded: LoadedModel | None = None
        self.fingerprint = key("features", self._settings.model, self._settings.precision)[:16]
        self.loads = 0

    def unavailable(self) -> str | None:
        """Say what is missing, or None; looks at this machine's disk only."""
        absent = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
        if absent:
            return f"the features need {' and '.join(absent)}: pip install 'editloupe[vision]'"
        folder = Path(self._settings.model).expanduser()
        if folder.is_dir():
            missing = [name for name in ("config.json", CONFIG) if not (folder / name).is_file()]
            return f"the folder {folder} lacks {', '.join(missing)}" if missing else None
        if self._settings.download or self._cached(CONFIG):
            return None
        name = self._settings.model
        return (
            f'the weights of "{name}" are not on this machine: name a folder, or fetch them with `hf download {name}`'
        )

    def embed(self, pictures: Sequence[Pixels]) -> Vectors:
        """Return the pooled feature of every picture, in batches."""
        return self._in_batches(pictures, lambda out, loaded: out.pooler_output)

    def patches(self, pictures: Sequence[Pixels]) -> Vectors:
        """Return the features of every picture's patches, without those of the class and register tokens before them."""
        return self._in_batches(pictures, _patch_grid)

    def _in_batches(self, pictures: Sequence[Pixels], pick: Callable[[Any, LoadedModel], Any]) -> Vectors:
        with self._lock:
            loaded = self._load()
            size = self._settings.batch_size
            parts = [self._batch(loaded, pictures[i : i + size], pick) for i in range(0, len(pictures), size)]
        return np.concatenate(parts)

    def _batch(
        self, loaded: LoadedModel, pictures: Sequence[Pixels], pick: Callable[[Any, LoadedModel], Any]
    ) -> Vectors:
        torch = import_optional("torch")
        ready = np.stack([prepare_picture(p, loaded.size, loaded.mean, loaded.deviation) for p in pictures])
        values = torch.from_numpy(ready).to(loaded.device, loaded.model.dtype)
        with torch.inference_mode():
            out = loaded.model(pixel_values=values)
        return np.asarray(pick(out, loaded).float().cpu().numpy(), np.float64)

    def _load(self) -> LoadedModel:
        if self._loaded is None:
            problem = self.unavailable()
            if problem:
                raise ToolError(f"{problem[:1].upper()}{problem[1:]}.")
            transformers = import_optional("transformers")
            folder = Path(self._settings.model).expanduser()
            where = str(folder) if folder.is_dir() else self._settings.model
            local = folder.is_dir() or not self._settings.download
            device = pick_device(self._settings.device)
            with without_progress_bars(transformers):
                model = transformers.AutoModel.from_pretrained(
                    where, local_files_only=local, dtype=torch_dtype(self._settings.precision)
                )
            config = transformers.utils.cached_file(where, CONFIG, local_files_only=local)
            facts = json.loads(Path(config).read_text("utf-8"))
            size = read_input_side(facts)
            mean, deviation = (np.asarray(facts[name], np.float64) for name in ("image_mean", "image_std"))
            self._loaded = LoadedModel(model.to(device).eval(), device, (size, size), mean, deviation)
            self.loads += 1
        return self._loaded

    def _cached(self, name: str) -> bool:
        if importlib.util.find_spec("huggingface_hub") is None:
            return False
        hub = import_optional("huggingface_hub")
        try:
            return isinstance(hub.try_to_load_from_cache(self._settings.model, name), str)
        except hub.errors.HFValidationError:
            return False


def _patch_grid(out: Any, loaded: LoadedModel) -> Any:
    """Return the last tokens of a reply as rows and columns; a picture of the model's size has side // patch of each."""
    side = getattr(loaded.model.config, "patch_size", None)
    if not isinstance(side, int):
        raise ToolError("The feature model says nothing about the size of its patches.")
    rows, columns = loaded.size[1] // side, loaded.size[0] // side
    tokens = out.last_hidden_state
    return tokens[:, -rows * columns :].reshape(len(tokens), rows, columns, -1)


def read_input_side(facts: dict[str, Any]) -> int:
    """Return the side of the square a model sees: its crop size where it has one, else its size.

    >>> side_of({"size": {"shortest_edge": 256}, "crop_size": {"height": 224, "width": 224}})
    224
    """
    for name in ("crop_size", "size"):
        value = facts.get(name)
        if isinstance(value, int):
            return value
        if isinstance(value, dict):
            return int(value.get("height") or value["shortest_edge"])
    raise ToolError(f"{CONFIG} says nothing about the size of pictures.")


def prepare_picture(
    pixels: Pixels, size: tuple[int, int], mean: Vectors, deviation: Vectors
) -> npt.NDArray[np.float32]:
    """Return a picture as a model takes it: squeezed to the size, 0 to 1, normalised, channels first."""
    values = (resize(pixels, size) / 255.0 - mean) / deviation
    return np.ascontiguousarray(values.transpose(2, 0, 1), np.float32)


def cosine(a: Vectors, b: Vectors) -> float:
    """Return the cosine of two vectors, 0 where it is negative: a similarity that can be averaged and rooted.

    >>> cosine(np.array([1.0, 0.0]), np.array([3.0, 0.0]))
    1.0
    """
    scale = float(np.linalg.norm(a) * np.linalg.norm(b))
    return max(0.0, min(1.0, float(a @ b) / scale)) if scale else 0.0


def l1_similarity(a: Pixels, b: Pixels, mask: Masks | None = None) -> float:
    """Return 1 − the mean absolute difference of two pictures of one size, 0 to 1, over the masked pixels only.

    >>> l1_similarity(np.zeros((2, 2, 3), np.uint8), np.full((2, 2, 3), 51, np.uint8))
    0.8
    """
    difference = np.abs(a.astype(np.int16) - b.astype(np.int16))
    chosen = difference if mask is None else difference[mask]
    return 1.0 - float(chosen.mean()) / 255.0


@dataclass(frozen=True)
class Similarity:
    """How alike two views of one region are, 0 to 1."""

    features: float | None
    """None where no feature model was given."""
    l1: float


def compare_regions(base: Pixels, other: Pixels, boxes: Sequence[Box], features: Features | None) -> list[Similarity]:
    """Compare the same boxes, in pixels of the base picture, in both pictures."""
    there = resize(other, (base.shape[1], base.shape[0]))
    left = [np.ascontiguousarray(base[b.y1 : b.y2, b.x1 : b.x2]) for b in boxes]
    right = [np.ascontiguousarray(there[b.y1 : b.y2, b.x1 : b.x2]) for b in boxes]
    vectors = features.embed([*left, *right]) if features and boxes else None
    found = []
    for i, (a, b) in enumerate(zip(left, right, strict=True)):
        alike = None if vectors is None else cosine(vectors[i], vectors[len(boxes) + i])
        found.append(Similarity(alike, l1_similarity(a, b)))
    return found


def black_out(pixels: Pixels, boxes: Sequence[Box]) -> tuple[Pixels, Masks]:
    """Return the picture with these boxes painted black, and the mask of what is left."""
    left = np.ones(pixels.shape[:2], np.bool_)
    for box in boxes:
        left[box.y1 : box.y2, box.x1 : box.x2] = False
    painted = pixels.copy()
    painted[~left] = 0
    return painted, left


def share_of_cells(mask: Masks, rows: int, columns: int) -> Vectors:
    """Return which share of every cell of a grid a mask leaves, whole pixels counted in parts where cells cut them.

    >>> shares(np.array([[True, True, False]]), 1, 2)
    array([[1.        , 0.33333333]])
    """
    return _overlap(rows, mask.shape[0]) @ mask.astype(np.float64) @ _overlap(columns, mask.shape[1]).T


def _overlap(cells: int, pixels: int) -> Vectors:
    """Return cells × pixels: which share of a cell lies in each pixel of a line."""
    edges, lines = np.linspace(0, pixels, cells + 1), np.arange(pixels, dtype=np.float64)
    low, high = edges[:-1, None], edges[1:, None]
    covered = np.clip(np.minimum(high, lines + 1) - np.maximum(low, lines), 0, None)
    return np.asarray(covered * cells / pixels, np.float64)


def pool_vectors(grid: Vectors, weights: Vectors) -> Vectors:
    """Return the weighted mean of a grid's vectors, each brought to length 1 first so that none counts more than another."""
    vectors = grid.reshape(-1, grid.shape[-1])
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    flat = weights.reshape(-1)
    return np.asarray(flat @ unit / flat.sum(), np.float64)


def compare_backgrounds(
    base: Pixels,
    other: Pixels,
    boxes: Sequence[Box],
    features: Features | None,
    masking: Masking = "patches",
    least_share: float = 0.5,
) -> Similarity | None:
    """Compare what lies outside all boxes; None where they cover everything.

    By `patches`, both pictures are seen whole and the patches of which at least `least_share` is background are pooled by
    that share; where there is none, there is no similarity by features. By `painted`, the boxes are painted black first, which
    makes two pictures the more alike the more of them is painted.
    """
    there = resize(other, (base.shape[1], base.shape[0]))
    left, mask = black_out(base, boxes)
    right, _ = black_out(there, boxes)
    if not mask.any():
        return None
    alike = None
    if features is not None and masking == "painted":
        vectors = features.embed([left, right])
        alike = cosine(vectors[0], vectors[1])
    elif features is not None:
        grids = features.patches([base, there])
        weights = share_of_cells(mask, *grids.shape[1:3])
        weights = np.where(weights >= least_share - 1e-9, weights, 0.0)  # shares of pixels are not exact in binary
        alike = cosine(pool_vectors(grids[0], weights), pool_vectors(grids[1], weights)) if weights.any() else None
    return Similarity(alike, l1_similarity(left, right, mask))


CLIP = "openai/clip-vit-base-patch32"
"""The paper does not say which weights it used."""


class ClipEncoder(DinoFeatures):
    """A CLIP model, loaded as the feature models are; its weights are read at the first picture or text."""

    def __init__(self, settings: FeatureSettings | None = None) -> None:
        super().__init__(settings or FeatureSettings(CLIP))
        self.fingerprint = key("clip", self._settings.model, self._settings.precision)[:16]
        self._tokenizer: Any = None

    def embed_texts(self, texts: Sequence[str]) -> Vectors:
        """Return one vector a text; what is longer than the model reads is cut off at its end."""
        with self._lock:
            loaded = self._load()
            if self._tokenizer is None:
                self._tokenizer = self._open_tokenizer()
            tokens = self._tokenizer(list(texts), padding=True, truncation=True, return_tensors="pt").to(loaded.device)
            with import_optional("torch").inference_mode():
                out = loaded.model.get_text_features(**tokens)
        return _vectors(out)

    def direction(self, before: Pixels, after: Pixels, text_before: str, text_after: str) -> float:
        """Return the cosine of both differences, −1 to 1; 0 where the picture or the text did not change at all."""
        one, other = _unit(self.embed([before, after]))
        left, right = _unit(self.embed_texts([text_before, text_after]))
        return cosine_of_changes(other - one, right - left)

    def _batch(
        self, loaded: LoadedModel, pictures: Sequence[Pixels], pick: Callable[[Any, LoadedModel], Any]
    ) -> Vectors:
        torch = import_optional("torch")
        ready = np.stack([prepare_picture(p, loaded.size, loaded.mean, loaded.deviation) for p in pictures])
        with torch.inference_mode():
            values = torch.from_numpy(ready).to(loaded.device, loaded.model.dtype)
            return _vectors(loaded.model.get_image_features(pixel_values=values))

    def _open_tokenizer(self) -> Any:
        folder = Path(self._settings.model).expanduser()
        where = str(folder) if folder.is_dir() else self._settings.model
        local = folder.is_dir() or not self._settings.download
        return import_optional("transformers").AutoTokenizer.from_pretrained(where, local_files_only=local)


def cosine_of_changes(pictures: Vectors, texts: Vectors) -> float:
    """Return the cosine of two differences, 0 where one of them is nothing.

    >>> directed(np.array([0.0, 2.0]), np.array([0.0, -1.0]))
    -1.0
    """
    scale = float(np.linalg.norm(pictures) * np.linalg.norm(texts))
    return max(-1.0, min(1.0, float(pictures @ texts) / scale)) if scale else 0.0


def _vectors(out: Any) -> Vectors:
    tensor = getattr(
        out, "pooler_output", out
    )  # a record of outputs or the tensor itself, by the version of transformers
    return np.asarray(tensor.float().cpu().numpy(), np.float64)


def _unit(vectors: Vectors) -> Vectors:
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12), np.float64)

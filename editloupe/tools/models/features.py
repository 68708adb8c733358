"""Compare pictures by the features of DINO and CLIP models and by pixel differences.

Pictures are prepared here and not by the image processors of transformers, because that of DINOv3 needs torchvision,
which this project does not install. Size, mean and standard deviation come from the model's preprocessor_config.json.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
from PIL import Image

from editloupe.pictures.pixels import Pixels
from editloupe.tools.contract import ToolError
from editloupe.tools.drawing import crop, resize
from editloupe.tools.models.weights import (
    explain_missing_device,
    explain_missing_packages,
    explain_missing_weights,
    import_optional,
    load_pretrained,
    locate_weights,
    pick_device,
)
from editloupe.tools.result_cache import key
from editloupe.tools.settings import CLIP
from editloupe.types import Box

DINO_V3 = "facebook/dinov3-vitb16-pretrain-lvd1689m"
"""The paper's choice (Section O.3), which it also replaced by `facebook/dinov2-base` in a comparison."""
CONFIG = "preprocessor_config.json"
Vectors = npt.NDArray[np.float64]
Masks = npt.NDArray[np.bool_]
Masking = Literal["patches", "painted"]
"""How features leave boxes out: by pooling only patches outside of them, or by painting them black in both pictures."""


class Features(Protocol):
    """Interface of a model that turns pictures into vectors."""

    @property
    def fingerprint(self) -> str:
        """Everything the vectors depend on except the picture."""

    def unavailable(self) -> str | None:
        """Return what is missing on this machine, or None."""

    def embed(self, pictures: Sequence[Pixels]) -> Vectors:
        """Return one vector per picture.

        Raises:
            ToolError: If the model cannot be used.
        """

    def patches(self, pictures: Sequence[Pixels]) -> Vectors:
        """Return the vectors of a grid of patches, pictures × rows × columns × dimensions."""


@dataclass(frozen=True)
class FeatureSettings:
    """The feature model and where it runs.

    Args:
        model: A folder, or a model id of the hub.
        download: Whether the weights may be downloaded from the hub.
        device: `auto`, `cpu`, `cuda`…
        precision: `float32`, `float16` or `bfloat16`.
        batch_size: Pictures per forward pass.
    """

    model: str = DINO_V3
    download: bool = False
    device: str = "auto"
    precision: str = "float32"
    batch_size: int = 8


@dataclass(frozen=True)
class Preparation:
    """How a picture becomes a square: its shorter side is resized by a bicubic filter, then the centre is cut out."""

    shorter: int
    side: int

    def square(self, pixels: Pixels) -> Pixels:
        """Return the square of a picture, as torchvision's Resize and CenterCrop compute it.

        >>> Preparation(4, 2).square(np.zeros((8, 20, 3), np.uint8)).shape
        (2, 2, 3)
        """
        height, width = pixels.shape[:2]
        least = min(width, height)
        size = (int(self.shorter * width / least), int(self.shorter * height / least))
        image = Image.fromarray(pixels)
        image = image if size == image.size else image.resize(size, Image.Resampling.BICUBIC)
        left, top = round((size[0] - self.side) / 2), round((size[1] - self.side) / 2)
        return np.asarray(image.crop((left, top, left + self.side, top + self.side)), np.uint8)


@dataclass(frozen=True)
class LoadedModel:
    """A model in memory, and how pictures are prepared for it."""

    model: Any
    device: str
    size: tuple[int, int]
    mean: Vectors
    deviation: Vectors


class DinoFeatures:
    """A DINO model. Its weights are loaded at the first picture.

    Args:
        settings: The model and where it runs.
        pooled: Whether pooled features are used. If not, a ViT is loaded without its pooling layer, for which the first DINO
            models have no weights.
    """

    def __init__(self, settings: FeatureSettings | None = None, pooled: bool = True) -> None:
        self._settings = settings or FeatureSettings()
        self._pooled = pooled
        self._lock = threading.Lock()
        self._loaded: LoadedModel | None = None
        self.fingerprint = key("features", self._settings.model, self._settings.precision)[:16]
        self.loads = 0

    def unavailable(self) -> str | None:
        """Return what is missing, or None. Looks at the disk of this machine only."""
        if packages := explain_missing_packages("detect", "torch", "transformers"):
            return f"the features need {packages}"
        folder = Path(self._settings.model).expanduser()
        if folder.is_dir():
            missing = [name for name in ("config.json", CONFIG) if not (folder / name).is_file()]
            return f"the folder {folder} lacks {', '.join(missing)}" if missing else None
        return None if self._settings.download else explain_missing_weights(self._settings.model, CONFIG)

    def embed(self, pictures: Sequence[Pixels], preparation: Preparation | None = None) -> Vectors:
        """Return the pooled feature per picture, in batches. Without a preparation, pictures are resized to a square."""
        return self._in_batches(_squares(pictures, preparation), lambda out, loaded: _pooled(out))

    def class_tokens(self, pictures: Sequence[Pixels], preparation: Preparation) -> Vectors:
        """Return the last feature of every picture's class token, which the first DINO models have instead of a pooled one."""
        return self._in_batches(_squares(pictures, preparation), lambda out, loaded: out.last_hidden_state[:, 0])

    def patches(self, pictures: Sequence[Pixels]) -> Vectors:
        """Return the features of every picture's patches, without the class and register tokens."""
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
            return _to_vectors(pick(self._run(loaded.model, values), loaded))

    def _run(self, model: Any, values: Any) -> Any:
        """Return the output of the model for prepared pictures."""
        return model(pixel_values=values)

    def _load(self) -> LoadedModel:
        if self._loaded is None:
            problem = self.unavailable()
            if problem:
                raise ToolError(f"{problem[:1].upper()}{problem[1:]}.")
            transformers = import_optional("transformers")
            where, local = locate_weights(self._settings.model, self._settings.download)
            device = pick_device(self._settings.device)
            if missing := explain_missing_device(device):
                raise ToolError(f"The device {device} cannot be used: {missing}.")
            kind = transformers.AutoConfig.from_pretrained(where, local_files_only=local).model_type
            parts = {} if self._pooled or kind != "vit" else {"add_pooling_layer": False}
            model = load_pretrained("AutoModel", where, local, device, self._settings.precision, **parts)
            config = transformers.utils.cached_file(where, CONFIG, local_files_only=local)
            facts = json.loads(Path(config).read_text("utf-8"))
            size = read_input_side(facts)
            mean, deviation = (np.asarray(facts[name], np.float64) for name in ("image_mean", "image_std"))
            self._loaded = LoadedModel(model, device, (size, size), mean, deviation)
            self.loads += 1
        return self._loaded


def _squares(pictures: Sequence[Pixels], preparation: Preparation | None) -> Sequence[Pixels]:
    return [preparation.square(pixels) for pixels in pictures] if preparation else pictures


def _patch_grid(out: Any, loaded: LoadedModel) -> Any:
    """Return the last tokens of an output as rows and columns of patches."""
    side = getattr(loaded.model.config, "patch_size", None)
    if not isinstance(side, int):
        raise ToolError("The feature model says nothing about the size of its patches.")
    rows, columns = loaded.size[1] // side, loaded.size[0] // side
    tokens = out.last_hidden_state
    return tokens[:, -rows * columns :].reshape(len(tokens), rows, columns, -1)


def read_input_side(facts: dict[str, Any]) -> int:
    """Return the side of the model's square input: its crop size if it has one, else its size.

    >>> read_input_side({"size": {"shortest_edge": 256}, "crop_size": {"height": 224, "width": 224}})
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
    """Convert a picture to the model's input: resized, 0 to 1, normalised, channels first."""
    values = (resize(pixels, size) / 255.0 - mean) / deviation
    return np.ascontiguousarray(values.transpose(2, 0, 1), np.float32)


def cosine(a: Vectors, b: Vectors) -> float:
    """Return the cosine of two vectors, or 0 if it is negative, so that similarities can be averaged and rooted.

    >>> cosine(np.array([1.0, 0.0]), np.array([3.0, 0.0]))
    1.0
    """
    return max(0.0, signed_cosine(a, b))


def l1_similarity(a: Pixels, b: Pixels, mask: Masks | None = None) -> float:
    """Return 1 − the mean absolute difference of two pictures of the same size, 0 to 1, over the masked pixels only.

    >>> l1_similarity(np.zeros((2, 2, 3), np.uint8), np.full((2, 2, 3), 51, np.uint8))
    0.8
    """
    difference = np.abs(a.astype(np.int16) - b.astype(np.int16))
    chosen = difference if mask is None else difference[mask]
    return 1.0 - float(chosen.mean()) / 255.0


@dataclass(frozen=True)
class Similarity:
    """The similarity of two views of one region, 0 to 1."""

    features: float | None
    """None if there is no feature model."""
    l1: float


def compare_regions(base: Pixels, other: Pixels, boxes: Sequence[Box], features: Features | None) -> list[Similarity]:
    """Compare the same boxes, in pixels of the base picture, in both pictures."""
    resized = resize(other, (base.shape[1], base.shape[0]))
    left, right = [crop(base, box) for box in boxes], [crop(resized, box) for box in boxes]
    vectors = features.embed([*left, *right]) if features and boxes else None
    similarities = []
    for i, (a, b) in enumerate(zip(left, right, strict=True)):
        alike = None if vectors is None else cosine(vectors[i], vectors[len(boxes) + i])
        similarities.append(Similarity(alike, l1_similarity(a, b)))
    return similarities


def black_out(pixels: Pixels, boxes: Sequence[Box]) -> tuple[Pixels, Masks]:
    """Return the picture with these boxes painted black, and the mask of the remaining pixels."""
    mask = np.ones(pixels.shape[:2], np.bool_)
    for box in boxes:
        mask[box.y1 : box.y2, box.x1 : box.x2] = False
    painted = pixels.copy()
    painted[~mask] = 0
    return painted, mask


def share_of_cells(mask: Masks, rows: int, columns: int) -> Vectors:
    """Return the share of every grid cell that a mask leaves. Pixels on a cell border count in part.

    >>> share_of_cells(np.array([[True, True, False]]), 1, 2)
    array([[1.        , 0.33333333]])
    """
    return _overlap(rows, mask.shape[0]) @ mask.astype(np.float64) @ _overlap(columns, mask.shape[1]).T


def _overlap(cells: int, pixels: int) -> Vectors:
    """Return cells × pixels: the share of a cell that is in each pixel of a line."""
    edges, lines = np.linspace(0, pixels, cells + 1), np.arange(pixels, dtype=np.float64)
    low, high = edges[:-1, None], edges[1:, None]
    covered = np.clip(np.minimum(high, lines + 1) - np.maximum(low, lines), 0, None)
    return np.asarray(covered * cells / pixels, np.float64)


def pool_vectors(grid: Vectors, weights: Vectors) -> Vectors:
    """Return the weighted mean of a grid's vectors, each normalised to length 1 first."""
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
    """Compare two pictures outside all boxes.

    Args:
        base: The first picture.
        other: The second picture.
        boxes: The boxes to leave out, in pixels of the first picture.
        features: The feature model, if there is one.
        masking: `patches` pools the patches outside the boxes by their share of background. `painted` paints the boxes
            black first, which makes pictures more alike the more is painted.
        least_share: Patches with a smaller share of background are left out.

    Returns:
        The similarity, or None if the boxes cover everything. It has no value by features if no patch has enough
        background.
    """
    resized = resize(other, (base.shape[1], base.shape[0]))
    left, mask = black_out(base, boxes)
    right, _ = black_out(resized, boxes)
    if not mask.any():
        return None
    alike = None
    if features is not None and masking == "painted":
        vectors = features.embed([left, right])
        alike = cosine(vectors[0], vectors[1])
    elif features is not None:
        grids = features.patches([base, resized])
        weights = share_of_cells(mask, *grids.shape[1:3])
        weights = np.where(weights >= least_share - 1e-9, weights, 0.0)  # shares of pixels are not exact in binary
        alike = cosine(pool_vectors(grids[0], weights), pool_vectors(grids[1], weights)) if weights.any() else None
    return Similarity(alike, l1_similarity(left, right, mask))


class ClipEncoder(DinoFeatures):
    """A CLIP model for directional similarity. Its weights are loaded at the first picture or text.

    The default is ViT-B/32; the paper that uses it does not state its weights.

    The difference of two picture embeddings is compared with that of two text embeddings, each normalised first (Gal et
    al., StyleGAN-NADA, 2022).
    """

    def __init__(self, settings: FeatureSettings | None = None) -> None:
        super().__init__(settings or FeatureSettings(CLIP))
        self.fingerprint = key("clip", self._settings.model, self._settings.precision)[:16]
        self._tokenizer: Any = None

    def embed_texts(self, texts: Sequence[str]) -> Vectors:
        """Return one vector per text. Texts longer than the model's limit are truncated."""
        with self._lock:
            loaded = self._load()
            if self._tokenizer is None:
                self._tokenizer = self._open_tokenizer()
            tokens = self._tokenizer(list(texts), padding=True, truncation=True, return_tensors="pt").to(loaded.device)
            with import_optional("torch").inference_mode():
                out = loaded.model.get_text_features(**tokens)
        return _to_vectors(_pooled(out))

    def direction(self, before: Pixels, after: Pixels, text_before: str, text_after: str) -> float:
        """Return the cosine of both changes, −1 to 1; 0 if the picture or the text did not change."""
        before_vector, after_vector = _unit(self.embed([before, after]))
        left, right = _unit(self.embed_texts([text_before, text_after]))
        return signed_cosine(after_vector - before_vector, right - left)

    def _run(self, model: Any, values: Any) -> Any:
        return model.get_image_features(pixel_values=values)

    def _open_tokenizer(self) -> Any:
        where, local = locate_weights(self._settings.model, self._settings.download)
        return import_optional("transformers").AutoTokenizer.from_pretrained(where, local_files_only=local)


def signed_cosine(a: Vectors, b: Vectors) -> float:
    """Return the cosine of two vectors, −1 to 1, or 0 if one of them is zero.

    >>> signed_cosine(np.array([0.0, 2.0]), np.array([0.0, -1.0]))
    -1.0
    """
    scale = float(np.linalg.norm(a) * np.linalg.norm(b))
    return max(-1.0, min(1.0, float(a @ b) / scale)) if scale else 0.0


def _pooled(out: Any) -> Any:
    """Return the pooled feature of an output. Some versions of transformers return CLIP's feature itself."""
    return getattr(out, "pooler_output", out)


def _to_vectors(tensor: Any) -> Vectors:
    return np.asarray(tensor.float().cpu().numpy(), np.float64)


def _unit(vectors: Vectors) -> Vectors:
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12), np.float64)

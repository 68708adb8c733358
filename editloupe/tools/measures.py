"""Measures that are computed from an edit's pictures, without a judge: pixel differences, and similarities by CLIP and DINO."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from editloupe._util.text import number_of
from editloupe.pictures.decode import Picture
from editloupe.pictures.pixels import ImageError, Pixels
from editloupe.tools.contract import CachedResult, ResultCache, ToolError
from editloupe.tools.models.features import (
    ClipEncoder,
    DinoFeatures,
    FeatureSettings,
    Preparation,
    Vectors,
    signed_cosine,
)
from editloupe.tools.result_cache import key
from editloupe.tools.settings import ToolSettings

CLIP_INPUT, DINO_INPUT = Preparation(224, 224), Preparation(256, 224)
"""How the public scripts prepare pictures: the shorter side, bicubic, and the square that is cut from the centre."""


@dataclass(frozen=True)
class MeasureInputs:
    """The pictures and texts of one measurement, in the order of the rubric.

    Args:
        names: Name of each picture, for sentences.
        pictures: The pictures.
        texts: The texts.
    """

    names: Sequence[str]
    pictures: Sequence[Picture]
    texts: Sequence[str] = ()

    def pixel_differences(self) -> npt.NDArray[np.int16]:
        """Return the first picture minus the second, after it is resized to the second's size."""
        first, second = self.pictures[0].pixels, self.pictures[1].pixels
        return resize_bicubic(first, self.pictures[1].size).astype(np.int16) - second

    def check(self, name: str, measure: Measure) -> None:
        """Raise ToolError unless a measure can take these pictures and texts."""
        pictures, texts = len(self.pictures), len(self.texts)
        if not measure.pictures <= pictures <= (measure.most_pictures or measure.pictures) or texts != measure.texts:
            raise ToolError(
                f"The measure {name} takes {measure.takes}, and the rubric names {number_of(pictures, 'picture')} and "
                f"{number_of(texts, 'text')}."
            )


@dataclass(frozen=True)
class Measure:
    """A measure.

    Args:
        shows: What it measures.
        pictures: Number of pictures that it takes.
        compute: Computes it; None if these pictures have nothing to measure.
        most_pictures: Largest number of pictures if it may exceed `pictures`.
        texts: Number of texts that it takes.
        model: Setting of the model that it needs; empty if it needs none.
        version: Raised if the same pictures get another value.
    """

    shows: str
    pictures: int
    compute: Callable[[MeasureInputs, Encoders], float | None]
    most_pictures: int = 0
    texts: int = 0
    model: str = ""
    version: str = "1"

    @property
    def takes(self) -> str:
        """The number of pictures and texts in words."""
        pictures = f"{self.pictures} or more pictures" if self.most_pictures else number_of(self.pictures, "picture")
        return f"{pictures} and {number_of(self.texts, 'text')}" if self.texts else pictures


class Encoders:
    """The models of the measures. Each is loaded at its first picture, and pictures are encoded once.

    Args:
        settings: The models and where they run.
        memory: Cache of vectors.
    """

    def __init__(self, settings: ToolSettings, memory: ResultCache) -> None:
        def model(name: str) -> FeatureSettings:
            return FeatureSettings(name, device=settings.device, precision=settings.precision)

        self._clip, self._dino = ClipEncoder(model(settings.clip)), DinoFeatures(model(settings.dino), pooled=False)
        self._memory = memory

    def unavailable(self, model: str) -> str | None:
        """Return why a model cannot be used, or None; `model` is the name of its setting or empty."""
        models: Mapping[str, DinoFeatures] = {"clip": self._clip, "dino": self._dino}
        return models[model].unavailable() if model else None

    def clip_pictures(self, pictures: Sequence[Picture]) -> Vectors:
        """Return the CLIP vector of each picture."""
        return self._encode(pictures, self._clip.fingerprint, lambda pixels: self._clip.embed([pixels], CLIP_INPUT))

    def clip_texts(self, texts: Sequence[str]) -> Vectors:
        """Return the CLIP vector of each text."""
        return np.concatenate([self._clip.embed_texts([text]) for text in texts])

    def dino_pictures(self, pictures: Sequence[Picture]) -> Vectors:
        """Return the DINO vector of each picture, that of its class token."""
        model = f"{self._dino.fingerprint} class token"
        return self._encode(pictures, model, lambda pixels: self._dino.class_tokens([pixels], DINO_INPUT))

    def _encode(self, pictures: Sequence[Picture], model: str, embed: Callable[[Pixels], Vectors]) -> Vectors:
        """Return the vector of each picture, from the cache or by `embed`, which takes the pixels of one."""

        def find_or_compute(picture: Picture) -> Any:
            def compute() -> CachedResult:
                return CachedResult({"vector": embed(picture.pixels)[0].tolist()})

            return self._memory.get(key("measure", model, picture.sha), compute).data["vector"]

        return np.array([find_or_compute(picture) for picture in pictures], np.float64)


def resize_bicubic(pixels: Pixels, size: tuple[int, int]) -> Pixels:
    """Return a picture in another size, as Pillow's bicubic filter computes it."""
    if (pixels.shape[1], pixels.shape[0]) == size:
        return pixels
    return np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC), np.uint8)


def mean_absolute(inputs: MeasureInputs, encoders: Encoders) -> float:
    """Return the mean absolute difference of two pictures, 0 to 1."""
    difference = np.abs(inputs.pixel_differences())
    return float(difference.sum(dtype=np.int64)) / (255 * difference.size)


def mean_square(inputs: MeasureInputs, encoders: Encoders) -> float:
    """Return the mean square difference of two pictures, 0 to 1."""
    difference = inputs.pixel_differences().astype(np.int32)
    return float((difference * difference).sum(dtype=np.int64)) / (255**2 * difference.size)


def change_outside(inputs: MeasureInputs, encoders: Encoders) -> float | None:
    """Return the mean absolute difference outside the masks, which are black where nothing was to change."""
    difference = np.abs(inputs.pixel_differences())[~_join_masks(inputs)]
    return float(difference.sum(dtype=np.int64)) / (255 * difference.size) if difference.size else None


def _join_masks(inputs: MeasureInputs) -> npt.NDArray[np.bool_]:
    width, height = inputs.pictures[1].size
    union = np.zeros((height, width), np.bool_)
    for name, mask in zip(inputs.names[2:], inputs.pictures[2:], strict=True):
        if mask.size != (width, height):
            raise ImageError(
                f"{name} is {mask.size[0]} × {mask.size[1]} pixels, and {inputs.names[1]} {width} × {height}; a mask needs "
                "the size of its picture"
            )
        union |= mask.pixels[..., 0] > 0
    return union


def clip_image(inputs: MeasureInputs, encoders: Encoders) -> float:
    """Return the cosine of two pictures by CLIP."""
    return signed_cosine(*encoders.clip_pictures(inputs.pictures))


def clip_text(inputs: MeasureInputs, encoders: Encoders) -> float:
    """Return the cosine of a picture and a text by CLIP."""
    return signed_cosine(encoders.clip_pictures(inputs.pictures)[0], encoders.clip_texts(inputs.texts)[0])


def clip_direction(inputs: MeasureInputs, encoders: Encoders) -> float | None:
    """Return the cosine of the change of two pictures and that of two texts by CLIP, each normalised first.

    It is 0 for equal pictures and None for equal texts, which have no direction.
    """
    if inputs.texts[0] == inputs.texts[1]:
        return None
    before, after = _unit_rows(encoders.clip_pictures(inputs.pictures))
    text_before, text_after = _unit_rows(encoders.clip_texts(inputs.texts))
    return signed_cosine(after - before, text_after - text_before)


def dino(inputs: MeasureInputs, encoders: Encoders) -> float:
    """Return the cosine of two pictures by DINO."""
    return signed_cosine(*encoders.dino_pictures(inputs.pictures))


def _unit_rows(vectors: Vectors) -> Iterator[Vectors]:
    for vector in vectors:
        yield vector / max(float(np.linalg.norm(vector)), 1e-12)


MEASURES: Mapping[str, Measure] = {
    "l1": Measure("mean absolute difference of the first picture from the second", 2, mean_absolute),
    "l2": Measure("mean square difference of the first picture from the second", 2, mean_square),
    "outside_mask": Measure(
        "mean absolute difference of the first picture from the second, outside the masks", 3, change_outside, 20
    ),
    "clip_image": Measure("cosine of two pictures by CLIP", 2, clip_image, model="clip"),
    "clip_text": Measure("cosine of a picture and a text by CLIP", 1, clip_text, texts=1, model="clip"),
    "clip_direction": Measure(
        "cosine of the change from the first picture to the second and from the first text to the second, by CLIP",
        2,
        clip_direction,
        texts=2,
        model="clip",
    ),
    "dino": Measure("cosine of two pictures by DINO's class token", 2, dino, model="dino"),
}
"""The measures by name."""


class PictureMeasures:
    """The measures of a toolbox. Threads may use it at the same time.

    Args:
        settings: The models and where they run.
        memory: Cache of vectors.
    """

    def __init__(self, settings: ToolSettings, memory: ResultCache) -> None:
        self._settings, self._memory = settings, memory
        self._lock = threading.Lock()
        self._encoders: Encoders | None = None

    def facts(self, name: str) -> dict[str, Any]:
        """Return everything the value of a measure depends on, except the pictures and texts."""
        measure = MEASURES[name]
        facts: dict[str, Any] = {"name": name, "version": measure.version}
        if measure.model:
            facts |= {"model": getattr(self._settings, measure.model), "precision": self._settings.precision}
        return facts

    def measure(self, name: str, inputs: MeasureInputs) -> float | None:
        """Compute a measure.

        Args:
            name: A name of MEASURES.
            inputs: The pictures and texts.

        Returns:
            The value, or None if these pictures have nothing to measure.

        Raises:
            ToolError: If the rubric names other inputs than the measure takes, or its model cannot be used.
            ImageError: If a picture cannot be used.
        """
        measure = MEASURES[name]
        inputs.check(name, measure)
        return measure.compute(inputs, self._open_encoders())

    def unavailable(self, name: str) -> str | None:
        """Return why a measure cannot be computed on this machine, or None. Nothing is loaded."""
        return self._open_encoders().unavailable(MEASURES[name].model)

    def _open_encoders(self) -> Encoders:
        with self._lock:
            if self._encoders is None:
                self._encoders = Encoders(self._settings, self._memory)
            return self._encoders

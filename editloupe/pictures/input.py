"""Read pictures from bytes, data URLs, PIL images and numpy arrays.

A value with a wrong type or shape raises ValueError when the edit is created. A broken picture (bytes that do not decode, a
truncated image, NaN pixels) leaves the edit unjudged, like a broken file: one bad sample must not end a training run.
"""

from __future__ import annotations

import base64
import binascii
import threading
import weakref
from typing import Any
from urllib.parse import unquote_to_bytes

import numpy as np
import numpy.typing as npt
from PIL import Image

from editloupe.pictures.decode import pixels_of
from editloupe.pictures.memory import MemoryPicture
from editloupe.pictures.pixels import ImageError, Pixels, hash_bytes, hash_pixels

LONGEST_HEADER = 256
"""The largest number of characters before the comma of a data URL."""
STEP = 1 / 255
"""How far a float may be outside 0 to 1: one 8-bit step, for rounding errors."""
_TAKEN = "a path, bytes, a data URL, a PIL image or a numpy array"
_KNOWN: weakref.WeakValueDictionary[str, MemoryPicture] = weakref.WeakValueDictionary()
"""Pictures in use by hash. Candidates for one instruction share their source, which is then encoded once."""
_BY_SUM: weakref.WeakValueDictionary[tuple[tuple[int, ...], int], MemoryPicture] = weakref.WeakValueDictionary()
"""Pictures in use that came as pixels, by shape and sum, which is much faster than a hash."""
_LOCK = threading.Lock()


def as_memory_picture(value: Any) -> MemoryPicture:
    """Return a value as a picture in memory. Raise ValueError if it cannot be a picture."""
    if isinstance(value, MemoryPicture):
        return value
    if isinstance(value, str):
        return _from_url(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _from_bytes(bytes(value))
    if isinstance(value, Image.Image):
        return _from_image(value)
    if isinstance(value, np.ndarray):
        return _from_array(value)
    raise ValueError(f"a picture is {_TAKEN}, not {type(value).__name__}")


def _from_url(text: str) -> MemoryPicture:
    if (named := MemoryPicture.parse(text)) is not None:
        return _KNOWN.get(named.sha) or named
    head, comma, body = text.partition(",")
    if not comma or len(head) > LONGEST_HEADER:
        return _make_broken("a data URL holds no picture")
    if not head.lower().endswith(";base64"):
        return _from_bytes(unquote_to_bytes(body))
    return from_base64(body)


def from_base64(text: str) -> MemoryPicture:
    """Read a picture from base64, with or without the head of a data URL."""
    if text.startswith("data:"):
        return _from_url(text)
    try:
        return _from_bytes(base64.b64decode(text, validate="\n" not in text))
    except (binascii.Error, ValueError):
        return _make_broken("a picture given in base64 cannot be decoded")


def _from_bytes(data: bytes) -> MemoryPicture:
    return _share(MemoryPicture(hash_bytes(data), data=data))


def _from_image(image: Image.Image) -> MemoryPicture:
    try:
        pixels = pixels_of(image, "the picture given as a PIL image")
    except ImageError as error:
        return _make_broken(str(error))
    return _from_pixels(pixels)


def _from_array(array: npt.NDArray[Any]) -> MemoryPicture:
    shape = " × ".join(map(str, array.shape))
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (1, 3, 4)) or 0 in array.shape:
        channels_first = array.ndim == 3 and array.shape[0] in (1, 3, 4)
        hint = "; move the channels to the end" if channels_first else ""
        raise ValueError(
            f"an array of a picture is height × width, or height × width × 1, 3 or 4 channels, not {shape}{hint}"
        )
    if array.dtype.kind == "f":
        if not np.isfinite(array).all():
            return _make_broken("an array of a picture holds NaN or infinite values")
        low, high = float(array.min()), float(array.max())
        if low < -STEP or high > 1 + STEP:
            raise ValueError(f"a float array of a picture holds 0 to 1, not {low:.3g} to {high:.3g}")
        array = (array.clip(0, 1) * 255).round().astype(np.uint8)
    elif array.dtype != np.uint8:
        raise ValueError(f"an array of a picture holds uint8, 0 to 255, or floats, 0 to 1, not {array.dtype}")
    if array.ndim == 3 and array.shape[2] == 3:
        return _from_pixels(np.array(array, dtype=np.uint8, order="C", copy=True))
    return _from_image(Image.fromarray(np.ascontiguousarray(array[..., 0] if array.shape[-1] == 1 else array)))


def _from_pixels(pixels: Pixels) -> MemoryPicture:
    """Return pixels as a picture. Equal pixels in use are found by comparison, which takes a quarter of a hash's time."""
    words = pixels.reshape(-1)[: pixels.size // 8 * 8].view(np.uint64)
    key = (pixels.shape, int(words.sum()))
    with _LOCK:
        picture = _BY_SUM.get(key)
    if picture is None or picture.pixels is None or not np.array_equal(picture.pixels, pixels):
        picture = _share(MemoryPicture(hash_pixels(pixels), pixels=pixels))
        with _LOCK:
            _BY_SUM[key] = picture
    return picture


def _make_broken(sentence: str) -> MemoryPicture:
    return MemoryPicture(hash_bytes(sentence.encode()), problem=sentence)


def _share(picture: MemoryPicture) -> MemoryPicture:
    with _LOCK:
        return _KNOWN.setdefault(picture.sha, picture)

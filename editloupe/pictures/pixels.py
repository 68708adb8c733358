"""Convert pictures to 8-bit RGB without alpha, and compute their content hashes."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
from PIL import Image

from editloupe._util.errors import UserError

Pixels = npt.NDArray[np.uint8]
"""Height × width × 3, RGB."""

STRIP_PIXELS = 4_000_000
"""Larger pictures are converted in strips of this size, because the conversion takes up to thirty times a strip's bytes."""


WHITE = 250
"""Smallest value of all channels at which a pixel of a mask is white."""


class ImageError(UserError):
    """A picture cannot be used; the message is one sentence."""


def hash_bytes(data: bytes) -> str:
    """Return the content hash of a file's bytes."""
    return hashlib.sha256(data).hexdigest()[:32]


def hash_pixels(pixels: Pixels) -> str:
    """Return the content hash of pixels, of their size and values."""
    digest = hashlib.sha256(repr(pixels.shape).encode())
    digest.update(np.ascontiguousarray(pixels).data)
    return digest.hexdigest()[:32]


def to_rgb(image: Image.Image) -> Pixels:
    """Flatten alpha on white and convert any mode to 8-bit RGB."""
    width, height = image.size
    top = _top(image)
    if width * height <= STRIP_PIXELS:
        return _strip(image, top)
    rows = max(1, STRIP_PIXELS // width)
    pixels = np.empty((height, width, 3), np.uint8)
    for start in range(0, height, rows):
        end = min(height, start + rows)
        pixels[start:end] = _strip(image.crop((0, start, width, end)), top)
    return pixels


def _top(image: Image.Image) -> float | None:
    """Return the value of white in a picture of more than 8 bits; None for other pictures."""
    if image.mode in ("I;16", "I;16B", "I;16L", "I"):
        return 65535.0 if np.asarray(image).max(initial=0) > 255 else 255.0
    if image.mode == "F":
        return 1.0 if np.asarray(image).max(initial=0) <= 1 else 255.0
    return None


def _strip(image: Image.Image, top: float | None) -> Pixels:
    if top is not None:
        values = np.nan_to_num(np.asarray(image, dtype=np.float64), posinf=top, neginf=0.0)
        image = Image.fromarray((values / top * 255).clip(0, 255).astype(np.uint8))
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        white = Image.new("RGBA", layer.size, (255, 255, 255, 255))
        image = Image.alpha_composite(white, layer)
    return np.ascontiguousarray(np.asarray(image if image.mode == "RGB" else image.convert("RGB"), dtype=np.uint8))

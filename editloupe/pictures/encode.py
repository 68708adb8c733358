"""Encode pictures for requests within a model's limits, small ones without loss and large ones as JPEG."""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import cv2
import numpy as np

from editloupe.pictures.pixels import ImageError, Pixels

if TYPE_CHECKING:
    from editloupe.pictures.decode import Picture

LOSSLESS_PIXELS = 256 * 256
"""Generated pictures up to this size are sent as PNG, larger ones as high-quality JPEG, which is ten times faster."""
PACKED_QUALITY = 80
"""JPEG quality in a request that would be too large: a third of the bytes or less."""
LONG_SIDE = 2048
"""The default long side of sent pictures. Providers silently shrink larger ones."""


@dataclass(frozen=True)
class EncodedPicture:
    """A picture encoded for a request."""

    media_type: str
    base64: bytes
    size: tuple[int, int]
    bytes: int


@dataclass(frozen=True)
class EncodingLimits:
    """How pictures are encoded for one model."""

    long_side: int = LONG_SIDE
    max_bytes: int = 15_000_000
    quality: int = 95
    packed: bool = False
    """Encode always as JPEG with a lower quality, at the same size, for a request that would be too large."""


def encode_picture(picture: Picture, limits: EncodingLimits) -> EncodedPicture:
    """Encode a picture within the limits. If it has too many bytes, it is shrunk, and `size` is the new size."""
    if limits.packed:
        size = encode_picture(picture, replace(limits, packed=False)).size
        pixels = picture.pixels if size == picture.size else shrink(picture.pixels, size)
        return _wire("image/jpeg", encode(pixels, "jpeg", PACKED_QUALITY), size)
    width, height = picture.size
    scale = min(1.0, limits.long_side / max(width, height))
    if scale == 1.0 and picture.file and len(picture.file[1]) <= limits.max_bytes:
        return _wire(*picture.file, picture.size)
    while True:
        size = max(1, round(width * scale)), max(1, round(height * scale))
        pixels = picture.pixels if scale == 1.0 else shrink(picture.pixels, size)
        format: Literal["png", "jpeg"] = "png" if size[0] * size[1] <= LOSSLESS_PIXELS else "jpeg"
        data = encode(pixels, format, limits.quality)
        if len(data) <= limits.max_bytes or max(size) <= 64:
            return _wire(f"image/{format}", data, size)
        scale *= 0.8


def shrink(pixels: Pixels, size: tuple[int, int]) -> Pixels:
    """Return the picture at a smaller size, by area averaging."""
    return np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)


def _wire(media_type: str, data: bytes, size: tuple[int, int]) -> EncodedPicture:
    return EncodedPicture(media_type, base64.b64encode(data), size, len(data))


def encode(pixels: Pixels, format: Literal["png", "jpeg"] = "png", quality: int = 95) -> bytes:
    """Encode RGB pixels as a PNG or JPEG file. JPEG keeps full colour resolution for small coloured objects."""
    jpeg = [cv2.IMWRITE_JPEG_QUALITY, quality, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444]
    options = jpeg if format == "jpeg" else [cv2.IMWRITE_PNG_COMPRESSION, 3]
    ok, data = cv2.imencode(f".{format}", cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR), options)
    if not ok:
        raise ImageError(f"a picture of {pixels.shape[1]} × {pixels.shape[0]} pixels could not be encoded as {format}")
    return data.tobytes()

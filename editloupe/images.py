"""Pictures by content hash: safe opening, EXIF, resizing and encoding for the wire, all of it recorded."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Literal

import cv2
import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from editloupe.files import open_file, read_bytes
from editloupe.types import Sent, Sha, UserError

Pixels = npt.NDArray[np.uint8]
"""Height × width × 3, RGB."""

FORMATS = ("PNG", "JPEG", "WEBP", "TIFF", "BMP")
MAX_PIXELS = 150_000_000
"""A guard against decompression bombs: a 150-megapixel picture takes 450 MB once decoded."""
MAX_FILE_BYTES = 512_000_000
"""More than a picture of that many pixels takes without any compression; larger files are not read."""
MAX_SCANS = 500
"""Passes over a progressive JPEG: real ones have about ten, and each takes the time of decoding the whole picture."""
STRIP_PIXELS = 4_000_000
"""Larger pictures are brought to RGB this much at a time: the steps between take up to thirty times a strip's bytes."""
LOSSLESS_PIXELS = 256 * 256
"""Made pictures up to this size go out as PNG; larger ones as a JPEG of high quality, which is ten times quicker to make."""
PACKED_QUALITY = 80
"""Of a JPEG in a request that would be too large otherwise: a third of the bytes or less."""
SENT_AS_IS = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp"}
"""Files in these formats go out byte for byte where nothing has to be turned, flattened or shrunk."""
ANIMATED = ("PNG", "WEBP")
"""Formats in which further frames are an animation; those of a TIFF are pages, of which the first counts."""
LONG_SIDE = 2048
"""What is sent by default; above it providers shrink pictures themselves, without telling."""

_FILTERS = threading.Lock()
"""Python's warning filters belong to the whole process; two threads that change them at once leave them changed."""

_LARGE = threading.BoundedSemaphore(os.cpu_count() or 1)
"""Large pictures decoded at one time: while that lasts they take more than twice the memory, and more threads are no faster."""

# In blocks of Pillow's own size the memory of a decoded picture stays with the thread that decoded it; blocks beyond 32 MB
# go back to the system at once.
Image.core.set_block_size(128 * 2**20)  # type: ignore[attr-defined]


class ImageError(UserError):
    """A picture that cannot be used, told in one sentence."""


@dataclass(frozen=True)
class Wire:
    """A picture encoded for a request."""

    media_type: str
    base64: bytes
    size: tuple[int, int]
    bytes: int


@dataclass(frozen=True)
class WireLimits:
    """How pictures are encoded for one model."""

    long_side: int = LONG_SIDE
    max_bytes: int = 15_000_000
    quality: int = 95
    packed: bool = False
    """Of the same size, but always as JPEG and with less quality: for a request that would be too large otherwise."""


@dataclass(frozen=True, eq=False)
class Picture:
    """Decoded pixels and the hash they are known by."""

    sha: Sha
    pixels: Pixels
    file: tuple[str, bytes] | None = field(default=None, repr=False)
    """Media type and bytes of the file, where they show exactly these pixels."""
    _wires: dict[WireLimits, Wire] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.pixels.shape[1], self.pixels.shape[0]

    def wire(self, limits: WireLimits) -> Wire:
        """Return the picture encoded within these limits; encoded once, however often it is sent."""
        with self._lock:
            if limits not in self._wires:
                self._wires[limits] = _encode(self, limits)
            return self._wires[limits]

    def sent(self, name: str, limits: WireLimits) -> Sent:
        """Say how this picture goes out, for the trace."""
        wire = self.wire(limits)
        return Sent(
            name=name,
            sha=self.sha,
            original_size=self.size,
            size=wire.size,
            format=wire.media_type.removeprefix("image/"),
            bytes=wire.bytes,
            scale=wire.size[0] / self.size[0],
        )


class Album:
    """The pictures of one edit, by hash; dropped with the edit, so that memory does not grow with the run."""

    def __init__(self, expected: Mapping[Path, Sha] | None = None) -> None:
        self._expected = expected or {}
        """Hashes the files had when the edit's key was made; a file that has another one since is not judged."""
        self._pictures: dict[Sha, Picture] = {}
        self._by_path: dict[Path, Picture] = {}
        self._lock = threading.Lock()

    def open(self, path: Path) -> Picture:
        """Read a picture file; raises ImageError with one sentence where that is not possible."""
        with self._lock:
            known = self._by_path.get(path)
        if known is None:
            known = open_picture(path)
            if self._expected.get(path, known.sha) != known.sha:
                raise ImageError(f"{path} changed while it was waiting to be judged; the same command judges it anew")
            with self._lock:
                known = self._pictures.setdefault(known.sha, known)
                self._by_path[path] = known
        return known

    def add(self, pixels: Pixels) -> Picture:
        """Keep a made picture (a crop, a mask, a drawing)."""
        picture = Picture(hash_pixels(pixels), pixels)
        with self._lock:
            return self._pictures.setdefault(picture.sha, picture)

    def __getitem__(self, sha: Sha) -> Picture:
        return self._pictures[sha]

    def clear(self) -> None:
        """Let go of all pictures at once; whoever still holds the album keeps no pixels alive."""
        with self._lock:
            self._pictures.clear()
            self._by_path.clear()


def hash_bytes(data: bytes) -> Sha:
    """Return the name under which these bytes are kept."""
    return hashlib.sha256(data).hexdigest()[:32]


def hash_pixels(pixels: Pixels) -> Sha:
    """Return the name under which made pixels are kept; size and values count."""
    digest = hashlib.sha256(repr(pixels.shape).encode())
    digest.update(np.ascontiguousarray(pixels).data)
    return digest.hexdigest()[:32]


def hash_file(path: Path) -> Sha:
    """Return the hash of a picture file, the one its picture will be known by."""
    return hash_bytes(_read(path))


def open_picture(path: Path) -> Picture:
    """Open a picture file safely: known formats, upright, without alpha, within the pixel limit."""
    return decode(_read(path), str(path))


def declared_pixels(path: Path) -> int:
    """Return how many pixels a picture will take, by its file's header; 0 where opening it will fail and say why."""
    try:
        with open_file(path) as file:
            if os.fstat(file.fileno()).st_size > MAX_FILE_BYTES:
                return 0
            with _header(file) as image:
                pixels = image.width * image.height
    except Exception:  # Pillow's decoders raise many kinds on damaged files
        return 0
    return pixels if pixels <= MAX_PIXELS else 0


def declared_size(path: Path) -> tuple[int, int]:
    """Return width and height of a picture as it is judged, upright, by its file's header; ImageError where it has none."""
    try:
        with open_file(path) as file, _header(file) as image:
            width, height = image.size
            turned = _orientation(image) in (5, 6, 7, 8)
    except FileNotFoundError:
        raise ImageError(f"there is no picture at {path}") from None
    except OSError as error:
        raise ImageError(f"{path} cannot be read: {_one_line(error)}") from None
    except Exception as error:  # Pillow's decoders raise many kinds on damaged files
        raise ImageError(f"{path} is a damaged or incomplete picture ({_one_line(error)})") from None
    return (height, width) if turned else (width, height)


def _orientation(image: Image.Image) -> int:
    """Return how EXIF says the picture is to be turned; 1 where it says nothing that can be read."""
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except (ValueError, SyntaxError, TypeError, KeyError, OSError):
        return 1


def _read(path: Path) -> bytes:
    try:
        return read_bytes(path, MAX_FILE_BYTES)
    except FileNotFoundError:
        raise ImageError(f"there is no picture at {path}") from None
    except IsADirectoryError:
        raise ImageError(f"{path} is a folder, not a picture") from None
    except OSError as error:
        raise ImageError(f"{path} cannot be read: {error.strerror or error}") from None


def decode(data: bytes, name: str) -> Picture:
    """Decode an encoded picture; `name` is what the sentence of an error calls it."""
    try:
        with _usable(data, name) as image, _LARGE if image.width * image.height > STRIP_PIXELS else nullcontext():
            image.load()
            upright = _upright(image)
            as_is = upright is image and image.mode == "RGB" and image.format in SENT_AS_IS
            file = (SENT_AS_IS[str(image.format)], data) if as_is and not image.has_transparency_data else None
            return Picture(hash_bytes(data), _to_rgb(upright), file)
    except ImageError:
        raise
    except Image.DecompressionBombError:
        raise ImageError(f"{name} is larger than the limit of {MAX_PIXELS // 10**6} megapixels") from None
    except UnidentifiedImageError:
        raise ImageError(f"{name} is not a picture this program reads (PNG, JPEG, WebP, TIFF, BMP)") from None
    except Exception as error:  # Pillow's decoders raise many kinds on damaged files
        raise ImageError(f"{name} is a damaged or incomplete picture ({_one_line(error)})") from None


def open_layer(path: Path) -> Image.Image:
    """Open a picture for its transparency, as RGBA, with the same care as any other."""
    try:
        with _usable(_read(path), str(path)) as image:
            return image.convert("RGBA")
    except ImageError:
        raise
    except Exception as error:  # Pillow's decoders raise many kinds on damaged files
        raise ImageError(f"{path} cannot be used as a layer of marks ({_one_line(error)})") from None


@contextmanager
def _usable(data: bytes, name: str) -> Iterator[Image.Image]:
    """Give a picture whose header promises nothing that cannot be kept; its pixels are not decoded yet."""
    if not data:
        raise ImageError(f"{name} is an empty file")
    with _header(io.BytesIO(data)) as image:
        _check_size(image, name)
        frames = getattr(image, "n_frames", 1) if image.format in ANIMATED else 1
        if frames > 1:
            raise ImageError(f"{name} is an animation of {frames} frames; save the one to be judged as a picture")
        if image.info.get("progressive") and data.count(b"\xff\xda") > MAX_SCANS:
            raise ImageError(f"{name} has more than {MAX_SCANS} passes, as no camera or program writes them")
        yield image


def _header(file: IO[bytes]) -> Image.Image:
    """Return a picture of which only the header is read; our own limit on pixels stands for Pillow's warning."""
    with _FILTERS, warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        return Image.open(file, formats=FORMATS)


def _check_size(image: Image.Image, name: str) -> None:
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise ImageError(
            f"{name} has {width} × {height} pixels, more than the limit of {MAX_PIXELS // 10**6} megapixels"
        )


def _upright(image: Image.Image) -> Image.Image:
    """Apply the EXIF rotation; a picture whose EXIF block is damaged is taken as it is stored."""
    try:
        if image.getexif().get(ExifTags.Base.Orientation, 1) == 1:
            return image  # exif_transpose would return a copy, and the file would no longer go out byte for byte
        return ImageOps.exif_transpose(image) or image
    except (ValueError, SyntaxError, TypeError, KeyError, OSError):
        return image


def _to_rgb(image: Image.Image) -> Pixels:
    """Flatten alpha on white and reduce every mode to 8-bit RGB."""
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
    """Return the value that stands for white in a picture of more than 8 bits; None for the others."""
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


def _encode(picture: Picture, limits: WireLimits) -> Wire:
    """Encode within the limits; a picture too heavy at full size is sent smaller, and the size says so."""
    if limits.packed:
        size = _encode(picture, replace(limits, packed=False)).size
        shown = picture.pixels if size == picture.size else shrunk(picture.pixels, size)
        return _wire("image/jpeg", encode(shown, "jpeg", PACKED_QUALITY), size)
    width, height = picture.size
    scale = min(1.0, limits.long_side / max(width, height))
    if scale == 1.0 and picture.file and len(picture.file[1]) <= limits.max_bytes:
        return _wire(*picture.file, picture.size)
    while True:
        size = max(1, round(width * scale)), max(1, round(height * scale))
        shown = picture.pixels if scale == 1.0 else shrunk(picture.pixels, size)
        format: Literal["png", "jpeg"] = "png" if size[0] * size[1] <= LOSSLESS_PIXELS else "jpeg"
        data = encode(shown, format, limits.quality)
        if len(data) <= limits.max_bytes or max(size) <= 64:
            return _wire(f"image/{format}", data, size)
        scale *= 0.8


def shrunk(pixels: Pixels, size: tuple[int, int]) -> Pixels:
    """Return the picture at a smaller size, averaged so that nothing flickers."""
    return np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)


def _wire(media_type: str, data: bytes, size: tuple[int, int]) -> Wire:
    return Wire(media_type, base64.b64encode(data), size, len(data))


def encode(pixels: Pixels, format: Literal["png", "jpeg"] = "png", quality: int = 95) -> bytes:
    """Encode RGB pixels as a PNG or JPEG file; JPEG keeps full colour resolution, small coloured things need it."""
    jpeg = [cv2.IMWRITE_JPEG_QUALITY, quality, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444]
    options = jpeg if format == "jpeg" else [cv2.IMWRITE_PNG_COMPRESSION, 3]
    ok, data = cv2.imencode(f".{format}", cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR), options)
    if not ok:
        raise ImageError(f"a picture of {pixels.shape[1]} × {pixels.shape[0]} pixels could not be encoded as {format}")
    return data.tobytes()


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__

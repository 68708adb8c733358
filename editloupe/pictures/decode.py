"""Open pictures safely and hold them by content hash: formats, limits, EXIF rotation, decoding when pixels are needed."""

from __future__ import annotations

import io
import os
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO

from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from editloupe._util.files import open_file, read_bytes
from editloupe.pictures.encode import Wire, WireLimits, encode_picture
from editloupe.pictures.memory import MemoryPicture, PictureSource
from editloupe.pictures.pixels import STRIP_PIXELS, ImageError, Pixels, hash_bytes, hash_pixels, to_rgb
from editloupe.types import Sent, Sha

FORMATS = ("PNG", "JPEG", "WEBP", "TIFF", "BMP")
MAX_PIXELS = 150_000_000
"""A guard against decompression bombs: a 150-megapixel picture takes 450 MB once decoded."""
MAX_FILE_BYTES = 512_000_000
"""More than a picture of that many pixels takes without any compression; larger files are not read."""
MAX_SCANS = 500
"""Passes over a progressive JPEG: real ones have about ten, and each takes the time of decoding the whole picture."""
SENT_AS_IS = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp"}
"""Files in these formats go out byte for byte where nothing has to be turned, flattened or shrunk."""
ANIMATED = ("PNG", "WEBP")
"""Formats in which further frames are an animation; those of a TIFF are pages, of which the first counts."""
_FILTERS = threading.Lock()
"""Python's warning filters belong to the whole process; two threads that change them at once leave them changed."""

_LARGE = threading.BoundedSemaphore(os.cpu_count() or 1)
"""Large pictures decoded at one time: while that lasts they take more than twice the memory, and more threads are no faster."""

# In blocks of Pillow's own size the memory of a decoded picture stays with the thread that decoded it; blocks beyond 32 MB
# go back to the system at once.
Image.core.set_block_size(128 * 2**20)  # type: ignore[attr-defined]


class Picture:
    """A picture and the hash it is known by; its pixels are decoded when somebody first looks at them."""

    def __init__(
        self,
        sha: Sha,
        pixels: Pixels | None,
        file: tuple[str, bytes] | None = None,
        size: tuple[int, int] = (0, 0),
        given: bool = False,
    ) -> None:
        self.sha = sha
        self.file = file
        """Media type and bytes of the file, where they show exactly these pixels."""
        self.size: tuple[int, int] = size if pixels is None else (pixels.shape[1], pixels.shape[0])
        """Width and height."""
        self.given = given
        """Whether somebody gave these pixels to be judged; a run keeps them to the last bit."""
        self._pixels = pixels
        self._wires: dict[WireLimits, Wire] = {}
        self._lock = threading.RLock()

    @property
    def decoded(self) -> bool:
        """Whether the pixels are in memory."""
        return self._pixels is not None

    @property
    def pixels(self) -> Pixels:
        """Its pixels; those of a file that nobody has looked at yet are decoded, once."""
        with self._lock:
            if self._pixels is None:
                assert self.file is not None
                self._pixels = decode(self.file[1], "the picture").pixels
            return self._pixels

    def wire(self, limits: WireLimits) -> Wire:
        """Return the picture encoded within these limits; encoded once, however often it is sent."""
        with self._lock:
            if limits not in self._wires:
                self._wires[limits] = encode_picture(self, limits)
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

    def __init__(self, expected: Mapping[PictureSource, Sha] | None = None) -> None:
        self._expected = expected or {}
        """Hashes the files had when the edit's key was made; a file that has another one since is not judged."""
        self._pictures: dict[Sha, Picture] = {}
        self._by_path: dict[PictureSource, Picture] = {}
        self._lock = threading.Lock()

    def open(self, path: PictureSource) -> Picture:
        """Open a picture from its file or from memory; raises ImageError with one sentence where that is not possible."""
        with self._lock:
            known = self._by_path.get(path)
        if known is None:
            known = (
                _open_in_memory(path, lazily=True)
                if isinstance(path, MemoryPicture)
                else decode(_read(path), str(path), lazily=True)
            )
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

    def keep(self, sha: Sha, data: bytes, name: str) -> Picture:
        """Keep a picture that a run holds, under the hash it is known by there; ImageError where it cannot be decoded."""
        decoded = decode(data, name)
        with self._lock:
            return self._pictures.setdefault(sha, Picture(sha, decoded.pixels, decoded.file))

    def __contains__(self, sha: object) -> bool:
        return sha in self._pictures

    def __getitem__(self, sha: Sha) -> Picture:
        try:
            return self._pictures[sha]
        except KeyError:  # a checkpoint names pictures by their hashes and may outlive the album
            raise ImageError("a picture is no longer in memory; start the run again with its input") from None

    def clear(self) -> None:
        """Let go of all pictures at once; whoever still holds the album keeps no pixels alive."""
        with self._lock:
            self._pictures.clear()
            self._by_path.clear()


def hash_file(path: PictureSource) -> Sha:
    """Return the hash of a picture, the one it will be known by."""
    if isinstance(path, MemoryPicture):
        _check_here(path)
        return path.sha
    return hash_bytes(_read(path))


def open_picture(path: PictureSource) -> Picture:
    """Open a picture safely: known formats, upright, without alpha, within the pixel limit."""
    return _open_in_memory(path) if isinstance(path, MemoryPicture) else decode(_read(path), str(path))


def _open_in_memory(source: MemoryPicture, lazily: bool = False) -> Picture:
    _check_here(source)
    if (known := source.opened) is None:
        if source.pixels is not None:
            known = Picture(source.sha, source.pixels, given=True)
        else:
            known = decode(source.data or b"", source.label, lazily)
        source.opened = known
    return known


def _check_here(source: MemoryPicture) -> None:
    if source.problem:
        raise ImageError(source.problem)
    if not source.has_content:
        raise ImageError(f"{source.label} is not here any more: only its hash was written down")
    if source.data and len(source.data) > MAX_FILE_BYTES:
        raise ImageError(f"{source.label} is larger than the limit of {MAX_FILE_BYTES // 1_000_000} MB")


def pixels_of(image: Image.Image, name: str) -> Pixels:
    """Return the pixels of an image that is open already, by the rules files are read by."""
    try:
        _check_size(image, name)
        _check_still(image, name, (*ANIMATED, "GIF"))
        image.load()
        return to_rgb(_upright(image))
    except ImageError:
        raise
    except Exception as error:  # Pillow's decoders raise many kinds on damaged files
        raise ImageError(f"{name} is damaged or incomplete ({_one_line(error)})") from None


def declared_pixels(path: PictureSource) -> int:
    """Return how many pixels a picture will take, by its file's header; 0 where opening it will fail and say why."""
    try:
        if isinstance(path, MemoryPicture):
            if path.pixels is not None:
                return int(path.pixels.shape[0] * path.pixels.shape[1])
            with _header(io.BytesIO(path.data or b"")) as image:
                pixels = image.width * image.height
            return pixels if pixels <= MAX_PIXELS else 0
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


def decode(data: bytes, name: str, lazily: bool = False) -> Picture:
    """Decode an encoded picture; `name` is what the sentence of an error calls it.

    With `lazily`, a JPEG that goes out as it is is only read through, at an eighth of its size: what is damaged shows, and its
    pixels, most of the work and of the memory, are left until somebody looks at them.
    """
    try:
        with _usable(data, name) as image, _LARGE if image.width * image.height > STRIP_PIXELS else nullcontext():
            size = image.size
            if lazily and image.format == "JPEG" and image.mode == "RGB" and _orientation(image) == 1:
                image.draft("RGB", (1, 1))
                image.load()
                return Picture(hash_bytes(data), None, (SENT_AS_IS["JPEG"], data), size)
            image.load()
            upright = _upright(image)
            as_is = upright is image and image.mode == "RGB" and image.format in SENT_AS_IS
            file = (SENT_AS_IS[str(image.format)], data) if as_is and not image.has_transparency_data else None
            return Picture(hash_bytes(data), to_rgb(upright), file)
    except ImageError:
        raise
    except Image.DecompressionBombError:
        raise ImageError(f"{name} is larger than the limit of {MAX_PIXELS // 10**6} megapixels") from None
    except UnidentifiedImageError:
        raise ImageError(f"{name} is not a picture this program reads (PNG, JPEG, WebP, TIFF, BMP)") from None
    except Exception as error:  # Pillow's decoders raise many kinds on damaged files
        raise ImageError(f"{name} is a damaged or incomplete picture ({_one_line(error)})") from None


def open_layer(path: PictureSource) -> Image.Image:
    """Open a picture for its transparency, as RGBA, with the same care as any other."""
    if isinstance(path, MemoryPicture) and (path.pixels is not None or not path.has_content or path.problem):
        _check_here(path)
        raise ImageError("a layer of marks given as pixels has lost its transparency; give the bytes of its file")
    try:
        data, name = (path.data or b"", path.label) if isinstance(path, MemoryPicture) else (_read(path), str(path))
        with _usable(data, name) as image:
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
        _check_still(image, name, ANIMATED)
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
    if not width * height:
        raise ImageError(f"{name} has no pixels: it is {width} × {height}")
    if width * height > MAX_PIXELS:
        raise ImageError(
            f"{name} has {width} × {height} pixels, more than the limit of {MAX_PIXELS // 10**6} megapixels"
        )


def _check_still(image: Image.Image, name: str, animated: tuple[str, ...]) -> None:
    frames = getattr(image, "n_frames", 1) if image.format in animated else 1
    if frames > 1:
        raise ImageError(f"{name} is an animation of {frames} frames; save the one to be judged as a picture")


def _upright(image: Image.Image) -> Image.Image:
    """Apply the EXIF rotation; a picture whose EXIF block is damaged is taken as it is stored."""
    try:
        if image.getexif().get(ExifTags.Base.Orientation, 1) == 1:
            return image  # exif_transpose would return a copy, and the file would no longer go out byte for byte
        return ImageOps.exif_transpose(image) or image
    except (ValueError, SyntaxError, TypeError, KeyError, OSError):
        return image


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__

"""Open pictures safely and hold them by content hash.

Formats and sizes are limited, the EXIF rotation is applied, and pixels are decoded when they are needed.
"""

from __future__ import annotations

import io
import os
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import IO

from PIL import ExifTags, Image, ImageChops, ImageOps, UnidentifiedImageError

from editloupe._util.files import check_file, open_file
from editloupe._util.text import shorten_error
from editloupe.pictures.encode import EncodedPicture, EncodingLimits, encode_picture
from editloupe.pictures.memory import MemoryPicture, PictureSource
from editloupe.pictures.pixels import STRIP_PIXELS, WHITE, ImageError, Pixels, hash_bytes, hash_pixels, to_rgb
from editloupe.pictures.table_cells import find_file, read_picture_bytes
from editloupe.types import SentPicture, Sha

FORMATS = ("PNG", "JPEG", "WEBP", "TIFF", "BMP")
MAX_PIXELS = 150_000_000
"""Protects against decompression bombs: a decoded picture of 150 megapixels takes 450 MB."""
MAX_FILE_BYTES = 512_000_000
"""Larger files are not read. A picture of `MAX_PIXELS` takes less even without compression."""
MAX_SCANS = 500
"""The largest number of scans of a progressive JPEG. Real files have about ten, and each costs a full decoding."""
MOST_PAGES = 1000
"""Pages of a TIFF that are looked at."""
ANIMATED = ("PNG", "WEBP", "GIF")
"""Formats whose further frames are an animation. Those of a JPEG from a camera are previews."""
_SUBFILE_TYPE, _REDUCED_OR_MASK = 254, 0b101
"""The TIFF tag that says what a page is, and its bits for a reduced copy and a transparency mask."""
SENT_AS_IS = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp"}
"""Files in these formats are sent unchanged if they need no rotation, flattening or shrinking."""
_FILTERS = threading.Lock()
"""Guards Python's warning filters, which belong to the whole process: two threads could leave them changed."""

_LARGE = threading.BoundedSemaphore(os.cpu_count() or 1)
"""Limits how many large pictures are decoded at once. Decoding doubles their memory, and more threads are not faster."""

# With Pillow's default block size, the memory of a decoded picture stays with its thread. Blocks above 32 MB are returned to
# the system at once.
Image.core.set_block_size(128 * 2**20)  # type: ignore[attr-defined]


class Picture:
    """A picture with its content hash. Its pixels are decoded on first use."""

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
        """Media type and bytes of the file, if it shows exactly these pixels."""
        self.size: tuple[int, int] = size if pixels is None else (pixels.shape[1], pixels.shape[0])
        """Width and height."""
        self.given = given
        """Whether these pixels are an input of an edit; a run stores them without loss."""
        self._pixels = pixels
        self._wires: dict[EncodingLimits, EncodedPicture] = {}
        self._lock = threading.RLock()

    @property
    def decoded(self) -> bool:
        """Whether the pixels are in memory."""
        return self._pixels is not None

    @property
    def pixels(self) -> Pixels:
        """The pixels, decoded once on first use."""
        with self._lock:
            if self._pixels is None:
                assert self.file is not None
                self._pixels = decode(self.file[1], "the picture").pixels
            return self._pixels

    def wire(self, limits: EncodingLimits) -> EncodedPicture:
        """Return the picture encoded within these limits. The result is cached."""
        with self._lock:
            if limits not in self._wires:
                self._wires[limits] = encode_picture(self, limits)
            return self._wires[limits]

    def sent(self, name: str, limits: EncodingLimits) -> SentPicture:
        """Return the record of this picture as sent, for the trace."""
        wire = self.wire(limits)
        return SentPicture(
            name=name,
            sha=self.sha,
            original_size=self.size,
            size=wire.size,
            format=wire.media_type.removeprefix("image/"),
            bytes=wire.bytes,
            scale=wire.size[0] / self.size[0],
        )


class Album:
    """The pictures of one edit by hash. Dropped with the edit, so that memory does not grow with the run."""

    def __init__(self, expected: Mapping[PictureSource, Sha] | None = None) -> None:
        self._expected = expected or {}
        """Hashes of the files when the edit's key was computed. A file that has changed since is not judged."""
        self._pictures: dict[Sha, Picture] = {}
        self._by_path: dict[PictureSource, Picture] = {}
        self._lock = threading.Lock()

    def open(self, path: PictureSource) -> Picture:
        """Open a picture from its file or from memory. Raise ImageError if that fails."""
        with self._lock:
            picture = self._by_path.get(path)
        if picture is None:
            picture = (
                _open_in_memory(path, lazily=True)
                if isinstance(path, MemoryPicture)
                else decode(_read(path), str(path), lazily=True)
            )
            if self._expected.get(path, picture.sha) != picture.sha:
                raise ImageError(f"{path} changed before it was judged; run the same command again to judge it")
            with self._lock:
                picture = self._pictures.setdefault(picture.sha, picture)
                self._by_path[path] = picture
        return picture

    def add(self, pixels: Pixels) -> Picture:
        """Add a generated picture, such as a crop, a mask or a drawing."""
        picture = Picture(hash_pixels(pixels), pixels)
        with self._lock:
            return self._pictures.setdefault(picture.sha, picture)

    def keep(self, sha: Sha, data: bytes, name: str) -> Picture:
        """Add a picture stored in a run under its hash there. Raise ImageError if it cannot be decoded."""
        decoded = decode(data, name)
        with self._lock:
            return self._pictures.setdefault(sha, Picture(sha, decoded.pixels, decoded.file))

    def __contains__(self, sha: object) -> bool:
        return sha in self._pictures

    def __getitem__(self, sha: Sha) -> Picture:
        try:
            return self._pictures[sha]
        except KeyError:  # a checkpoint refers to pictures by hash and may outlive the album
            raise ImageError("a picture is no longer in memory; start the run again with its input") from None

    def clear(self) -> None:
        """Drop all pictures, so that a remaining reference to the album keeps no pixels alive."""
        with self._lock:
            self._pictures.clear()
            self._by_path.clear()


def hash_file(path: PictureSource) -> Sha:
    """Return the content hash of a picture."""
    if isinstance(path, MemoryPicture):
        _check_here(path)
        return path.sha
    return hash_bytes(_read(path))


def open_picture(path: PictureSource) -> Picture:
    """Open a picture: known formats only, upright, without alpha, within the pixel limit."""
    return _open_in_memory(path) if isinstance(path, MemoryPicture) else decode(_read(path), str(path))


def _open_in_memory(source: MemoryPicture, lazily: bool = False) -> Picture:
    _check_here(source)
    if (picture := source.opened) is None:
        if source.pixels is not None:
            picture = Picture(source.sha, source.pixels, given=True)
        else:
            picture = decode(source.data or b"", source.label, lazily)
        source.opened = picture
    return picture


def _check_here(source: MemoryPicture) -> None:
    if source.problem:
        raise ImageError(source.problem)
    if not source.has_content:
        raise ImageError(f"{source.label} is no longer available: only its hash was stored")
    if source.data and len(source.data) > MAX_FILE_BYTES:
        raise ImageError(f"{source.label} is larger than the limit of {MAX_FILE_BYTES // 1_000_000} MB")


def pixels_of(image: Image.Image, name: str) -> Pixels:
    """Return the pixels of an open image, by the same rules as for files."""
    with _explain_damage(name, "is damaged or incomplete"):
        _check_size(image, name)
        _check_still(image, name)
        _check_single_page(image, name)
        image.load()
        return to_rgb(_upright(image))


def declared_pixels(path: PictureSource) -> int:
    """Return the number of pixels in a picture's header; 0 if opening the picture will fail."""
    try:
        if isinstance(path, MemoryPicture) and path.pixels is not None:
            return int(path.pixels.shape[0] * path.pixels.shape[1])
        head = io.BytesIO(path.data or b"") if isinstance(path, MemoryPicture) else _open_head(path)
        with head as file, _header(file) as image:
            pixels = image.width * image.height
    except Exception:  # Pillow's decoders raise many kinds on damaged files
        return 0
    return pixels if pixels <= MAX_PIXELS else 0


def declared_size(path: Path) -> tuple[int, int]:
    """Return width and height of the upright picture from its file's header. Raise ImageError if it has none."""
    with ExitStack() as stack:
        with _explain_missing(path):
            file = stack.enter_context(_open_head(path))
        with _explain_damage(str(path)), _header(file) as image:
            width, height = image.size
            turned = _orientation(image) in (5, 6, 7, 8)
    return (height, width) if turned else (width, height)


def _open_head(path: Path) -> AbstractContextManager[IO[bytes]]:
    """Open a picture to read its header. Raise OSError if it is missing or too large."""
    if find_file(path) != path:
        return io.BytesIO(read_picture_bytes(path, MAX_FILE_BYTES))
    if check_file(path).st_size > MAX_FILE_BYTES:
        raise OSError("the file is larger than the limit")
    return open_file(path)


def _orientation(image: Image.Image) -> int:
    """Return the EXIF orientation; 1 if there is none that can be read."""
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except (ValueError, SyntaxError, TypeError, KeyError, OSError):
        return 1


def _read(path: Path) -> bytes:
    with _explain_missing(path):
        return read_picture_bytes(path, MAX_FILE_BYTES)


def _read_source(source: PictureSource) -> tuple[bytes, str]:
    """Return the bytes of a picture and its name for errors. One in memory must have come as bytes."""
    if isinstance(source, MemoryPicture):
        _check_here(source)
        return source.data or b"", source.label
    return _read(source), str(source)


@contextmanager
def _explain_missing(path: Path) -> Iterator[None]:
    """Raise ImageError if opening or reading a file fails in the block."""
    try:
        yield
    except FileNotFoundError:
        raise ImageError(f"there is no picture at {path}") from None
    except IsADirectoryError:
        raise ImageError(f"{path} is a folder, not a picture") from None
    except OSError as error:
        raise ImageError(f"{path} cannot be read: {error.strerror or error}") from None


@contextmanager
def _explain_damage(name: str, damage: str = "is a damaged or incomplete picture") -> Iterator[None]:
    """Raise ImageError if Pillow fails in the block. Its decoders raise many kinds of errors on damaged files."""
    try:
        yield
    except ImageError:
        raise
    except Image.DecompressionBombError:
        raise ImageError(f"{name} is larger than the limit of {MAX_PIXELS // 10**6} megapixels") from None
    except UnidentifiedImageError:
        raise ImageError(f"{name} is not a picture this program reads (PNG, JPEG, WebP, TIFF, BMP)") from None
    except Exception as error:
        raise ImageError(f"{name} {damage} ({shorten_error(error)})") from None


def decode(data: bytes, name: str, lazily: bool = False) -> Picture:
    """Decode an encoded picture.

    Args:
        data: The bytes of the file.
        name: The name of the picture in error messages.
        lazily: Read a JPEG that can be sent unchanged only at an eighth of its size. This detects damage and postpones the
            decoding of the pixels, most of the work and the memory, until they are needed.

    Raises:
        ImageError: If the picture is damaged, too large or of an unknown format.
    """
    with (
        _explain_damage(name),
        _open_checked(data, name) as image,
        _LARGE if image.width * image.height > STRIP_PIXELS else nullcontext(),
    ):
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


def open_layer(path: PictureSource) -> Image.Image:
    """Open a picture as RGBA, for its transparency, by the same rules as any other."""
    if isinstance(path, MemoryPicture) and path.pixels is not None:
        raise ImageError("a layer of marks passed as pixels has lost its transparency; pass the bytes of its file")
    data, name = _read_source(path)
    with _explain_damage(name, "cannot be used as a layer of marks"), _open_checked(data, name) as image:
        return image.convert("RGBA")


def open_mask(path: PictureSource) -> Image.Image:
    """Open a mask as a grey picture of 0 and 255: 255 where it is transparent or, if it is opaque, where it is white.

    Args:
        path: The mask.

    Raises:
        ImageError: If it cannot be opened as a picture.
    """
    if isinstance(path, MemoryPicture) and path.pixels is not None:
        return _mark_white(path.pixels)
    data, name = _read_source(path)
    with _explain_damage(name), _open_checked(data, name) as image:
        image.load()
        upright = _upright(image)
        if upright.has_transparency_data:
            alpha = upright.convert("RGBA").getchannel("A")
            if alpha.getextrema()[0] != 255:
                return alpha.point([255] * 128 + [0] * 128)
        return _mark_white(to_rgb(upright))


def _mark_white(pixels: Pixels) -> Image.Image:
    red, green, blue = Image.fromarray(pixels).split()
    darkest = ImageChops.darker(ImageChops.darker(red, green), blue)
    return darkest.point([0] * WHITE + [255] * (256 - WHITE))


@contextmanager
def _open_checked(data: bytes, name: str) -> Iterator[Image.Image]:
    """Yield a picture whose header passes all checks; its pixels are not decoded yet."""
    if not data:
        raise ImageError(f"{name} is an empty file")
    with _header(io.BytesIO(data)) as image:
        _check_size(image, name)
        _check_still(image, name)
        if image.format == "TIFF":
            with _header(io.BytesIO(data)) as copy:  # a damaged page would change the image itself
                _check_single_page(copy, name)
        if image.info.get("progressive") and data.count(b"\xff\xda") > MAX_SCANS:
            raise ImageError(f"{name} has more than {MAX_SCANS} scans, which no camera or program writes")
        yield image


def _header(file: IO[bytes]) -> Image.Image:
    """Open a picture and read only its header. Our own pixel limit replaces Pillow's warning."""
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


def _check_still(image: Image.Image, name: str) -> None:
    frames = getattr(image, "n_frames", 1) if image.format in ANIMATED else 1
    if frames > 1:
        raise ImageError(f"{name} is an animation of {frames} frames; save the frame to judge as a picture")


def _check_single_page(image: Image.Image, name: str) -> None:
    """Raise ImageError for a TIFF of several pages. Reduced copies and masks of the first page are not pages."""
    if image.format != "TIFF":
        return
    current = image.tell()
    for number in range(1, MOST_PAGES):
        try:
            image.seek(number)
            kind = int(image.tag_v2.get(_SUBFILE_TYPE, 0))  # type: ignore[attr-defined]
        except Exception:  # EOFError after the last page; Pillow raises many kinds on damaged files
            break
        if not kind & _REDUCED_OR_MASK:
            raise ImageError(f"{name} has several pages; save the page to judge as a picture")
    image.seek(current)


def _upright(image: Image.Image) -> Image.Image:
    """Apply the EXIF rotation. A picture with a damaged EXIF block is used as stored."""
    try:
        if image.getexif().get(ExifTags.Base.Orientation, 1) == 1:
            return image  # exif_transpose would return a copy, and the file could not be sent unchanged
        return ImageOps.exif_transpose(image) or image
    except (ValueError, SyntaxError, TypeError, KeyError, OSError):
        return image

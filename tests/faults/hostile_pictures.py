"""Picture files that nobody should have made: damaged, lying, or odd, the same for the same seed."""

from __future__ import annotations

import io
import random
import struct
import zlib
from collections.abc import Callable

import numpy as np
from PIL import Image

from editloupe.pictures.pixels import Pixels
from tests.drawn_pictures import textured

Maker = Callable[[random.Random], bytes]
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF", "GIF")
MODES = ("RGB", "RGBA", "L", "LA", "P", "1", "CMYK", "I;16", "I", "F", "YCbCr", "LAB", "HSV")


def encoded(image: Image.Image, format: str, **options: object) -> bytes:
    """Return a picture as a file of this format."""
    target = io.BytesIO()
    image.save(target, format, **options)
    return target.getvalue()


def chunk(kind: bytes, data: bytes) -> bytes:
    """Return a chunk of a PNG file with a right checksum."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, *middle: bytes, depth: int = 8, colour: int = 2, pixels: bytes = b"") -> bytes:
    """Return a PNG file that claims this size, with further chunks before its pixels."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    body = chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(middle) + body


def _small(rng: random.Random) -> Pixels:
    return textured(rng.randint(16, 48), rng.randint(16, 48), rng.randrange(1000))


def plain(rng: random.Random) -> bytes:
    """A whole file in some format and mode."""
    image = Image.fromarray(_small(rng))
    format, mode = rng.choice(FORMATS), rng.choice(MODES)
    try:
        if mode == "I;16":
            image = Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * rng.choice((1, 257)))
        elif mode in ("LAB", "HSV"):
            image = image.convert("RGB") if mode == "HSV" else image
        else:
            image = image.convert(mode)
        return encoded(image, format)
    except (OSError, ValueError, KeyError):  # a format without this mode
        return encoded(image.convert("RGB"), "PNG")


def mutated(rng: random.Random) -> bytes:
    """A file with bytes changed, cut out, doubled or put in."""
    data = bytearray(plain(rng))
    for _ in range(rng.choice((1, 2, 8, 64))):
        place = rng.randrange(len(data)) if rng.random() < 0.5 else rng.randrange(min(96, len(data)))
        action = rng.randrange(4)
        if action == 0:
            data[place] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif action == 1:
            data[place : place + 4] = rng.choice(
                (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0", rng.randbytes(4))
            )
        elif action == 2 and len(data) > 40:
            del data[place : place + rng.randrange(1, 16)]
        else:
            data[place:place] = data[place : place + rng.randrange(1, 32)]
    return bytes(data)


def truncated(rng: random.Random) -> bytes:
    """The beginning of a file."""
    data = plain(rng)
    return data[: rng.randrange(len(data))]


def huge(rng: random.Random) -> bytes:
    """A header that claims a size no memory holds."""
    wide = rng.choice((1, 2**16, 2**20, 2**31 - 1, 2**32 - 1))
    high = rng.choice((2**16, 2**24, 2**31 - 1, 2**32 - 1))
    if rng.random() < 0.5:
        return png(wide, high, pixels=b"\0" * 100, depth=rng.choice((1, 8, 16)), colour=rng.choice((0, 2, 3, 6)))
    data = bytearray(encoded(Image.fromarray(_small(rng)), "BMP"))
    data[18:26] = struct.pack("<ii", min(wide, 2**31 - 1), rng.choice((min(high, 2**31 - 1), -(2**31) + 1)))
    return bytes(data)


def odd_chunks(rng: random.Random) -> bytes:
    """A PNG file with chunks nobody needs, some with bombs in them."""
    bomb = zlib.compress(b"a" * 2_000_000)
    kinds = (
        chunk(b"zTXt", b"comment\0\0" + bomb),
        chunk(b"iCCP", b"profile\0\0" + bomb),
        chunk(b"iTXt", b"k\0\1\0\0\0" + bomb),
        chunk(b"tRNS", rng.randbytes(rng.randrange(9))),
        chunk(b"PLTE", rng.randbytes(rng.randrange(800))),
        chunk(b"eXIf", rng.randbytes(rng.randrange(60))),
        chunk(b"acTL", struct.pack(">II", rng.choice((0, 1, 2, 2**31)), 0)),
        chunk(b"gAMA", rng.randbytes(rng.randrange(6))),
        struct.pack(">I", 2**31 - 1) + b"tEXt" + b"a",
        chunk(b"IHDR", rng.randbytes(13)),
    )
    rows = b"".join(b"\0" + rng.randbytes(24) for _ in range(8))
    return png(8, 8, *rng.choices(kinds, k=rng.randint(1, 6)), pixels=rows, colour=rng.choice((2, 2, 3)))


def animated(rng: random.Random) -> bytes:
    """An animation: WebP, APNG or GIF; pages, for TIFF."""
    frames = [Image.fromarray(_small(random.Random(7 + i))).resize((24, 24)) for i in range(rng.randint(2, 4))]
    return encoded(frames[0], rng.choice(("WEBP", "PNG", "GIF", "TIFF")), save_all=True, append_images=frames[1:])


def bad_exif(rng: random.Random) -> bytes:
    """A JPEG file whose EXIF block is rubbish, or turns the picture in an impossible way."""
    exif = Image.Exif()
    exif[0x0112] = rng.choice((0, 3, 6, 8, 9, 65535))
    block = exif.tobytes() if rng.random() < 0.5 else b"Exif\0\0" + rng.randbytes(rng.randrange(200))
    return encoded(Image.fromarray(_small(rng)), "JPEG", exif=block)


def bad_tiff(rng: random.Random) -> bytes:
    """A TIFF file with tags that lie, compressed in some way."""
    image = Image.fromarray(_small(rng))
    data = bytearray(encoded(image, "TIFF", compression=rng.choice(("raw", "tiff_lzw", "tiff_adobe_deflate", "jpeg"))))
    for _ in range(rng.randint(1, 4)):
        place = max(0, len(data) - rng.randrange(1, 200)) if rng.random() < 0.5 else rng.randrange(len(data))
        data[place : place + 4] = struct.pack("<I", rng.choice((0, 1, 2**31, 2**32 - 1, rng.randrange(2**16))))
    return bytes(data)


def other(rng: random.Random) -> bytes:
    """Something that is no picture at all."""
    return rng.choice(
        (
            b"",
            b"\0" * 64,
            b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>',
            b"<!DOCTYPE html><html></html>",
            b"%PDF-1.7\n",
            b"PK\x03\x04" + rng.randbytes(60),
            b"P6\n99999 99999\n255\n",
            b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
            rng.randbytes(rng.randrange(1, 400)),
        )
    )


MAKERS: tuple[Maker, ...] = (
    plain,
    mutated,
    mutated,
    mutated,
    truncated,
    huge,
    odd_chunks,
    animated,
    bad_exif,
    bad_tiff,
    other,
)


def hostile(seed: int) -> bytes:
    """Return the hostile file of this seed."""
    rng = random.Random(seed)
    return rng.choice(MAKERS)(rng)

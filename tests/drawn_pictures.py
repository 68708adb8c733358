"""Small pictures for tests, made on the spot."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

from editloupe.pictures.pixels import Pixels


def textured(width: int = 160, height: int = 120, seed: int = 0) -> Pixels:
    """Return a smooth random picture with some structure, the same for the same seed."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(40, 215, (height // 8 + 2, width // 8 + 2, 3)).astype(np.uint8)
    big = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    return np.asarray(big, dtype=np.uint8).copy()


def save(pixels: Pixels, path: Path) -> Path:
    """Write a picture and return its path."""
    Image.fromarray(pixels).save(path, compress_level=1)
    return path


def edit_pair(folder: Path, size: tuple[int, int] = (160, 120)) -> tuple[Path, Path]:
    """Write a source and an edited picture in which a rectangle turned red; return both paths."""
    before = textured(*size)
    after = before.copy()
    after[40:70, 60:100] = (220, 30, 30)
    return save(before, folder / "before.png"), save(after, folder / "after.png")


def huge_png(width: int, height: int) -> bytes:
    """A PNG whose header promises a huge picture."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 64)) + chunk(b"IEND", b"")
    )

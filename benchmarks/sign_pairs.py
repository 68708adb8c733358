"""Make pairs of large photographs that differ only in the fine structure of a sign.

Everything on a sign but its content stays, so nothing but fine structure distinguishes the two pictures. A pair is decided by
its photograph and its seed; photographs come from a folder (`photographs`), and nothing of them is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from editloupe.pictures.decode import open_picture
from editloupe.pictures.pixels import Pixels
from editloupe.types import Box

SHARES = (0.0001, 0.0002, 0.0005, 0.001, 0.003)
"""The area of a sign as a share of the picture."""
WORDS = (
    "OPEN", "CLOSED", "EXIT", "ENTER", "PUSH", "PULL", "STOP", "SLOW", "BAKERY", "MARKET", "HOTEL", "MUSEUM", "CAFE", "PARKING",
    "STATION", "BOOKS", "FLOWERS", "TICKETS", "PHARMACY", "LIBRARY",
)  # fmt: skip
MEGAPIXEL = 1_048_576
OVERSAMPLED = 4
"""Signs are drawn this many times larger and then reduced."""
LARGE = 2_000_000
"""Photographs with fewer pixels are left out."""
CHANGED = 24
"""Grey levels by which a pixel of the sign differs where its content changed."""


@dataclass(frozen=True)
class SignPair:
    """Two pictures, what changed between them, and of which kind they are."""

    source: Pixels
    edited: Pixels
    changed: Box | None
    """None where both signs show the same."""
    sign: Box
    share: float
    content: str
    output: str
    texts: tuple[str, str] = ("", "")
    """What the sign says before and after, if it is text."""


def photographs(folder: Path) -> list[Path]:
    """Return the photographs of a folder that are large, in the order of their names."""
    kinds = {".jpg", ".jpeg", ".png", ".webp"}
    photos = []
    for path in sorted(p for p in folder.iterdir() if p.suffix.lower() in kinds):
        with Image.open(path) as picture:
            if picture.width * picture.height >= LARGE:
                photos.append(path)
    return photos


def read(path: Path) -> Pixels:
    """Return a photograph's pixels."""
    return open_picture(path).pixels


def sign_pair(photo: Pixels, share: float, content: str, output: str, seed: int, changed: bool = True) -> SignPair:
    """Return the photograph with a sign on it, and what an editor made of it."""
    rng = np.random.default_rng(seed)
    height, width = photo.shape[:2]
    aspect = 1.0 if content in ("clock", "symbol") else 2.2
    sign_height = max(6, round(math.sqrt(share * width * height / aspect)))
    sign_width = round(sign_height * aspect)
    left = int(rng.integers(width // 20, width - width // 20 - sign_width))
    top = int(rng.integers(height // 20, height - height // 20 - sign_height))
    before, after, texts = CONTENTS[content](rng, (sign_width, sign_height))
    if not changed:
        after, texts = before, (texts[0], texts[0])
    window = (slice(top, top + sign_height), slice(left, left + sign_width))
    source, edited = photo.copy(), photo.copy()
    grain = rng.normal(0, 2.0, (sign_height, sign_width, 1))
    source[window] = np.clip(before + grain, 0, 255).astype(np.uint8)
    edited[window] = np.clip(after + grain, 0, 255).astype(np.uint8)
    differs = np.abs(before.astype(int) - after).max(axis=2) > CHANGED
    where = None
    if changed:
        rows, columns = np.flatnonzero(differs.any(axis=1)), np.flatnonzero(differs.any(axis=0))
        where = Box(
            x1=left + int(columns[0]), y1=top + int(rows[0]), x2=left + int(columns[-1]) + 1, y2=top + int(rows[-1]) + 1
        )
    at = Box(x1=left, y1=top, x2=left + sign_width, y2=top + sign_height)
    return SignPair(source, OUTPUTS[output](edited, rng), where, at, share, content, output, texts)


def colours(rng: np.random.Generator) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return a ground and an ink that can be read on it."""
    while True:
        ground, ink = rng.integers(0, 256, 3), rng.integers(0, 256, 3)
        if abs(float((ground - ink) @ [0.299, 0.587, 0.114])) > 90:
            return tuple(int(v) for v in ground), tuple(int(v) for v in ink)


def _drawn(size: tuple[int, int], ground: tuple[int, ...], draw: Callable[[ImageDraw.ImageDraw], None]) -> Pixels:
    large = Image.new("RGB", (size[0] * OVERSAMPLED, size[1] * OVERSAMPLED), ground)
    draw(ImageDraw.Draw(large))
    return np.asarray(cv2.resize(np.asarray(large), size, interpolation=cv2.INTER_AREA), np.uint8)


Content = tuple[Pixels, Pixels, tuple[str, str]]


def _text(rng: np.random.Generator, size: tuple[int, int], texts: tuple[str, str]) -> Content:
    ground, ink = colours(rng)
    points = _fitting(size, texts)
    return written(size, ground, ink, texts[0], points), written(size, ground, ink, texts[1], points), texts


def _fitting(size: tuple[int, int], texts: tuple[str, str]) -> float:
    """Return the size of letters at which both texts fit on a sign."""
    width, height = size[0] * OVERSAMPLED, size[1] * OVERSAMPLED
    longest = max(texts, key=len)
    points = 0.62 * height
    while points > 4 and ImageFont.load_default(points).getlength(longest) > 0.86 * width:
        points *= 0.93
    return points


def written(size: tuple[int, int], ground: tuple[int, ...], ink: tuple[int, ...], text: str, points: float) -> Pixels:
    """Return a sign with a text in its middle; ``points`` is the size of its letters before the sign is reduced."""
    middle = (size[0] * OVERSAMPLED / 2, size[1] * OVERSAMPLED / 2)
    font = ImageFont.load_default(points)
    return _drawn(
        size, ground, lambda d: d.text(middle, text, font=font, fill=ink, anchor="mm", stroke_width=points / 40)
    )


def _word(rng: np.random.Generator, size: tuple[int, int]) -> Content:
    first, second = rng.choice(len(WORDS), 2, replace=False)
    return _text(rng, size, (WORDS[first], WORDS[second]))


def _letter(rng: np.random.Generator, size: tuple[int, int]) -> Content:
    """Change two neighbouring letters of a word, and nothing else: the other letters stay where they are."""
    word = str(rng.choice(WORDS))
    index = int(rng.integers(0, len(word) - 1))
    other = word
    while any(a == b for a, b in zip(other[index : index + 2], word[index : index + 2], strict=True)):
        other = word[:index] + "".join(rng.choice(list("ABDEGHKLMNRSTUX"), 2)) + word[index + 2 :]
    ground, ink = colours(rng)
    points = _fitting(size, (word, other))
    before, after = (_spelt(size, ground, ink, word, letters, points) for letters in (word, other))
    return before, after, (word, other)


def _spelt(
    size: tuple[int, int], ground: tuple[int, ...], ink: tuple[int, ...], word: str, letters: str, points: float
) -> Pixels:
    """Return a sign with letters each in the middle of the place that the letter of a word has there."""
    font = ImageFont.load_default(points)
    left, middle = size[0] * OVERSAMPLED / 2 - font.getlength(word) / 2, size[1] * OVERSAMPLED / 2
    edges = [left + font.getlength(word[:end]) for end in range(len(word) + 1)]

    def spell(pen: ImageDraw.ImageDraw) -> None:
        for start, end, letter in zip(edges, edges[1:], letters, strict=False):
            at = ((start + end) / 2, middle)
            pen.text(at, letter, font=font, fill=ink, anchor="mm", stroke_width=points / 40)

    return _drawn(size, ground, spell)


def _digits(rng: np.random.Generator, size: tuple[int, int]) -> Content:
    first, second = rng.choice(np.arange(100, 1000), 2, replace=False)
    return _text(rng, size, (str(first), str(second)))


def _clock(rng: np.random.Generator, size: tuple[int, int]) -> Content:
    ground, ink = colours(rng)
    side = size[1] * OVERSAMPLED
    hour, turn = float(rng.uniform(0, 2 * math.pi)), float(rng.uniform(0.8, 2.2))

    def dial(angles: tuple[float, float]) -> Pixels:
        def draw(pen: ImageDraw.ImageDraw) -> None:
            pen.ellipse([0.05 * side, 0.05 * side, 0.95 * side, 0.95 * side], outline=ink, width=max(1, side // 20))
            for angle, length in zip(angles, (0.24, 0.36), strict=True):
                end = (0.5 + length * math.sin(angle), 0.5 - length * math.cos(angle))
                pen.line([0.5 * side, 0.5 * side, end[0] * side, end[1] * side], fill=ink, width=max(1, side // 16))

        return _drawn(size, ground, draw)

    return dial((hour, 12 * hour)), dial((hour + turn, 12 * hour + turn)), ("", "")


def _symbol(rng: np.random.Generator, size: tuple[int, int]) -> Content:
    """Change one thin symbol to another."""
    ground, ink = colours(rng)
    side = size[1] * OVERSAMPLED
    shapes = (
        [(0.2, 0.5, 0.8, 0.5), (0.8, 0.5, 0.6, 0.3), (0.8, 0.5, 0.6, 0.7)],
        [(0.2, 0.5, 0.8, 0.5), (0.2, 0.5, 0.4, 0.3), (0.2, 0.5, 0.4, 0.7)],
        [(0.25, 0.25, 0.75, 0.75), (0.25, 0.75, 0.75, 0.25)],
        [(0.2, 0.55, 0.42, 0.75), (0.42, 0.75, 0.8, 0.25)],
        [(0.5, 0.2, 0.5, 0.8), (0.2, 0.5, 0.8, 0.5)],
    )
    first, second = rng.choice(len(shapes), 2, replace=False)

    def draw(lines: list[tuple[float, float, float, float]]) -> Pixels:
        def strokes(pen: ImageDraw.ImageDraw) -> None:
            for line in lines:
                pen.line([v * side for v in line], fill=ink, width=max(1, side // 12))

        return _drawn(size, ground, strokes)

    return draw(shapes[first]), draw(shapes[second]), ("", "")


CONTENTS: dict[str, Callable[[np.random.Generator, tuple[int, int]], Content]] = {
    "word": _word,
    "two letters": _letter,
    "number": _digits,
    "clock": _clock,
    "symbol": _symbol,
}


def encode_again(picture: Pixels, quality: int) -> Pixels:
    """Return the picture after coding it as JPEG."""
    data = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
    return np.asarray(cv2.imdecode(data, cv2.IMREAD_COLOR), np.uint8)


def same_size(picture: Pixels, rng: np.random.Generator) -> Pixels:
    """Return the picture at its own size, encoded again."""
    return encode_again(picture, int(rng.integers(85, 96)))


def one_megapixel(picture: Pixels, rng: np.random.Generator) -> Pixels:
    """Return the picture as most editors return it: one megapixel, for any input size."""
    scale = math.sqrt(MEGAPIXEL / (picture.shape[0] * picture.shape[1]))
    if scale < 1:
        size = round(picture.shape[1] * scale / 16) * 16, round(picture.shape[0] * scale / 16) * 16
        resample = (Image.Resampling.LANCZOS, Image.Resampling.BICUBIC)[int(rng.integers(2))]
        picture = np.asarray(Image.fromarray(picture).resize(size, resample), np.uint8)
    return encode_again(picture, int(rng.integers(88, 96)))


def rerender(picture: Pixels, rng: np.random.Generator) -> Pixels:
    """Return a megapixel in which everything was rendered again: places, tone, colours, sharpness, grain."""
    small = one_megapixel(picture, rng)
    height, width = small.shape[:2]
    grid = np.stack(np.meshgrid(np.arange(width), np.arange(height)), axis=-1).astype(np.float32)
    wobble = float(rng.uniform(0.4, 1.6)) * _smooth_field(rng, (height, width), 2, float(rng.uniform(60, 130)))
    moved = cv2.remap(small, grid + wobble, np.empty(0, np.float32), cv2.INTER_CUBIC, borderMode=cv2.BORDER_REFLECT)
    toned = moved.astype(np.float32) * float(rng.uniform(0.94, 1.06))
    toned += float(rng.uniform(2, 6)) * _smooth_field(rng, (height, width), 3, 0.3 * width)
    smooth = cv2.GaussianBlur(toned, (0, 0), 1.2)
    detail = toned - smooth
    # Texture is made anew where it is fine: as strong as it was, but not the same.
    strength = cv2.GaussianBlur(np.abs(detail).mean(axis=2), (0, 0), 3.0)[..., None]
    grain = cv2.GaussianBlur(rng.standard_normal((height, width, 1)).astype(np.float32), (0, 0), 0.8)[..., None]
    kept = float(rng.uniform(0.75, 1.2))
    made = smooth + kept * detail + float(rng.uniform(0.2, 0.6)) * strength * grain / max(float(grain.std()), 1e-6)
    return encode_again(np.clip(made, 0, 255).astype(np.uint8), int(rng.integers(85, 96)))


def _smooth_field(rng: np.random.Generator, shape: tuple[int, int], channels: int, length: float) -> Pixels:
    """Return a slowly changing field between -1 and 1."""
    cells = (max(3, round(shape[0] / length)), max(3, round(shape[1] / length)))
    knots = rng.uniform(-1, 1, (*cells, channels)).astype(np.float32)
    return np.asarray(cv2.resize(knots, shape[::-1], interpolation=cv2.INTER_CUBIC), np.float32)


OUTPUTS: dict[str, Callable[[Pixels, np.random.Generator], Pixels]] = {
    "same size": same_size,
    "one megapixel": one_megapixel,
    "re-rendered": rerender,
}


def sign_pairs(path: Path, seed: tuple[int, ...]) -> Iterator[SignPair]:
    """Yield, for every output, a pair of every size on a photograph, with the contents mixed, and an unchanged one."""
    rng = np.random.default_rng(seed)
    photo = read(path)
    for output in OUTPUTS:
        contents = [str(content) for content in rng.permutation(list(CONTENTS))]
        seeds = [int(one) for one in rng.integers(0, 2**31, len(SHARES) + 1)]
        for share, content, one in zip(SHARES, contents, seeds[1:], strict=True):
            yield sign_pair(photo, share, content, output, one)
        yield sign_pair(photo, SHARES[-2], contents[0], output, seeds[0], changed=False)

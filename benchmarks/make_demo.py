"""Make the demo edits again from four free photographs of scikit-image, with right and wrong small edits.

    python benchmarks/make_demo.py [--out FOLDER]

Every edit is painted by a fixed recipe, so the same library versions give the same files. Recolouring happens in Lab
(lightness, and with it shading and texture, stays), all masks are feathered, and every edit starts from the JPEG file
an editing model would have been given.
"""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont
from skimage import data

Pixels = npt.NDArray[np.uint8]
Plane = npt.NDArray[np.floating[Any]]
Points = Sequence[tuple[float, float]]

OUT = Path(__file__).parents[1] / "editloupe" / "demo"
SOURCE_QUALITY, EDITED_QUALITY, REFERENCE_QUALITY = 87, 84, 78
FINE = 8
"""Masks are drawn this many times larger and shrunk, which smooths their edges."""


def soft(plane: Plane, sigma: float) -> Plane:
    return np.asarray(cv2.GaussianBlur(plane, (0, 0), sigma), np.float32)


def polygon(shape: tuple[int, ...], points: Points, feather: float = 0.8) -> Plane:
    """Return a mask from 0 to 1 of the inside of a polygon, soft at the edge."""
    height, width = shape[:2]
    image = Image.new("L", (width * FINE, height * FINE))
    ImageDraw.Draw(image).polygon([(x * FINE, y * FINE) for x, y in points], fill=255)
    mask = np.asarray(image.resize((width, height), Image.Resampling.BOX), np.float32) / 255
    return soft(mask, feather)


def ellipse(centre: tuple[float, float], radii: tuple[float, float], tilt: float = 0, corners: int = 72) -> Points:
    """Return the points of an ellipse; the tilt is in degrees, clockwise on the screen."""
    angles, turn = np.linspace(0, 2 * np.pi, corners, endpoint=False), np.radians(tilt)
    x, y = radii[0] * np.cos(angles), radii[1] * np.sin(angles)
    return [
        (centre[0] + u * np.cos(turn) - v * np.sin(turn), centre[1] + u * np.sin(turn) + v * np.cos(turn))
        for u, v in zip(x, y, strict=True)
    ]


def photo(name: str) -> Pixels:
    return np.asarray(getattr(data, name)(), np.uint8)


def lab(pixels: Pixels) -> Plane:
    return np.asarray(cv2.cvtColor(pixels.astype(np.float32) / 255, cv2.COLOR_RGB2LAB))


def rgb(planes: Plane) -> Pixels:
    return np.asarray(np.clip(cv2.cvtColor(planes, cv2.COLOR_LAB2RGB) * 255 + 0.5, 0, 255), np.uint8)


def blend(under: Pixels, over: Plane | Pixels, mask: Plane) -> Pixels:
    """Lay one picture over another where the mask says so."""
    weight = mask[..., None]
    return np.clip(under * (1 - weight) + over.astype(np.float32) * weight + 0.5, 0, 255).astype(np.uint8)


def recolour(pixels: Pixels, mask: Plane, hue: float, chroma: float, lighten: float = 0) -> Pixels:
    """Turn the colour inside a mask to a Lab hue in degrees; paler spots stay paler, only `lighten` moves lightness."""
    planes = lab(pixels)
    own = np.hypot(planes[..., 1], planes[..., 2])
    typical = float(np.percentile(own[mask > 0.5], 75))
    target = chroma * np.minimum(own / typical, 1.3)
    planes[..., 0] += lighten * np.minimum(own / typical, 1)
    planes[..., 1], planes[..., 2] = target * np.cos(np.radians(hue)), target * np.sin(np.radians(hue))
    return blend(pixels, rgb(planes), mask)


def inpaint(pixels: Pixels, mask: Plane, radius: int = 4) -> Pixels:
    """Fill a mask from what surrounds it, with the grain of the picture put back in."""
    hole = (mask > 0.05).astype(np.uint8)
    filled = cv2.inpaint(np.ascontiguousarray(pixels), hole, radius, cv2.INPAINT_TELEA).astype(np.float32)
    smooth = soft(filled, 2)
    grain = np.random.default_rng(7).normal(0, 1.1, pixels.shape[:2]).astype(np.float32)[..., None]
    return blend(pixels, smooth + grain, soft(hole.astype(np.float32), 0.7))


def bluish(pixels: Pixels) -> Plane:
    """Return how blue each pixel is, 0 to 1: cloth is, the white stitching on it is not."""
    return np.clip((-lab(pixels)[..., 2] - 4) / 10, 0, 1).astype(np.float32)


IRIS: Points = [
    (139, 108), (142, 97), (149, 90.5), (160, 87.5), (172, 87), (185, 90), (195, 96), (202, 105), (203.5, 117),
    (200.5, 127), (194, 136), (185, 142), (172, 144), (160, 140.5), (150, 134), (143, 123),
]  # fmt: skip


def blue_eye(cat: Pixels, hue: float, chroma: float) -> Pixels:
    planes = lab(cat)
    coloured = np.clip((planes[..., 2] - 6) / 10, 0, 1).astype(np.float32)
    return recolour(cat, polygon(cat.shape, IRIS, 1.2) * coloured, hue, chroma, lighten=2)


RIGHT_ROD: Points = [(439.5, 119.5), (453, 119.5), (455.5, 191), (443.5, 191)]
LEFT_ROD: Points = [(194, 119.5), (209, 119.5), (205, 190.5), (191.8, 190.5)]


def sky_over(pixels: Pixels, rod: Points) -> Pixels:
    """Cover a thin upright thing with the sky left and right of it, row by row, with the sky's grain."""
    mask = polygon(pixels.shape, rod, 0.6)
    columns = np.flatnonzero((mask > 0.01).any(axis=0))
    left, right = int(columns[0]) - 1, int(columns[-1]) + 1
    sky = np.asarray(cv2.GaussianBlur(pixels.astype(np.float32), (1, 19), 3))
    start, end = sky[:, left - 5 : left].mean(axis=1), sky[:, right + 1 : right + 6].mean(axis=1)
    way = np.clip((np.arange(pixels.shape[1]) - left) / (right - left), 0, 1).astype(np.float32)[None, :, None]
    grain = soft(np.random.default_rng(3).normal(0, 1, pixels.shape[:2]), 0.6)[..., None]
    return blend(pixels, start[:, None] * (1 - way) + end[:, None] * way + grain, mask)


def no_right_rod(rocket: Pixels) -> Pixels:
    """Take the rod away: sky where it rose, and the lattice of the tower's next section where it stood in the tower."""
    out = sky_over(rocket, RIGHT_ROD)
    section = np.roll(rocket, -28, axis=0)
    return blend(out, section, polygon(rocket.shape, [(446, 192.5), (453.5, 192.5), (454, 217), (446.5, 217)], 0.6))


def retoned(pixels: Pixels) -> Pixels:
    """Return what many editing models give back: a slightly smaller and warmer picture."""
    small = cv2.resize(pixels, (576, 384), interpolation=cv2.INTER_AREA).astype(np.float32) / 255
    warm = small ** np.float32(0.94) * np.array([1.03, 1.0, 0.95], np.float32)
    return np.clip(warm * 255 + 0.5, 0, 255).astype(np.uint8)


def star_emblem(rocket: Pixels) -> Pixels:
    bare = inpaint(rocket, polygon(rocket.shape, ellipse((322.5, 149.8), (9.8, 6.8)), 0.5), 3)
    angles = np.radians(-90 + 36 * np.arange(10))
    reach = np.where(np.arange(10) % 2 == 0, 8.2, 3.4)
    corners = [(322.6 + r * np.cos(a), 149.8 + r * np.sin(a)) for r, a in zip(reach, angles, strict=True)]
    shade = lab(bare)[..., :1] / 52
    return blend(bare, shade * np.array([176, 26, 30], np.float32), polygon(rocket.shape, corners, 0.4))


def moon(pixels: Pixels, centre: tuple[float, float], radius: float) -> Pixels:
    disc = polygon(pixels.shape, ellipse(centre, (radius, radius)), 0.7)
    maria = sum(
        polygon(pixels.shape, ellipse((centre[0] + x * radius, centre[1] + y * radius), (r * radius, r * radius)), 1.5)
        for x, y, r in ((-0.3, -0.3, 0.35), (0.25, -0.1, 0.28), (-0.1, 0.4, 0.22))
    )
    face = np.array([226, 222, 208], np.float32) - 34 * np.asarray(maria, np.float32)[..., None]
    glow = soft(disc, radius * 0.8)
    return blend(blend(pixels, face, 0.25 * glow), face, disc)


SAUCER = ((278.0, 227.0), (203.0, 161.0), 6.0)
"""Centre, radii and tilt of the saucer's outline."""


def printed(coffee: Pixels, word: str) -> Pixels:
    """Print a word on the saucer in cream, along its rim and in its perspective."""
    font = ImageFont.load_default(96)
    width = int(font.getlength(word)) + 8
    strip_image = Image.new("L", (width, 120))
    ImageDraw.Draw(strip_image).text((4, 4), word, fill=255, font=font, stroke_width=2)
    strip = np.asarray(strip_image, np.float32) / 255
    (cx, cy), (rx, ry), tilt = SAUCER
    turn, step = np.radians(tilt), 1 / FINE
    height, span = coffee.shape[:2]
    y, x = np.mgrid[step / 2 : height : step * 2, step / 2 : span : step * 2].astype(np.float32)
    u = ((x - cx) * np.cos(turn) + (y - cy) * np.sin(turn)) / rx
    v = (-(x - cx) * np.sin(turn) + (y - cy) * np.cos(turn)) / ry
    rho, theta = np.hypot(u, v), np.arctan2(v, u)
    per_unit = 120 / 0.135  # the strip's height covers this part of the saucer's radius
    across = (np.radians(136) - theta) * 0.78 * per_unit + width / 2
    down = (rho - 0.715) * per_unit
    mask = cv2.remap(strip, across.astype(np.float32), down.astype(np.float32), cv2.INTER_LINEAR, borderValue=0)
    mask = soft(np.asarray(cv2.resize(mask, (span, height), interpolation=cv2.INTER_AREA)), 0.5)
    shade = soft(lab(coffee)[..., 0], 3)[..., None] / 31
    return blend(coffee, np.minimum(shade, 1.15) * np.array([232, 212, 178], np.float32), 0.92 * mask)


BOWL: Points = [
    (370.5, 236), (377, 234.5), (383, 237), (386, 242), (390, 248.5), (397, 255), (402, 262), (405.5, 270),
    (406, 281), (404, 291), (399, 302), (391, 311), (381, 318), (371, 322.5), (360, 324.5), (349, 323.5), (340, 319),
    (333, 312), (329, 303), (326.5, 291), (326.5, 280), (328.5, 270), (333, 261), (341, 253), (351, 247.5),
    (361, 243), (367, 240),
]  # fmt: skip


WOOD = np.s_[290:390, 505:595]
"""Where the table shows a clear grain, in the size of the bowl."""


def wooden_bowl(coffee: Pixels) -> Pixels:
    """Lay wood from the table over the spoon's bowl, with the round shading of a bowl that lies face down."""
    mask = polygon(coffee.shape, BOWL, 0.7)
    wood = coffee.copy()
    wood[230:330, 320:410] = coffee[WOOD]
    y, x = np.mgrid[: coffee.shape[0], : coffee.shape[1]].astype(np.float32)
    light = np.exp(-(((x - 354) / 38) ** 2 + ((y - 272) / 40) ** 2))
    rim = soft(mask, 5)
    shade = (0.42 + 0.85 * light) * np.clip(0.35 + 0.75 * rim, 0, 1)
    gloss = 18 * np.exp(-(((x - 351) / 9) ** 2 + ((y - 272) / 8) ** 2))
    return blend(coffee, wood * shade[..., None] + gloss[..., None], mask)


def slotted(coffee: Pixels) -> Pixels:
    """Cut three slots into the bowl, through which the saucer shows."""
    out = coffee
    for x, length in ((350, 19), (365, 24), (380, 19)):
        rim = polygon(out.shape, ellipse((x, 284), (4.3, length), 8), 0.6)
        out = blend(out, np.full_like(out, (196, 138, 92)), 0.5 * rim)
        slot = polygon(out.shape, ellipse((x - 0.5, 283.5), (3.2, length - 1.5), 8), 0.6)
        out = blend(out, np.full_like(out, (52, 6, 3)), slot)
    return out


def latte_heart(coffee: Pixels) -> Pixels:
    t = np.linspace(0, 2 * np.pi, 90)
    x = 16 * np.sin(t) ** 3
    y = -(13 * np.cos(t) - 5 * np.cos(2 * t) - 2 * np.cos(3 * t) - np.cos(4 * t))
    heart = [(284 + 1.25 * u, 154 + 0.95 * v) for u, v in zip(x, y, strict=True)]
    return blend(coffee, np.full_like(coffee, (246, 214, 164)), 0.85 * polygon(coffee.shape, heart, 1.6))


TAG: Points = [(278, 338), (328, 345), (330.5, 361.5), (323, 366.5), (313.5, 375.5), (312, 379), (282, 374)]
PATCH: Points = ellipse((170.8, 385.3), (35, 35.5))


def green(astronaut: Pixels, where: Points) -> Pixels:
    mask = polygon(astronaut.shape, where, 0.6) * bluish(astronaut)
    return recolour(astronaut, mask, hue=150, chroma=36, lighten=7)


SOURCES: dict[str, Callable[[], Pixels]] = {
    "chelsea": lambda: photo("chelsea"),
    "rocket": lambda: photo("rocket"),
    "coffee": lambda: printed(photo("coffee"), "ESPRESSO"),
    "astronaut": lambda: photo("astronaut"),
}


@dataclass(frozen=True)
class DemoEdit:
    """One edit: what was asked, what was done, how it would be done right, and the labels it was made to show."""

    id: str
    photo: str
    instruction: str
    instruction_type: str
    target: tuple[int, int, int, int]
    labels: tuple[str, str]
    """Instruction following, visual consistency."""
    edited: Callable[[Pixels], Pixels]
    reference: Callable[[Pixels], Pixels]
    quality: int = EDITED_QUALITY


EDITS = (
    DemoEdit(
        "cat-eye",
        "chelsea",
        "Change the color of the cat's eye on the left side of the picture from green to blue.",
        "Change Color",
        (138, 86, 205, 146),
        ("Flawless Execution", "Perfect Consistency"),
        lambda cat: blue_eye(cat, 262, 29),
        lambda cat: blue_eye(cat, 272, 27),
    ),
    DemoEdit(
        "rocket-rod",
        "rocket",
        "Remove the white rod from the top of the lattice tower to the right of the rocket.",
        "Removal Object",
        (440, 119, 457, 218),
        ("Flawless Execution", "Perfect Consistency"),
        lambda rocket: retoned(no_right_rod(rocket)),
        no_right_rod,
        80,
    ),
    DemoEdit(
        "saucer-text",
        "coffee",
        "Change the text on the saucer from 'ESPRESSO' to 'ROBUSTA'.",
        "Change OCR",
        (119, 262, 199, 338),
        ("Wrong Action", "Perfect Consistency"),
        lambda _: printed(photo("coffee"), "ROBUTSA"),
        lambda _: printed(photo("coffee"), "ROBUSTA"),
    ),
    DemoEdit(
        "spoon-wood",
        "coffee",
        "Change the material of the spoon's bowl from metal to wood.",
        "Change Material",
        (325, 233, 408, 327),
        ("Over Modification", "Single Anomaly"),
        lambda coffee: latte_heart(slotted(wooden_bowl(coffee))),
        wooden_bowl,
    ),
    DemoEdit(
        "name-tag",
        "astronaut",
        "Change the color of the name tag with the wings from dark blue to green.",
        "Change Color",
        (277, 337, 331, 380),
        ("Localization Failure", "Single Anomaly"),
        lambda astronaut: green(astronaut, PATCH),
        lambda astronaut: green(astronaut, TAG),
    ),
    DemoEdit(
        "rocket-emblem",
        "rocket",
        "Replace the oval emblem on the rocket's nose cone with a red star.",
        "Replace Object",
        (312, 141, 333, 158),
        ("Flawless Execution", "Multiple Anomalies"),
        lambda rocket: moon(sky_over(star_emblem(rocket), LEFT_ROD), (398, 62), 11),
        star_emblem,
    ),
)


def jpeg(pixels: Pixels, quality: int) -> bytes:
    """Encode a picture the way most programs do, with colour at half the resolution."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=quality, subsampling="4:2:0", optimize=True, progressive=True)
    return file.getvalue()


def make(out: Path) -> None:
    """Write all pictures and the manifest into a folder."""
    pictures = out / "pictures"
    pictures.mkdir(parents=True, exist_ok=True)
    sources: dict[str, Pixels] = {}
    for name, take in SOURCES.items():
        (pictures / f"{name}.jpg").write_bytes(jpeg(take(), SOURCE_QUALITY))
        sources[name] = np.asarray(Image.open(pictures / f"{name}.jpg").convert("RGB"))
    rows = []
    for edit in EDITS:
        row = {"id": edit.id, "source": f"pictures/{edit.photo}.jpg"}
        recipes = (("edited", edit.edited, edit.quality), ("reference", edit.reference, REFERENCE_QUALITY))
        for role, paint, quality in recipes:
            row[role] = f"pictures/{edit.id}-{role}.jpg"
            (out / row[role]).write_bytes(jpeg(paint(sources[edit.photo]), quality))
        labels = dict(zip(("instruction_following", "visual_consistency"), edit.labels, strict=True))
        about = {"instruction": edit.instruction, "instruction_type": edit.instruction_type}
        rows.append(json.dumps({**row, **about, "target_boxes": [edit.target], "human": labels}, ensure_ascii=False))
    (out / "manifest.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make the demo edits again.")
    parser.add_argument("--out", type=Path, default=OUT, help="the folder to write manifest.jsonl and pictures/ into")
    make(parser.parse_args().out)

"""Make edits with known truth, to fit and check the embedded judge on scenes of one's own.

    python benchmarks/make_scenes.py PHOTOS CUTOUTS OUT [--scenes 140] [--seed 0]

PHOTOS is a folder of photographs, CUTOUTS a folder of pictures of single objects with a transparent ground, named by
what they show (`red apple.png`). A scene is a photograph with pasted objects and one instruction. Its edits differ in
what was done to the target and to the rest, so both labels of DLEBench are known. OUT can be given to `fit_rules.py`
and `rules_worth.py`.
"""

# ruff: noqa: E731  # the ways to carry out an instruction are short functions of a scene
from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont
from rules_data import IF_LABELS, VC_LABELS

Sprite = npt.NDArray[np.uint8]
"""RGB and opacity."""
Pixels = npt.NDArray[np.uint8]
COLOURS = {
    "red": (205, 35, 40), "green": (45, 150, 60), "blue": (45, 90, 210), "yellow": (235, 205, 45),
    "purple": (130, 50, 165), "pink": (240, 125, 180), "orange": (240, 130, 30),
}  # fmt: skip
MATERIALS = ("wood", "marble", "denim", "brick")
SHAPES = ("circle", "hexagon", "star")
WORDS = ("OPEN", "SALE", "CAFE", "NORTH", "EXIT", "BAKERY", "PARK", "MUSEUM", "BUS", "BANK", "RADIO", "FISH")
TYPES = {
    "color": "Change Color", "material": "Change Material", "text": "Change OCR", "shape": "Change Shape",
    "removal": "Removal Object", "replacement": "Replace Object", "count": "Change Count",
}  # fmt: skip
NOISES = (
    "none",
    "jpeg",
    "tone",
    "shift",
    "soften",
    "sharpen",
    "resample",
    "rescale",
    "mix",
    "elastic",
    "drift",
    "regrain",
)
EDITS_PER_SCENE = 5


@dataclass(frozen=True)
class Item:
    """An object of a scene, by its centre."""

    name: str
    sprite: Sprite
    x: float
    y: float

    @property
    def box(self) -> tuple[int, int, int, int]:
        """The box in the picture."""
        height, width = self.sprite.shape[:2]
        x, y = round(self.x - width / 2), round(self.y - height / 2)
        return x, y, x + width, y + height

    def changed(self, change: Callable[[Sprite], Sprite]) -> Item:
        """Return the item with another look."""
        return replace(self, sprite=change(self.sprite))


def compose(photo: Pixels, items: Sequence[Item]) -> Pixels:
    """Paste the items."""
    picture = photo.astype(np.float32)
    height, width = photo.shape[:2]
    for item in items:
        x1, y1, x2, y2 = item.box
        cx1, cy1, cx2, cy2 = max(0, x1), max(0, y1), min(width, x2), min(height, y2)
        if cx1 >= cx2 or cy1 >= cy2:
            continue
        part = item.sprite[cy1 - y1 : cy2 - y1, cx1 - x1 : cx2 - x1].astype(np.float32)
        alpha = part[..., 3:] / 255
        picture[cy1:cy2, cx1:cx2] = picture[cy1:cy2, cx1:cx2] * (1 - alpha) + part[..., :3] * alpha
    return np.asarray(np.clip(picture + 0.5, 0, 255), np.uint8)


def scaled(sprite: Sprite, across: float, down: float | None = None) -> Sprite:
    """Resize a sprite by factors."""
    height, width = sprite.shape[:2]
    size = max(6, round(width * across)), max(6, round(height * (down or across)))
    return np.asarray(Image.fromarray(sprite, "RGBA").resize(size, Image.Resampling.LANCZOS))


def recoloured(sprite: Sprite, colour: tuple[int, int, int]) -> Sprite:
    """Turn hue and saturation to a colour; the lightness keeps its pattern and moves towards that of the colour."""
    lab = cv2.cvtColor(sprite[..., :3].astype(np.float32) / 255, cv2.COLOR_RGB2LAB)
    target = cv2.cvtColor(np.array([[colour]], np.float32) / 255, cv2.COLOR_RGB2LAB)[0, 0]
    opaque = sprite[..., 3] > 128
    middle = float(np.median(lab[..., 0][opaque])) if opaque.any() else 50.0
    lab[..., 0] = np.clip(target[0] + 0.6 * (lab[..., 0] - middle), 2, 98)
    lab[..., 1:] = target[1:]
    rgb = np.clip(cv2.cvtColor(lab, cv2.COLOR_LAB2RGB) * 255, 0, 255).astype(np.uint8)
    return np.dstack([rgb, sprite[..., 3]])


def smooth_noise(shape: tuple[int, int], length: float, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Return noise of a wavelength, about −1 to 1."""
    small = rng.normal(size=(max(2, int(shape[0] / length) + 2), max(2, int(shape[1] / length) + 2))).astype(np.float32)
    return np.asarray(cv2.resize(small, shape[::-1], interpolation=cv2.INTER_CUBIC), np.float32)


def textured(sprite: Sprite, material: str, rng: np.random.Generator) -> Sprite:
    """Cover a sprite with a material; some of its own light and shade stays."""
    height, width = sprite.shape[:2]
    y, x = np.mgrid[:height, :width].astype(np.float32)
    unit = max(4.0, min(height, width) / 7)
    noise = smooth_noise((height, width), unit, rng)
    if material == "wood":
        base, light = (150, 98, 52), 1 + 0.28 * np.sin(2 * np.pi * x / unit * 1.3 + 1.5 * noise)
    elif material == "marble":
        base, light = (
            (226, 224, 220),
            1 - 0.45 * np.exp(-((np.abs(np.sin(x / unit + y / unit / 2 + 1.6 * noise)) / 0.16) ** 2)),
        )
    elif material == "denim":
        base, light = (
            (62, 84, 132),
            1 + 0.3 * np.sign(np.sin(2 * np.pi * (x + y) / max(3.0, unit / 2.5))) * 0.6 + 0.1 * noise,
        )
    else:
        row = np.floor(y / unit)
        joint = ((y % unit) < unit * 0.16) | (((x + (row % 2) * unit) % (2 * unit)) < unit * 0.16)
        base, light = (158, 72, 54), np.where(joint, 1.45, 1 + 0.1 * noise)
    grey = cv2.cvtColor(np.ascontiguousarray(sprite[..., :3]), cv2.COLOR_RGB2GRAY).astype(np.float32)
    shade = 0.75 + 0.25 * grey / max(
        1.0, float(np.median(grey[sprite[..., 3] > 128]) if (sprite[..., 3] > 128).any() else 128)
    )
    rgb = np.clip(np.array(base, np.float32) * (light * shade)[..., None], 0, 255).astype(np.uint8)
    return np.dstack([rgb, sprite[..., 3]])


def bent(sprite: Sprite, strength: float = 0.28, waves: float = 1.0) -> Sprite:
    """Bend a sprite into a wave."""
    height, width = sprite.shape[:2]
    room = math.ceil(width * strength)
    wide = np.pad(sprite, ((0, 0), (room, room), (0, 0)))
    y, x = np.mgrid[:height, : width + 2 * room].astype(np.float32)
    x = x + np.float32(room) * np.sin(2 * np.pi * waves * y / height)
    return np.asarray(cv2.remap(wide, x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_CONSTANT, borderValue=(0, 0, 0, 0)))


def sign(text: str, colour: tuple[int, int, int], size: tuple[int, int], shape: str = "rectangle") -> Sprite:
    """Draw a sign."""
    width, height = (v * 3 for v in size)
    image = Image.new("RGBA", (width, height))
    draw = ImageDraw.Draw(image)
    if shape == "rectangle":
        draw.rounded_rectangle((0, 0, width - 1, height - 1), height // 10, fill=(*colour, 255))
    elif shape == "circle":
        draw.ellipse((0, 0, width - 1, height - 1), fill=(*colour, 255))
    else:
        corners = 6 if shape == "hexagon" else 10
        reach = [1.0 if corners == 6 or i % 2 == 0 else 0.5 for i in range(corners)]
        angles = [2 * math.pi * i / corners - math.pi / 2 for i in range(corners)]
        points = [
            (width / 2 * (1 + r * math.cos(a)), height / 2 * (1 + r * math.sin(a)))
            for r, a in zip(reach, angles, strict=True)
        ]
        draw.polygon(points, fill=(*colour, 255))
    if text:
        light = 255 if sum(colour) < 420 else 20
        points_high = 8
        while True:
            font = ImageFont.load_default(points_high + 4)
            left, top, right, bottom = draw.textbbox((0, 0), text, font=font)
            if right - left > width * 0.8 or bottom - top > height * 0.6:
                break
            points_high += 4
        font = ImageFont.load_default(points_high)
        draw.text((width / 2, height / 2), text, fill=(light, light, light, 255), font=font, anchor="mm")
    return np.asarray(image.resize(size, Image.Resampling.LANCZOS))


@dataclass
class Scene:
    """A photograph with objects, an instruction, and ways to carry it out."""

    kind: str
    photo: Pixels
    other_photo: Pixels
    items: list[Item]
    targets: list[int]
    instruction: str
    done: Callable[[Item], list[Item]]
    """The flawless edit of one target."""
    wrong: list[Callable[[Item], list[Item]]]
    over: list[Callable[[Item], list[Item]]]
    apply: Callable[[Item], list[Item]]
    """The same action on another object."""
    spares: list[Item]
    """Objects that can be added as anomalies."""
    smeared: bool = False
    """Over Modification wipes the surroundings instead of changing the target."""


class Maker:
    """Makes scenes from folders."""

    def __init__(self, photos: Path, cutouts: Path, seed: int) -> None:
        self.photos, self.cutouts = sorted(p for p in photos.iterdir() if p.is_file()), sorted(cutouts.iterdir())
        self.random, self.noise = random.Random(seed), np.random.default_rng(seed)

    def photo(self) -> Pixels:
        """Return a photograph of about a megapixel."""
        image = Image.open(self.random.choice(self.photos)).convert("RGB")
        side = self.random.randint(760, 1280)
        image.thumbnail((side, side), Image.Resampling.LANCZOS)
        return np.asarray(image)

    def cutout(self, size: float, avoid: Sequence[str] = ()) -> tuple[str, Sprite]:
        """Return a named object that is `size` pixels long."""
        while True:
            path = self.random.choice(self.cutouts)
            if path.stem not in avoid:
                break
        image = Image.open(path).convert("RGBA")
        image = image.crop(image.getchannel("A").getbbox())
        factor = size / max(image.size)
        return path.stem, np.asarray(
            image.resize([max(8, round(v * factor)) for v in image.size], Image.Resampling.LANCZOS)
        )

    def place(self, photo: Pixels, others: Sequence[Item], name: str, sprite: Sprite, room: float = 0.8) -> Item:
        """Put an object where no other one is near."""
        height, width = photo.shape[:2]
        for attempt in range(400):
            shrink = 1.0 if attempt < 200 else 0.6
            look = sprite if shrink == 1.0 else scaled(sprite, shrink)
            h, w = look.shape[:2]
            if w * 1.4 >= width or h * 1.4 >= height:
                sprite = scaled(sprite, 0.7)
                continue
            item = Item(
                name,
                look,
                self.random.uniform(w * 0.7, width - w * 0.7),
                self.random.uniform(h * 0.7, height - h * 0.7),
            )
            margin = room * max(h, w) / 2
            x1, y1, x2, y2 = item.box
            if all(
                x1 - margin > o.box[2] or x2 + margin < o.box[0] or y1 - margin > o.box[3] or y2 + margin < o.box[1]
                for o in others
            ):
                return item
        return item

    def scene(self, kind: str) -> Scene:
        """Make a scene."""
        pick, photo = self.random, self.photo()
        items: list[Item] = []
        size = math.sqrt(math.exp(pick.uniform(math.log(0.0006), math.log(0.03))) * photo.shape[0] * photo.shape[1])
        with_sign = kind == "text" or (kind == "shape" and pick.random() < 0.6)
        colour = pick.choice(sorted(COLOURS))
        text, other_text, third = pick.sample(WORDS, 3)
        sign_size = max(60, round(size * 1.5)), max(36, round(size * 0.9))
        if with_sign:
            name, look = f"{colour} sign", sign(text, COLOURS[colour], sign_size)
        else:
            name, look = self.cutout(max(size * 1.2, 24))
        copies = pick.randint(2, 4) if kind == "count" else 2 if not with_sign and pick.random() < 0.25 else 1
        for _ in range(copies):
            items.append(self.place(photo, items, name, look, 1.6 if kind in ("replacement", "removal") else 1.0))
        targets = list(range(copies)) if kind == "count" else [0]
        title = name
        if copies == 2 and kind != "count":
            title = f"{name} on the {'left' if items[0].x < items[1].x else 'right'}"
        names = [name]
        for _ in range(pick.randint(2, 5)):
            other, sprite = self.cutout(pick.uniform(0.05, 0.2) * min(photo.shape[:2]) * 1.3, names)
            names.append(other)
            items.append(self.place(photo, items, other, sprite))
        spares = []
        for _ in range(3):
            other, sprite = self.cutout(pick.uniform(0.06, 0.18) * min(photo.shape[:2]), names)
            spares.append(self.place(photo, [*items, *spares], other, sprite))
        new_name, new_look = self.cutout(max(look.shape[:2]), names)
        third_look = self.cutout(max(look.shape[:2]), [*names, new_name])[1]
        new_colour, wrong_colour = pick.sample([c for c in sorted(COLOURS) if c != colour], 2)
        material, wrong_material = pick.sample(MATERIALS, 2)
        tint = lambda c: lambda i: [i.changed(lambda s: recoloured(s, COLOURS[c]))]
        cover = lambda m: lambda i: [i.changed(lambda s: textured(s, m, self.noise))]
        gone = lambda i: []
        grow = lambda do: lambda i: [j.changed(lambda s: scaled(s, 1.6)) for j in do(i)]
        bend = lambda do: lambda i: [j.changed(lambda s: scaled(bent(s, 0.3), 0.8, 1.35)) for j in do(i)]
        swap = lambda s: lambda i: [replace(i, sprite=s)]
        as_is = lambda i: [i]
        smeared, apply = False, None
        if kind == "color":
            instruction, done = f"Change the color of the {title} to {new_colour}.", tint(new_colour)
            wrong, over = [tint(wrong_colour), cover(material), gone], [bend(done), grow(done)]
        elif kind == "material":
            instruction, done = f"Change the material of the {title} to {material}.", cover(material)
            wrong, over = [cover(wrong_material), tint(new_colour), gone], [bend(done), grow(done)]
        elif kind == "removal":
            instruction, done = f"Remove the {title}.", gone
            half = lambda i: [
                i.changed(
                    lambda s: np.dstack(
                        [
                            s[..., :3],
                            np.where(np.arange(s.shape[0])[:, None] > s.shape[0] / 2, 0, s[..., 3]).astype(np.uint8),
                        ]
                    )
                )
            ]
            wrong, over, smeared = [swap(new_look), half], [gone], True
        elif kind == "replacement":
            article = "an" if new_name[0] in "aeiou" else "a"
            instruction, done = f"Replace the {title} with {article} {new_name}.", swap(new_look)
            far = lambda i: [replace(i, sprite=scaled(new_look, 1.9))]
            two = lambda i: [replace(i, sprite=new_look), replace(i, sprite=new_look, x=i.x + new_look.shape[1] * 1.1)]
            wrong, over = [swap(third_look), tint(new_colour), gone], [far, two]
        elif kind == "text":
            draw = lambda t, c=colour: lambda i: [replace(i, sprite=sign(t, COLOURS[c], sign_size))]
            instruction, done = f'Change the text on the {title} from "{text}" to "{other_text}".', draw(other_text)
            wrong = [draw(third), draw("")]
            over = [draw(f"{other_text} {third}"), draw(other_text, new_colour), grow(done)]
            apply = tint(new_colour)
        elif kind == "shape" and with_sign:
            shape, other_shape = pick.sample(SHAPES, 2)
            form = lambda f, c=colour: (
                lambda i: [replace(i, sprite=sign(text, COLOURS[c], (sign_size[0], round(sign_size[1] * 1.3)), f))]
            )
            instruction, done = f"Change the shape of the {title} from a rectangle to a {shape}.", form(shape)
            wrong, over = (
                [tint(new_colour), form(other_shape)],
                [form(shape, new_colour), lambda i: cover(material)(done(i)[0])],
            )
            apply = bend(as_is)
        elif kind == "shape":
            instruction = f"Bend the {title} into a wavy, S-like shape."
            done = lambda i: [i.changed(bent)]
            wrong = [tint(new_colour), lambda i: [i.changed(lambda s: scaled(s, 1.6, 0.7))]]
            over = [lambda i: tint(new_colour)(done(i)[0]), lambda i: cover(material)(done(i)[0])]
        else:
            more = copies < 3 or pick.random() < 0.5
            instruction = f"Change the number of {name}s from {copies} to {copies + (1 if more else -1)}."
            done = lambda i: [i] if more else []
            wrong, over = [as_is], [tint(new_colour)]
        return Scene(
            kind, photo, self.photo(), items, targets, instruction, done, wrong, over, apply or done, spares, smeared
        )

    def edit(self, scene: Scene, following: int, consistency: int) -> tuple[Pixels, list[tuple[Any, str]]]:
        """Return an edited picture with the asked labels, and the changed boxes with their kinds."""
        pick, photo = self.random, scene.photo
        items: list[list[Item]] = [[item] for item in scene.items]
        boxes: list[tuple[Any, str]] = []
        others = [i for i in range(len(scene.items)) if i not in scene.targets]
        pick.shuffle(others)
        anomalies = {0: 0, 1: pick.choice((2, 3)), 2: 1, 3: 0}[consistency]
        extra: list[Item] = []

        def change(number: int, do: Callable[[Item], list[Item]], kind: str) -> None:
            items[number] = do(scene.items[number])
            boxes.append((_union([scene.items[number], *items[number]]), kind))

        if scene.kind == "count":
            extra += self._count(scene, following, items, boxes)
            hit_other = False
        elif following == 0:
            hit_other = anomalies > 0 and pick.random() < 0.6
        else:
            hit_other = False
            do = {1: pick.choice(scene.wrong), 2: pick.choice(scene.over), 3: scene.done}[following]
            change(scene.targets[0], do, "target")
        if following == 0 and scene.kind == "count" and anomalies and pick.random() < 0.3:
            change(others.pop(), lambda i: [], "anomaly")
            anomalies -= 1
        if hit_other:
            change(others.pop(), scene.apply, "anomaly")
            anomalies -= 1
        for kind in pick.sample(("recolored", "removed", "distorted", "added", "warped"), anomalies):
            if kind == "added" or (kind != "warped" and not others):
                spare = scene.spares[len(extra) % len(scene.spares)]
                extra.append(spare)
                boxes.append((spare.box, "anomaly"))
            elif kind == "warped":
                photo, box = self._warp(scene, photo)
                boxes.append((box, "anomaly"))
            else:
                hue = pick.choice(sorted(COLOURS))
                do = {
                    "recolored": lambda i, rgb=COLOURS[hue]: [i.changed(lambda s: recoloured(s, rgb))],
                    "removed": lambda i: [],
                    "distorted": lambda i: [i.changed(lambda s: scaled(bent(s, 0.25), 1.2, 0.8))],
                }[kind]
                change(others.pop(), do, "anomaly")
        collapse = pick.choice(("swapped", "swapped", "restyled", "melted")) if consistency == 0 else ""
        if collapse == "swapped":
            photo = np.asarray(Image.fromarray(scene.other_photo).resize(photo.shape[1::-1]))
        picture = compose(photo, [i for some in items for i in some] + extra)
        if scene.smeared and following == 2:
            picture = self._smear(scene, picture, boxes)
        if collapse == "restyled":
            picture = (cv2.bilateralFilter(picture, 9, 80, 9) // 42 * 42 + 20).astype(np.uint8)[..., [2, 0, 1]]
        elif collapse == "melted":
            picture = self._displaced(cv2.GaussianBlur(picture, (0, 0), 3), 28, 60)
        return picture, boxes

    def _count(self, scene: Scene, following: int, items: list[list[Item]], boxes: list[tuple[Any, str]]) -> list[Item]:
        """Change the number of instances; return the new ones."""
        first = scene.items[0]
        more = scene.done(first) != []
        if following == 0:
            return []
        step = {1: self.random.choice((2, -1)), 2: 1, 3: 1}[following] * (1 if more else -1)
        look = first
        if following == 2:
            hue = next(c for c in self.random.sample(sorted(COLOURS), len(COLOURS)))
            for number in scene.targets:
                items[number] = [scene.items[number].changed(lambda s: recoloured(s, COLOURS[hue]))]
                boxes.append((scene.items[number].box, "target"))
            look = items[0][0]
        new: list[Item] = []
        if step > 0:
            for _ in range(step):
                new.append(self.place(scene.photo, [*scene.items, *scene.spares, *new], first.name, look.sprite))
                boxes.append((new[-1].box, "target"))
        for number in scene.targets[: max(0, -step)]:
            items[number] = []
            boxes.append((scene.items[number].box, "target"))
        return new

    def _warp(self, scene: Scene, photo: Pixels) -> tuple[Pixels, Any]:
        """Warp a patch of the background away from all objects."""
        side = round(0.14 * min(photo.shape[:2]))
        spot = self.place(photo, [*scene.items, *scene.spares], "", np.zeros((side, side, 4), np.uint8), 0.3)
        x1, y1, x2, y2 = spot.box
        yy, xx = np.mgrid[: y2 - y1, : x2 - x1].astype(np.float32)
        fade = np.sin(np.pi * yy / (y2 - y1)) * np.sin(np.pi * xx / (x2 - x1))
        part = np.ascontiguousarray(photo[y1:y2, x1:x2])
        moved = cv2.remap(
            part, xx + fade * side * 0.25, yy + fade * side * 0.18, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT
        )
        picture = photo.copy()
        picture[y1:y2, x1:x2] = moved
        return picture, spot.box

    def _smear(self, scene: Scene, picture: Pixels, boxes: list[tuple[Any, str]]) -> Pixels:
        """Wipe an area well beyond a removed object."""
        x1, y1, x2, y2 = scene.items[scene.targets[0]].box
        grow_x, grow_y = round((x2 - x1) * 0.6), round((y2 - y1) * 0.6)
        x1, y1 = max(0, x1 - grow_x), max(0, y1 - grow_y)
        x2, y2 = min(picture.shape[1], x2 + grow_x), min(picture.shape[0], y2 + grow_y)
        mask = np.zeros(picture.shape[:2], np.float32)
        cv2.ellipse(mask, ((x1 + x2) // 2, (y1 + y2) // 2), ((x2 - x1) // 2, (y2 - y1) // 2), 0, 0, 360, 1.0, -1)
        mask = cv2.GaussianBlur(mask, (0, 0), 2)[..., None]
        smooth = cv2.GaussianBlur(picture, (0, 0), max(6.0, (x2 - x1) / 5))
        boxes[0] = ((x1, y1, x2, y2), "target")
        return np.asarray(picture * (1 - mask) + smooth * mask, np.uint8)

    def _displaced(self, picture: Pixels, amount: float, length: float) -> Pixels:
        height, width = picture.shape[:2]
        y, x = np.mgrid[:height, :width].astype(np.float32)
        dx, dy = (amount * smooth_noise((height, width), length, self.noise) for _ in range(2))
        return np.asarray(cv2.remap(picture, x + dx, y + dy, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REFLECT))

    def noised(self, picture: Pixels, kind: str) -> tuple[Pixels, int]:
        """Return the picture as an editor would hand it back, and a JPEG quality."""
        pick, quality = self.random, 95
        height, width = picture.shape[:2]
        if kind in ("tone", "mix"):
            grey = picture.mean(axis=2, keepdims=True)
            picture = grey + (picture - grey) * pick.uniform(0.85, 1.15)
            picture = np.clip(picture * pick.uniform(0.93, 1.08) + pick.uniform(-6, 6), 0, 255).astype(np.uint8)
        if kind in ("shift", "mix"):
            matrix = np.array([[1, 0, pick.uniform(-2, 2)], [0, 1, pick.uniform(-2, 2)]], np.float32)
            picture = cv2.warpAffine(
                picture, matrix, (width, height), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE
            )
        if kind == "soften":
            picture = cv2.GaussianBlur(picture, (0, 0), pick.uniform(0.5, 1.0))
        if kind == "sharpen":
            picture = cv2.addWeighted(picture, 1.8, cv2.GaussianBlur(picture, (0, 0), 1.2), -0.8, 0)
        if kind == "resample":
            factor = pick.uniform(0.55, 0.8)
            small = cv2.resize(picture, None, fx=factor, fy=factor, interpolation=cv2.INTER_AREA)
            picture = cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC)
        if kind == "rescale":
            factor = pick.uniform(0.8, 1.25)
            picture = cv2.resize(picture, (round(width * factor), round(height * factor)), interpolation=cv2.INTER_AREA)
        if kind == "elastic":
            picture = self._displaced(picture, pick.uniform(0.6, 1.6), pick.uniform(80, 140))
        if kind == "drift":
            waves = np.dstack([smooth_noise((height, width), 350, self.noise) for _ in range(3)])
            picture = np.clip(picture + 4.5 * waves, 0, 255).astype(np.uint8)
        if kind == "regrain":
            soft = cv2.bilateralFilter(picture, 5, 22, 3)
            picture = np.clip(soft + self.noise.normal(0, 3, picture.shape), 0, 255).astype(np.uint8)
        if kind in ("jpeg", "mix"):
            quality = pick.randint(68, 82)
        return np.asarray(picture, np.uint8), quality


def _union(items: Sequence[Item]) -> tuple[int, ...]:
    boxes = np.array([item.box for item in items])
    return (*(int(v) for v in boxes[:, :2].min(axis=0)), *(int(v) for v in boxes[:, 2:].max(axis=0)))


def main() -> None:
    """Make the scenes and their manifest."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("photos", type=Path)
    parser.add_argument("cutouts", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--scenes", type=int, default=140)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    maker = Maker(options.photos, options.cutouts, options.seed)
    (options.out / "images").mkdir(parents=True, exist_ok=True)
    rows = []
    cells = [(f, c) for f in range(4) for c in range(4)]
    waiting: list[tuple[int, int]] = []
    for number in range(options.scenes):
        scene = maker.scene(list(TYPES)[number % len(TYPES)])
        _save(options.out, f"src_{number:03d}.jpg", compose(scene.photo, scene.items))
        reference, _ = maker.edit(scene, 3, 3)
        _save(options.out, f"ref_{number:03d}.jpg", reference)
        for _ in range(EDITS_PER_SCENE):
            waiting = waiting or maker.random.sample(cells, len(cells))
            following, consistency = waiting.pop()
            picture, boxes = maker.edit(scene, following, consistency)
            kind = maker.random.choice(NOISES)
            picture, quality = maker.noised(picture, kind)
            edit_id = f"m{len(rows):04d}"
            _save(options.out, f"edit_{edit_id}.jpg", picture, quality)
            rows.append(
                {
                    "id": edit_id,
                    "scene": number,
                    "source": f"images/src_{number:03d}.jpg",
                    "edited": f"images/edit_{edit_id}.jpg",
                    "reference": f"images/ref_{number:03d}.jpg",
                    "instruction": scene.instruction,
                    "instruction_type": TYPES[scene.kind],
                    "target_boxes": [scene.items[i].box for i in scene.targets],
                    "truth": {
                        "instruction_following": IF_LABELS[following],
                        "visual_consistency": VC_LABELS[consistency],
                    },
                    "changed_boxes": [box for box, _ in boxes],
                    "changed_kinds": [kind for _, kind in boxes],
                    "noise": {"kind": kind},
                }
            )
    (options.out / "manifest.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    print(f"{len(rows)} edits of {options.scenes} scenes in {options.out}")


def _save(folder: Path, name: str, picture: Pixels, quality: int = 95) -> None:
    Image.fromarray(picture).save(folder / "images" / name, quality=quality)


if __name__ == "__main__":
    main()

"""Draws billiards scenes (VIBE, Appendix B.3): the table with its arrow, and the golden label with path and struck ball.

Spoiled labels are wrong in a known way, so that a judge can be tested against the truth.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from PIL import Image, ImageDraw

from editloupe.generators.billiards import HEIGHT, RADIUS, WIDTH, Point, Scene, shoot
from editloupe.generators.drawing import font, pixels_of
from editloupe.pictures.pixels import Pixels

RIM = 36
CLOTH, WOOD, WHITE, GREY, BLACK = (236, 240, 235), (112, 74, 46), (255, 255, 255), (165, 165, 165), (15, 15, 15)
PATH, MARK = (20, 165, 60), (220, 25, 25)
DASH, SPACE, LINE = 16, 11, 4
ARROW = 80
INSTRUCTION = (
    "The white ball is struck in the direction of the black arrow and rolls without slowing down. Draw its whole path as a "
    "dashed green line up to the first grey ball it touches, and put a red box round that ball. Change nothing else."
)
CHECKS = ("path", "collision", "context")


@dataclass(frozen=True)
class Output:
    """A picture somebody could have made, and the truth about it."""

    kind: str
    picture: Pixels
    truth: Mapping[str, int]
    """The answers to the three checks."""

    @property
    def score(self) -> float:
        """The score of this picture, 0 to 1 (VIBE, Equation 7)."""
        return math.sqrt((self.truth["path"] + self.truth["collision"]) / 2 * self.truth["context"])


def draw_input(scene: Scene) -> Pixels:
    """Return the table before the stroke."""
    return pixels_of(_table(scene))


def draw_label(scene: Scene, path: Sequence[Point] | None = None, struck: int | None = None) -> Pixels:
    """Return the table with the path and the struck ball, the true ones or others."""
    image = _table(scene)
    draw = ImageDraw.Draw(image)
    _dashes(draw, path or scene.path)
    x, y = _at(scene.balls[(struck or scene.struck) - 1])
    reach = RADIUS + 9
    draw.rectangle((x - reach, y - reach, x + reach, y + reach), outline=MARK, width=4)
    return pixels_of(image)


def outputs(scene: Scene, rng: random.Random) -> list[Output]:
    """Return a perfect output and spoiled ones: wrong path, wrong ball, both, a lost ball, nothing drawn."""
    other = rng.choice([number for number in range(1, len(scene.balls) + 1) if number != scene.struck])
    wrong = _other_path(scene)
    lost = replace(scene, balls=tuple(b for n, b in enumerate(scene.balls, 1) if n != other))
    number = scene.struck - (other < scene.struck)
    keep = [n for n in range(1, len(scene.balls) + 1) if n != other]
    return [
        Output("perfect", draw_label(scene), _truth(1, 1, 1)),
        Output("wrong_path", draw_label(scene, wrong), _truth(0, 1, 1)),
        Output("wrong_ball", draw_label(scene, None, other), _truth(1, 0, 1)),
        Output("wrong_both", draw_label(scene, wrong, other), _truth(0, 0, 1)),
        Output("lost_ball", _without(lost, keep, number), _truth(1, 1, 0)),
        Output("untouched", draw_input(scene), _truth(0, 0, 1)),
    ]


def _truth(path: int, collision: int, context: int) -> dict[str, int]:
    return dict(zip(CHECKS, (path, collision, context), strict=True))


def _other_path(scene: Scene) -> list[Point]:
    """Return the path of a stroke in quite another direction, which meets other cushions."""
    for turn in (math.pi / 2, -math.pi / 2, math.pi, 2.2, -2.2, 1.0, -1.0):
        shot = shoot(scene.white, scene.angle + turn, scene.balls, 3)
        if shot.cushions[:1] != scene.cushions[:1]:
            return list(shot.path)
    return [scene.white, (WIDTH - scene.white[0], HEIGHT - scene.white[1])]


def _without(scene: Scene, numbers: Sequence[int], struck: int) -> Pixels:
    image = _table(scene, numbers)
    draw = ImageDraw.Draw(image)
    _dashes(draw, scene.path)
    x, y = _at(scene.balls[struck - 1])
    reach = RADIUS + 9
    draw.rectangle((x - reach, y - reach, x + reach, y + reach), outline=MARK, width=4)
    return pixels_of(image)


def _table(scene: Scene, numbers: Sequence[int] | None = None) -> Image.Image:
    image = Image.new("RGB", (WIDTH + 2 * RIM, HEIGHT + 2 * RIM), WOOD)
    draw = ImageDraw.Draw(image)
    draw.rectangle((RIM, RIM, RIM + WIDTH, RIM + HEIGHT), fill=CLOTH, outline=BLACK, width=2)
    for number, ball in zip(numbers or range(1, len(scene.balls) + 1), scene.balls, strict=True):
        x, y = _at(ball)
        draw.ellipse((x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS), fill=GREY, outline=BLACK, width=2)
        draw.text((x, y), str(number), fill=BLACK, font=font(26), anchor="mm")
    x, y = _at(scene.white)
    draw.ellipse((x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS), fill=WHITE, outline=BLACK, width=2)
    _arrow(draw, (x, y), scene.angle)
    return image


def _arrow(draw: ImageDraw.ImageDraw, start: Point, angle: float) -> None:
    dx, dy = math.cos(angle), math.sin(angle)
    tip = start[0] + ARROW * dx, start[1] + ARROW * dy
    neck = tip[0] - 18 * dx, tip[1] - 18 * dy
    draw.line((*start, *neck), fill=BLACK, width=5)
    draw.polygon((tip, (neck[0] - 10 * dy, neck[1] + 10 * dx), (neck[0] + 10 * dy, neck[1] - 10 * dx)), fill=BLACK)


def _dashes(draw: ImageDraw.ImageDraw, path: Sequence[Point]) -> None:
    """Draw the path dashed; the dashes run on round the corners."""
    travelled = 0.0
    for a, b in itertools.pairwise(path):
        length = math.dist(a, b)
        dx, dy = (b[0] - a[0]) / length, (b[1] - a[1]) / length
        at = 0.0
        while at < length:
            phase = (travelled + at) % (DASH + SPACE)
            run = (DASH if phase < DASH else DASH + SPACE) - phase
            end = min(length, at + run)
            if phase < DASH:
                start, stop = (a[0] + at * dx, a[1] + at * dy), (a[0] + end * dx, a[1] + end * dy)
                draw.line((*_at(start), *_at(stop)), fill=PATH, width=LINE)
            at = end + 1e-9
        travelled += length


def _at(point: Point) -> Point:
    return point[0] + RIM, point[1] + RIM

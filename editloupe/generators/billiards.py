"""Generate and draw billiards scenes: the path of the white ball and the ball it strikes (VIBE, Appendix B.3).

The table is fixed and has no friction. An arrow shows the stroke, and the ball meets two to seven cushions before the impact.
Spoiled outputs are wrong in a known way, so that a judge can be tested against the truth.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from PIL import Image, ImageDraw

from editloupe.generators.drawing import font, pixels_of
from editloupe.pictures.pixels import Pixels

WIDTH, HEIGHT, RADIUS = 900, 540, 22
"""The playing field in pixels, and a ball."""
BALLS = 5
BOUNCES = (2, 7)
CLEAR_MISS, CLEAR_HIT, CLEAR_CORNER = 10.0, 10.0, 24.0
"""Margins in pixels: to the other balls, for a clear hit of the struck ball, and to the corners."""
Point = tuple[float, float]


@dataclass(frozen=True)
class Scene:
    """A table before the stroke, and the result of the stroke."""

    white: Point
    angle: float
    """Direction of the stroke in radians; 0 is to the right, positive is downwards."""
    balls: tuple[Point, ...]
    """Numbered from 1."""
    path: tuple[Point, ...]
    """Centres of the white ball: start, one per cushion, impact."""
    cushions: tuple[str, ...]
    """The cushions that the ball meets, in order."""
    struck: int
    """The number of the ball that is struck."""


@dataclass(frozen=True)
class Shot:
    """The result of a stroke."""

    path: tuple[Point, ...]
    cushions: tuple[str, ...]
    struck: int | None
    """None if no ball was struck within the allowed bounces."""


def shoot(white: Point, angle: float, balls: Sequence[Point], most: int = BOUNCES[1]) -> Shot:
    """Follow the white ball from cushion to cushion until it strikes a ball or has met more cushions than allowed.

    >>> shot = shoot((100.0, 270.0), 0.0, [(400.0, 270.0)])
    >>> shot.struck, shot.cushions, shot.path[-1]
    (1, (), (356.0, 270.0))
    """
    x, y = white
    dx, dy = math.cos(angle), math.sin(angle)
    path = [white]
    met: list[str] = []
    while True:
        wall, name = _next_cushion(x, y, dx, dy)
        hits = [(distance, number) for number, ball in enumerate(balls, 1) if (distance := _impact(x, y, dx, dy, ball))]
        if hits and min(hits)[0] < wall:
            distance, number = min(hits)
            path.append((x + distance * dx, y + distance * dy))
            return Shot(tuple(path), tuple(met), number)
        if len(met) == most:
            return Shot(tuple(path), tuple(met), None)
        x, y = x + wall * dx, y + wall * dy
        path.append((x, y))
        met.append(name)
        dx, dy = (-dx, dy) if name in ("left", "right") else (dx, -dy)


def _next_cushion(x: float, y: float, dx: float, dy: float) -> tuple[float, str]:
    """Return the distance and the name of the next cushion. The ball's centre turns one radius before it."""
    ahead = []
    if dx < 0:
        ahead.append(((RADIUS - x) / dx, "left"))
    if dx > 0:
        ahead.append(((WIDTH - RADIUS - x) / dx, "right"))
    if dy < 0:
        ahead.append(((RADIUS - y) / dy, "top"))
    if dy > 0:
        ahead.append(((HEIGHT - RADIUS - y) / dy, "bottom"))
    return min(ahead)


def _impact(x: float, y: float, dx: float, dy: float, ball: Point) -> float | None:
    """Return the distance at which the white ball touches another, or None if it passes."""
    along = (ball[0] - x) * dx + (ball[1] - y) * dy
    off = (ball[0] - x) ** 2 + (ball[1] - y) ** 2 - along**2
    reach = (2 * RADIUS) ** 2 - off
    if along <= 0 or reach <= 0:
        return None
    distance = along - math.sqrt(reach)
    return distance if distance > 1e-9 else None


def make_scene(rng: random.Random, low: int = BOUNCES[0], high: int = BOUNCES[1]) -> Scene:
    """Return a random scene whose path meets `low` to `high` cushions and clearly strikes one ball."""
    while True:
        places = _places(rng, BALLS + 1)
        white, balls = places[0], tuple(places[1:])
        for _ in range(24):
            angle = rng.uniform(-math.pi, math.pi)
            shot = shoot(white, angle, balls, high)
            if shot.struck and low <= len(shot.cushions) and is_clear(shot, balls):
                return Scene(white, angle, balls, shot.path, shot.cushions, shot.struck)


def _places(rng: random.Random, count: int) -> list[Point]:
    edge = 3 * RADIUS
    points: list[Point] = []
    while len(points) < count:
        point = (rng.uniform(edge, WIDTH - edge), rng.uniform(edge, HEIGHT - edge))
        if all(math.dist(point, other) > 4 * RADIUS for other in points):
            points.append(point)
    return points


def is_clear(shot: Shot, balls: Sequence[Point]) -> bool:
    """Return True if a person could follow the path: no graze, no near miss, no corner, no path along a cushion."""
    assert shot.struck is not None
    for x, y in shot.path[1:-1]:
        if min(x - RADIUS, WIDTH - RADIUS - x) < CLEAR_CORNER and min(y - RADIUS, HEIGHT - RADIUS - y) < CLEAR_CORNER:
            return False
    for number, ball in enumerate(balls, 1):
        legs = list(zip(shot.path, shot.path[1:], strict=False))
        if number == shot.struck:
            last = legs[-1]
            if line_distance(*last, ball) > 2 * RADIUS - CLEAR_HIT:
                return False
            legs = legs[:-1]
        if any(segment_distance(*leg, ball) < 2 * RADIUS + CLEAR_MISS for leg in legs):
            return False
    return all(math.dist(a, b) > 2 * RADIUS for a, b in zip(shot.path, shot.path[1:], strict=False))


def line_distance(a: Point, b: Point, point: Point) -> float:
    """Return the distance of a point from the line through two others."""
    length = math.dist(a, b)
    return abs((b[0] - a[0]) * (point[1] - a[1]) - (b[1] - a[1]) * (point[0] - a[0])) / length


def segment_distance(a: Point, b: Point, point: Point) -> float:
    """Return the distance of a point from a segment.

    >>> segment_distance((0, 0), (10, 0), (13, 4))
    5.0
    """
    length = math.dist(a, b) ** 2
    share = ((point[0] - a[0]) * (b[0] - a[0]) + (point[1] - a[1]) * (b[1] - a[1])) / length if length else 0.0
    share = min(1.0, max(0.0, share))
    return math.dist((a[0] + share * (b[0] - a[0]), a[1] + share * (b[1] - a[1])), point)


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
class BilliardsOutput:
    """A possible output of a model, and the correct answers about it."""

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
    """Return the table with a path and a struck ball; by default the correct ones."""
    image = _table(scene)
    draw = ImageDraw.Draw(image)
    _dashes(draw, path or scene.path)
    x, y = _at(scene.balls[(struck or scene.struck) - 1])
    reach = RADIUS + 9
    draw.rectangle((x - reach, y - reach, x + reach, y + reach), outline=MARK, width=4)
    return pixels_of(image)


def make_outputs(scene: Scene, rng: random.Random) -> list[BilliardsOutput]:
    """Return a perfect output and five spoiled ones: wrong path, wrong ball, both, a lost ball, nothing drawn."""
    other = rng.choice([number for number in range(1, len(scene.balls) + 1) if number != scene.struck])
    wrong = _other_path(scene)
    lost = replace(scene, balls=tuple(b for n, b in enumerate(scene.balls, 1) if n != other))
    number = scene.struck - (other < scene.struck)
    keep = [n for n in range(1, len(scene.balls) + 1) if n != other]
    return [
        BilliardsOutput("perfect", draw_label(scene), _truth(1, 1, 1)),
        BilliardsOutput("wrong_path", draw_label(scene, wrong), _truth(0, 1, 1)),
        BilliardsOutput("wrong_ball", draw_label(scene, None, other), _truth(1, 0, 1)),
        BilliardsOutput("wrong_both", draw_label(scene, wrong, other), _truth(0, 0, 1)),
        BilliardsOutput("lost_ball", _without(lost, keep, number), _truth(1, 1, 0)),
        BilliardsOutput("untouched", draw_input(scene), _truth(0, 0, 1)),
    ]


def _truth(path: int, collision: int, context: int) -> dict[str, int]:
    return dict(zip(CHECKS, (path, collision, context), strict=True))


def _other_path(scene: Scene) -> list[Point]:
    """Return the path of a stroke in another direction, which first meets another cushion."""
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
    """Draw a dashed path. The dashes continue around corners."""
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

"""Billiards without friction: a white ball, cushions, five numbered grey balls, and the path to the one that is struck.

A fixed table, a force shown as an arrow on the white ball, two to seven cushions before the impact (VIBE, Appendix B.3).
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT, RADIUS = 900, 540, 22
"""The playing field in pixels, and a ball."""
BALLS = 5
BOUNCES = (2, 7)
CLEAR_MISS, CLEAR_HIT, CLEAR_CORNER = 10.0, 10.0, 24.0
"""Pixels by which the path passes the other balls, by which the struck ball is hit well, and by which corners are avoided."""
CUSHIONS = ("left", "right", "top", "bottom")
Point = tuple[float, float]


@dataclass(frozen=True)
class Scene:
    """A table before the stroke and what the stroke leads to."""

    white: Point
    angle: float
    """Direction of the stroke in radians; 0 is to the right, positive is downwards."""
    balls: tuple[Point, ...]
    """Numbered from 1."""
    path: tuple[Point, ...]
    """Centres of the white ball: start, one a cushion, impact."""
    cushions: tuple[str, ...]
    """Which cushions are met, in order."""
    struck: int
    """The number of the ball that is struck."""


@dataclass(frozen=True)
class Shot:
    """Where a stroke leads."""

    path: tuple[Point, ...]
    cushions: tuple[str, ...]
    struck: int | None
    """None where no ball was struck within the allowed bounces."""


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
    """Return how far the next cushion is and which one; the ball's centre turns a radius before it."""
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
    """Return the distance at which the white ball touches another, None where it passes."""
    along = (ball[0] - x) * dx + (ball[1] - y) * dy
    off = (ball[0] - x) ** 2 + (ball[1] - y) ** 2 - along**2
    reach = (2 * RADIUS) ** 2 - off
    if along <= 0 or reach <= 0:
        return None
    distance = along - math.sqrt(reach)
    return distance if distance > 1e-9 else None


def make_scene(rng: random.Random, low: int = BOUNCES[0], high: int = BOUNCES[1]) -> Scene:
    """Return a random scene whose path meets so many cushions and leaves no doubt about what it strikes."""
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
    places: list[Point] = []
    while len(places) < count:
        place = (rng.uniform(edge, WIDTH - edge), rng.uniform(edge, HEIGHT - edge))
        if all(math.dist(place, other) > 4 * RADIUS for other in places):
            places.append(place)
    return places


def is_clear(shot: Shot, balls: Sequence[Point]) -> bool:
    """Say whether a person could tell the path: no graze, no near miss, no corner, no cushion hugged."""
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
    """Return how far a point is from the line through two others."""
    length = math.dist(a, b)
    return abs((b[0] - a[0]) * (point[1] - a[1]) - (b[1] - a[1]) * (point[0] - a[0])) / length


def segment_distance(a: Point, b: Point, point: Point) -> float:
    """Return how far a point is from a segment.

    >>> segment_distance((0, 0), (10, 0), (13, 4))
    5.0
    """
    length = math.dist(a, b) ** 2
    share = ((point[0] - a[0]) * (b[0] - a[0]) + (point[1] - a[1]) * (b[1] - a[1])) / length if length else 0.0
    share = min(1.0, max(0.0, share))
    return math.dist((a[0] + share * (b[0] - a[0]), a[1] + share * (b[1] - a[1])), point)

"""Generate and check puzzles on the convex hull of points."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from editloupe.generators.contract import AnswerCheck, Puzzle, PuzzleKind
from editloupe.generators.drawing import BLACK, RED, WHITE, Mask, mask_of, pixels_of, share_of
from editloupe.pictures.pixels import Pixels

SIDE, UNIT = 700, 70
"""A canvas of 10 × 10 units, with points between 1 and 9 (Edit-Compass, A.3.5)."""
APART, OFF_LINE = 36, 14
"""The least distance in pixels between two points, and of a point from the line through two others."""
DOT, LINE = 8, 5
Point = tuple[int, int]


def convex_hull(points: Sequence[Point]) -> list[Point]:
    """Return the corners of the hull in order, by the monotone chain.

    >>> convex_hull([(0, 0), (4, 0), (2, 1), (4, 4), (0, 4)])
    [(0, 0), (4, 0), (4, 4), (0, 4)]
    """
    ordered = sorted(set(points))

    def half(chain: Sequence[Point]) -> list[Point]:
        corners: list[Point] = []
        for point in chain:
            while len(corners) > 1 and turn(corners[-2], corners[-1], point) <= 0:
                corners.pop()
            corners.append(point)
        return corners

    lower, upper = half(ordered), half(ordered[::-1])
    return lower[:-1] + upper[:-1]


def turn(a: Point, b: Point, c: Point) -> int:
    """Return twice the signed area of a triangle, positive if it turns left."""
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def make(rng: random.Random) -> Puzzle:
    """Make 8 to 15 points in general position."""
    while True:
        count = rng.randint(8, 15)
        points = [(round(rng.uniform(1, 9) * UNIT), round(rng.uniform(1, 9) * UNIT)) for _ in range(count)]
        if _clear(points):
            break
    corners = convex_hull(points)
    return Puzzle(
        task="Convex_Hull",
        instruction_en="Draw the convex hull of the points as a closed red line with straight sides from point to point.",
        instruction_cn="用红色直线段逐点连接，画出这些点的凸包（闭合折线）。",
        picture=_draw(points, []),
        answer=_draw(points, corners),
        facts={"points": [list(p) for p in points], "hull": [list(p) for p in corners]},
    )


def _clear(points: Sequence[Point]) -> bool:
    if any(np.hypot(a[0] - b[0], a[1] - b[1]) < APART for a, b in itertools.combinations(points, 2)):
        return False
    return all(
        _off(a, b, c) >= OFF_LINE for a, b in itertools.combinations(points, 2) for c in points if c not in (a, b)
    )


def _off(a: Point, b: Point, c: Point) -> float:
    return float(abs(turn(a, b, c)) / np.hypot(b[0] - a[0], b[1] - a[1]))


def check(facts: Mapping[str, Any], picture: Pixels, answer: Pixels) -> AnswerCheck:
    """Read which points are joined by straight red lines: these must be exactly the sides of the hull."""
    points = [tuple(point) for point in facts["points"]]
    corners = [tuple(point) for point in facts["hull"]]
    wanted = {frozenset(side) for side in zip(corners, corners[1:] + corners[:1], strict=True)}
    red = mask_of(answer, RED)
    drawn = {frozenset(pair) for pair in itertools.combinations(points, 2) if _is_joined(red, *pair)}
    why = f"{len(drawn & wanted)} of the hull's {len(wanted)} sides are drawn, and {len(drawn - wanted)} lines that are none"
    return AnswerCheck(drawn == wanted, why, sorted(sorted(side) for side in drawn))


def _is_joined(red: Mask, a: Point, b: Point) -> bool:
    """Return True if nearly all of the segment between two dots is red."""
    length = float(np.hypot(b[0] - a[0], b[1] - a[1]))
    steps = max(8, int(length / 6))
    margin = 1.8 * DOT / length
    hits = 0
    for share in np.linspace(margin, 1 - margin, steps):
        x, y = round(a[0] + share * (b[0] - a[0])), round(a[1] + share * (b[1] - a[1]))
        hits += share_of(red[max(0, y - 3) : y + 4, max(0, x - 3) : x + 4]) > 0.15
    return bool(hits >= 0.9 * steps)


def _draw(points: Sequence[Point], corners: Sequence[Point]) -> Pixels:
    image = Image.new("RGB", (SIDE, SIDE), WHITE)
    draw = ImageDraw.Draw(image)
    for a, b in zip(corners, [*corners[1:], *corners[:1]], strict=True):
        draw.line((*a, *b), fill=RED, width=LINE)
    for x, y in points:
        draw.ellipse((x - DOT, y - DOT, x + DOT, y + DOT), fill=BLACK)
    return pixels_of(image)


TASKS = (PuzzleKind("Convex_Hull", "the convex hull of points", make, check),)

"""Billiards scenes: their paths agree with an independent solver, and what is drawn is what was computed."""

from __future__ import annotations

import itertools
import json
import math
import random
from pathlib import Path

import numpy as np
import pytest

from editloupe.generators.billiards import (
    BALLS,
    HEIGHT,
    MARK,
    PATH,
    RADIUS,
    RIM,
    WIDTH,
    Point,
    draw_input,
    draw_label,
    make_outputs,
    make_scene,
    shoot,
)
from editloupe.generators.scenes import write_billiards
from editloupe.pictures.pixels import Pixels
from editloupe.rubrics.registry import get_protocol as find_protocol

SEEDS = range(40)


def unfolded(white: Point, angle: float, balls: list[Point], most: int) -> tuple[int | None, int]:
    """Solve by unfolding: the ball rolls straight on through mirror images of the table.

    Returns the struck ball and how many cushions were crossed before; nothing is shared with the solver under test.
    """
    wide, high = WIDTH - 2 * RADIUS, HEIGHT - 2 * RADIUS
    x, y = white[0] - RADIUS, white[1] - RADIUS
    dx, dy = math.cos(angle), math.sin(angle)
    best: tuple[float, int] | None = None
    for i in range(-most - 1, most + 2):
        for j in range(-most - 1, most + 2):
            for number, (bx, by) in enumerate(balls, 1):
                px, py = bx - RADIUS, by - RADIUS
                image = i * wide + (px if i % 2 == 0 else wide - px), j * high + (py if j % 2 == 0 else high - py)
                along = (image[0] - x) * dx + (image[1] - y) * dy
                off = math.hypot(image[0] - x, image[1] - y) ** 2 - along**2
                if along > 0 and off < (2 * RADIUS) ** 2:
                    distance = along - math.sqrt((2 * RADIUS) ** 2 - off)
                    if distance > 1e-9 and (best is None or distance < best[0]):
                        best = distance, number
    if best is None:
        return None, 0
    end = x + best[0] * dx, y + best[0] * dy
    crossed = abs(math.floor(end[0] / wide)) + abs(math.floor(end[1] / high))
    return best[1], crossed


@pytest.mark.parametrize("seed", SEEDS)
def test_the_struck_ball_and_the_number_of_cushions_agree_with_an_independent_solver(seed: int) -> None:
    scene = make_scene(random.Random(seed))
    struck, crossed = unfolded(scene.white, scene.angle, list(scene.balls), 7)
    assert (scene.struck, len(scene.cushions)) == (struck, crossed)
    assert 2 <= len(scene.cushions) <= 7
    assert len(scene.balls) == BALLS


@pytest.mark.parametrize("seed", range(12))
def test_the_path_obeys_the_law_of_reflection_and_stays_on_the_table(seed: int) -> None:
    scene = make_scene(random.Random(seed))
    for x, y in scene.path:
        assert RADIUS - 1e-6 <= x <= WIDTH - RADIUS + 1e-6
        assert RADIUS - 1e-6 <= y <= HEIGHT - RADIUS + 1e-6
    legs = list(zip(scene.path, scene.path[1:], strict=False))
    for (before, after), name in zip(itertools.pairwise(legs), scene.cushions, strict=True):
        (ax, ay), (bx, by) = (direction(*before), direction(*after))
        assert (bx, by) == pytest.approx((-ax, ay) if name in ("left", "right") else (ax, -ay))
    hit = scene.balls[scene.struck - 1]
    assert math.dist(scene.path[-1], hit) == pytest.approx(2 * RADIUS)


def direction(a: Point, b: Point) -> Point:
    length = math.dist(a, b)
    return (b[0] - a[0]) / length, (b[1] - a[1]) / length


@pytest.mark.parametrize("seed", range(12))
def test_no_scene_hangs_by_a_hair(seed: int) -> None:
    """A slightly different stroke strikes the same ball by the same cushions."""
    scene = make_scene(random.Random(seed))
    for nudge in (-0.0004, 0.0004):
        shot = shoot(scene.white, scene.angle + nudge, scene.balls)
        assert (shot.struck, shot.cushions) == (scene.struck, scene.cushions)


@pytest.mark.parametrize("bounces", [(2, 2), (5, 7)])
def test_the_number_of_cushions_can_be_chosen(bounces: tuple[int, int]) -> None:
    for seed in range(3):
        assert bounces[0] <= len(make_scene(random.Random(seed), *bounces).cushions) <= bounces[1]


def coloured(pixels: Pixels, colour: tuple[int, int, int]) -> np.ndarray:
    return np.abs(pixels.astype(int) - np.array(colour)).max(-1) < 12


def test_the_label_shows_the_path_and_boxes_the_struck_ball() -> None:
    scene = make_scene(random.Random(3))
    before, label = draw_input(scene), draw_label(scene)
    assert not coloured(before, PATH).any()
    green, red = coloured(label, PATH), coloured(label, MARK)
    for a, b in zip(scene.path, scene.path[1:], strict=False):
        steps = int(math.dist(a, b))
        hits = [
            green[round(RIM + a[1] + t / steps * (b[1] - a[1])), round(RIM + a[0] + t / steps * (b[0] - a[0]))]
            for t in range(2, steps - 2)
        ]
        assert 0.4 < np.mean(hits) < 0.85
    x, y = scene.balls[scene.struck - 1]
    rows, columns = np.nonzero(red)
    assert (rows.mean() - RIM, columns.mean() - RIM) == pytest.approx((y, x), abs=2)


def test_spoiled_outputs_are_wrong_in_the_way_they_say() -> None:
    scene = make_scene(random.Random(5))
    made = {output.kind: output for output in make_outputs(scene, random.Random(0))}
    assert (made["perfect"].picture == draw_label(scene)).all()
    assert (made["untouched"].picture == draw_input(scene)).all()
    assert {kind: output.score for kind, output in made.items()} == pytest.approx(
        {"perfect": 1, "wrong_path": 0.5**0.5, "wrong_ball": 0.5**0.5, "wrong_both": 0, "lost_ball": 0, "untouched": 0}
    )
    billiards = find_protocol("vibe").rubric("billiards").answer
    for output in made.values():
        answers = {name: str(value) for name, value in output.truth.items()}
        assert billiards.total(answers) == pytest.approx(output.score)  # type: ignore[union-attr]


@pytest.mark.long
def test_the_same_seed_writes_the_same_scenes(tmp_path: Path) -> None:
    assert write_billiards(tmp_path / "a", 2, seed=4) == write_billiards(tmp_path / "b", 2, seed=4) == 12
    first, second = ((tmp_path / name / "facts.jsonl").read_text() for name in "ab")
    assert first == second
    lines = [json.loads(line) for line in (tmp_path / "a" / "manifest.jsonl").read_text().splitlines()]
    assert {line["instruction_type"] for line in lines} == {"BI"}
    assert all((tmp_path / "a" / line["edited"]).is_file() for line in lines)

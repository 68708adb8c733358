"""The ten algorithmic tasks: answers agree with independent solvers, and checks decide from the picture."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from editloupe.generators.contract import PuzzleKind
from editloupe.generators.drawing import YELLOW, CellGrid
from editloupe.generators.letters import load_lexicon
from editloupe.generators.puzzles import COSTS, LINES
from editloupe.generators.scenes import TASKS, find_task
from editloupe.pictures.pixels import Pixels
from editloupe.rubrics.editcompass import PARTS

SEEDS = range(5)


def readable(grid: list[str], word: str, starts: list[tuple[int, int]]) -> bool:
    """Say whether a word can be read from one of these cells going down or right."""
    cells = {cell for cell in starts if grid[cell[0]][cell[1]] == word[0]}
    for letter in word[1:]:
        ahead = {(r + 1, c) for r, c in cells} | {(r, c + 1) for r, c in cells}
        cells = {(r, c) for r, c in ahead if r < len(grid) and c < len(grid) and grid[r][c] == letter}
    return bool(cells)


def longest(facts: Mapping[str, Any]) -> None:
    grid, start = facts["grid"], facts["start"]
    everywhere = [(r, c) for r in range(len(grid)) for c in range(len(grid))]
    starts = [tuple(start)] if start else everywhere
    found = [w for w in load_lexicon().words if len(w) >= len(facts["word"]) and readable(grid, w, starts)]
    assert found == [facts["word"]]


def given_word(facts: Mapping[str, Any]) -> None:
    grid, path = facts["grid"], [tuple(cell) for cell in facts["path"]]
    assert "".join(grid[r][c] for r, c in path) == facts["word"]
    assert readable(grid, facts["word"], [path[0]])


def knapsack(facts: Mapping[str, Any]) -> None:
    items = range(len(facts["weights"]))
    sets = (s for n in range(len(items) + 1) for s in itertools.combinations(items, n))
    fitting = [s for s in sets if sum(facts["weights"][i] for i in s) <= facts["capacity"]]
    best = max(sum(facts["values"][i] for i in s) for s in fitting)
    assert [list(s) for s in fitting if sum(facts["values"][i] for i in s) == best] == [facts["chosen"]]
    assert 10 <= facts["capacity"] <= 20
    assert 6 <= len(items) <= 8


def cheapest(facts: Mapping[str, Any]) -> None:
    """Bellman–Ford: relax all cells until nothing changes."""
    terrain, size = facts["terrain"], len(facts["terrain"])
    cost = {tuple(facts["start"]): 0}
    for _ in range(size * size):
        for (r, c), so_far in list(cost.items()):
            for other in ((r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)):
                if 0 <= other[0] < size and 0 <= other[1] < size:
                    price = COSTS[terrain[other[0]][other[1]]]
                    if price is not None and so_far + price < cost.get(other, 10**9):
                        cost[other] = so_far + price
    assert cost[tuple(facts["end"])] == facts["cost"]


def links(facts: Mapping[str, Any]) -> None:
    cells = [tuple(cell) for path in facts["paths"].values() for cell in path]
    assert len(cells) == len(set(cells))
    for path in facts["paths"].values():
        assert all(abs(a[0] - b[0]) + abs(a[1] - b[1]) == 1 for a, b in itertools.pairwise(path))


def hull(facts: Mapping[str, Any]) -> None:
    """A side of the hull has all points on one side: try every pair."""
    points = [tuple(p) for p in facts["points"]]
    sides = set()
    for a, b in itertools.permutations(points, 2):
        turns = [(b[0] - a[0]) * (p[1] - a[1]) - (b[1] - a[1]) * (p[0] - a[0]) for p in points if p not in (a, b)]
        if all(turn > 0 for turn in turns):
            sides.add(frozenset((a, b)))
    corners = [tuple(p) for p in facts["hull"]]
    assert sides == {frozenset(side) for side in zip(corners, corners[1:] + corners[:1], strict=True)}


def block(facts: Mapping[str, Any]) -> None:
    grid, (height, width) = np.array(facts["grid"]), facts["size"]
    sums = {
        (r, c): int(grid[r : r + height, c : c + width].sum())
        for r in range(len(grid) - height + 1)
        for c in range(len(grid) - width + 1)
    }
    assert [list(place) for place, total in sums.items() if total == max(sums.values())] == [facts["place"]]
    assert facts["sum"] == max(sums.values())


def bonus(facts: Mapping[str, Any]) -> None:
    grid, (r1, c1), (r2, c2) = facts["grid"], facts["start"], facts["end"]

    def best(r: int, c: int) -> int:
        if (r, c) == (r2, c2):
            return int(grid[r][c])
        ways = [best(r + 1, c)] if r < r2 else []
        ways += [best(r, c + 1)] if c < c2 else []
        return int(grid[r][c]) + max(ways)

    if (r2 - r1) + (c2 - c1) <= 14:
        assert best(r1, c1) == facts["sum"]
    assert sum(grid[r][c] for r, c in facts["path"]) == facts["sum"]


SOLVERS = {
    "Longest_Word": longest,
    "Global_Longest_Word": longest,
    "Word": given_word,
    "Global_Word": given_word,
    "Knapsack": knapsack,
    "Optimal_Path": cheapest,
    "Number_Link": links,
    "Convex_Hull": hull,
    "Maximum_Submatrix": block,
    "Maximum_Bonus": bonus,
}


def test_the_ten_tasks_are_edit_compass_ten() -> None:
    assert {known.name for known in TASKS} == set(PARTS["Part4"]) == set(SOLVERS)


@pytest.mark.long
@pytest.mark.parametrize("known", TASKS, ids=lambda t: t.name)
def test_answers_agree_with_an_independent_solver_and_are_recognised(known: PuzzleKind) -> None:
    for seed in SEEDS:
        puzzle = known.make(random.Random(seed))
        SOLVERS[known.name](puzzle.facts)
        assert known.decide(puzzle.facts, puzzle.picture, puzzle.answer).correct is True
        assert known.decide(puzzle.facts, puzzle.picture, puzzle.picture).correct is False
        other = known.make(random.Random(seed + 100))
        if other.answer.shape == puzzle.answer.shape and other.facts != puzzle.facts:
            assert known.decide(puzzle.facts, puzzle.picture, other.answer).correct is not True


@pytest.mark.long
@pytest.mark.parametrize("known", TASKS, ids=lambda t: t.name)
def test_an_answer_may_come_in_another_size_and_compressed_but_not_in_other_proportions(known: PuzzleKind) -> None:
    import io

    puzzle = known.make(random.Random(1))
    image = Image.fromarray(puzzle.answer)
    smaller = image.resize((round(image.width * 0.8), round(image.height * 0.8)), Image.Resampling.LANCZOS)
    data = io.BytesIO()
    smaller.save(data, "JPEG", quality=85)
    assert known.decide(puzzle.facts, puzzle.picture, np.asarray(Image.open(data).convert("RGB"))).correct is True
    wide = np.asarray(image.resize((image.width * 2, image.height)))
    assert known.decide(puzzle.facts, puzzle.picture, wide).correct is None


def with_cell(
    pixels: Pixels, grid: CellGrid, cell: tuple[int, int], colour: tuple[int, int, int], share: float = 1.0
) -> Pixels:
    changed = pixels.copy()
    x1, y1, x2, y2 = grid.box(cell)
    changed[y1 : y1 + round(share * (y2 - y1)), x1:x2] = colour
    return changed


@pytest.mark.long
@pytest.mark.parametrize("name", ["Longest_Word", "Global_Word", "Maximum_Submatrix", "Maximum_Bonus"])
def test_one_cell_too_many_or_too_few_is_wrong_and_half_a_cell_is_undecided(name: str) -> None:
    known = find_task(name)
    puzzle = known.make(random.Random(2))
    grid = CellGrid(len(puzzle.facts["grid"]), len(puzzle.facts["grid"][0]))
    yellow = [
        c for c in grid.cells() if (puzzle.answer[grid.centre(c)[1] - 24, grid.centre(c)[0] - 24] == YELLOW).all()
    ]
    bare = next(c for c in grid.cells() if (puzzle.answer[grid.centre(c)[1] - 24, grid.centre(c)[0] - 24] == 255).all())
    more = with_cell(puzzle.answer, grid, bare, YELLOW)
    fewer = with_cell(puzzle.answer, grid, yellow[len(yellow) // 2], (255, 255, 255))
    assert known.decide(puzzle.facts, puzzle.picture, more).correct is False
    assert known.decide(puzzle.facts, puzzle.picture, fewer).correct is False
    half = with_cell(puzzle.answer, grid, bare, YELLOW, 0.42)
    assert known.decide(puzzle.facts, puzzle.picture, half).correct is None


def test_another_path_with_the_same_bonus_is_right_too() -> None:
    known = find_task("Maximum_Bonus")
    facts = {"grid": [[0, 1], [1, 0]], "start": [0, 0], "end": [1, 1], "sum": 1, "path": [[0, 0], [0, 1], [1, 1]]}
    grid = CellGrid(2, 2)
    blank = np.full((grid.size[1], grid.size[0], 3), 255, np.uint8)
    for cell in ((0, 1), (1, 0)):
        assert known.decide(facts, blank, with_cell(blank, grid, cell, YELLOW)).correct is True


def test_a_dearer_detour_and_a_path_through_a_wall_are_wrong() -> None:
    known = find_task("Optimal_Path")
    facts = {
        "terrain": [["road"] * 3, ["wall", "water", "road"], ["road"] * 3],
        "start": [0, 0],
        "end": [2, 2],
        "cost": 4,
    }
    grid = CellGrid(3, 3)

    def drawn(*cells: tuple[int, int]) -> Pixels:
        image = Image.new("RGB", grid.size, (200, 200, 200))
        ImageDraw.Draw(image).line([grid.centre(cell) for cell in cells], fill=(225, 30, 30), width=6)
        return np.asarray(image)

    best = drawn((0, 0), (0, 1), (0, 2), (1, 2), (2, 2))
    dear = drawn((0, 0), (0, 1), (1, 1), (2, 1), (2, 2))
    wall = drawn((0, 0), (1, 0), (2, 0), (2, 1), (2, 2))
    said = [known.decide(facts, best, picture) for picture in (best, dear, wall)]
    assert [one.correct for one in said] == [True, False, False]
    assert "costs 11" in said[1].why
    assert "black cell" in said[2].why


def test_lines_that_share_a_cell_are_wrong() -> None:
    known = find_task("Number_Link")
    facts = {"size": 3, "ends": {"red": [[0, 1], [2, 1]], "blue": [[1, 0], [1, 2]]}}
    grid = CellGrid(3, 3)
    image = Image.new("RGB", grid.size, (255, 255, 255))
    draw = ImageDraw.Draw(image)
    draw.line([grid.centre((0, 1)), grid.centre((1, 1)), grid.centre((2, 1))], fill=LINES["red"], width=10)
    draw.line([grid.centre((1, 0)), grid.centre((1, 1)), grid.centre((1, 2))], fill=LINES["blue"], width=10)
    pixels = np.asarray(image)
    found = known.decide(facts, pixels, pixels)
    assert found.correct is False
    assert "share a cell" in found.why


@pytest.mark.long
def test_a_hull_with_a_diagonal_or_without_a_side_is_wrong() -> None:
    known = find_task("Convex_Hull")
    puzzle = known.make(random.Random(3))
    corners = [tuple(p) for p in puzzle.facts["hull"]]
    image = Image.fromarray(puzzle.answer)
    ImageDraw.Draw(image).line((*corners[0], *corners[2]), fill=(225, 30, 30), width=5)
    assert known.decide(puzzle.facts, puzzle.picture, np.asarray(image)).correct is False
    image = Image.fromarray(puzzle.picture)
    for a, b in itertools.pairwise(corners):
        ImageDraw.Draw(image).line((*a, *b), fill=(225, 30, 30), width=5)
    assert known.decide(puzzle.facts, puzzle.picture, np.asarray(image)).correct is False


@pytest.mark.long
def test_instructions_come_in_both_languages() -> None:
    for known in TASKS:
        puzzle = known.make(random.Random(0))
        assert puzzle.instruction_en.isascii()
        assert any("\u4e00" <= letter <= "\u9fff" for letter in puzzle.instruction_cn)

"""Generate and check puzzles on the block and on the path with the largest sum in a grid of numbers."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from editloupe.generators.contract import AnswerCheck, Puzzle, PuzzleKind, Undecided
from editloupe.generators.drawing import (
    BLACK,
    BLUE,
    DARK_RED,
    RED,
    YELLOW,
    Cell,
    CellGrid,
    Colour,
    find_tinted_cells,
    pixels_of,
)
from editloupe.pictures.pixels import Pixels

Numbers = Sequence[Sequence[int]]


def best_blocks(grid: Numbers, height: int, width: int) -> tuple[int, list[Cell]]:
    """Return the largest sum of a block of this size and the top left cells where it occurs."""
    total = np.zeros((len(grid) + 1, len(grid[0]) + 1), int)
    total[1:, 1:] = np.cumsum(np.cumsum(np.array(grid), 0), 1)
    sums = total[height:, width:] - total[:-height, width:] - total[height:, :-width] + total[:-height, :-width]
    places = [(int(row), int(column)) for row, column in np.argwhere(sums == sums.max())]
    return int(sums.max()), places


def best_path(grid: Numbers, start: Cell, end: Cell) -> tuple[int, list[Cell]]:
    """Return the largest sum on a path down and right, both ends counted, and one such path (Edit-Compass, Equation 8)."""
    best: dict[Cell, int] = {}
    for row in range(start[0], end[0] + 1):
        for column in range(start[1], end[1] + 1):
            before = [best[cell] for cell in ((row - 1, column), (row, column - 1)) if cell in best]
            best[row, column] = grid[row][column] + (max(before) if before else 0)
    path = [end]
    while path[-1] != start:
        row, column = path[-1]
        path.append(
            max((cell for cell in ((row - 1, column), (row, column - 1)) if cell in best), key=best.__getitem__)
        )
    return best[end], path[::-1]


def make_block(rng: random.Random) -> Puzzle:
    """Make a grid of −9 to 9 with one best block of a stated size (Edit-Compass, A.3.6)."""
    while True:
        size = rng.randint(6, 10)
        grid = [[rng.randint(-9, 9) for _ in range(size)] for _ in range(size)]
        height, width = rng.randint(2, min(4, size - 1)), rng.randint(2, min(4, size - 1))
        total, places = best_blocks(grid, height, width)
        if len(places) == 1:
            break
    row, column = places[0]
    block = [(row + i, column + j) for i in range(height) for j in range(width)]
    return Puzzle(
        task="Maximum_Submatrix",
        instruction_en=f"Colour yellow the block of {height} rows by {width} columns whose numbers have the largest sum.",
        instruction_cn=f"把数字之和最大的 {height} 行 {width} 列的区域涂成黄色。",
        picture=_draw(grid, {}),
        answer=_draw(grid, dict.fromkeys(block, YELLOW)),
        facts={"grid": grid, "size": [height, width], "place": [row, column], "sum": total},
    )


def check_block(facts: Mapping[str, Any], picture: Pixels, answer: Pixels) -> AnswerCheck:
    """Read the coloured cells: they must be exactly the best block."""
    grid = facts["grid"]
    (height, width), (row, column) = facts["size"], facts["place"]
    try:
        cells = find_tinted_cells(CellGrid(len(grid), len(grid[0])), answer, YELLOW)
    except Undecided as error:
        return AnswerCheck(None, str(error))
    wanted = {(row + i, column + j) for i in range(height) for j in range(width)}
    why = f"{len(cells)} cells are coloured with a sum of {sum(grid[r][c] for r, c in cells)}; the best block has {facts['sum']}"
    return AnswerCheck(cells == wanted, why, sorted(cells))


def make_bonus(rng: random.Random) -> Puzzle:
    """Make a grid of −5 to 9 with a start and an end to its lower right (Edit-Compass, A.3.7)."""
    size = rng.randint(5, 12)
    grid = [[rng.randint(-5, 9) for _ in range(size)] for _ in range(size)]
    while True:
        start = rng.randrange(size), rng.randrange(size)
        end = rng.randrange(start[0], size), rng.randrange(start[1], size)
        if end[0] > start[0] and end[1] > start[1] and sum(end) - sum(start) >= 3:
            break
    total, path = best_path(grid, start, end)
    ends = {start: BLUE, end: RED}
    return Puzzle(
        task="Maximum_Bonus",
        instruction_en=(
            "Going only down or right from the blue cell to the red cell, collect the number of every cell you pass. "
            "Colour yellow the cells of a path with the largest total."
        ),
        instruction_cn="从蓝色格子走到红色格子，每一步只能向下或向右，收集经过的每个格子中的数字。把总和最大的路径上的格子涂成黄色。",
        picture=_draw(grid, ends),
        answer=_draw(grid, {**dict.fromkeys(path, YELLOW), **ends}),
        facts={"grid": grid, "start": list(start), "end": list(end), "path": [list(c) for c in path], "sum": total},
    )


def check_bonus(facts: Mapping[str, Any], picture: Pixels, answer: Pixels) -> AnswerCheck:
    """Read the coloured cells: with both ends they must be a path down and right that collects the optimum."""
    grid = facts["grid"]
    start, end = tuple(facts["start"]), tuple(facts["end"])
    try:
        cells = find_tinted_cells(CellGrid(len(grid), len(grid[0])), answer, YELLOW, skip=(start, end))
    except Undecided as why:
        return AnswerCheck(None, str(why))
    path = sorted({*cells, start, end})
    steps = {(r2 - r1, c2 - c1) for (r1, c1), (r2, c2) in itertools.pairwise(path)}
    if path[0] != start or path[-1] != end or not steps <= {(1, 0), (0, 1)}:
        return AnswerCheck(False, "the coloured cells are not one path down and right between the two ends", path)
    total = sum(grid[row][column] for row, column in path)
    return AnswerCheck(total == facts["sum"], f"the coloured path collects {total}; the most is {facts['sum']}", path)


def _draw(grid: Numbers, fills: dict[Cell, Colour]) -> Pixels:
    layout = CellGrid(len(grid), len(grid[0]))
    inks = {cell: DARK_RED if grid[cell[0]][cell[1]] < 0 else BLACK for cell in layout.cells()}
    return pixels_of(layout.drawn([[str(number) for number in row] for row in grid], fills, inks))


TASKS = (
    PuzzleKind("Maximum_Submatrix", "the block of numbers with the largest sum", make_block, check_block),
    PuzzleKind("Maximum_Bonus", "the path that collects most", make_bonus, check_bonus),
)

"""Generate and check puzzles on the cheapest path over terrain and on joining circles by lines that do not meet."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from PIL import ImageDraw

from editloupe.generators.contract import AnswerCheck, Puzzle, PuzzleKind
from editloupe.generators.drawing import (
    BLACK,
    RED,
    WHITE,
    Cell,
    CellGrid,
    Colour,
    as_path,
    find_joined_cells,
    font,
    pixels_of,
)
from editloupe.pictures.pixels import Pixels

ROAD, GRASS, WATER, WALL = "road", "grass", "water", "wall"
COSTS: Mapping[str, int | None] = {ROAD: 1, GRASS: 3, WATER: 8, WALL: None}
"""The cost of entering a cell; walls cannot be entered (Edit-Compass, A.3.4)."""
GROUNDS: Mapping[str, Colour] = {
    ROAD: (200, 200, 200),
    GRASS: (150, 215, 140),
    WATER: (130, 180, 250),
    WALL: (50, 50, 50),
}
SHARES = (0.45, 0.25, 0.15, 0.15)
FARTHEST_START = 4
"""The least distance of the two ends, in steps."""
LINES: Mapping[str, Colour] = {
    "red": (225, 40, 40),
    "green": (40, 170, 60),
    "blue": (40, 90, 230),
    "orange": (250, 150, 30),
    "purple": (150, 60, 200),
}
LINE_WIDTH = 10
Terrain = Sequence[Sequence[str]]


def neighbours(cell: Cell, rows: int, columns: int) -> Iterator[Cell]:
    """Yield the up to four neighbours of a cell."""
    for dr, dc in ((1, 0), (0, 1), (-1, 0), (0, -1)):
        row, column = cell[0] + dr, cell[1] + dc
        if 0 <= row < rows and 0 <= column < columns:
            yield row, column


def find_cheapest_path(terrain: Terrain, start: Cell, end: Cell) -> tuple[int, list[Cell]] | None:
    """Return the least cost from start to end, without the start, and one such path; None if there is no path."""
    costs, came, heap = {start: 0}, {start: start}, [(0, start)]
    while heap:
        cost, cell = heapq.heappop(heap)
        if cell == end:
            path = [end]
            while path[-1] != start:
                path.append(came[path[-1]])
            return cost, path[::-1]
        if cost > costs[cell]:
            continue
        for other in neighbours(cell, len(terrain), len(terrain[0])):
            price = COSTS[terrain[other[0]][other[1]]]
            if price is not None and cost + price < costs.get(other, cost + price + 1):
                costs[other], came[other] = cost + price, cell
                heapq.heappush(heap, (cost + price, other))
    return None


def make_optimal(rng: random.Random) -> Puzzle:
    """Make a terrain of 6 to 10 cells per side with a start and a reachable end."""
    while True:
        size = rng.randint(6, 10)
        terrain = [rng.choices(list(COSTS), SHARES, k=size) for _ in range(size)]
        free = [(r, c) for r in range(size) for c in range(size) if terrain[r][c] != WALL]
        start, end = rng.sample(free, 2)
        cheapest = find_cheapest_path(terrain, start, end)
        if cheapest and abs(start[0] - end[0]) + abs(start[1] - end[1]) >= FARTHEST_START:
            break
    cost, path = cheapest
    return Puzzle(
        task="Optimal_Path",
        instruction_en=(
            "Draw the cheapest path from S to E with red arrows from cell to cell, moving only across or up and down. Entering a "
            "grey cell costs 1, a green one 3, a blue one 8; black cells cannot be entered."
        ),
        instruction_cn=(
            "用红色箭头逐格画出从 S 到 E 的花费最小的路径，只能横向或纵向移动。"
            "进入灰色格子花费 1，绿色格子花费 3，蓝色格子花费 8，黑色格子不能进入。"
        ),
        picture=_terrain(terrain, start, end, []),
        answer=_terrain(terrain, start, end, path),
        facts={
            "terrain": [list(row) for row in terrain],
            "start": list(start),
            "end": list(end),
            "path": [list(cell) for cell in path],
            "cost": cost,
        },
    )


def check_optimal(facts: Mapping[str, Any], picture: Pixels, answer: Pixels) -> AnswerCheck:
    """Read the red line: it must be one path from S to E, off the walls, at the least cost."""
    terrain, start, end = facts["terrain"], tuple(facts["start"]), tuple(facts["end"])
    path = as_path(find_joined_cells(CellGrid(len(terrain), len(terrain[0])), answer, RED), start, end)
    if path is None:
        return AnswerCheck(False, "the red lines are not one path from S to E")
    prices = [COSTS[terrain[row][column]] for row, column in path[1:]]
    if None in prices:
        return AnswerCheck(False, "the red path leads through a black cell", path)
    total = sum(price for price in prices if price is not None)
    return AnswerCheck(total == facts["cost"], f"the red path costs {total}; the least is {facts['cost']}", path)


def _terrain(terrain: Terrain, start: Cell, end: Cell, path: list[Cell]) -> Pixels:
    layout = CellGrid(len(terrain), len(terrain[0]))
    image = layout.drawn(None, {cell: GROUNDS[terrain[cell[0]][cell[1]]] for cell in layout.cells()})
    draw = ImageDraw.Draw(image)
    for here, there in itertools.pairwise(path):
        (x1, y1), (x2, y2) = layout.centre(here), layout.centre(there)
        draw.line((x1, y1, x2, y2), fill=RED, width=6)
        dx, dy = (x2 > x1) - (x2 < x1), (y2 > y1) - (y2 < y1)
        tip = (x2 - 14 * dx, y2 - 14 * dy)
        base = (tip[0] - 14 * dx, tip[1] - 14 * dy)
        draw.polygon((tip, (base[0] + 9 * dy, base[1] + 9 * dx), (base[0] - 9 * dy, base[1] - 9 * dx)), fill=RED)
    for cell, letter in ((start, "S"), (end, "E")):
        x, y = layout.centre(cell)
        draw.ellipse((x - 14, y - 14, x + 14, y + 14), fill=WHITE, outline=BLACK, width=2)
        draw.text((x, y), letter, fill=BLACK, font=font(20), anchor="mm")
    return pixels_of(image)


def make_link(rng: random.Random) -> Puzzle:
    """Make 3 to 5 pairs of circles by drawing the lines first and showing their ends (Edit-Compass, A.3.8)."""
    while True:
        size, wanted = rng.randint(6, 9), rng.randint(3, 5)
        paths = _disjoint_paths(size, wanted, rng)
        if paths is not None:
            break
    lines = dict(zip(LINES, paths, strict=False))
    return Puzzle(
        task="Number_Link",
        instruction_en=(
            "Join the two circles of each colour by a line of that colour from cell to cell, moving only across or up and down. "
            "No two lines may share a cell."
        ),
        instruction_cn="用同色的线逐格连接每一对同色圆点，只能横向或纵向移动，不同的线不能经过同一个格子。",
        picture=_links(size, lines, drawn=False),
        answer=_links(size, lines, drawn=True),
        facts={
            "size": size,
            "ends": {name: [list(path[0]), list(path[-1])] for name, path in lines.items()},
            "paths": {name: [list(cell) for cell in path] for name, path in lines.items()},
        },
    )


def _disjoint_paths(size: int, wanted: int, rng: random.Random) -> list[list[Cell]] | None:
    taken: set[Cell] = set()
    paths: list[list[Cell]] = []
    for _ in range(60):
        free = [(r, c) for r in range(size) for c in range(size) if (r, c) not in taken]
        if len(paths) == wanted or not free:
            break
        path = [rng.choice(free)]
        while len(path) < 2 * size:
            ahead = [cell for cell in neighbours(path[-1], size, size) if cell not in taken and cell not in path]
            if not ahead:
                break
            path.append(rng.choice(ahead))
        if len(path) >= 5 and not _beside(path[0], path[-1]):
            paths.append(path)
            taken |= set(path)
    return paths if len(paths) == wanted else None


def _beside(a: Cell, b: Cell) -> bool:
    return abs(a[0] - b[0]) + abs(a[1] - b[1]) == 1


def check_link(facts: Mapping[str, Any], picture: Pixels, answer: Pixels) -> AnswerCheck:
    """Read the lines colour by colour: each must be one path between its circles, and no cell may be used twice."""
    layout = CellGrid(facts["size"], facts["size"])
    used: dict[Cell, str] = {}
    paths: dict[str, list[Cell]] = {}
    for name, (start, end) in facts["ends"].items():
        path = as_path(find_joined_cells(layout, answer, LINES[name]), tuple(start), tuple(end))
        if path is None:
            return AnswerCheck(False, f"the {name} lines are not one path between the {name} circles", paths)
        for cell in path:
            if cell in used:
                return AnswerCheck(False, f"the {name} and the {used[cell]} line share a cell", paths)
            used[cell] = name
        paths[name] = path
    return AnswerCheck(True, f"all {len(paths)} pairs are joined and no two lines meet", paths)


def _links(size: int, lines: Mapping[str, list[Cell]], drawn: bool) -> Pixels:
    layout = CellGrid(size, size)
    image = layout.drawn()
    draw = ImageDraw.Draw(image)
    for name, path in lines.items():
        if drawn:
            draw.line([layout.centre(cell) for cell in path], fill=LINES[name], width=LINE_WIDTH, joint="curve")
        for cell in (path[0], path[-1]):
            x, y = layout.centre(cell)
            draw.ellipse((x - 18, y - 18, x + 18, y + 18), fill=LINES[name])
    return pixels_of(image)


TASKS = (
    PuzzleKind("Optimal_Path", "the cheapest path over terrain", make_optimal, check_optimal),
    PuzzleKind("Number_Link", "pairs of circles joined without crossing", make_link, check_link),
)

"""Generate and check puzzles on paths, joined circles, a knapsack, a convex hull, and largest sums in a grid of numbers."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from editloupe.generators.contract import AnswerCheck, Puzzle, PuzzleKind, Undecided
from editloupe.generators.drawing import (
    BARE,
    BLACK,
    BLUE,
    DARK_RED,
    GREEN,
    GREY,
    RED,
    TINTED,
    WHITE,
    YELLOW,
    Cell,
    CellGrid,
    Colour,
    Mask,
    find_joined_cells,
    find_tinted_cells,
    font,
    mask_of,
    pixels_of,
    share_of,
    trace_path,
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
        picture=_draw_terrain(terrain, start, end, []),
        answer=_draw_terrain(terrain, start, end, path),
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
    path = trace_path(find_joined_cells(CellGrid(len(terrain), len(terrain[0])), answer, RED), start, end)
    if path is None:
        return AnswerCheck(False, "the red lines are not one path from S to E")
    prices = [COSTS[terrain[row][column]] for row, column in path[1:]]
    if None in prices:
        return AnswerCheck(False, "the red path leads through a black cell", path)
    total = sum(price for price in prices if price is not None)
    return AnswerCheck(total == facts["cost"], f"the red path costs {total}; the least is {facts['cost']}", path)


def _draw_terrain(terrain: Terrain, start: Cell, end: Cell, path: list[Cell]) -> Pixels:
    layout = CellGrid(len(terrain), len(terrain[0]))
    image = layout.draw(None, {cell: GROUNDS[terrain[cell[0]][cell[1]]] for cell in layout.cells()})
    draw = ImageDraw.Draw(image)
    for cell, following in itertools.pairwise(path):
        (x1, y1), (x2, y2) = layout.centre(cell), layout.centre(following)
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
        size, count = rng.randint(6, 9), rng.randint(3, 5)
        paths = _find_disjoint_paths(size, count, rng)
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
        picture=_draw_links(size, lines, with_lines=False),
        answer=_draw_links(size, lines, with_lines=True),
        facts={
            "size": size,
            "ends": {name: [list(path[0]), list(path[-1])] for name, path in lines.items()},
            "paths": {name: [list(cell) for cell in path] for name, path in lines.items()},
        },
    )


def _find_disjoint_paths(size: int, count: int, rng: random.Random) -> list[list[Cell]] | None:
    used: set[Cell] = set()
    paths: list[list[Cell]] = []
    for _ in range(60):
        free = [(r, c) for r in range(size) for c in range(size) if (r, c) not in used]
        if len(paths) == count or not free:
            break
        path = [rng.choice(free)]
        while len(path) < 2 * size:
            ahead = [cell for cell in neighbours(path[-1], size, size) if cell not in used and cell not in path]
            if not ahead:
                break
            path.append(rng.choice(ahead))
        if len(path) >= 5 and not _are_neighbours(path[0], path[-1]):
            paths.append(path)
            used |= set(path)
    return paths if len(paths) == count else None


def _are_neighbours(a: Cell, b: Cell) -> bool:
    return abs(a[0] - b[0]) + abs(a[1] - b[1]) == 1


def check_link(facts: Mapping[str, Any], picture: Pixels, answer: Pixels) -> AnswerCheck:
    """Read the lines colour by colour: each must be one path between its circles, and no cell may be used twice."""
    layout = CellGrid(facts["size"], facts["size"])
    used: dict[Cell, str] = {}
    paths: dict[str, list[Cell]] = {}
    for name, (start, end) in facts["ends"].items():
        path = trace_path(find_joined_cells(layout, answer, LINES[name]), tuple(start), tuple(end))
        if path is None:
            return AnswerCheck(False, f"the {name} lines are not one path between the {name} circles", paths)
        for cell in path:
            if cell in used:
                return AnswerCheck(False, f"the {name} and the {used[cell]} line share a cell", paths)
            used[cell] = name
        paths[name] = path
    return AnswerCheck(True, f"all {len(paths)} pairs are joined and no two lines meet", paths)


def _draw_links(size: int, lines: Mapping[str, list[Cell]], with_lines: bool) -> Pixels:
    layout = CellGrid(size, size)
    image = layout.draw()
    draw = ImageDraw.Draw(image)
    for name, path in lines.items():
        if with_lines:
            draw.line([layout.centre(cell) for cell in path], fill=LINES[name], width=LINE_WIDTH, joint="curve")
        for cell in (path[0], path[-1]):
            x, y = layout.centre(cell)
            draw.ellipse((x - 18, y - 18, x + 18, y + 18), fill=LINES[name])
    return pixels_of(image)


CARD, GAP, COLUMNS, HEAD = (170, 150), 24, 4, 70
NAMES = ("cup", "lamp", "book", "clock", "radio", "boot", "kite", "drum")


def find_best_choices(weights: Sequence[int], values: Sequence[int], capacity: int) -> tuple[int, list[int]]:
    """Return the largest value within the capacity and all sets that reach it, each as a bit mask (Edit-Compass, Equation 4)."""
    table: list[tuple[int, list[int]]] = [(0, [0]) for _ in range(capacity + 1)]
    for item, (weight, value) in enumerate(zip(weights, values, strict=True)):
        for room in range(capacity, weight - 1, -1):
            without, with_it = table[room], table[room - weight]
            gained = with_it[0] + value
            masks = [mask | 1 << item for mask in with_it[1]]
            if gained > without[0]:
                table[room] = gained, masks
            elif gained == without[0]:
                table[room] = gained, without[1] + masks
    return table[capacity]


def make_knapsack(rng: random.Random) -> Puzzle:
    """Make 6 to 8 things with one best choice (Edit-Compass, A.3.3)."""
    while True:
        capacity, count = rng.randint(10, 20), rng.randint(6, 8)
        weights = [rng.randint(2, 8) for _ in range(count)]
        values = [rng.randint(10, 50) for _ in range(count)]
        value, masks = find_best_choices(weights, values, capacity)
        if len(masks) == 1 and sum(weights) > capacity:
            break
    chosen = [item for item in range(count) if masks[0] >> item & 1]
    return Puzzle(
        task="Knapsack",
        instruction_en=(
            "Choose things so that their weights stay within the capacity and their values add up to the most. Fill the cards "
            "of the chosen things with green."
        ),
        instruction_cn="选择物品，使总重量不超过容量且总价值最大。把选中物品的卡片涂成绿色。",
        picture=_draw_knapsack(weights, values, capacity, []),
        answer=_draw_knapsack(weights, values, capacity, chosen),
        facts={"weights": weights, "values": values, "capacity": capacity, "chosen": chosen, "value": value},
    )


def check_knapsack(facts: Mapping[str, Any], picture: Pixels, answer: Pixels) -> AnswerCheck:
    """Read the green cards: they must be the best choice."""
    chosen, green = [], mask_of(answer, GREEN)
    for item in range(len(facts["weights"])):
        x1, y1, x2, y2 = _card_box(item)
        share = share_of(green[y1 + 6 : y2 - 6, x1 + 6 : x2 - 6])
        if BARE <= share < TINTED:
            return AnswerCheck(None, f"the card of the {NAMES[item]} is only partly green")
        if share >= TINTED:
            chosen.append(item)
    weight = sum(facts["weights"][item] for item in chosen)
    value = sum(facts["values"][item] for item in chosen)
    why = f"the green cards weigh {weight} of {facts['capacity']} and are worth {value}; the most is {facts['value']}"
    return AnswerCheck(weight <= facts["capacity"] and value == facts["value"], why, chosen)


def _card_box(item: int) -> tuple[int, int, int, int]:
    x = GAP + item % COLUMNS * (CARD[0] + GAP)
    y = HEAD + GAP + item // COLUMNS * (CARD[1] + GAP)
    return x, y, x + CARD[0], y + CARD[1]


def _draw_knapsack(weights: Sequence[int], values: Sequence[int], capacity: int, chosen: Sequence[int]) -> Pixels:
    rows = -(-len(weights) // COLUMNS)
    width, height = GAP + COLUMNS * (CARD[0] + GAP), HEAD + GAP + rows * (CARD[1] + GAP)
    image = Image.new("RGB", (width, height), WHITE)
    draw = ImageDraw.Draw(image)
    draw.text((width // 2, HEAD // 2 + 8), f"capacity {capacity}", fill=BLACK, font=font(34), anchor="mm")
    for item, (weight, value) in enumerate(zip(weights, values, strict=True)):
        x1, y1, x2, y2 = _card_box(item)
        ground = GREEN if item in chosen else WHITE
        draw.rounded_rectangle((x1, y1, x2 - 1, y2 - 1), 12, fill=ground, outline=GREY, width=3)
        middle = (x1 + x2) // 2
        draw.text((middle, y1 + 34), NAMES[item], fill=BLACK, font=font(28), anchor="mm")
        draw.text((middle, y1 + 78), f"value {value}", fill=BLACK, font=font(24), anchor="mm")
        draw.text((middle, y1 + 114), f"weight {weight}", fill=BLACK, font=font(24), anchor="mm")
    return pixels_of(image)


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


def make_hull(rng: random.Random) -> Puzzle:
    """Make 8 to 15 points in general position."""
    while True:
        count = rng.randint(8, 15)
        points = [(round(rng.uniform(1, 9) * UNIT), round(rng.uniform(1, 9) * UNIT)) for _ in range(count)]
        if _is_clear(points):
            break
    corners = convex_hull(points)
    return Puzzle(
        task="Convex_Hull",
        instruction_en="Draw the convex hull of the points as a closed red line with straight sides from point to point.",
        instruction_cn="用红色直线段逐点连接，画出这些点的凸包（闭合折线）。",
        picture=_draw_hull(points, []),
        answer=_draw_hull(points, corners),
        facts={"points": [list(p) for p in points], "hull": [list(p) for p in corners]},
    )


def _is_clear(points: Sequence[Point]) -> bool:
    if any(np.hypot(a[0] - b[0], a[1] - b[1]) < APART for a, b in itertools.combinations(points, 2)):
        return False
    return all(
        _distance_from_line(a, b, c) >= OFF_LINE
        for a, b in itertools.combinations(points, 2)
        for c in points
        if c not in (a, b)
    )


def _distance_from_line(a: Point, b: Point, c: Point) -> float:
    return float(abs(turn(a, b, c)) / np.hypot(b[0] - a[0], b[1] - a[1]))


def check_hull(facts: Mapping[str, Any], picture: Pixels, answer: Pixels) -> AnswerCheck:
    """Read which points are joined by straight red lines: these must be exactly the sides of the hull."""
    points = [tuple(point) for point in facts["points"]]
    corners = [tuple(point) for point in facts["hull"]]
    sides = {frozenset(side) for side in zip(corners, corners[1:] + corners[:1], strict=True)}
    red = mask_of(answer, RED)
    joined = {frozenset(pair) for pair in itertools.combinations(points, 2) if _is_joined(red, *pair)}
    why = f"{len(joined & sides)} of the hull's {len(sides)} sides are drawn, and {len(joined - sides)} other lines"
    return AnswerCheck(joined == sides, why, sorted(sorted(side) for side in joined))


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


def _draw_hull(points: Sequence[Point], corners: Sequence[Point]) -> Pixels:
    image = Image.new("RGB", (SIDE, SIDE), WHITE)
    draw = ImageDraw.Draw(image)
    for a, b in zip(corners, [*corners[1:], *corners[:1]], strict=True):
        draw.line((*a, *b), fill=RED, width=LINE)
    for x, y in points:
        draw.ellipse((x - DOT, y - DOT, x + DOT, y + DOT), fill=BLACK)
    return pixels_of(image)


Numbers = Sequence[Sequence[int]]


def find_best_blocks(grid: Numbers, height: int, width: int) -> tuple[int, list[Cell]]:
    """Return the largest sum of a block of this size and the top left cells where it occurs."""
    total = np.zeros((len(grid) + 1, len(grid[0]) + 1), int)
    total[1:, 1:] = np.cumsum(np.cumsum(np.array(grid), 0), 1)
    sums = total[height:, width:] - total[:-height, width:] - total[height:, :-width] + total[:-height, :-width]
    places = [(int(row), int(column)) for row, column in np.argwhere(sums == sums.max())]
    return int(sums.max()), places


def find_best_path(grid: Numbers, start: Cell, end: Cell) -> tuple[int, list[Cell]]:
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
        total, places = find_best_blocks(grid, height, width)
        if len(places) == 1:
            break
    row, column = places[0]
    block = [(row + i, column + j) for i in range(height) for j in range(width)]
    return Puzzle(
        task="Maximum_Submatrix",
        instruction_en=f"Colour yellow the block of {height} rows by {width} columns whose numbers have the largest sum.",
        instruction_cn=f"把数字之和最大的 {height} 行 {width} 列的区域涂成黄色。",
        picture=_draw_numbers(grid, {}),
        answer=_draw_numbers(grid, dict.fromkeys(block, YELLOW)),
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
    block = {(row + i, column + j) for i in range(height) for j in range(width)}
    why = f"{len(cells)} cells are coloured with a sum of {sum(grid[r][c] for r, c in cells)}; the best block has {facts['sum']}"
    return AnswerCheck(cells == block, why, sorted(cells))


def make_bonus(rng: random.Random) -> Puzzle:
    """Make a grid of −5 to 9 with a start and an end to its lower right (Edit-Compass, A.3.7)."""
    size = rng.randint(5, 12)
    grid = [[rng.randint(-5, 9) for _ in range(size)] for _ in range(size)]
    while True:
        start = rng.randrange(size), rng.randrange(size)
        end = rng.randrange(start[0], size), rng.randrange(start[1], size)
        if end[0] > start[0] and end[1] > start[1] and sum(end) - sum(start) >= 3:
            break
    total, path = find_best_path(grid, start, end)
    ends = {start: BLUE, end: RED}
    return Puzzle(
        task="Maximum_Bonus",
        instruction_en=(
            "Going only down or right from the blue cell to the red cell, collect the number of every cell you pass. "
            "Colour yellow the cells of a path with the largest total."
        ),
        instruction_cn="从蓝色格子走到红色格子，每一步只能向下或向右，收集经过的每个格子中的数字。把总和最大的路径上的格子涂成黄色。",
        picture=_draw_numbers(grid, ends),
        answer=_draw_numbers(grid, {**dict.fromkeys(path, YELLOW), **ends}),
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


def _draw_numbers(grid: Numbers, fills: dict[Cell, Colour]) -> Pixels:
    layout = CellGrid(len(grid), len(grid[0]))
    inks = {cell: DARK_RED if grid[cell[0]][cell[1]] < 0 else BLACK for cell in layout.cells()}
    return pixels_of(layout.draw([[str(number) for number in row] for row in grid], fills, inks))


TASKS = (
    PuzzleKind("Knapsack", "the most valuable things within a capacity", make_knapsack, check_knapsack),
    PuzzleKind("Optimal_Path", "the cheapest path over terrain", make_optimal, check_optimal),
    PuzzleKind("Number_Link", "pairs of circles joined without crossing", make_link, check_link),
    PuzzleKind("Convex_Hull", "the convex hull of points", make_hull, check_hull),
    PuzzleKind("Maximum_Submatrix", "the block of numbers with the largest sum", make_block, check_block),
    PuzzleKind("Maximum_Bonus", "the path that collects most", make_bonus, check_bonus),
)

"""Generate and check 0–1 knapsack puzzles."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from PIL import Image, ImageDraw

from editloupe.generators.contract import AnswerCheck, Puzzle, PuzzleKind
from editloupe.generators.drawing import BARE, BLACK, GREEN, GREY, TINTED, WHITE, font, mask_of, pixels_of, share_of
from editloupe.pictures.pixels import Pixels

CARD, GAP, COLUMNS, HEAD = (170, 150), 24, 4, 70
NAMES = ("cup", "lamp", "book", "clock", "radio", "boot", "kite", "drum")


def best_choices(weights: Sequence[int], values: Sequence[int], capacity: int) -> tuple[int, list[int]]:
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


def make(rng: random.Random) -> Puzzle:
    """Make 6 to 8 things with one best choice (Edit-Compass, A.3.3)."""
    while True:
        capacity, count = rng.randint(10, 20), rng.randint(6, 8)
        weights = [rng.randint(2, 8) for _ in range(count)]
        values = [rng.randint(10, 50) for _ in range(count)]
        value, masks = best_choices(weights, values, capacity)
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
        picture=_draw(weights, values, capacity, []),
        answer=_draw(weights, values, capacity, chosen),
        facts={"weights": weights, "values": values, "capacity": capacity, "chosen": chosen, "value": value},
    )


def check(facts: Mapping[str, Any], picture: Pixels, answer: Pixels) -> AnswerCheck:
    """Read the green cards: they must be the best choice."""
    chosen, green = [], mask_of(answer, GREEN)
    for item in range(len(facts["weights"])):
        x1, y1, x2, y2 = _card(item)
        share = share_of(green[y1 + 6 : y2 - 6, x1 + 6 : x2 - 6])
        if BARE <= share < TINTED:
            return AnswerCheck(None, f"the card of the {NAMES[item]} is only partly green")
        if share >= TINTED:
            chosen.append(item)
    weight = sum(facts["weights"][item] for item in chosen)
    value = sum(facts["values"][item] for item in chosen)
    why = f"the green cards weigh {weight} of {facts['capacity']} and are worth {value}; the most is {facts['value']}"
    return AnswerCheck(weight <= facts["capacity"] and value == facts["value"], why, chosen)


def _card(item: int) -> tuple[int, int, int, int]:
    x = GAP + item % COLUMNS * (CARD[0] + GAP)
    y = HEAD + GAP + item // COLUMNS * (CARD[1] + GAP)
    return x, y, x + CARD[0], y + CARD[1]


def _draw(weights: Sequence[int], values: Sequence[int], capacity: int, chosen: Sequence[int]) -> Pixels:
    rows = -(-len(weights) // COLUMNS)
    width, height = GAP + COLUMNS * (CARD[0] + GAP), HEAD + GAP + rows * (CARD[1] + GAP)
    image = Image.new("RGB", (width, height), WHITE)
    draw = ImageDraw.Draw(image)
    draw.text((width // 2, HEAD // 2 + 8), f"capacity {capacity}", fill=BLACK, font=font(34), anchor="mm")
    for item, (weight, value) in enumerate(zip(weights, values, strict=True)):
        x1, y1, x2, y2 = _card(item)
        ground = GREEN if item in chosen else WHITE
        draw.rounded_rectangle((x1, y1, x2 - 1, y2 - 1), 12, fill=ground, outline=GREY, width=3)
        middle = (x1 + x2) // 2
        draw.text((middle, y1 + 34), NAMES[item], fill=BLACK, font=font(28), anchor="mm")
        draw.text((middle, y1 + 78), f"value {value}", fill=BLACK, font=font(24), anchor="mm")
        draw.text((middle, y1 + 114), f"weight {weight}", fill=BLACK, font=font(24), anchor="mm")
    return pixels_of(image)


TASKS = (PuzzleKind("Knapsack", "the most valuable things within a capacity", make, check),)

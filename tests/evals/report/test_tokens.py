"""The colours of labels for all kinds of colour vision, and what style sheets may say about type."""

import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import editloupe

PACKAGE = Path(editloupe.__file__).parent
TOKENS = PACKAGE / "evals/report/tokens.css"
SHEETS = [path for path in PACKAGE.rglob("*.css") if path != TOKENS]
LEVELS = tuple(f"--level-{number}" for number in (1, 2, 3, 4))
VISION = {
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
"""Machado, Oliveira and Fernandes (2009), severity 1.0, for linear RGB."""
TO_LMS = [
    [0.4122214708, 0.5363325363, 0.0514459929],
    [0.2119034982, 0.6806995451, 0.1073969566],
    [0.0883024619, 0.2817188376, 0.6299787005],
]
TO_LAB = [
    [0.2104542553, 0.7936177850, -0.0040720468],
    [1.9779984951, -2.4285922050, 0.4505937099],
    [0.0259040371, 0.7827717662, -0.8086757660],
]
"""OKLab, in which 0.02 is a just noticeable difference."""


def schemes() -> dict[str, dict[str, str]]:
    """Return the colours of the light and the dark scheme."""
    light, dark = TOKENS.read_text("utf-8").split("@media", 1)
    colours = [dict(re.findall(r"(--[a-z0-9-]+): (#[0-9a-f]{6});", text)) for text in (light, dark)]
    return {"light": colours[0], "dark": colours[0] | colours[1]}


def linear(colour: str) -> np.ndarray:
    values = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    low, high = sorted(float(linear(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_two_labels_differ_in_colour_for_every_kind_of_colour_vision(scheme: str, vision: str) -> None:
    seen = [
        TO_LAB @ np.cbrt(TO_LMS @ np.clip(VISION[vision] @ linear(schemes()[scheme][name]), 0, 1)) for name in LEVELS
    ]
    assert min(float(np.linalg.norm(one - other)) for one, other in combinations(seen, 2)) > 0.12


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_on_every_label_and_every_soft_one(scheme: str) -> None:
    colours = schemes()[scheme]
    pairs = [(f"--on-{kind}", f"--level-{n}") for n, kind in enumerate(("strong", "bright", "bright", "strong"), 1)]
    pairs += [(ink, f"{name}-soft") for name in LEVELS for ink in ("--ink",)]
    pairs += [(ink, ground) for ink in ("--ink", "--soft", "--accent", "--bad") for ground in ("--paper", "--surface")]
    assert {pair: ratio for pair in pairs if (ratio := contrast(*(colours[name] for name in pair))) < 4.5} == {}


def test_charts_can_find_every_token_by_its_value() -> None:
    light = schemes()["light"]
    assert len(set(light.values())) == len(light)


def declarations(path: Path) -> Iterator[str]:
    yield from re.findall(r"(?:font-size|font-weight|font|font-family): ?[^;}]+", path.read_text("utf-8"))


def test_style_sheets_use_five_sizes_two_weights_and_two_fonts() -> None:
    allowed = re.compile(
        r"font-size: (var\(--type-(xs|s|m|l|xl)\)|16px)|font-weight: (400|600)|font: inherit|font-size: inherit"
        r"|font: var\(--type-\w+\)(/[\d.]+)? var\(--(font|mono)\)|font-family: (var\(--mono\)|inherit|Georgia.*)"
    )
    others = [f"{path.name}: {text}" for path in SHEETS for text in declarations(path) if not allowed.fullmatch(text)]
    assert not others, "\n".join(others)
    assert len(SHEETS) > 5

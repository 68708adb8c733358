import numpy as np
import pytest

from editloupe.agent.rules.pixels import colour_of, name_of, share_named, to_lab


@pytest.mark.parametrize(
    ("rgb", "name"),
    [
        ((255, 0, 0), "red"),
        ((0, 128, 0), "green"),
        ((30, 60, 200), "blue"),
        ((255, 220, 0), "yellow"),
        ((255, 140, 0), "orange"),
        ((128, 0, 128), "purple"),
        ((255, 150, 190), "pink"),
        ((101, 67, 33), "brown"),
        ((0, 0, 0), "black"),
        ((255, 255, 255), "white"),
        ((130, 130, 130), "gray"),
    ],
)
def test_pure_colours_get_the_name_people_use(rgb: tuple[int, int, int], name: str) -> None:
    assert name_of(to_lab(np.full((3, 3, 3), rgb, np.uint8))) == name


@pytest.mark.parametrize(
    ("words", "name"), [("navy", "blue"), ("light grey", "gray"), ("the red-brown", "brown"), ("oak", None)]
)
def test_a_phrase_names_its_last_colour(words: str, name: str | None) -> None:
    assert colour_of(words) == name


def test_the_share_of_a_colour_is_counted_over_pixels() -> None:
    half = np.zeros((4, 4, 3), np.uint8)
    half[:2] = (220, 20, 30)
    assert share_named(to_lab(half).reshape(-1, 3), "red") == 0.5

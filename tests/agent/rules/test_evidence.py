"""The measurements of the embedded judge on drawn scenes with known truth."""

import numpy as np
import pytest

from editloupe.agent.rules import counting, regions
from editloupe.agent.rules.instructions import ChangeRequest
from editloupe.agent.rules.pixels import best_shift, distance, is_alike, is_attached, join_regions, soft_lab
from tests.agent.rules.pictures import BLUE, BOX, GREEN, RED, Pixels, disc, ellipse, ground

CENTRE = (160, 120)
SOURCE, REFERENCE = disc(ground(), CENTRE, RED), disc(ground(), CENTRE, BLUE)


def shifted(picture: Pixels, dx: int, dy: int) -> Pixels:
    return np.roll(picture, (dy, dx), axis=(0, 1))


@pytest.mark.long
def test_an_untouched_target_is_at_the_source_and_a_done_one_at_the_reference() -> None:
    untouched = regions.measure_target(SOURCE, SOURCE, REFERENCE, BOX)
    done = regions.measure_target(SOURCE, REFERENCE, REFERENCE, BOX)
    assert (untouched["from_source"], done["from_reference"]) == (0, 0)
    assert untouched["from_reference"] > 0.8
    assert done["from_source"] > 0.8


def test_a_picture_that_moved_by_a_few_pixels_is_measured_where_it_lies() -> None:
    assert regions.measure_target(SOURCE, shifted(SOURCE, 5, -3), REFERENCE, BOX)["from_source"] < 0.05


def test_a_wrong_colour_carries_none_of_the_references_colours_and_keeps_the_structure() -> None:
    numbers = regions.measure_target(SOURCE, disc(ground(), CENTRE, GREEN), REFERENCE, BOX)
    assert numbers["new_colours"] < 0.1
    assert numbers["structure_source"] > 0.8


def test_a_bent_target_carries_the_colours_without_the_structure() -> None:
    numbers = regions.measure_target(SOURCE, ellipse(ground(), CENTRE, BLUE), REFERENCE, BOX)
    assert numbers["new_colours"] > 0.4
    assert numbers["structure_reference"] < 0.7
    assert numbers["spill"] > 0.02


def discs(*places: tuple[int, int], colour: tuple[int, int, int] = RED) -> Pixels:
    picture = ground()
    for place in places:
        picture = disc(picture, place, colour, 18)
    return picture


PLACES = ((60, 60), (200, 60), (120, 200))
BOXES = [(x - 20, y - 20, x + 20, y + 20) for x, y in PLACES]


@pytest.mark.long
@pytest.mark.parametrize(
    ("edited", "expected"),
    [
        (discs(*PLACES), {"kept": 3, "recoloured": 0, "added": 0, "after": 3}),
        (discs(*PLACES[:2]), {"kept": 2, "recoloured": 0, "added": 0, "after": 2}),
        (discs(*PLACES, (320, 220)), {"kept": 3, "recoloured": 0, "added": 1, "after": 4}),
        (discs(*PLACES, (320, 220), (320, 100)), {"kept": 3, "recoloured": 0, "added": 2, "after": 5}),
        (discs(*PLACES, colour=BLUE), {"kept": 0, "recoloured": 3, "added": 0, "after": 3}),
    ],
)
def test_instances_are_counted_where_they_were_and_elsewhere(edited: Pixels, expected: dict[str, float]) -> None:
    numbers = counting.measure(discs(*PLACES), edited, discs(*PLACES, (320, 100)), BOXES)
    assert {name: numbers[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("before", "after", "action"),
    [
        (discs((160, 120)), ground(), "removed"),
        (ground(), discs((160, 120)), "added"),
        (discs((160, 120)), discs((160, 120), colour=GREEN), "recoloured"),
    ],
)
def test_what_happened_in_a_region_is_told_from_its_surroundings(before: Pixels, after: Pixels, action: str) -> None:
    look = regions.build_scene(before, after)
    numbers = regions.measure_region(look, (138, 98, 182, 142), 0.7, ChangeRequest("removal", "disc")).numbers
    assert max(("removed", "added", "recoloured", "replaced"), key=lambda name: numbers[name]) == action


def test_small_displacements_are_forgiven_and_a_shift_is_found() -> None:
    first, second = soft_lab(SOURCE), soft_lab(shifted(SOURCE, 4, 2))
    assert best_shift(first, second, BOX, 8)[:2] == (4, 2)
    inner = np.s_[20:-20, 20:-20]
    assert (
        distance(first, soft_lab(shifted(SOURCE, 1, 0)))[inner].max() < 10 < 30 < distance(first, second)[inner].max()
    )


def test_regions_close_together_are_one_and_the_strongest_speaks() -> None:
    places = [((0, 0, 10, 10), 0.2), ((12, 0, 20, 10), 0.5), ((100, 100, 120, 120), 0.3)]
    assert join_regions(places, 5) == [((0, 0, 20, 10), 0.5), ((100, 100, 120, 120), 0.3)]
    assert join_regions(places, 0) == places


def test_a_region_beside_the_target_is_the_targets_own() -> None:
    assert is_attached((52, 10, 60, 20), (10, 10, 50, 50), 0.1)
    assert not is_attached((62, 10, 70, 20), (10, 10, 50, 50), 0.1)


def test_boxes_of_about_one_size_are_alike() -> None:
    assert is_alike((0, 0, 20, 40), (100, 100, 124, 146))
    assert not is_alike((0, 0, 20, 40), (100, 100, 160, 146))

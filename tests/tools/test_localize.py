from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import cv2
import numpy as np
import pytest
from skimage import data

from editloupe.pictures.decode import Picture
from editloupe.pictures.pixels import Pixels
from editloupe.tools.compare.difference import ComparisonResult, LineReader, compare_in_process
from editloupe.tools.contract import ToolError
from editloupe.tools.enhance import Enhancer
from editloupe.tools.geometry import iou
from editloupe.tools.localize import LocalizeDifferences
from editloupe.tools.models.upscalers import FastUpscaler, NoUpscaler
from editloupe.tools.read_text import ReadText
from editloupe.tools.registry import build_toolbox
from editloupe.tools.result_cache import ToolResultCache
from editloupe.tools.settings import ToolSettings
from editloupe.types import Box
from tests.tools.conftest import MakeView

PAIR = {"comparison_image_1": "Source Image", "comparison_image_2": "Edited Image"}


@pytest.fixture
def tool() -> LocalizeDifferences:
    return LocalizeDifferences(Enhancer(NoUpscaler()))


def test_name_and_parameters_are_the_published_ones(
    tool: LocalizeDifferences, photo: Pixels, make_view: MakeView
) -> None:
    schema = tool.schema(make_view(photo, photo[::-1]))

    assert tool.name == "localize_differences"
    assert list(schema["properties"]) == ["comparison_image_1", "comparison_image_2"] == schema["required"]
    assert all(p["enum"] == ["Source Image", "Edited Image"] for p in schema["properties"].values())


def test_the_changed_place_is_found_shown_side_by_side_and_measured(
    tool: LocalizeDifferences, photo: Pixels, edited: Pixels, make_view: MakeView
) -> None:
    result = tool.run(PAIR, make_view(photo, edited))
    found = Box.model_validate(result.data["regions"][0]["box"])
    x1, y1, x2, y2 = result.data["crops"][0]
    shown = result.pictures[0].pixels

    assert iou(found, Box.model_validate([380, 40, 430, 80])) > 0.6
    assert np.array_equal(shown[:, : x2 - x1], photo[y1:y2, x1:x2])
    assert (shown[:, x2 - x1 : -(x2 - x1)] == (255, 0, 0)).all()
    assert 0 < result.data["changed_share"] < 0.05
    assert result.data["whole_scene"] is False
    assert result.data["global_change"]["brightness"] == pytest.approx(0.05, abs=0.02)
    assert "brighter" in result.text
    assert "in 1 place (all shown" in result.text
    assert str(list(found)) in result.text
    json.dumps(result.data)


def test_places_are_told_in_the_numbers_of_the_model(
    tool: LocalizeDifferences, photo: Pixels, edited: Pixels, make_view: MakeView
) -> None:
    plain = tool.run(PAIR, make_view(photo, edited))
    mille = tool.run(PAIR, make_view(photo, edited, per_mille=True))
    x1, y1, x2, y2 = (round(v * 1000 / 512) for v in plain.data["regions"][0]["box"])

    assert mille.data == plain.data
    assert f"[{x1}, {y1}, {x2}, {y2}]" in mille.text


def test_no_more_crops_than_set_and_the_most_significant_first(photo: Pixels, make_view: MakeView) -> None:
    changed = photo.copy()
    for x in (30, 130, 230, 330, 430):
        changed[440:480, x : x + 30] = (0, 255, 0)

    result = LocalizeDifferences(Enhancer(NoUpscaler()), max_regions=2).run(PAIR, make_view(photo, changed))
    significance = [region["significance"] for region in result.data["regions"]]

    assert len(result.pictures) == 2 < len(significance)
    assert significance == sorted(significance, reverse=True)
    assert "the first 2 shown" in result.text


def test_both_sides_of_a_pair_are_enlarged_alike(photo: Pixels, edited: Pixels, make_view: MakeView) -> None:
    result = LocalizeDifferences(Enhancer(FastUpscaler())).run(PAIR, make_view(photo, edited))
    (x1, y1, x2, y2), factor = result.data["crops"][0], result.data["enlarged"][0]
    shown = result.pictures[0].pixels
    side = round((x2 - x1) * factor)

    assert factor > 1
    assert shown.shape[0] == round((y2 - y1) * factor)
    assert (shown[:, side:-side] == (255, 0, 0)).all()
    assert "enlarged" in result.text


def test_identical_pictures_are_said_to_be_identical(
    tool: LocalizeDifferences, photo: Pixels, make_view: MakeView
) -> None:
    result = tool.run(PAIR, make_view(photo, photo.copy()))

    assert result.pictures == ()
    assert "pixel for pixel" in result.text
    assert result.data["regions"] == []


def test_a_picture_that_is_only_brighter_has_no_places(
    tool: LocalizeDifferences, photo: Pixels, make_view: MakeView
) -> None:
    brighter = (photo.astype(np.float32) * 0.9 + 20).clip(0, 255).astype(np.uint8)

    result = tool.run(PAIR, make_view(photo, brighter))

    assert result.pictures == ()
    assert "No place in Edited Image differs" in result.text


def test_another_scene_is_called_that_and_shown_whole(
    tool: LocalizeDifferences, photo: Pixels, make_view: MakeView
) -> None:
    other = np.ascontiguousarray(data.coffee())

    result = tool.run(PAIR, make_view(photo, other))

    assert result.data["whole_scene"] is True
    assert "whole scene" in result.text
    assert len(result.pictures) == 1


def test_comparing_a_picture_with_itself_is_a_sentence(
    tool: LocalizeDifferences, photo: Pixels, make_view: MakeView
) -> None:
    with pytest.raises(ToolError, match="with itself"):
        tool.run(
            {"comparison_image_1": "Source Image", "comparison_image_2": "Original Image"}, make_view(photo, photo)
        )


def test_two_judges_of_one_edit_compare_once(
    tool: LocalizeDifferences, photo: Pixels, edited: Pixels, make_view: MakeView
) -> None:
    calls: list[int] = []

    def counted(first: Picture, second: Picture, most: int, reader: LineReader | None = None) -> ComparisonResult:
        calls.append(1)
        return compare_in_process(first, second, most, reader)

    tool.compare = counted
    memory = ToolResultCache(10**8)
    first = tool.run(PAIR, replace(make_view(photo, edited), memory=memory))
    second = tool.run(PAIR, replace(make_view(photo, edited, per_mille=True), memory=memory))

    assert len(calls) == 1
    assert np.array_equal(first.pictures[0].pixels, second.pictures[0].pixels)
    assert first.text != second.text


class ScriptedReader(ReadText):
    """Reads one word in every picture, another where a part of it is painted red."""

    def read_lines_through(self, pixels: Pixels, at: Box, box: Box, side: int) -> list[dict[str, Any]]:
        word = "RED" if (pixels == (230, 20, 20)).all(axis=2).mean() > 0.05 else "OPEN"
        elsewhere = {"text": "FAR", "box": [0, 0, 2, 2], "confidence": 1.0}
        return [{"text": word, "box": list(at), "confidence": 0.9}, elsewhere]

    def unavailable(self) -> str | None:
        return None


def reading_tool() -> LocalizeDifferences:
    tool = LocalizeDifferences(Enhancer(NoUpscaler()))
    tool.reader = ScriptedReader(ToolSettings())
    return tool


def painted(photo: Pixels) -> Pixels:
    other = photo.copy()
    other[40:80, 380:430] = (230, 20, 20)
    return other


def test_what_differing_places_say_is_told_where_the_edit_is_about_text(photo: Pixels, make_view: MakeView) -> None:
    view = replace(make_view(photo, painted(photo)), instruction='Change "OPEN" to "RED"')
    result = reading_tool().run(PAIR, view)

    assert 'Text read at 1: "OPEN" → "RED" (confidence 0.90, 0.90). ' in result.text
    assert result.data["texts"] == [
        {"first": {"text": "OPEN", "confidence": 0.9}, "second": {"text": "RED", "confidence": 0.9}}
    ]


def test_nothing_is_read_where_the_edit_is_about_something_else(photo: Pixels, make_view: MakeView) -> None:
    view = replace(make_view(photo, painted(photo)), instruction="Make the ball red")
    result = reading_tool().run(PAIR, view)

    assert "Text read" not in result.text
    assert "texts" not in result.data


def test_a_kept_comparison_without_reading_does_not_stand_for_one_with_it(photo: Pixels, make_view: MakeView) -> None:
    tool, memory = reading_tool(), ToolResultCache(2**24)
    view = replace(make_view(photo, painted(photo)), memory=memory)
    tool.run(PAIR, replace(view, instruction="Make the ball red"))
    assert "texts" in tool.run(PAIR, replace(view, instruction="Change the text")).data


def test_an_overview_shows_where_the_crops_lie_when_it_is_asked_for(photo: Pixels, make_view: MakeView) -> None:
    view = make_view(photo, painted(photo))
    plain = LocalizeDifferences(Enhancer(NoUpscaler())).run(PAIR, view)
    result = LocalizeDifferences(Enhancer(NoUpscaler()), overview=True).run(PAIR, view)

    assert len(result.pictures) == len(plain.pictures) + 1
    assert result.pictures[-1].caption == "Overview of Source Image: the boxes are numbered as the differences"
    overview = result.pictures[-1].pixels
    assert max(overview.shape[:2]) <= 640
    frame = overview[30:90, 370:440].astype(int) - photo[30:90, 370:440]
    assert np.abs(frame).max() > 100  # the box is drawn round the change
    assert np.array_equal(overview[200:], photo[200:])


@pytest.mark.long
def test_a_changed_word_is_read_on_both_sides(photo: Pixels, make_view: MakeView) -> None:
    pytest.importorskip("rapidocr")

    def with_word(word: str) -> Pixels:
        written = photo.copy()
        written[400:440, 100:240] = 235
        cv2.putText(written, word, (110, 430), cv2.FONT_HERSHEY_SIMPLEX, 1.0, (20, 20, 20), 2, cv2.LINE_AA)
        return written

    tool = build_toolbox(ToolSettings(plugins=False, threads=1)).tool("localize_differences")
    view = replace(make_view(with_word("MARKET"), with_word("MUSEUM")), instruction="Change the word on the sign")
    assert '"MARKET" → "MUSEUM"' in tool.run(PAIR, view).text

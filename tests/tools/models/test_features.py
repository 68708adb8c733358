"""Similarity by features and by pixels: the real loading code with tiny weights, and arithmetic by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from editloupe.pictures.pixels import Pixels
from editloupe.tools.contract import ToolError
from editloupe.tools.models.features import (
    ClipEncoder,
    DinoFeatures,
    FeatureSettings,
    Vectors,
    black_out,
    compare_backgrounds,
    compare_regions,
    cosine,
    l1_similarity,
    pool_vectors,
    prepare_picture,
    share_of_cells,
    signed_cosine,
)
from editloupe.types import Box
from tests.drawn_pictures import textured


class MeanColor:
    """Features that can be worked out in the head."""

    fingerprint = "mean color"

    def unavailable(self) -> str | None:
        return None

    def embed(self, pictures: Sequence[Pixels]) -> Vectors:
        return np.stack([picture.reshape(-1, 3).mean(0) for picture in pictures]).astype(np.float64)

    def patches(self, pictures: Sequence[Pixels]) -> Vectors:
        """Every pixel is a patch."""
        return np.stack(pictures).astype(np.float64)


def flat(color: tuple[int, int, int], size: tuple[int, int] = (20, 10)) -> Pixels:
    pixels = np.empty((size[1], size[0], 3), np.uint8)
    pixels[:] = color
    return pixels


def box(*numbers: int) -> Box:
    return Box.model_validate(list(numbers))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    pytest.importorskip("torch")
    from tests.tools.tiny_models import save_tiny_dino

    root = tmp_path_factory.mktemp("dino")
    return {version: save_tiny_dino(root / f"v{version}", version) for version in (2, 3)}


@pytest.mark.models
class TestWithWeights:
    @pytest.mark.parametrize("version", [2, 3])
    def test_a_model_loads_from_its_folder_once_and_gives_one_vector_a_picture(
        self, folders: dict[int, Path], version: int
    ) -> None:
        features = DinoFeatures(FeatureSettings(str(folders[version]), device="cpu", batch_size=2))
        assert features.unavailable() is None
        assert features.loads == 0, "nothing is read before the first picture"
        pictures = [textured(40, 30, seed) for seed in range(3)]
        first = features.embed(pictures)
        assert first.shape == (3, 32)
        assert np.allclose(features.embed(pictures), first)
        assert features.loads == 1
        assert cosine(first[0], first[0]) == pytest.approx(1)
        assert cosine(first[0], first[1]) < 1

    def test_batches_do_not_change_the_vectors(self, folders: dict[int, Path]) -> None:
        pictures = [textured(40, 30, seed) for seed in range(5)]
        by_two, by_five = (
            DinoFeatures(FeatureSettings(str(folders[3]), device="cpu", batch_size=n)).embed(pictures) for n in (2, 5)
        )
        assert np.allclose(by_two, by_five, atol=1e-5)

    def test_the_same_picture_is_alike_and_another_less(self, folders: dict[int, Path]) -> None:
        features = DinoFeatures(FeatureSettings(str(folders[3]), device="cpu"))
        base = textured(80, 60, 0)
        same, other = (compare_regions(base, p, [box(0, 0, 80, 60)], features)[0] for p in (base, textured(80, 60, 5)))
        assert same.features == pytest.approx(1)
        assert other.features is not None
        assert other.features < 1
        assert same.l1 == 1 > other.l1

    @pytest.mark.parametrize(("version", "grid"), [(2, (4, 4)), (3, (4, 4))])
    def test_patches_lie_where_they_are_in_the_picture(
        self, folders: dict[int, Path], version: int, grid: tuple[int, int]
    ) -> None:
        features = DinoFeatures(FeatureSettings(str(folders[version]), device="cpu"))
        base = textured(64, 64, 0)
        changed = base.copy()
        changed[48:, 48:] = 255 - changed[48:, 48:]
        found = features.patches([base, changed])
        assert found.shape == (2, *grid, 32)
        apart = np.linalg.norm(found[0] - found[1], axis=-1)
        assert np.unravel_index(apart.argmax(), grid) == (3, 3), "the changed corner differs most"

    def test_black_paint_makes_backgrounds_alike_and_pooled_patches_do_not(self, folders: dict[int, Path]) -> None:
        """The same changed strip beside ever larger boxes: paint hides it, patches keep it."""
        features = DinoFeatures(FeatureSettings(str(folders[3]), device="cpu"))
        base, other = textured(64, 64, 0), textured(64, 64, 5)
        most = [box(0, 0, 64, 48)]
        painted, patches = (compare_backgrounds(base, other, most, features, way) for way in ("painted", "patches"))
        bare = compare_backgrounds(base, other, [], features, "painted")
        assert painted is not None
        assert patches is not None
        assert bare is not None
        assert painted.features is not None
        assert patches.features is not None
        assert bare.features is not None
        assert painted.features > bare.features, "paint over three quarters of both makes them alike"
        assert painted.features > patches.features
        assert painted.l1 == patches.l1
        same = compare_backgrounds(base, base, most, features)
        assert same is not None
        assert same.features == pytest.approx(1)

    def test_settings_are_told_apart(self) -> None:
        assert DinoFeatures(FeatureSettings("a")).fingerprint != DinoFeatures(FeatureSettings("b")).fingerprint


@pytest.mark.models
def test_weights_that_are_not_there_are_told_before_anything_is_loaded(tmp_path: Path) -> None:
    away = DinoFeatures(FeatureSettings("nobody/no-such-model"))
    assert "hf download" in str(away.unavailable())
    with pytest.raises(ToolError):
        away.embed([flat((0, 0, 0))])
    assert "lacks config.json, preprocessor_config.json" in str(
        DinoFeatures(FeatureSettings(str(tmp_path))).unavailable()
    )


def test_a_picture_is_prepared_by_the_models_own_numbers() -> None:
    ready = prepare_picture(flat((255, 0, 51)), (4, 4), np.array([0.5, 0.5, 0.5]), np.array([0.5, 0.25, 0.1]))
    assert ready.shape == (3, 4, 4)
    assert ready[:, 0, 0] == pytest.approx([1.0, -2.0, -3.0])


def test_opposite_and_empty_vectors_are_not_alike() -> None:
    assert cosine(np.array([1.0, 0.0]), np.array([-1.0, 0.0])) == 0
    assert cosine(np.zeros(2), np.ones(2)) == 0


def test_l1_is_the_mean_difference_over_what_the_mask_leaves() -> None:
    a, b = flat((0, 0, 0)), flat((0, 0, 0))
    b[:, :10] = 255
    assert l1_similarity(a, b) == pytest.approx(0.5)
    mask = np.zeros((10, 20), np.bool_)
    mask[:, 10:] = True
    assert l1_similarity(a, b, mask) == 1


def test_regions_are_compared_where_they_were_whatever_the_other_pictures_size() -> None:
    base = flat((100, 100, 100), (20, 10))
    other = flat((100, 100, 100), (40, 20))
    other[:, 20:] = (200, 200, 200)
    left, right = compare_regions(base, other, [box(0, 0, 10, 10), box(10, 0, 20, 10)], MeanColor())
    assert (left.l1, left.features) == (1, pytest.approx(1))
    assert right.l1 == pytest.approx(1 - 100 / 255)
    assert right.features == pytest.approx(1), "mean color of the same hue: the cosine does not see brightness"


def test_no_box_gives_nothing_and_no_model_gives_pixels_only() -> None:
    assert compare_regions(flat((1, 1, 1)), flat((1, 1, 1)), [], MeanColor()) == []
    (only,) = compare_regions(flat((0, 0, 0)), flat((51, 51, 51)), [box(0, 0, 5, 5)], None)
    assert only.features is None
    assert only.l1 == pytest.approx(0.8)


def test_the_background_is_what_no_box_covers() -> None:
    base, other = flat((100, 0, 0)), flat((100, 0, 0))
    other[:, :10] = (0, 255, 0)
    outside = compare_backgrounds(base, other, [box(0, 0, 10, 10)], MeanColor())
    assert outside is not None
    assert (outside.l1, outside.features) == (1, pytest.approx(1))
    inside = compare_backgrounds(base, other, [box(10, 0, 20, 10)], MeanColor())
    assert inside is not None
    assert inside.features == pytest.approx(0)
    assert compare_backgrounds(base, other, [box(0, 0, 20, 10)], MeanColor()) is None


def test_every_patch_of_the_background_counts_alike_and_none_inside_a_box() -> None:
    base, other = flat((100, 0, 0)), flat((0, 100, 0))
    base[:, :10], other[:, :10] = (0, 0, 200), (0, 0, 200)
    base[:, :9], other[:, :9] = (1, 2, 3), (30, 20, 10)
    found = compare_backgrounds(base, other, [box(0, 0, 9, 10)], MeanColor())
    assert found is not None
    assert found.features == pytest.approx(1 / 101), (
        "one column in eleven is the same blue, ten turned from red to green"
    )


def test_the_share_of_every_cell_is_worked_out_where_cells_cut_pixels() -> None:
    mask = np.array([[True, False, False], [True, True, False]])
    assert share_of_cells(mask, 2, 3).tolist() == mask.astype(float).tolist()
    assert share_of_cells(mask, 1, 1)[0, 0] == pytest.approx(0.5)
    assert share_of_cells(mask, 1, 2)[0] == pytest.approx([5 / 6, 1 / 6])


def test_a_patch_that_is_mostly_object_does_not_count_and_none_left_has_no_similarity() -> None:
    class Coarse(MeanColor):
        """Two patches side by side."""

        def patches(self, pictures: Sequence[Pixels]) -> Vectors:
            halves = [[[p[:, :10].reshape(-1, 3).mean(0), p[:, 10:].reshape(-1, 3).mean(0)]] for p in pictures]
            return np.asarray(halves, np.float64)

    base, other = flat((100, 0, 0)), flat((100, 0, 0))
    other[:, :10] = (0, 100, 0)
    four, six = (compare_backgrounds(base, other, [box(0, 0, width, 10)], Coarse()) for width in (4, 6))
    assert four is not None
    assert six is not None
    assert four.features == pytest.approx(1 / np.hypot(1, 0.6)), "0.6 of the first patch against all of the second"
    assert six.features == pytest.approx(1), "0.4 of a patch is not enough"
    none = compare_backgrounds(base, other, [box(0, 0, 6, 10), box(10, 0, 16, 10)], Coarse())
    assert none is not None
    assert none.features is None
    assert none.l1 < 1


def test_long_vectors_count_no_more_than_short_ones() -> None:
    grid = np.array([[[100.0, 0.0], [0.0, 1.0], [0.0, 0.0]]])
    assert pool_vectors(grid, np.array([[1.0, 1.0, 0.0]])).tolist() == [0.5, 0.5]
    assert pool_vectors(grid, np.array([[3.0, 1.0, 0.0]])).tolist() == [0.75, 0.25]


def test_painting_out_leaves_the_original_alone() -> None:
    base = flat((9, 9, 9))
    painted, left = black_out(base, [box(0, 0, 5, 10), box(15, 0, 20, 10)])
    assert (base == 9).all()
    assert painted[0, 0].tolist() == [0, 0, 0]
    assert left.sum() == 100


@pytest.mark.parametrize(
    ("pictures", "texts", "value"),
    [
        ([1.0, 0.0], [2.0, 0.0], 1.0),
        ([1.0, 0.0], [0.0, 3.0], 0.0),
        ([1.0, 0.0], [-1.0, 0.0], -1.0),
        ([1.0, 1.0], [1.0, 0.0], 0.5**0.5),
        ([0.0, 0.0], [1.0, 0.0], 0.0),
        ([1.0, 0.0], [0.0, 0.0], 0.0),
    ],
)
def test_the_direction_is_the_cosine_of_both_changes(pictures: list[float], texts: list[float], value: float) -> None:
    assert signed_cosine(np.array(pictures), np.array(texts)) == pytest.approx(value)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> ClipEncoder:
    pytest.importorskip("torch")
    from tests.tools.tiny_models import save_tiny_clip

    folder = save_tiny_clip(tmp_path_factory.mktemp("clip"))
    return ClipEncoder(FeatureSettings(str(folder), device="cpu"))


@pytest.mark.models
class TestClipWithWeights:
    def test_pictures_and_texts_lie_in_one_space(self, encoder: ClipEncoder) -> None:
        assert encoder.unavailable() is None
        pictures = encoder.embed([textured(40, 30, 0), textured(40, 30, 1)])
        texts = encoder.embed_texts(["a cup", "a blue cup", "a cup"])
        assert pictures.shape == (2, 16)
        assert texts.shape == (3, 16)
        assert np.allclose(texts[0], texts[2], atol=1e-5)
        assert not np.allclose(texts[0], texts[1], atol=1e-5)
        assert encoder.loads == 1

    def test_the_way_back_is_the_opposite_direction(self, encoder: ClipEncoder) -> None:
        a, b = textured(40, 30, 0), textured(40, 30, 5)
        there, back = encoder.direction(a, b, "a cup", "a blue cup"), encoder.direction(b, a, "a cup", "a blue cup")
        assert there == pytest.approx(-back, abs=1e-5)
        assert there != 0
        assert encoder.direction(a, a, "a cup", "a blue cup") == 0, "nothing changed"

    def test_a_text_longer_than_the_model_reads_is_cut(self, encoder: ClipEncoder) -> None:
        assert encoder.embed_texts(["word " * 200]).shape == (1, 16)


@pytest.mark.models
def test_weights_that_are_not_there_are_told(tmp_path: Path) -> None:
    assert "hf download" in str(ClipEncoder(FeatureSettings("nobody/no-such-clip")).unavailable())
    assert "lacks" in str(ClipEncoder(FeatureSettings(str(tmp_path))).unavailable())

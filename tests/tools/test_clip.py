"""CLIP's directional similarity: the real loading code with tiny weights, and arithmetic by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from editloupe.tools.models.clip import ClipEncoder, directed
from editloupe.tools.models.features import FeatureSettings
from tests.drawn_pictures import textured


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
    assert directed(np.array(pictures), np.array(texts)) == pytest.approx(value)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> ClipEncoder:
    pytest.importorskip("torch")
    from tests.tools.tiny_models import save_tiny_clip

    folder = save_tiny_clip(tmp_path_factory.mktemp("clip"))
    return ClipEncoder(FeatureSettings(str(folder), device="cpu"))


@pytest.mark.models
class TestWithWeights:
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

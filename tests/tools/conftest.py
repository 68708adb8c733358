"""Photographs, views and the detector's tiny weights for the tests of the tools."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from skimage import data

from editloupe.pictures.decode import Album
from editloupe.pictures.pixels import Pixels
from editloupe.tools.contract import Frame, View
from tests.tools.tiny_grounding import save_tiny_grounding_dino

MakeView = Callable[..., View]


@pytest.fixture
def photo() -> Pixels:
    """A photograph, 512 × 512."""
    return np.ascontiguousarray(data.astronaut())


@pytest.fixture
def edited(photo: Pixels) -> Pixels:
    """The photograph with a green square in it, a little brighter all over."""
    changed = photo.astype(np.float32) * 1.05
    changed[40:80, 380:430] = (30, 120, 40)
    return changed.clip(0, 255).astype(np.uint8)


@pytest.fixture
def make_view() -> MakeView:
    """Build a view of up to three pictures; `sent` is the size of the copies the model saw."""

    def make(
        *pictures: Pixels, instruction: str = "Paint a red cup.", sent: Any = None, per_mille: bool = False
    ) -> View:
        album = Album()
        names = ("Source Image", "Edited Image", "Reference Image")
        kept = {name: album.add(pixels) for name, pixels in zip(names, pictures, strict=False)}
        frames = {n: Frame(size=p.size, sent=sent or p.size, per_mille=per_mille) for n, p in kept.items()}
        return View(album, {name: picture.sha for name, picture in kept.items()}, instruction, frames)

    return make


@pytest.fixture(scope="session")
def tiny_detector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with random Grounding DINO weights; skipped where the vision extra is not installed."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    return save_tiny_grounding_dino(tmp_path_factory.mktemp("grounding_dino"))

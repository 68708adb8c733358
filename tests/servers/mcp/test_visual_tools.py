"""Pictures are files inside the roots, links followed, or come along as base64; everything else is one sentence."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from editloupe.pictures.memory import MemoryPicture
from editloupe.servers.mcp.visual_tools import PictureGate
from editloupe.types import UserError
from tests.drawn_pictures import save, textured


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """A root with a picture in it, and a folder beside it with another."""
    for name in ("inside", "outside"):
        (tmp_path / name).mkdir()
        save(textured(), tmp_path / name / "a.png")
    return tmp_path / "inside", tmp_path / "outside"


def test_paths_inside_a_root_are_taken_whole_or_from_the_root(folders: tuple[Path, Path]) -> None:
    gate = PictureGate((folders[0],))
    assert gate.picture("a.png", "source") == folders[0] / "a.png"
    assert gate.picture(str(folders[0] / "a.png"), "source") == folders[0] / "a.png"


def test_a_path_is_looked_for_in_each_root(folders: tuple[Path, Path]) -> None:
    save(textured(), folders[1] / "b.png")
    assert PictureGate(folders).picture("b.png", "source") == folders[1] / "b.png"


@pytest.mark.parametrize("way", ["{outside}/a.png", "../outside/a.png", "link.png", "folder/a.png", "/etc/passwd", "/"])
def test_whatever_leads_outside_is_refused(folders: tuple[Path, Path], way: str) -> None:
    inside, outside = folders
    (inside / "link.png").symlink_to(outside / "a.png")
    (inside / "folder").symlink_to(outside)
    with pytest.raises(UserError, match="is outside the folders that --root allows"):
        PictureGate((inside,)).picture(way.format(outside=outside), "source")


def test_a_refusal_does_not_tell_whether_a_file_is_there(folders: tuple[Path, Path]) -> None:
    told = []
    for name in ("a.png", "b.png"):
        with pytest.raises(UserError) as refused:
            PictureGate((folders[0],)).picture(str(folders[1] / name), "source")
        told.append(str(refused.value).replace(name, "x"))
    assert told[0] == told[1]


def test_a_link_that_stays_inside_and_a_root_that_is_a_link_are_followed(folders: tuple[Path, Path]) -> None:
    inside, outside = folders
    (inside / "same.png").symlink_to(inside / "a.png")
    (outside / "root").symlink_to(inside)
    assert PictureGate((inside,)).picture("same.png", "source") == inside / "a.png"
    assert PictureGate((outside / "root",)).picture("a.png", "source") == inside / "a.png"


def test_without_a_root_no_file_is_opened(folders: tuple[Path, Path]) -> None:
    with pytest.raises(UserError, match="started without --root; send the picture as base64"):
        PictureGate(()).picture(str(folders[0] / "a.png"), "source")


def test_base64_and_data_urls_are_pictures(folders: tuple[Path, Path]) -> None:
    packed = base64.encodebytes((folders[0] / "a.png").read_bytes()).decode()
    for given in (packed, packed.replace("\n", ""), f"data:image/png;base64,{packed}"):
        found = PictureGate(()).picture(given, "source")
        assert isinstance(found, MemoryPicture)
        assert found.data == (folders[0] / "a.png").read_bytes()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("", "source is empty"),
        ("a\0.png", "is not a valid file name"),
        ("x" * 5000, "source is neither a path nor a picture"),
    ],
)
def test_what_can_be_neither_is_one_sentence(folders: tuple[Path, Path], given: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        PictureGate((folders[0],)).picture(given, "source")

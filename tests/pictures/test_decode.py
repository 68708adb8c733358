"""Pictures are opened safely, kept by content, and encoded once."""

from __future__ import annotations

import base64
import errno
import io
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from editloupe.pictures.decode import Album, declared_size, open_layer, open_mask, open_picture
from editloupe.pictures.encode import EncodingLimits
from editloupe.pictures.pixels import ImageError
from tests.drawn_pictures import huge_png, save, textured


@pytest.mark.parametrize("ending", ["png", "jpg", "webp", "tiff", "bmp"])
def test_the_five_formats_are_read(tmp_path: Path, ending: str) -> None:
    pixels = textured(40, 30)
    opened = open_picture(save(pixels, tmp_path / f"a.{ending}"))
    assert opened.size == (40, 30)
    assert np.abs(opened.pixels.astype(int) - pixels).mean() < 6


@pytest.mark.parametrize("ending", ["gif", "ppm"])
def test_other_formats_are_refused(tmp_path: Path, ending: str) -> None:
    with pytest.raises(ImageError, match="not a picture this program reads"):
        open_picture(save(textured(), tmp_path / f"a.{ending}"))


def test_exif_rotation_is_applied(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(textured(40, 30)).save(tmp_path / "a.jpg", exif=exif)
    assert open_picture(tmp_path / "a.jpg").size == (30, 40)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_alpha_is_flattened_on_white(tmp_path: Path, mode: str) -> None:
    image = Image.new("RGBA", (4, 4), (0, 0, 0, 0))
    if mode == "P":
        image = image.convert("P")
        image.info["transparency"] = image.getpixel((0, 0))
    elif mode == "LA":
        image = image.convert("LA")
    image.save(tmp_path / "a.png")
    assert (open_picture(tmp_path / "a.png").pixels == 255).all()


def test_sixteen_bits_become_eight(tmp_path: Path) -> None:
    Image.fromarray(np.full((4, 4), 65535, np.uint16)).save(tmp_path / "a.png")
    assert (open_picture(tmp_path / "a.png").pixels == 255).all()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"just text", "not a picture"),
        (b"", "empty file"),
        (huge_png(60_000, 60_000), "megapixels"),
        (huge_png(13_000, 13_000), "megapixels"),
    ],
)
def test_what_is_no_usable_picture_is_told_in_one_sentence(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(ImageError, match=words) as caught:
        open_picture(tmp_path / "a.png")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ending", ["png", "jpg", "webp", "tiff"])
def test_a_truncated_file_is_told_in_one_sentence(tmp_path: Path, ending: str) -> None:
    path = save(textured(200, 200), tmp_path / f"a.{ending}")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ImageError, match=r"damaged or incomplete|not a picture"):
        open_picture(path)


@pytest.mark.parametrize("read", [open_picture, open_layer, open_mask, declared_size])
def test_every_reader_says_alike_what_is_wrong_with_a_file(read: Callable[[Path], object], tmp_path: Path) -> None:
    """Pillow's own sentence on an unknown format has the address of an object and differs from run to run."""
    path = tmp_path / "a.png"
    with pytest.raises(ImageError, match="there is no picture at"):
        read(path)
    path.write_bytes(b"no picture at all")
    with pytest.raises(ImageError, match=r"is not a picture this program reads \(PNG, JPEG, WebP, TIFF, BMP\)$"):
        read(path)


@pytest.mark.parametrize("read", [open_picture, declared_size])
def test_a_file_that_may_not_be_opened_is_not_called_damaged(
    read: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(textured(), tmp_path / "a.png")
    open_really = os.open

    def deny(file: object, *arguments: object, **options: object) -> int:
        if str(file) == str(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(file))
        return open_really(file, *arguments, **options)

    monkeypatch.setattr(os, "open", deny)
    with pytest.raises(ImageError, match=r"cannot be read: Permission denied$"):
        read(path)


def test_missing_files_and_folders_are_told(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="there is no picture"):
        open_picture(tmp_path / "none.png")
    with pytest.raises(ImageError, match="folder"):
        open_picture(tmp_path)


def test_a_picture_within_the_limits_goes_out_byte_for_byte(tmp_path: Path) -> None:
    path = save(textured(), tmp_path / "a.jpg")
    wire = open_picture(path).wire(EncodingLimits())
    assert base64.b64decode(wire.base64) == path.read_bytes()
    assert wire.media_type == "image/jpeg"


def test_a_turned_picture_goes_out_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(textured(40, 30)).save(tmp_path / "a.jpg", exif=exif)
    wire = open_picture(tmp_path / "a.jpg").wire(EncodingLimits())
    with Image.open(io.BytesIO(base64.b64decode(wire.base64))) as sent:
        assert sent.size == (30, 40)
        assert 0x0112 not in sent.getexif()


def test_long_and_heavy_pictures_are_shrunk_and_it_is_recorded() -> None:
    rng = np.random.default_rng(0)
    picture = Album().add(rng.integers(0, 256, (600, 800, 3), dtype=np.uint8))
    sent = picture.sent("Source Image", EncodingLimits(long_side=400))
    assert (sent.size, sent.scale, sent.original_size) == ((400, 300), 0.5, (800, 600))
    heavy = picture.sent("Source Image", EncodingLimits(max_bytes=50_000))
    assert heavy.bytes <= 50_000
    assert heavy.scale < 1


def test_a_picture_is_encoded_once() -> None:
    picture = Album().add(textured())
    assert picture.wire(EncodingLimits()) is picture.wire(EncodingLimits())
    assert picture.wire(EncodingLimits()) is not picture.wire(EncodingLimits(long_side=100))


def test_the_same_content_is_kept_once(tmp_path: Path) -> None:
    album = Album()
    one = album.open(save(textured(), tmp_path / "a.png"))
    two = album.open(save(textured(), tmp_path / "b.png"))
    assert one is two
    assert album[one.sha] is one
    assert album.add(textured(seed=1)).sha != one.sha

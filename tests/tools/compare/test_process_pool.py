import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from editloupe.pictures.decode import Album, Picture, decode
from editloupe.pictures.encode import encode
from editloupe.pictures.pixels import Pixels, hash_pixels
from editloupe.tools.compare.difference import ComparisonResult, compare_and_crop
from editloupe.tools.compare.process_pool import ComparisonPool, decode_jpeg
from editloupe.tools.read_text import ReadText
from editloupe.tools.settings import ToolSettings

LEAVE_ONE_BEHIND = """
import os, signal, sys
import numpy as np
from editloupe.pictures.decode import Picture
from editloupe.tools.compare.process_pool import ComparisonPool
if __name__ == "__main__":
    pool = ComparisonPool(1)
    black = Picture("0", np.zeros((64, 64, 3), np.uint8))
    pool(black, black, 5)
    print(pool.pids[0], flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def pool() -> Iterator[ComparisonPool]:
    made = ComparisonPool(2)
    yield made
    made.close()


MOST = 3


def picture(pixels: Pixels) -> Picture:
    return Picture(hash_pixels(pixels), pixels)


def same(one: ComparisonResult, other: ComparisonResult) -> bool:
    assert one.comparison.alignment is not None
    assert other.comparison.alignment is not None
    matrices = (two.comparison.alignment.registration.matrix for two in (one, other) if two.comparison.alignment)
    sides = zip(one.sides, other.sides, strict=True)
    alike = np.array_equal(*matrices) and all(np.array_equal(*pair) for pair in sides)
    return alike and one.comparison == other.comparison and one.boxes == other.boxes


def asked(pool: ComparisonPool, first: Pixels, second: Pixels) -> ComparisonResult:
    return pool(picture(first), picture(second), MOST)


def here(first: Pixels, second: Pixels) -> ComparisonResult:
    return compare_and_crop(first, second, MOST)


@pytest.mark.long
def test_the_other_processes_find_exactly_what_is_found_here(
    pool: ComparisonPool, photo: Pixels, edited: Pixels
) -> None:
    pairs = [
        (photo, edited),
        (photo, photo),
        (photo[:301, :203], edited[5:290, ::2]),
        (photo[:20, :20], edited[:9, :9]),
    ]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda pair: asked(pool, *pair), pairs * 3))
    assert all(same(one, here(*pair)) for one, pair in zip(found, pairs * 3, strict=True))


@pytest.mark.long
def test_files_are_decoded_there_and_nowhere_else(
    pool: ComparisonPool, photo: Pixels, edited: Pixels, tmp_path: Path
) -> None:
    album = Album()
    for name, pixels in (("a", photo), ("b", edited)):
        (tmp_path / f"{name}.jpg").write_bytes(encode(pixels, "jpeg"))
    first, second = album.open(tmp_path / "a.jpg"), album.open(tmp_path / "b.jpg")
    found = pool(first, second, MOST)
    assert not first.decoded
    assert not second.decoded
    assert found.sides
    assert same(found, here(first.pixels, second.pixels))


@pytest.mark.parametrize("sampling", [0, 2])
@pytest.mark.parametrize("progressive", [False, True])
def test_files_have_the_pixels_that_they_have_here(photo: Pixels, sampling: int, progressive: bool) -> None:
    file = io.BytesIO()
    Image.fromarray(photo[:211, :333]).save(file, "JPEG", quality=85, subsampling=sampling, progressive=progressive)
    found = decode_jpeg(file.getvalue())
    assert found is not None
    assert np.array_equal(found, decode(file.getvalue(), "the picture").pixels)


def test_stray_bytes_of_a_file_are_not_told_on_the_terminal(photo: Pixels, capfd: pytest.CaptureFixture[str]) -> None:
    file = io.BytesIO()
    Image.fromarray(photo).save(file, "JPEG")
    found = decode_jpeg(file.getvalue()[:-2] + b"stray bytes" * 9 + file.getvalue()[-2:])
    assert found is not None
    os.write(2, b"told")
    assert capfd.readouterr().err == "told"


def test_what_is_no_jpeg_is_left_to_the_other_decoder(photo: Pixels) -> None:
    file = io.BytesIO()
    Image.fromarray(photo[:8, :8]).save(file, "PNG")
    assert decode_jpeg(file.getvalue()) is None


def with_word(photo: Pixels, word: str) -> Pixels:
    written = photo.copy()
    written[400:440, 100:240] = 235
    cv2.putText(written, word, (110, 430), cv2.FONT_HERSHEY_SIMPLEX, 1.0, (20, 20, 20), 2, cv2.LINE_AA)
    return written


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_text_is_read_there_and_the_reader_is_loaded_only_if_it_is_needed(pool: ComparisonPool, photo: Pixels) -> None:
    pytest.importorskip("rapidocr")
    reader = ReadText(ToolSettings(threads=1))
    first, second = picture(with_word(photo, "MARKET")), picture(with_word(photo, "MUSEUM"))

    assert pool(first, second, MOST).texts is None
    assert find_readers(pool) == [False]
    texts = pool(first, second, MOST, reader).texts
    assert find_readers(pool) == [False, True]
    assert reader.loads == 0
    assert texts is not None
    assert [texts[0][side]["text"] for side in ("first", "second")] == ["MARKET", "MUSEUM"]
    assert texts == compare_and_crop(first.pixels, second.pixels, MOST, reader).texts
    os.kill(pool.pids[1], signal.SIGKILL)
    assert pool(first, second, MOST, reader).texts == texts


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_edits_about_text_at_one_time_load_one_reader_per_two_processes(pool: ComparisonPool, photo: Pixels) -> None:
    pytest.importorskip("rapidocr")
    first, second = picture(with_word(photo, "MARKET")), picture(with_word(photo, "MUSEUM"))
    reader = ReadText(ToolSettings(threads=1))
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda _: pool(first, second, MOST, reader).texts, range(8)))
    assert [texts == results[0] for texts in results] == [True] * 8
    assert sum(find_readers(pool)) == 1


def find_readers(pool: ComparisonPool) -> list[bool]:
    """Return which of the started processes have loaded the engine of the text reader."""
    return ["onnxruntime" in Path(f"/proc/{pid}/maps").read_text() for pid in pool.pids]


@pytest.mark.long
def test_nothing_is_read_where_nothing_differs(pool: ComparisonPool, photo: Pixels) -> None:
    same_picture = picture(photo)
    assert pool(same_picture, same_picture, MOST, ReadText(ToolSettings())).texts == ()
    if sys.platform == "linux":
        assert find_readers(pool) == [False]


@pytest.mark.long
def test_no_more_processes_are_started_than_are_needed_at_one_time(pool: ComparisonPool, photo: Pixels) -> None:
    assert pool.pids == []
    for _ in range(3):
        asked(pool, photo, photo)
    assert len(pool.pids) == 1


@pytest.mark.long
def test_a_killed_process_costs_no_comparison(pool: ComparisonPool, photo: Pixels, edited: Pixels) -> None:
    asked(pool, photo, edited)
    os.kill(pool.pids[0], signal.SIGKILL)
    assert all(same(asked(pool, photo, edited), here(photo, edited)) for _ in range(3))


@pytest.mark.long
def test_pictures_that_cannot_be_compared_fail_as_they_do_here(pool: ComparisonPool, photo: Pixels) -> None:
    empty = np.zeros((0, 5, 3), np.uint8)
    for somebody in (here, lambda *pair: asked(pool, *pair)):
        with pytest.raises(ZeroDivisionError):
            somebody(empty, photo)
    assert asked(pool, photo, photo).comparison.regions == ()


@pytest.mark.long
def test_ctrl_c_is_left_to_whoever_asks(pool: ComparisonPool, photo: Pixels, edited: Pixels) -> None:
    asked(pool, photo, edited)
    os.kill(pool.pids[0], signal.SIGINT)
    pids = pool.pids
    assert same(asked(pool, photo, edited), here(photo, edited))
    assert pool.pids == pids
    assert Path(f"/proc/{pids[0]}").exists() or sys.platform != "linux"


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_no_process_outlives_a_killed_batch() -> None:
    ended = subprocess.run([sys.executable, "-c", LEAVE_ONE_BEHIND], capture_output=True, text=True, timeout=60)
    assert ended.returncode == -signal.SIGKILL
    left = Path(f"/proc/{int(ended.stdout)}")
    end = time.monotonic() + 20
    while left.exists() and "Z" not in (left / "stat").read_text().split(")")[1].split()[0]:
        assert time.monotonic() < end, "it is still there"
        time.sleep(0.05)

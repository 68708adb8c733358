"""Data sets on the Hugging Face hub, downloaded by its own client from a scripted hub on loopback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from editloupe.evals.manifests.layouts import load_manifest
from editloupe.types import UserError
from tests.evals.manifests.scripted_hub import serve_hub
from tests.pictures.table_files import images, png, write_table

pytest.importorskip("pyarrow")
COLUMNS = "source=image,edited=output,instruction=text,id=key"


def columns(first: int, count: int) -> dict[str, object]:
    """Return the columns of a few rows, of which each has pictures of its own."""
    numbers = range(first, first + count)
    return {
        "key": [f"k{number}" for number in numbers],
        "image": images([png(number) for number in numbers]),
        "output": images([png(1000 + number) for number in numbers]),
        "text": ["Make it red"] * count,
    }


def batch(name: str, home: Path, address: str, *options: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run `editloupe batch` on a data set of the hub."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    env |= {"HF_ENDPOINT": address, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1", **more}
    command = [sys.executable, "-m", "editloupe", "batch", name, "--judge", "rules", "--out", str(home / "run"), "-q"]
    return subprocess.run([*command, *options], capture_output=True, text=True, env=env, timeout=120)


@pytest.mark.long
def test_only_the_tables_of_the_split_are_downloaded_and_only_once(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    for shard in range(2):
        write_table(tmp_path / f"set/data/dev-0000{shard}-of-00002.parquet", columns(3 * shard, 3))
    write_table(tmp_path / "set/data/train-00000-of-00001.parquet", columns(0, 3))
    (tmp_path / "set/README.md").write_text("A data set.")
    with serve_hub(tmp_path / "set") as (address, downloaded):
        done = batch("hf:lab/edits:dev", tmp_path / "home", address, "--columns", COLUMNS)
        assert "12 judged" in done.stdout + done.stderr, done.stderr
        assert sorted(downloaded) == ["data/dev-00000-of-00002.parquet", "data/dev-00001-of-00002.parquet"]
        again = batch("hf:lab/edits:dev", tmp_path / "home", address, "--columns", COLUMNS)
        assert "12 held before" in again.stdout + again.stderr, again.stderr
        assert len(downloaded) == 2


@pytest.mark.long
def test_pictures_and_their_list_are_downloaded_if_there_are_no_tables(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    folder = tmp_path / "set/dev"
    folder.mkdir(parents=True)
    for number, name in enumerate(("a.png", "b.png")):
        (folder / name).write_bytes(png(number))
    (folder / "metadata.jsonl").write_text(
        '{"file_name": "a.png", "edited_file_name": "b.png", "text": "Make it red"}\n'
    )
    with serve_hub(tmp_path / "set") as (address, downloaded):
        options = ("--columns", "source=image,instruction=text")
        done = batch("hf:lab/edits:dev", tmp_path / "home", address, *options)
    assert "2 judged, 0 unjudged" in done.stdout + done.stderr, done.stderr
    assert sorted(downloaded) == ["dev/a.png", "dev/b.png", "dev/metadata.jsonl"]


@pytest.mark.parametrize(
    ("name", "more", "sentence"),
    [
        ("hf:lab/edits", {}, "hf:lab/edits has the splits dev, train; name one, as hf:lab/edits:dev"),
        ("hf:lab/edits:test", {}, 'hf:lab/edits has no split "test"; there are: dev, train'),
        ("hf:lab/other", {}, "hf:lab/other cannot be downloaded: the hub has no such data set, or it is private"),
        ("hf:lab", {}, "hf:lab is not a data set on the hub; write hf:OWNER/NAME or hf:OWNER/NAME:SPLIT"),
        (
            "hf:lab/edits",
            {"HF_HUB_OFFLINE": "1"},
            "cannot be downloaded: the client is in offline mode (HF_HUB_OFFLINE)",
        ),
        ("hf:lab/edits", {"HF_ENDPOINT": "http://127.0.0.1:9"}, "cannot be downloaded: the hub cannot be reached"),
    ],
)
@pytest.mark.long
def test_what_cannot_be_downloaded_is_one_sentence(
    tmp_path: Path, name: str, more: dict[str, str], sentence: str
) -> None:
    pytest.importorskip("huggingface_hub")
    for split in ("dev", "train"):
        write_table(tmp_path / f"set/data/{split}-00000-of-00001.parquet", columns(0, 1))
    with serve_hub(tmp_path / "set") as (address, downloaded):
        done = batch(name, tmp_path / "home", address, **more)
    assert (done.returncode, done.stderr.strip().count("\n"), downloaded) == (2, 0, []), done.stderr
    assert sentence in done.stderr


def test_a_missing_client_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UserError, match=r"^hf:lab/new needs the hub's client: pip install huggingface_hub$"):
        load_manifest("hf:lab/new")

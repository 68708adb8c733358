"""The commands of `editloupe weights`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from editloupe.cli.main import run
from editloupe.tools.models.weights import get_weights, load_table
from editloupe.tools.models.weights_fetch import FetchedWeights
from editloupe.types import UserError


@pytest.fixture(autouse=True)
def empty_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDITLOUPE_WEIGHTS", str(tmp_path / "weights"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("COLUMNS", "80")


def test_the_list_names_every_model_once_within_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["weights", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:] if not line.startswith(" ")] == list(load_table())
    assert max(map(len, lines)) <= 80


def test_details_hold_licence_hash_folder_and_sources(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["weights", "list", "dinov2-base"]) == 0
    text = capsys.readouterr().out
    for part in ("Apache-2.0", "346 MB", "d73036b56966966d", "f9e44c814b77", str(tmp_path / "weights")):
        assert part in text


def test_json_says_what_is_missing_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["weights", "list", "dinov2-base", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["here"] is False
    assert row["to_do"].endswith("run `editloupe weights fetch dinov2-base`")


def test_where_prints_the_folder_or_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["weights", "where", "dinov2-base"]) == 2
    assert capsys.readouterr().err.startswith("editloupe: the weights dinov2-base are not on this machine: run ")
    model = get_weights("dinov2-base")
    model.folder.mkdir(parents=True)
    for name, file in model.files.items():
        with (model.folder / name).open("wb") as out:
            out.truncate(file.bytes or 1)
    assert run(["weights", "where", "dinov2-base", "facebook/dinov2-base"]) == 0
    assert capsys.readouterr().out == f"{model.folder}\n" * 2


def test_weights_that_cannot_be_fetched_do_not_stop_the_others(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(name: str, on_progress: object) -> FetchedWeights:
        if name == "dinov2-base":
            return FetchedWeights(Path("there"), ())
        raise UserError(f"{name} cannot be reached")

    monkeypatch.setattr("editloupe.cli.weights.fetch_weights", fetch)
    assert run(["weights", "fetch", "nanodet", "dinov2-base", "realesrgan-x4plus"]) == 2
    told = capsys.readouterr()
    assert told.out == "dinov2-base: already on this machine, checked: there\n"
    assert told.err.splitlines()[-2:] == [
        "editloupe: nanodet cannot be reached",
        "editloupe: realesrgan-x4plus cannot be reached",
    ]


def test_a_wrong_name_downloads_nothing_and_lists_the_names(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert run(["weights", "fetch", "dinov2-base", "dino"]) == 2
    told = capsys.readouterr().err
    assert told.startswith('editloupe: there are no weights called "dino"; the names are realesrgan-x4plus, ')

"""Pairs in the studio: blind, in two stages, kept beside the file of pairs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from editloupe.cli.main import run
from editloupe.evals.preferences.pairs import answers_file, read_open_pairs
from editloupe.servers.studio.work_folders import PairFile
from editloupe.types import UserError
from tests.evals.preferences.samples import all_metrics, compass_run
from tests.servers.studio.conftest import OpenStudio

FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    folder = compass_run(
        tmp_path / "runs/secret", {"modelsecretx": [all_metrics(5, 4, 4, 4)], "modelsecrety": [all_metrics(3, 4, 4, 4)]}
    )
    out = tmp_path / "pairs.jsonl"
    assert run(["make", "pairs", str(folder), "--out", str(out), "--dimension", "IA"]) == 0
    return out


@pytest.mark.long
def test_a_person_rates_then_chooses_and_never_learns_whose_the_candidates_are(pairs: Path, studio: OpenStudio) -> None:
    client = studio(pairs=(pairs,))
    assert client.get("/").headers["location"] == "/pairs"
    assert client.get("/pairs").headers["location"] == "/pairs/1"
    assert "Who is answering?" in client.get("/pairs/1").text
    page = client.get("/pairs/1", params={"annotator": "Ana"}).text
    (pair,) = read_open_pairs(pairs)
    assert "First rate each candidate" in page
    assert "secret" not in page
    assert pair.a.key not in page
    for which in ("source", "a", "b"):
        shown = client.get(f"/pairs/1/pictures/{pair.id}/{which}")
        assert (shown.status_code, shown.headers["content-type"]) == (200, "image/png")
    early = client.post("/pairs/1/answers", content=f"annotator=Ana&pair={pair.id}&choice=a", headers=FORM)
    assert (early.status_code, early.json()["sentence"]) == (400, "rate both candidates before you choose")
    rated = client.post("/pairs/1/answers", content=f"annotator=Ana&pair={pair.id}&a=4&b=2", headers=FORM)
    assert rated.status_code == 303
    page = client.get(rated.headers["location"]).text
    assert "You rated A 4 and B 2." in page
    assert "secret" not in page
    chosen = client.post("/pairs/1/answers", content=f"annotator=Ana&pair={pair.id}&choice=a", headers=FORM)
    assert "Nothing more to answer" in client.get(chosen.headers["location"]).text
    rows = [json.loads(line) for line in answers_file(pairs).read_text().splitlines()]
    assert rows[0]["ratings"] == {pair.a.key: 4, pair.b.key: 2}
    assert (rows[1]["choice"], rows[1]["who"]) == (pair.a.key, "Ana")
    assert "You rated" not in client.get("/pairs/1", params={"annotator": "Bo"}).text, "others' answers are not shown"


@pytest.mark.long
def test_what_is_no_answer_is_refused(pairs: Path, studio: OpenStudio) -> None:
    client, (pair,) = studio(pairs=(pairs,)), read_open_pairs(pairs)
    for body, status in (
        (f"pair={pair.id}&a=4&b=2", 400),
        (f"annotator=Ana&pair={pair.id}&a=4", 400),
        (f"annotator=Ana&pair={pair.id}&a=4&b=9", 400),
        ("annotator=Ana&pair=other&a=4&b=2", 404),
    ):
        assert client.post("/pairs/1/answers", content=body, headers=FORM).status_code == status
    assert client.post("/pairs/1/answers", json={}).status_code == 415
    assert client.get("/pairs/2").status_code == 404
    assert client.get(f"/pairs/1/pictures/{pair.id}/open").status_code == 404
    assert not answers_file(pairs).exists()


def test_pictures_outside_the_files_folder_are_not_shown_unless_that_is_allowed(
    pairs: Path, studio: OpenStudio, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = tmp_path / "elsewhere/pairs.jsonl"
    capsys.readouterr()
    assert run(["make", "pairs", str(tmp_path / "runs/secret"), "--out", str(elsewhere), "--dimension", "IA"]) == 0
    assert f"editloupe studio --pairs {elsewhere} --allow-outside" in capsys.readouterr().err
    with pytest.raises(UserError, match=r'"source" leads outside the file\'s folder .*; --allow-outside permits that'):
        studio(pairs=(elsewhere,))
    (pair,) = read_open_pairs(elsewhere)
    shown = studio(pairs=(elsewhere,), allow_outside=True).get(f"/pairs/1/pictures/{pair.id}/a")
    assert (shown.status_code, shown.headers["content-type"]) == (200, "image/png")
    client = studio(pairs=(pairs,))
    (pair,) = read_open_pairs(pairs)
    file = tmp_path / pair.source_image
    file.unlink()
    file.symlink_to(tmp_path.parent / "secret.png")  # after the start, a link leads out
    refused = client.get(f"/pairs/1/pictures/{pair.id}/source")
    assert refused.status_code == 400
    assert "leads outside" in refused.text


HOSTILE: dict[str, dict[str, object]] = {
    "nobody asked": {"people": -1},
    "references that are a number": {"fields": {"reference_image_path": 5}},
    "a reference that is nothing": {"fields": {"reference_image_path": [["x"]]}},
    "a path with NUL": {"source_image": "s.png\x00.png"},
    "a device": {"source_image": "/dev/zero"},
    "an address": {"source_image": "http://127.0.0.1/x.png"},
    "a link in a circle": {"source_image": "loop.png"},
    "no side": {"a": None},
    "another rule": {"rule": "mine"},
}


@pytest.mark.parametrize("changes", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_of_pairs_is_refused_in_one_sentence(
    changes: dict[str, object], tmp_path: Path, studio: OpenStudio
) -> None:
    (tmp_path / "loop.png").symlink_to("loop.png")
    side = {"key": "k", "name": "m", "picture": "a.png"}
    pair = {
        "id": "x",
        "kind": "outputs",
        "dimension": "IA",
        "title": "T",
        "question": "Q",
        "prompt": "P",
        "source": "s",
    }
    pair |= {"source_image": "s.png", "a": side, "b": {**side, "key": "l"}, **changes}
    (tmp_path / "pairs.jsonl").write_text("")
    (tmp_path / "pairs.open.jsonl").write_text(json.dumps(pair))
    with pytest.raises(UserError) as told:
        studio(pairs=(tmp_path / "pairs.jsonl",))
    assert str(told.value).startswith("pairs.open.jsonl, ")
    assert "\n" not in str(told.value)


def test_many_references_of_a_pair_are_checked_once_each(
    tmp_path: Path, studio: OpenStudio, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[str] = []
    pictures_of = PairFile._pictures_of
    monkeypatch.setattr(PairFile, "_pictures_of", lambda self, pair: listed.append(pair.id) or pictures_of(self, pair))
    side = {"key": "k", "name": "m", "picture": "a.png"}
    texts = dict.fromkeys(("id", "dimension", "title", "question", "prompt", "source"), "x")
    pair = {**texts, "kind": "outputs", "source_image": "s.png", "a": side, "b": {**side, "key": "l"}}
    pair["fields"] = {"reference_image_path": [f"r{number}.png" for number in range(500)]}
    (tmp_path / "pairs.open.jsonl").write_text(json.dumps(pair))
    client = studio(pairs=(tmp_path / "pairs.jsonl",))
    assert len(listed) == 1
    assert client.get("/pairs/1?annotator=Ana").status_code == 200


def test_what_a_file_of_pairs_names_and_is_no_file_is_not_served(tmp_path: Path, studio: OpenStudio) -> None:
    os.mkfifo(tmp_path / "fifo.png")
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "notes.txt").write_text("private")
    side = {"key": "k", "name": "m", "picture": "folder.png"}
    pair = {
        "id": "x",
        "kind": "outputs",
        "dimension": "IA",
        "title": "T",
        "question": "Q",
        "prompt": "P",
        "source": "s",
    }
    pair |= {"source_image": "fifo.png", "a": side, "b": {**side, "key": "l", "picture": "notes.txt"}}
    (tmp_path / "pairs.open.jsonl").write_text(json.dumps(pair))
    client = studio(pairs=(tmp_path / "pairs.jsonl",))
    for which in ("source", "a", "b", "reference-0"):
        assert client.get(f"/pairs/1/pictures/x/{which}").status_code == 404


def test_a_file_without_pairs_is_told_at_the_start(tmp_path: Path, studio: OpenStudio) -> None:
    with pytest.raises(UserError, match="make the pairs with"):
        studio(pairs=(tmp_path / "none.jsonl",))

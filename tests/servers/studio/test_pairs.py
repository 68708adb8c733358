"""Pairs in the studio: blind, in two stages, kept beside the file of pairs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from editloupe.cli.main import run
from editloupe.evals.preferences.pairs import answers_file, read_open_pairs
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


def test_a_file_without_pairs_is_told_at_the_start(tmp_path: Path, studio: OpenStudio) -> None:
    with pytest.raises(UserError, match="make the pairs with"):
        studio(pairs=(tmp_path / "none.jsonl",))

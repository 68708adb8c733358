"""`editloupe trust` in every format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from editloupe.cli.main import run as command
from tests.evals.stats.trust.samples import kind_judge, write_labels


@pytest.fixture
def labelled(tmp_path: Path) -> tuple[Path, Path]:
    run, people = kind_judge(tmp_path, edits=60)
    return run, write_labels(tmp_path / "people.jsonl", people)


@pytest.mark.long
def test_text_json_and_markdown_have_the_same_five_sentences(
    labelled: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run, people = labelled
    assert command(["trust", str(run), "--human", str(people), "--format", "json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert len(record["sentences"]) == 5
    assert {model["name"] for model in record["models"]} == {"x", "y"}
    assert record["models"][0]["mean"]["labels"] == 60
    assert command(["trust", str(run), "--human", str(people)]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "labels for half the width" in words
    assert record["sentences"][4].partition("`")[0].strip() in words


@pytest.mark.long
def test_the_page_shows_the_figure_and_escapes_names(labelled: tuple[Path, Path], tmp_path: Path) -> None:
    run, people = labelled
    out = tmp_path / "trust.html"
    assert command(["trust", str(run), "--human", str(people), "--out", str(out)]) == 0
    page = out.read_text("utf-8")
    assert page.count('class="chart-svg"') == 1
    assert "<script" not in page
    assert "How far can you trust" in page


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--human", "gone.csv"], "gone.csv"),
        (["--format", "pdf"], "--format is one of text, md, html, json"),
        (["--queue", "gone.jsonl"], "gone.jsonl"),
    ],
)
def test_bad_input_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    run, _ = kind_judge(tmp_path, edits=3)
    assert command(["trust", str(run), *options]) == 2
    message = capsys.readouterr().err
    assert words in message
    assert "Traceback" not in message

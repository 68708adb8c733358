"""`editloupe traces`: a list that pipes, JSON, statistics, and mistakes in one sentence."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from editloupe.cli.main import run as command
from tests.evals.traces.samples import FIND, ZOOM, Told, write_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    told = [
        Told("cup-1", "Over Modification", (FIND, ZOOM, ZOOM), "Flawless Execution", model="big"),
        Told("cup-2", "Flawless Execution", (FIND,), "Flawless Execution"),
        Told("cup-3", None, instruction="Say \x1b[2J red"),
    ]
    return write_run(tmp_path / "run", told)


def test_hits_are_a_plain_table_whose_ids_open_traces(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["traces", str(run), "--where", "human != label"]) == 0
    told = capsys.readouterr()
    head, line = told.out.splitlines()
    assert head.split() == [
        "id",
        "model",
        "criterion",
        "configuration",
        "repeat",
        "label",
        "confidence",
        "human",
        "turns",
        "tools",
        "cost",
    ]
    assert line.split()[:2] == ["cup-1", "big"]
    assert f"{FIND} {ZOOM}×2" in line
    assert told.err == "editloupe: 1 of 3 verdicts fit\n"
    assert command(["trace", str(run), line.split()[0]]) == 0


@pytest.mark.parametrize("width", [60, 72, 100])
def test_on_a_terminal_the_list_keeps_to_its_width(
    width: int, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("editloupe.cli.traces.choose_width", lambda out, otherwise: width)
    other = write_run(tmp_path / "other", [Told("a-cup-with-a-long-name", "Flawless Execution")], "openai:gpt-5-mini")
    assert command(["traces", str(run), str(other)]) == 0
    told = capsys.readouterr()
    head, *lines = told.out.splitlines()
    assert max(map(len, (head, *lines))) <= width
    assert len(lines) == 4
    left_out = "tools" not in head
    assert left_out == (width < 100)
    assert (f"not printed on a terminal of {width} columns: turns, tools" in told.err) == left_out


def test_labels_are_shortened_last(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("editloupe.cli.traces.choose_width", lambda out, otherwise: 90)
    assert command(["traces", str(run)]) == 0
    assert "Over Modification" in capsys.readouterr().out
    monkeypatch.setattr("editloupe.cli.traces.choose_width", lambda out, otherwise: 10_000)
    assert command(["traces", str(run)]) == 0
    assert "…" not in capsys.readouterr().out


@pytest.mark.parametrize("form", [["--json"], ["--format", "json"], ["--json", "--format", "json"]])
def test_json_says_how_many_fit_and_holds_them(run: Path, form: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["traces", str(run), "--where", "turns > 1", "--limit", "1", *form]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["total"], found["searched"], len(found["traces"])) == (2, 3, 1)
    assert found["traces"][0]["id"] == "cup-1"
    assert found["traces"][0]["tools"] == {FIND: 1, ZOOM: 2}


def test_nothing_found_is_no_error(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["traces", str(run), "--where", "score > 9", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["traces"] == []
    assert command(["traces", str(run), "--where", "score > 9"]) == 0
    assert capsys.readouterr().out == ""


def test_several_runs_say_which_is_which(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = write_run(tmp_path / "other", [Told("z")])
    out = tmp_path / "found.csv"
    assert command(["traces", str(run), str(other), "--out", str(out)]) == 0, "the suffix says which format is wanted"
    rows = list(csv.DictReader(io.StringIO(out.read_text("utf-8"))))
    assert [(row["run"], row["id"]) for row in rows][-1] == ("other", "z")
    assert len(rows) == 4
    assert [(row["model"], row["cost"]) for row in rows] == [("big", ""), ("", ""), ("", ""), ("", "")]


def test_statistics_have_tools_confusion_and_the_warning(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["traces", str(run), "--stats"]) == 0
    told = capsys.readouterr().out
    assert "3 of 3 verdicts fit: 2 judged, 1 unjudged" in told
    assert "People ↓, judge →" in told
    assert "This is not an experiment" in told
    assert command(["traces", str(run), "--stats", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tools"][0]["calls"] == 2
    assert found["criteria"][0]["agreement"]["of"] == 2


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["--where", "lable = 1"], 'the filter, at character 1: there is no field "lable"; did you mean label?'),
        (["--order", "beauty"], "an order is one of manifest"),
        (["--format", "xml"], '--format is one of text, json, csv, not "xml"'),
        (["--stats", "--format", "csv"], "--stats comes as text or json"),
    ],
)
def test_a_mistake_is_one_sentence(
    run: Path, given: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["traces", str(run), *given]) == 2
    told = capsys.readouterr()
    assert sentence in told.err
    assert len(told.err.splitlines()) == 1
    assert told.out == ""


def test_a_folder_that_is_no_run_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["traces", str(tmp_path)]) == 2
    assert "is not a run" in capsys.readouterr().err

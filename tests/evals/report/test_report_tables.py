"""`report` as a user calls it: the paper's tables in every format, intervals, several runs, groups by columns."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from editloupe.cli.main import run as command
from editloupe.evals.report.build import build_report
from tests.evals.sample_runs import Line, make_run

TABLE_1 = "DLEBench, Table 1: final scores"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Model a at 90, model b at 10, nearly: one edit each of two types, two styles."""
    lines = [
        Line(f"{kind}-{n}", *scores, type=kind, model=model, extra={"style": ("photo", "sketch")[n % 2]})
        for model, scores in (("a_1", (4, 4)), ("b", (1, 1)))
        for kind in ("Change Color", "Change OCR")
        for n in range(4)
    ]
    return make_run(tmp_path / "run", lines)


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert command(["report", *arguments]) == 0
    return capsys.readouterr().out


def facts(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    return json.loads(told(capsys, *arguments, "--format", "json"))


@pytest.mark.long
def test_two_models_are_never_one_number(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = facts(capsys, str(run))
    assert found["overall"]["value"] is None
    assert "2 editing models" in found["overall"]["why"]
    assert {label: part["overall"]["value"] for label, part in found["parts"].items()} == {"a_1": 100, "b": 0}
    assert "Overall score" not in told(capsys, str(run))


def test_json_has_tables_with_one_row_a_model_and_counts(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = facts(capsys, str(run))["tables"][0]
    assert list(table) == ["protocol", "title", "columns", "rows", "notes"]
    assert (table["protocol"], table["title"]) == ("dlebench", TABLE_1)
    assert table["columns"][0] == "model"
    assert table["columns"][-2:] == ["judged", "expected"]
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
    assert [(row["model"], row["Average"], row["judged"], row["expected"]) for row in rows] == [
        ("a_1", 100, 16, 16),
        ("b", 0, 16, 16),
    ]


def test_csv_and_latex_hold_the_same_tables(run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    first = told(capsys, str(run), "--format", "csv").split("\n\n")[0]
    title, _, text = first.partition("\n")
    assert title == f"# {TABLE_1}"
    assert [row["Average"] for row in csv.DictReader(io.StringIO(text))] == ["100.0", "0.0"]
    assert command(["report", str(run), "--out", str(tmp_path / "t.tex")]) == 0
    latex = (tmp_path / "t.tex").read_text("utf-8")
    assert latex.count(r"\toprule") == latex.count(r"\begin{table}") == 4
    ranked = latex[: latex.index(r"\end{table}")]
    assert r"\label{tab:scores-and-ranks}" in ranked
    assert r"model & score [interval] & rank \\" in ranked
    assert r"\textbf{a\_1} & \textbf{100.0 [" in ranked
    assert "\nb & 0.0 [" in ranked
    assert r"a\_1 & -- & 100.00 & 100.00" in latex


def test_intervals_of_the_papers_tables_end_at_0_and_100(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [Line(f"e{n}", 4 if n else 1, 4 if n else 3, type="Change Color") for n in range(8)]
    table = facts(capsys, str(make_run(tmp_path / "near", lines)), "--intervals")["tables"][0]
    row = dict(zip(table["columns"], table["rows"][0], strict=True))
    assert 0 <= row["Average low"] < row["Average"] < row["Average high"] == 100


@pytest.mark.long
def test_intervals_stand_in_cells_for_readers_and_in_columns_for_programs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run", [Line(f"{n}", 1 + n % 4, 4, model="a") for n in range(12)])
    table = facts(capsys, str(run), "--intervals")["tables"][0]
    row = dict(zip(table["columns"], table["rows"][0], strict=True))
    assert row["Average low"] < row["Average"] == 75 < row["Average high"]
    ends = f"75.00 [{row['Average low']:.2f}, {row['Average high']:.2f}]"
    assert ends in told(capsys, str(run), "--intervals", "--format", "text")
    assert ends in told(capsys, str(run), "--intervals", "--format", "latex")
    assert "Average low" in told(capsys, str(run), "--intervals", "--format", "csv")
    assert "Average low" not in told(capsys, str(run), "--format", "csv")


@pytest.mark.long
def test_several_runs_share_the_tables_a_row_a_run_where_a_model_is_in_both(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [
        make_run(tmp_path / name, [Line(f"{n}", score, 4, model=model) for n in range(3)])
        for name, model, score in (("one", "a", 4), ("two", "a", 1), ("three", "b", 2))
    ]
    found = facts(capsys, *map(str, runs))
    table = next(one for one in found["tables"] if one["title"] == TABLE_1)
    average = table["columns"].index("Average")
    assert {row[0]: row[average] for row in table["rows"]} == {
        "a (one)": 100,
        "a (two)": 50,
        "b": pytest.approx(200 / 3),
    }
    assert TABLE_1 in told(capsys, *map(str, runs))


@pytest.mark.long
def test_columns_cross_and_a_single_one_crosses_with_the_models(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = {one["title"]: one for one in facts(capsys, str(run), "--by", "model,instruction_type")["tables"]}
    table = tables["By model and instruction_type"]
    assert table["columns"] == ["model", "Change Color", "Change OCR", "judged", "expected"]
    assert table["rows"] == [["a_1", 100, 100, 16, 16], ["b", 0, 0, 16, 16]]
    tables = {one["title"]: one for one in facts(capsys, str(run), "--by", "style")["tables"]}
    assert tables["By model and style"]["rows"] == [["a_1", 100, 100, 16, 16], ["b", 0, 0, 16, 16]]
    tables = {one["title"]: one for one in facts(capsys, str(run), "--by", "style,instruction_type")["tables"]}
    table = tables["By model, style and instruction_type"]
    assert table["columns"][:2] == ["model", "style"]
    assert len(table["rows"]) == 4


def test_an_unknown_column_is_one_sentence_with_those_there_are(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["report", str(run), "--by", "model,stile"]) == 2
    err = capsys.readouterr().err
    assert 'no edit has a column "stile"; there are: id, instruction, instruction_type, model, style' in err
    assert "Traceback" not in err


def test_a_wide_table_is_shown_in_pieces_and_no_number_is_broken(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lines = [Line(f"{n}", 3, 4, type=f"Type number {n}", model="a") for n in range(12)]
    text = told(capsys, str(make_run(tmp_path / "run", lines)))
    assert max(map(len, text.splitlines())) <= 110
    assert text.count("83.33") >= 13


def test_a_cross_table_counts_every_verdict_there_should_be_whatever_has_a_score(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [Line("1", 4, 4, model="a"), Line("2", None, None, model="a"), Line("1", None, 4, model="b")]
    run = make_run(tmp_path / "run", lines)
    tables = {one["title"]: one for one in facts(capsys, str(run), "--by", "model,id")["tables"]}
    assert tables["By model and id"]["rows"] == [["a", 100, None, 2, 4], ["b", None, None, 1, 2]]


def test_the_same_grouping_twice_is_one_table(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    titles = [one["title"] for one in facts(capsys, str(run), "--by", "style", "--by", "model,style")["tables"]]
    assert titles.count("By model and style") == 1


def test_without_tables_everything_else_of_a_report_is_the_same(run: Path) -> None:
    whole, drawn = build_report(run), build_report(run, tables=False)
    assert whole.tables
    assert drawn.tables == ()
    assert drawn == whole.model_copy(update={"tables": ()})

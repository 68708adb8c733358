"""Tables as LaTeX, CSV, Markdown and JSON: every cell arrives, and no cell is taken for something else."""

import csv
import io
import json

import pytest

from editloupe.evals.report.table_formats import all_to_csv, all_to_latex, to_csv, to_json, to_latex, to_markdown
from editloupe.rubrics.tables import PrintedTable

TABLE = PrintedTable(
    "Table 3: 100 % of edits",
    ("model", "IF T1", "|Δ| T1", "n"),
    (("nano_banana & co", 70.7049, None, 529), ("[odd] $x$", 0.0, 1.5, 0)),
    ("√(mean IF · mean CC)",),
)


def test_latex_has_a_row_a_model_and_escapes_what_latex_would_obey() -> None:
    text = to_latex(TABLE)
    assert r"\begin{tabular}{lrrr}" in text
    assert r"nano\_banana \& co & 70.70 & -- & 529 \\" in text
    assert r"{}[odd] \$x\$ & 0.00 & 1.50 & 0 \\" in text, "a bracket behind a row's end would be its argument"
    assert r"\caption{Table 3: 100 \% of edits}" in text
    assert r"$\surd$(mean IF $\cdot$ mean CC)" in text
    assert text.isascii()
    assert all_to_latex([TABLE, TABLE]).count(r"\begin{table}") == 2


def test_csv_reads_back_with_whole_numbers_and_empty_cells_for_nothing() -> None:
    rows = list(csv.reader(io.StringIO(to_csv(TABLE))))
    assert rows == [
        ["model", "IF T1", "|Δ| T1", "n"],
        ["nano_banana & co", "70.7049", "", "529"],
        ["[odd] $x$", "0.0", "1.5", "0"],
    ]
    assert all_to_csv([TABLE]) == to_csv(TABLE)
    assert all_to_csv([TABLE, TABLE]).count("# Table 3: 100 % of edits\n") == 2


def test_a_name_that_a_spreadsheet_would_run_is_text() -> None:
    rows = list(csv.reader(io.StringIO(to_csv(PrintedTable("t", ("model", "x"), (("=cmd()", 1.0),))))))
    assert rows[1] == ["'=cmd()", "1.0"]


def test_markdown_and_json_hold_every_cell() -> None:
    told = to_markdown(TABLE).splitlines()
    assert told[2:5] == [
        r"| model | IF T1 | \|Δ\| T1 | n |",
        "|---|--:|--:|--:|",
        r"| nano\_banana \& co | 70.70 | – | 529 |",
    ]
    found = json.loads(to_json(TABLE))
    assert found["rows"][0] == ["nano_banana & co", pytest.approx(70.7049), None, 529]
    assert (found["title"], found["notes"]) == (TABLE.title, list(TABLE.notes))

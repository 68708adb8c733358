"""A report of some edits: the filter language on the fields of edits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from editloupe.cli.main import run as command
from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.evals.traces.filter_sql import filter_edits
from editloupe.types import UserError
from tests.evals.sample_runs import Line, make_run
from tests.evals.stats.trust.samples import kind_judge

LINES = [
    Line("a", 4, 4, type="Change Color", model="x", extra={"style": "Photo", "size": "3"}),
    Line("b", 2, 4, type="Change OCR", model="x", extra={"style": "sketch", "size": 12}),
    Line("c", 1, 1, type="Change Color", model="y", extra={"size": 40}),
]


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ('style = "photo"', ["a"]),
        ("size > 9", ["b", "c"]),
        ('not (style = "sketch")', ["a", "c"]),
        ('model = "x" and instruction_type in ("Change OCR")', ["b"]),
        ('column("style") is null or edit = "a"', ["a", "c"]),
        ("  ", ["a", "b", "c"]),
    ],
)
def test_edits_are_kept_by_their_own_fields(tmp_path: Path, where: str, kept: list[str]) -> None:
    table = filter_edits(read_run_table(make_run(tmp_path / "run", LINES)), where)
    assert [row.edit.id for row in table.rows] == kept


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        ("score < 3", "character 1: score is about a verdict; edits are chosen by model, edit, name"),
        ('not said("red")', "said.* is about a verdict"),
        ('stile = "photo"', "did you mean style"),
        (
            "zzz",
            "the fields are model, edit, name, instruction, instruction_type, edit_text, turn, and of the manifest size, style$",
        ),
        ('model = "z"', "no edit of run matches --where. No verdict has model 'z'"),
    ],
)
def test_a_filter_on_verdicts_or_without_a_match_is_refused(tmp_path: Path, where: str, sentence: str) -> None:
    table = read_run_table(make_run(tmp_path / "run", LINES))
    with pytest.raises(UserError, match=sentence):
        filter_edits(table, where)


@pytest.mark.long
def test_a_report_of_some_edits_says_so_and_is_corrected_by_its_own_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, people = kind_judge(tmp_path)
    assert command(["label-queue", str(run), "--budget", "150", "--tau", "1"]) == 0
    names = {json.loads(line)["name"] for line in (run / "label_queue.jsonl").read_text().splitlines()}
    table = read_run_table(run)
    drawn = [label for label, row in zip(people, table.rows, strict=True) if row.name in names]
    labels = tmp_path / "labels.jsonl"
    labels.write_text("".join(json.dumps(label) + "\n" for label in drawn))
    options = ["report", str(run), "--human", str(labels), "--corrected", "--format", "json"]
    capsys.readouterr()
    assert command([*options, "--where", 'instruction_type = "Removal Object"']) == 0
    some = json.loads(capsys.readouterr().out)
    assert command(options) == 0
    whole = json.loads(capsys.readouterr().out)
    assert some["coverage"]["edits"] == 160
    assert any("Only edits with instruction_type" in note for note in some["notes"])
    assert not any("labelled edit" in note for note in some["notes"])
    parts = [record["corrected"]["parts"]["x"]["by_type"]["Removal Object"] for record in (some, whole)]
    parts = [json.loads(json.dumps(part), parse_float=lambda number: round(float(number), 9)) for part in parts]
    assert parts[0] == parts[1], "the probabilities of the draw stay those of the whole run"

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from editloupe.evals.runs.export.tables import (
    COLUMNS,
    iter_unit_rows,
    skip_repeated_verdicts,
    to_csv,
    to_datasets,
    to_jsonl,
    to_parquet,
)
from editloupe.evals.runs.prices import Price
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import JudgementRecord
from editloupe.types import UserError
from tests.evals.sample_runs import IF, Line, make_run
from tests.evals.samples import judgement

FIELDS = ["edit_id", "criterion", "repeat", "status", "label", "score", "score_100", "reason", "steps"]
FIELDS += ["input_tokens", "output_tokens", "cost", "seconds"]
FIELDS += ["model", "instruction_type", "judge", "configuration", "mode", "protocol", "confidence", "name"]
FIELDS += ["instruction", "rationale", "detail", "human"]


@pytest.fixture
def run(tmp_path: Path) -> Any:
    with Run.write(tmp_path / "run") as opened:
        opened.configure({"spec": "openai:gpt-5.1"})
        for position, name in enumerate(("b", "a")):
            whole, album = judgement(tmp_path, name)
            opened.save_all([JudgementRecord(whole, album=album, position=position, price=Price(input=1, output=1))])
    with Run.open(tmp_path / "run") as opened:
        yield opened


def test_the_columns_are_those_of_the_public_surface() -> None:
    assert list(COLUMNS) == FIELDS


def test_jsonl_has_one_row_a_unit_in_the_order_of_the_manifest(run: Run) -> None:
    out = io.StringIO()
    assert to_jsonl(run, out) == 4
    rows = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [row["edit_id"] for row in rows] == ["b", "b", "a", "a"]
    assert list(rows[0]) == FIELDS
    assert (rows[0]["label"], rows[0]["score_100"], rows[0]["cost"]) == (
        "Wrong Action",
        pytest.approx(33.33, abs=0.01),
        0.00022,
    )
    assert (rows[1]["status"], rows[1]["reason"], rows[1]["score"]) == ("unjudged", "unreadable_answer", None)


def test_rows_say_whose_picture_was_judged_by_whom_and_how_sure(tmp_path: Path) -> None:
    lines = [Line("e", model=model, type="Change OCR", confidence=0.75) for model in ("A", "B")]
    make_run(tmp_path / "first", lines, judge="openai:gpt-5.1", mode="plain")
    out = io.StringIO()
    with Run.open(tmp_path / "first") as opened:
        to_csv(opened, out)
        parts = opened.configurations()
    found = list(csv.DictReader(io.StringIO(out.getvalue())))
    columns = ("edit_id", "name", "model", "instruction_type", "judge", "mode", "protocol", "confidence", "criterion")
    assert [tuple(row[name] for name in columns) for row in found if row["criterion"] == IF] == [
        ("e", "e", "A", "Change OCR", "openai:gpt-5.1", "plain", "dlebench", "0.75", IF),
        ("e", "e@B", "B", "Change OCR", "openai:gpt-5.1", "plain", "dlebench", "0.75", IF),
    ]
    assert len(parts) == 1


def test_rows_carry_what_explains_a_verdict(run: Run) -> None:
    first, second, *_ = iter_unit_rows(
        run, consensus=lambda name: {"instruction_following": f"seen by people in {name}"}
    )
    assert first["instruction"] == "Paint the [bold]cup[/bold] red"
    assert first["rationale"]
    assert (first["human"], first["detail"]) == ("seen by people in b", None)
    assert (second["rationale"], second["human"]) == (None, None)
    assert second["detail"]


def test_rows_of_one_configuration_can_be_chosen(tmp_path: Path) -> None:
    make_run(tmp_path / "two", [Line("e")], judge="openai:a", mode="plain")
    make_run(tmp_path / "two", [Line("e")], judge="openai:b", mode="plain")
    with Run.open(tmp_path / "two") as opened:
        names = {own.judge: own.name for own in opened.configurations()}
        judges = {row["judge"] for row in iter_unit_rows(opened, names["openai:b"])}
        assert len(names) == 2
    assert judges == {"openai:b"}


def test_csv_leaves_cells_empty_where_there_is_no_score(run: Run) -> None:
    out = io.StringIO()
    assert to_csv(run, out) == 4
    rows = list(csv.DictReader(io.StringIO(out.getvalue())))
    assert list(rows[0]) == FIELDS
    assert (rows[1]["score"], rows[1]["reason"]) == ("", "unreadable_answer")


def test_parquet_has_the_same_rows_with_types(run: Run, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    assert to_parquet(run, tmp_path / "out.parquet") == 4
    table = parquet.read_table(tmp_path / "out.parquet")
    out = io.StringIO()
    to_jsonl(run, out)
    assert table.to_pylist() == [json.loads(line) for line in out.getvalue().splitlines()]
    assert {field.name: str(field.type) for field in table.schema} == {
        name: "double" if kind == "float64" else kind for name, kind in COLUMNS.items()
    }


def test_a_datasets_folder_has_features_rows_and_pictures_on_request(run: Run, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    assert to_datasets(run, tmp_path / "hub", images=True) == 4
    table = parquet.read_table(tmp_path / "hub" / "data" / "train-00000-of-00001.parquet")
    features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
    assert features["edited"] == {"_type": "Image"}
    assert set(features) == set(table.column_names)
    row = table.to_pylist()[0]
    assert row["instruction"] == "Paint the [bold]cup[/bold] red"
    assert row["edited"]["bytes"] == (tmp_path / "edt.png").read_bytes()
    assert "data/train-*.parquet" in (tmp_path / "hub" / "README.md").read_text()
    assert to_datasets(run, tmp_path / "light") == 4
    light = parquet.read_table(tmp_path / "light" / "data" / "train-00000-of-00001.parquet")
    assert "edited" not in light.column_names


def test_a_folder_that_holds_something_is_not_written_over(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "mine.txt").write_text("x")
    with pytest.raises(UserError, match="not an empty folder"):
        to_datasets(run, tmp_path / "hub")


def test_a_folder_that_cannot_be_written_is_one_sentence_and_leaves_no_part_behind(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    with pytest.raises(UserError, match="cannot be written"):
        to_parquet(run, tmp_path / "nowhere" / "out.parquet")
    assert not list(tmp_path.glob(".*part"))


def test_a_verdict_that_was_kept_for_a_changed_question_is_one_row(run: Run) -> None:
    units = list(run.units())
    kept = [copy for unit in units for copy in (unit, unit.model_copy(update={"asked": "worded otherwise"}))]
    assert list(skip_repeated_verdicts(kept)) == units
    other = units[0].model_copy(update={"asked": "another", "judge": "rules", "configuration": "c2"})
    assert list(skip_repeated_verdicts([units[0], other])) == [units[0], other], "another judge's verdict is its own"

"""MagicBrush's numbers for stored pictures, through `batch` and `report`: by the rule, and as its public script prints them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from editloupe.cli.main import run
from editloupe.evals.stats.scores.run_table import read_run_table
from tests.evals.stats.scores.paper_tables.conformance import (
    ROOT,
    needs_fixtures,
    read_lines,
    read_numbers,
    report,
)

pytestmark = needs_fixtures("magicbrush", pytest.mark.long)
TABLES = {"all_turn": "MagicBrush, single-turn (all turns)", "final_turn": "MagicBrush, multi-turn (final turn)"}
SCRIPT = "MagicBrush by its public script"
TOLERANCE = 1e-6
CRITERIA = ("l1", "l2")


def write_benchmark(data: Path) -> None:
    """Write the sessions of the cases next to the fixture's target pictures."""
    shutil.copytree(ROOT / "magicbrush" / "images" / "truth", data / "images")
    sessions: dict[str, list[dict[str, Any]]] = {}
    for case in read_lines("magicbrush/cases.jsonl"):
        name, turn = str(case["img_id"]), case["turn_index"]
        mask = f"{name}-mask{turn}.png"
        pictures = {
            "input": f"{name}-input.png" if turn == 1 else f"{name}-output{turn - 1}.png",
            "output": Path(case["truth"]).name,
            **({"mask": mask} if (data / "images" / name / mask).is_file() else {}),
        }
        sessions.setdefault(name, []).append({**pictures, "instruction": case["instruction"]})
    (data / "edit_sessions.json").write_text(json.dumps(sessions))


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("magicbrush")
    write_benchmark(folder / "data")
    models = read_numbers("magicbrush/formula.json")["results"]
    results = [part for model in models for part in ("--results", f"{model}={ROOT / 'magicbrush' / 'images' / model}")]
    criteria = [part for name in CRITERIA for part in ("--criterion", name)]
    options = ["--layout", "magicbrush", *results, *criteria, "--judge", "rules", "--out", str(folder / "run")]
    assert run(["batch", str(folder / "data"), *options, "--quiet"]) == 0
    return folder / "run"


def test_every_picture_has_the_distance_of_the_rule(out: Path) -> None:
    edits = {row.edit.id: row.units for row in read_run_table(out).rows}
    compared = 0
    for line in read_lines("magicbrush/verdicts.jsonl"):
        name, turn = line["id"].split("/")
        stem = f"{name}_1" if turn == "1" else f"{name}_inde_{turn}"
        chain = f"{name}_1" if turn == "1" else f"{name}_iter_{turn}"
        for criterion in CRITERIA:
            for own, key in ((stem, criterion), (chain, f"final_{criterion}")):
                if key in line:
                    (unit,) = edits[f"{line['model']}/{own}"][criterion]
                    assert unit.score == pytest.approx(line[key], abs=TOLERANCE), (line, key)
                    compared += 1
    assert compared


@pytest.mark.parametrize("setting", list(TABLES))
def test_the_tables_of_a_report_are_those_of_the_formula(
    out: Path, setting: str, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = report(capsys, out)[TABLES[setting]]
    results = read_numbers("magicbrush/formula.json")["results"]
    assert set(printed) == set(results)
    for model, numbers in results.items():
        for criterion in CRITERIA:
            assert printed[model][criterion.upper()] == pytest.approx(numbers[setting][criterion], abs=TOLERANCE)


def test_the_scripts_table_is_reproduced(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = report(capsys, out, "--as-published")[SCRIPT]
    for model, numbers in read_numbers("magicbrush/original.json")["results"].items():
        for setting, own in numbers.items():
            for name, value in own.items():
                assert printed[model][f"{setting} {name}"] == pytest.approx(value, abs=TOLERANCE)


def test_a_model_with_a_missing_picture_has_no_numbers_as_published_and_means_by_the_rule(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_benchmark(tmp_path / "data")
    model = next(iter(read_numbers("magicbrush/formula.json")["results"]))
    shutil.copytree(ROOT / "magicbrush" / "images" / model, tmp_path / "outputs")
    sessions = json.loads((tmp_path / "data" / "edit_sessions.json").read_text())
    name = next(name for name, turns in sessions.items() if len(turns) > 1)
    (tmp_path / "outputs" / name / f"{name}_inde_2.png").unlink()
    options = ["--layout", "magicbrush", "--results", f"{model}={tmp_path / 'outputs'}", "--criterion", "l1"]
    out = tmp_path / "run"
    assert run(["batch", str(tmp_path / "data"), *options, "--judge", "rules", "--out", str(out), "--quiet"]) == 3
    lines = [line for line in read_lines("magicbrush/verdicts.jsonl") if line["model"] == model]
    kept = [line["l1"] for line in lines if line["id"] != f"{name}/2"]
    row = report(capsys, out)[TABLES["all_turn"]][model]
    assert row["L1"] == pytest.approx(sum(kept) / len(kept), abs=TOLERANCE)
    assert (row["judged"], row["expected"]) == (len(kept), len(lines))
    assert report(capsys, out, "--as-published")[SCRIPT][model]["all_turn l1"] is None

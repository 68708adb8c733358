"""GEdit-Bench's numbers for stored replies, through `batch`, `import` and `report`: by the stated rule and as published.

A reply that the script takes a number from and the judge refuses, such as 7.5 or a bare list, is unjudged (*stricter reading*);
the cells that depend on it are left aside, all others are compared.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from editloupe.cli.main import run
from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.rubrics.gedit import GEDIT, PQ, SC, TASKS, TITLE
from tests.conftest import StartServer
from tests.evals.manifests.benchmarks import touch
from tests.evals.stats.scores.paper_tables.conformance import (
    Cells,
    Outputs,
    find_asked,
    judge_once,
    needs_fixtures,
    read_lines,
    read_numbers,
    report,
)
from tests.scripted import Request, say

pytestmark = needs_fixtures("gedit-bench", pytest.mark.long, pytest.mark.timeout(900))
KEYS = {SC: ("success", "overediting"), PQ: ("naturalness", "artifacts")}
CRITERIA = {"SC": SC, "PQ": PQ}
PARTS = {
    ("en", ""): ("EN", "full set"),
    ("en", "_intersection"): ("EN", "Intersection subset"),
    ("cn", ""): ("CN", "full set"),
    ("cn", "_intersection"): ("CN", "Intersection subset"),
}
"""Language and end of the names in the fixtures to the words in titles."""
AVERAGES = {"SC": "avg_semantics", "PQ": "avg_quality", "O": "avg_overall"}


def read_cases() -> dict[str, dict[str, Any]]:
    return {case["key"]: case for case in read_lines("gedit-bench/cases.jsonl")}


def read_verdicts() -> list[dict[str, Any]]:
    """Return the verdicts of the models. Probes are single replies that the script reads at random or never."""
    return [line for line in read_lines("gedit-bench/verdicts.jsonl") if line["model"] != "probe"]


def write_benchmark(data: Path, results: Path, outputs: Outputs) -> None:
    data.mkdir()
    lines = [
        {name: value for name, value in case.items() if not name.startswith("awkward") and name != "id"}
        for case in read_cases().values()
    ]
    (data / "info.jsonl").write_text("\n".join(map(json.dumps, lines)), "utf-8")
    touch(*(data / f"{key}_SRCIMG.png" for key in read_cases()))
    for line in read_verdicts():
        if line["output"]:
            case = read_cases()[line["id"]]
            folder = results / line["model"] / "fullset" / case["task_type"] / case["instruction_language"]
            outputs.write(folder / f"{line['id']}.png", (line["model"], line["id"]))


def translate(criterion: str, reply: str) -> str:
    """Return a reply with two scores in our form, and any other as it is."""
    try:
        scores = json.loads(reply.strip().removeprefix("```json").removesuffix("```"))["score"]
        given = dict(zip(KEYS[criterion], scores, strict=True))
    except (ValueError, TypeError):
        return reply
    return json.dumps({"reason": "seen", **given})


@pytest.fixture
def out(folder: Path, scripted: StartServer) -> Path:
    """The run, judged once."""
    lines = [line for line in read_verdicts() if line["output"]]
    replies = {(line["model"], line["id"], CRITERIA[line["question"]]): line["reply"] for line in lines}

    def reply(output: Any, request: Request) -> Any:
        asked = find_asked(GEDIT, request)
        return say(translate(asked, replies[(*output, asked)]))

    return judge_once(folder, "gedit", scripted, write_benchmark, reply, by_colour=True)


def find_stricter(out: Path) -> set[tuple[str, str, str]]:
    """Return model, task and language of edits with a verdict that the script read and the judge refused.

    Every other verdict must be the lower of the reply's scores.
    """
    scored = {
        (row.model, row.edit.id.partition("/")[2], criterion): units[0].score
        for row in read_run_table(out).rows
        for criterion, units in row.units.items()
    }
    stricter = set()
    for line in read_verdicts():
        if not line["output"]:
            continue
        score = scored[line["model"], line["id"], CRITERIA[line["question"]]]
        reading = min(line["score"]) if line["score"] is not None else line["original_reading_min"]
        if score is None:
            assert line["score"] is None, line
            case = read_cases()[line["id"]]
            stricter.add((line["model"], case["task_type"], case["instruction_language"]))
        else:
            assert 10 * score == pytest.approx(reading), line
    return stricter


def compare(
    printed: Mapping[str, Any], wanted: Mapping[str, Any], model: str, language: str, stricter: set[Any], ours: bool
) -> int:
    """Compare all cells of a model in a language with the script's; return how many were compared."""
    compared = 0
    hit = {task for own, task, tongue in stricter if (own, tongue) == (model, language)}
    for (tongue, end), (name, subset) in PARTS.items():
        if tongue != language:
            continue
        for measure, average in AVERAGES.items():
            numbers = wanted[f"{measure}{end}"]
            if ours:
                row = printed[f"GEdit-Bench {name}, {subset}: G_{measure} by task"][model]
                cells = {**{task: row[task] for task in TASKS}, average: row["Average"]}
                column = f"{name}{' Intersection' if end else ''} G_{measure}"
                assert printed["GEdit-Bench"][model][column] == row["Average"]
            else:
                row = printed[f"{TITLE}, {name}, {subset}"][model]
                cells = {**{task: row[f"{task} G_{measure}"] for task in TASKS}, average: row[f"G_{measure}"]}
            for cell, value in numbers.items():
                if cell in hit or (cell == average and hit):
                    continue
                assert cells[cell] == (None if value is None else pytest.approx(value, abs=1e-9)), (
                    model,
                    measure,
                    cell,
                )
                compared += 1
    return compared


@pytest.mark.parametrize("options", [(), ("--as-published",)], ids=["the stated rule", "as published"])
def test_every_cell_is_the_script_s(out: Path, options: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """The stated rule and the script differ only in replies that cannot be read."""
    printed, stricter = report(capsys, out, *options), find_stricter(out)
    assert {model for model, *_ in stricter} <= {"gamma"}
    for model, languages in read_numbers("gedit-bench/original.json")["results"].items():
        for language, wanted in languages.items():
            if all(value is None for numbers in wanted.values() for value in numbers.values()):
                continue  # a language that the model was not run on
            compared = compare(printed, wanted, model, language, stricter, ours=not options)
            assert compared == 72 if model != "gamma" else compared > 30


def formula(model: str, language: str, end: str, level: str) -> dict[str, float]:
    results = read_numbers("gedit-bench/formula.json")["results"][model][f"{language}{end or '_full'}"][level]
    return {f"G_{name}": value for name, value in results.items()}


def find_row(printed: Cells, model: str, language: str, end: str) -> dict[str, Any]:
    name, subset = PARTS[language, end]
    row = printed[f"{TITLE}, {name}, {subset}"][model]
    return {name: row[name] for name in ("G_SC", "G_PQ", "G_O")}


def test_the_averages_of_other_harnesses_are_rules(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edits = report(capsys, out, "--rule", "average=edits")
    some_tasks = report(capsys, out, "--rule", "gedit.empty_task=left_out")
    for model, language in (("alpha", "en"), ("alpha", "cn"), ("beta", "en")):
        for end in ("", "_intersection"):
            wanted = formula(model, language, end, "over_edits")
            assert find_row(edits, model, language, end) == pytest.approx(wanted, abs=1e-9)
            wanted = formula(model, language, end, "over_tasks_that_have_edits")
            assert find_row(some_tasks, model, language, end) == pytest.approx(wanted, abs=1e-9)


def test_missing_outputs_count_0_by_a_rule(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Beta has 49 of its 53 English outputs."""
    cases = [case for case in read_cases().values() if case["instruction_language"] == "en"]
    absent = sum(case["task_type"] == "text_change" for case in cases)
    printed = report(capsys, out, "--rule", "missing=zero", "--rule", "average=edits")
    wanted = formula("beta", "en", "", "over_edits")["G_O"] * (len(cases) - absent) / len(cases)
    assert find_row(printed, "beta", "en", "")["G_O"] == pytest.approx(wanted, abs=1e-9)


def test_cells_that_the_script_fills_in_at_random_are_listed_and_empty(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stricter = {task for model, task, language in find_stricter(out) if language == "en"}
    assert stricter
    printed = report(capsys, out, "--as-published")[f"{TITLE}, EN, full set"]
    for task in TASKS:
        assert (printed["gamma"][f"{task} G_O"] is None) == (task in stricter)
        assert printed["alpha"][f"{task} G_O"] is not None
    assert printed["gamma"]["G_O"] is None
    left_out = report(capsys, out, "--as-published", "--rule", "failed=left_out")[f"{TITLE}, EN, full set"]
    assert all(left_out["gamma"][f"{task} G_O"] is not None for task in TASKS)
    capsys.readouterr()
    assert run(["report", str(out), "--as-published"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Cannot be reproduced: gamma:" in text
    assert "gedit.failed=random (script)" in text


def test_the_command_s_own_name_of_chinese_finds_no_row(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = report(capsys, out, "--rule", "language=zh")
    assert set(find_row(printed, "alpha", "cn", "").values()) == {None}
    assert None not in find_row(printed, "alpha", "en", "").values()


def test_imported_result_files_of_the_script_give_its_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The files have no rows of missing outputs. A score outside 0 to 10 is unjudged."""
    numbers = read_numbers("gedit-bench/original.json")
    outside = set()
    for model, items in numbers["items_SC_PQ"].items():
        results = tmp_path / "results" / model / "gpt4o/eval_results_new"
        results.mkdir(parents=True)
        for task in TASKS:
            with (results / f"{model}_{task}_gpt_score.csv").open("w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file)
                scores = ("sementics_score", "quality_score")
                paths = ("source_image", "edited_image")
                writer.writerow([*paths, "instruction", *scores, "intersection_exist", "instruction_language"])
                for key, (sc, pq) in items.items():
                    case = read_cases()[key]
                    language, inside = case["instruction_language"], case["Intersection_exist"]
                    if case["task_type"] == task:
                        edited = f"/their/results/{model}/fullset/{task}/{language}/{key}.png"
                        writer.writerow(["x", edited, case["instruction"], sc, pq, inside, language])
                        outside |= {(model, task, language)} if max(sc, pq) > 10 else set()
    out = tmp_path / "run"
    assert (
        run(["import", str(tmp_path / "results"), "--judge", "gpt-4o", "--protocol", "gedit", "--out", str(out)]) == 0
    )
    printed = report(capsys, out)
    for model, languages in numbers["results"].items():
        for language, wanted in languages.items():
            if (model, language) != ("beta", "cn"):
                assert compare(printed, wanted, model, language, outside, ours=True) >= 60

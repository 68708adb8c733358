"""WiseEdit's numbers for stored replies, through `batch` and `report`: the formula by default, the script's as published.

A language without outputs counts 0 in the fixtures' formula and stops the script; reports leave it out by default.
A reply that the script takes a number from and the judge refuses (*stricter reading*) leaves the cells that depend on it aside.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.rubrics.wiseedit import ABBREVIATIONS, WISEEDIT
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

pytestmark = needs_fixtures("wiseedit", pytest.mark.slow, pytest.mark.timeout(1800))
LANGUAGES = {"en": ("Table 5: English instructions", "English"), "cn": ("Table 6: Chinese instructions", "Chinese")}
CASES = {"all_cases": "all cases", "one_input_picture": "cases with one input picture"}
BOTH = "WiseEdit, WiseEdit-Complex in both languages"
SCRIPT = "WiseEdit by the rules of its public script"


def write_benchmark(data: Path, results: Path, outputs: Outputs) -> None:
    """Write the cases in the benchmark's layout and an output for every one that a model produced."""
    subsets: dict[Path, list[dict[str, Any]]] = {}
    for case in read_lines("wiseedit/cases.jsonl"):
        inputs = [case[f"input_{n}"] for n in range(1, case["inputs"] + 1)]
        touch(*(data / path for path in inputs))
        subsets.setdefault((data / inputs[0]).parent.parent, []).append(case)
    for folder, cases in subsets.items():
        columns = ["idx", "prompt", "promptcn", *(f"input_{n}" for n in range(1, cases[0]["inputs"] + 1)), "hint"]
        with (folder / f"{folder.name}.csv").open("w", encoding="utf-8-sig", newline="") as file:
            writer = csv.DictWriter(file, columns, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(cases)
    for line in read_lines("wiseedit/verdicts.jsonl"):
        subset, number = line["id"].split("/")
        if line["output"]:
            key = (line["model"], line["id"], line["language"])
            outputs.write(results / line["model"] / subset / line["language"] / f"{number}.png", key)


@pytest.fixture
def out(folder: Path, scripted: StartServer) -> Path:
    """The run, judged once."""
    lines = [line for line in read_lines("wiseedit/verdicts.jsonl") if line["output"]]
    replies = {(line["model"], line["id"], line["language"], line["question"]): line["reply"] for line in lines}

    def reply(output: Any, request: Request) -> Any:
        return say(replies[(*output, ABBREVIATIONS[find_asked(WISEEDIT, request)])] or "")

    return judge_once(folder, "wiseedit", scripted, write_benchmark, reply)


def find_stricter(out: Path) -> set[tuple[str, str, str, str]]:
    """Return model, task, language and metric of verdicts that the script read as a number and the judge refused."""
    scored = {}
    for row in read_run_table(out).rows:
        model, subset, language, number = row.edit.id.split("/")
        for criterion, units in row.units.items():
            scored[model, f"{subset}/{number}", language, ABBREVIATIONS[criterion]] = units[0].score
    stricter = set()
    for line in read_lines("wiseedit/verdicts.jsonl"):
        if line["output"]:
            key = (line["model"], line["id"], line["language"], line["question"])
            given = line["score"] if line["score"] is not None else line["original_reading"] or None
            if scored[key] is None and given is not None:
                stricter.add((line["model"], line["id"].rpartition("_")[0], line["language"], line["question"]))
            else:
                assert scored[key] == given, key  # nothing is read differently
    return stricter


def find_languages(model: str) -> set[str]:
    """Return the languages in which a model has outputs."""
    lines = read_lines("wiseedit/verdicts.jsonl")
    return {line["language"] for line in lines if line["model"] == model and line["output"]}


def list_formula_cells(printed: Cells, model: str, cases: str) -> Iterator[tuple[str, str, str, float | None]]:
    """Yield task, metric, language and cell of every number that the default report prints for a model."""
    for language, (title, word) in LANGUAGES.items():
        row: dict[str, Any] = dict(printed.get(f"WiseEdit, {title}, {CASES[cases]}", {}).get(model, {}))
        if cases == "all_cases":
            others = printed.get(f"WiseEdit, Interpretation and WiseEdit-Complex (Table 2), {word}", {})
            row |= others.get(model, {})
        for column, cell in row.items():
            task, _, metric = column.replace("WiseEdit-Complex", "WiseEdit_Complex").rpartition(" ")
            if metric in ("AVG", *ABBREVIATIONS.values()):
                yield task.lower() if task == "Overall" else task, metric, language, cell
    if cases == "all_cases" and (cell := printed.get(BOTH, {}).get(model, {}).get("WiseEdit-Complex AVG")) is not None:
        yield "WiseEdit_Complex", "AVG", "both", cell


def depends(stricter: set[tuple[str, str, str, str]], model: str, task: str, metric: str, language: str) -> bool:
    """Say whether a cell depends on a verdict that is read more strictly."""
    return any(
        own == model
        and (other == task or (task == "overall" and other != "WiseEdit_Complex"))
        and (tongue == language or language == "both")
        and (metric in (asked, "AVG"))
        for own, other, tongue, asked in stricter
    )


@pytest.mark.parametrize("cases", CASES)
def test_the_default_report_holds_the_numbers_of_the_formula(
    out: Path, cases: str, capsys: pytest.CaptureFixture[str]
) -> None:
    printed, stricter = report(capsys, out), find_stricter(out)
    for model, results in read_numbers("wiseedit/formula.json")["results"].items():
        wanted: Mapping[str, float] = results[cases]
        compared = 0
        for task, metric, language, cell in list_formula_cells(printed, model, cases):
            name = f"overall_{language}" if task == "overall" else f"{task}_{metric}_{language}"
            if name in wanted and not depends(stricter, model, task, metric, language):
                assert cell == pytest.approx(wanted[name], abs=1e-9), (model, name)
                compared += 1
        absent = LANGUAGES.keys() - find_languages(model)
        # The table of one input picture has no columns for the metrics of Interpretation.
        expected = {
            name
            for name in wanted
            if not name.endswith(tuple(absent) or " ")
            and not (absent and name.endswith("_both"))
            and not (cases == "one_input_picture" and name.startswith("Interpretation"))
            and not _is_aside(stricter, model, name)
        }
        assert compared == len(expected), model


def _is_aside(stricter: set[tuple[str, str, str, str]], model: str, name: str) -> bool:
    if name.startswith("overall"):
        return depends(stricter, model, "overall", "AVG", name.rpartition("_")[2])
    task, metric, language = name.rsplit("_", 2)
    return depends(stricter, model, task, metric, language)


@pytest.mark.parametrize("cases", CASES)
def test_the_report_as_published_holds_the_numbers_of_the_script(
    out: Path, cases: str, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = report(capsys, out, "--as-published")[f"{SCRIPT}, {CASES[cases]}"]
    # A case that is read more strictly is lost in both languages, so that all cells of its task depend on it.
    stricter = {(model, task) for model, task, _, _ in find_stricter(out)}
    for model, results in read_numbers("wiseedit/original.json")["results"].items():
        cells = [cell for name, cell in printed[model].items() if name.split(" ")[-1] in ("en", "cn", "AVG")]
        stops = all(cell is None for cell in cells)
        if "crashed" in results[cases]:
            assert stops
            continue
        if stops:  # a task lost all its cases to stricter reading
            assert any(own == model for own, _ in stricter)
            continue
        for name, value in results[cases].items():
            if name == "rows":
                continue
            column, task = _name_column(name)
            lost = [own for own, other in stricter if own == model and (other == task or "overall" in (task,))]
            if not lost:
                assert printed[model][column] == pytest.approx(value, abs=1e-9), (model, name)


def _name_column(name: str) -> tuple[str, str]:
    """Return the column of a number of the script, and its task."""
    text = name.replace("WiseEdit_Complex", "WiseEdit-Complex")
    if text.startswith("basic_overall"):
        return f"Overall AVG {text[-2:]}", "overall"
    task, _, rest = text.partition("_")
    for criterion, short in (*ABBREVIATIONS.items(), ("overall", "AVG")):
        if rest.startswith(criterion):
            return f"{task} {short}{rest.removeprefix(criterion).replace('_', ' ')}", task.replace("-", "_")
    raise ValueError(name)


def test_a_language_without_outputs_counts_0_by_a_rule(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = report(capsys, out, "--rule", "wiseedit.missing_language=zero")[f"{SCRIPT}, all cases"]
    wanted = read_numbers("wiseedit/formula.json")["results"]
    stricter = find_stricter(out)
    for model, results in wanted.items():
        if not any(own == model for own, *_ in stricter):
            assert printed[model]["Overall AVG cn"] == pytest.approx(results["all_cases"]["overall_cn"], abs=1e-9)
            both = results["all_cases"]["WiseEdit_Complex_AVG_both"]
            assert printed[model]["WiseEdit-Complex AVG"] == pytest.approx(both, abs=1e-9)

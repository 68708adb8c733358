"""RISEBench's numbers for stored scores, through `batch` and `report`: the formula by default, the script's as published.

The script's replies end in a line "Final Score". A run is judged with the same numbers in our form of answer; another one with
the replies as they are, which the judge refuses and the script's reading takes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from editloupe.cli.main import run as command
from editloupe.rubrics.published import RawAnswer, RawEdit
from editloupe.rubrics.risebench import CATEGORIES, CONSISTENCY, LOGICAL, PLAUSIBILITY, REASONING, RISEBENCH, SUBTASKS
from editloupe.rubrics.risebench.paper import PUBLISHED, TITLE
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
from tests.evals.stats.scores.paper_tables.judged_runs import edit
from tests.scripted import Request, say

pytestmark = needs_fixtures("risebench", pytest.mark.slow, pytest.mark.timeout(1800))
QUESTIONS = {CONSISTENCY: "consistency", REASONING: "reasoning", PLAUSIBILITY: "plausibility"}
WITH, WITHOUT = "with_column_consistency_free", "without_that_column"
MAIN, DIMENSIONS, BY_SUBTASK = (
    "RISEBench, accuracy and score",
    "RISEBench, dimensions in percent",
    "RISEBench, subtasks",
)


def list_lines() -> list[dict[str, Any]]:
    """Return the verdicts of the models that the script was run on as a whole."""
    models = read_numbers("risebench/original.json")["results"]
    return [line for line in read_lines("risebench/verdicts.jsonl") if line["model"] in models]


def write_benchmark(data: Path, results: Path, outputs: Outputs, column: bool) -> None:
    """Write the list of cases, with or without the column of consistency-free cases, and all outputs."""
    cases = [dict(case) for case in read_lines("risebench/cases.jsonl")]
    for case in cases:
        del case["id"]
        if not column:
            case.pop("consistency_free", None)
        touch(*(data / case[name] for name in ("image", "reference_img") if case.get(name)))
    (data / "datav2_total_w_subtask.json").write_text(json.dumps(cases), "utf-8")
    categories = {case["index"]: case["category"] for case in cases}
    for model, name in sorted({(line["model"], line["id"]) for line in list_lines()}):
        outputs.write(results / model / "images" / categories[name] / f"{name}.png", (model, name))


def start_run(folder: Path, scripted: StartServer, column: bool, as_they_are: bool) -> Path:
    """Return a run, judged once."""
    lines = {(line["model"], line["id"], line["question"]): line for line in list_lines()}

    def reply(output: Any, request: Request) -> Any:
        line = lines[(*output, QUESTIONS[find_asked(RISEBENCH, request)])]
        return say(line["reply"] if as_they_are else json.dumps({"reason": "seen", "score": line["score"]}))

    write = partial(write_benchmark, column=column)
    options = ["--set", "max_repairs=0"] if as_they_are else []
    return judge_once(folder / f"column-{column}-{as_they_are}", "risebench", scripted, write, reply, *options)


@pytest.fixture
def out(folder: Path, scripted: StartServer) -> Path:
    return start_run(folder, scripted, column=True, as_they_are=False)


def test_the_default_report_holds_the_numbers_of_the_formula(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = report(capsys, out)
    for model, results in read_numbers("risebench/formula.json")["results"].items():
        for name, numbers in results["table"].items():
            if name in (*CATEGORIES.values(), "Overall"):
                row = {**printed[MAIN][model], **printed[DIMENSIONS][model]}
                assert row[f"{name} score"] == pytest.approx(numbers["score"], abs=1e-9)
                for dimension in ("consistency", "reasoning", "plausibility"):
                    five = numbers[dimension]
                    if five is None:
                        assert f"{name} {dimension}" not in row
                    else:
                        assert row[f"{name} {dimension}"] == pytest.approx((five - 1) * 25, abs=1e-9)
            else:
                row = printed[BY_SUBTASK][model]
            assert row[f"{name} score %"] == pytest.approx(numbers["percent"], abs=1e-9), (model, name)
            assert row[f"{name} accuracy %"] == pytest.approx(100 * numbers["accuracy"], abs=1e-9), (model, name)


def compare_script(printed: Cells, variant: str) -> None:
    for model, results in read_numbers("risebench/original.json")["results"].items():
        row = printed[TITLE][model]
        for name, numbers in results[variant]["table_score_percent_accuracy"].items():
            for end, value in zip(("score", "percent", "accuracy"), numbers, strict=True):
                if value is None:
                    assert f"{name} {end}" not in row
                else:
                    assert row[f"{name} {end}"] == pytest.approx(value, abs=1e-9), (model, name, end)


@pytest.mark.parametrize(("column", "variant"), [(True, WITH), (False, WITHOUT)])
def test_the_report_as_published_holds_the_numbers_of_the_script(
    folder: Path, scripted: StartServer, column: bool, variant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = start_run(folder, scripted, column, as_they_are=False)
    compare_script(report(capsys, out, "--as-published"), variant)


def test_the_script_s_own_replies_are_read_as_published_only(
    folder: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    out = start_run(folder, scripted, column=True, as_they_are=True)
    compare_script(report(capsys, out, "--as-published"), WITH)
    assert {cell for row in report(capsys, out)[MAIN].values() for cell in row.values() if cell != 0} & {1.0, None} == {
        None
    }


def test_the_accuracy_of_the_second_harness_never_counts_consistency_free_cases(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = report(capsys, out, "--as-published", "--rule", "rise.accuracy_of_consistency_free=never_right")[TITLE]
    harness = read_numbers("risebench/original.json")["second_harness"]["results_score_percent_accuracy"]
    for model, results in harness.items():
        for name, numbers in results.items():
            found = [printed[model][f"{name} {end}"] for end in ("score", "percent", "accuracy")]
            assert found == pytest.approx(numbers, abs=1e-9), (model, name)


def test_every_case_has_the_score_of_the_formula_and_of_the_script(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The script's scores of single cases differ from the formula's only where consistency is left out."""
    assert command(["report", str(out), "--as-published", "--format", "json"]) == 0
    notes = " ".join(json.loads(capsys.readouterr().out)["tables"][0]["notes"])
    items = read_numbers("risebench/original.json")["results"]["alpha"][WITH]["items"]
    formula = read_numbers("risebench/formula.json")["results"]["alpha"]["items"]
    cases = {case["id"]: case for case in read_lines("risebench/cases.jsonl")}
    differ = {name for name, item in items.items() if item["score"] != pytest.approx(formula[name]["score"])}
    assert differ
    assert not [name for name in differ if cases[name]["category"] == LOGICAL or "consistency_free" in cases[name]]
    concerned = sum(case["category"] != LOGICAL and "consistency_free" not in case for case in cases.values())
    assert f"Concerned: {concerned} cases of alpha" in notes


def build_raw(case: Mapping[str, Any], replies: Mapping[str, str | None]) -> RawEdit:
    extra = {name: case[name] for name in ("consistency_free", "subtask") if name in case}
    answers = {
        criterion: RawAnswer("unjudged", reason="unreadable", raw=replies[question] or "")
        for criterion, question in QUESTIONS.items()
        if question in replies
    }
    return RawEdit(edit(case["id"], case["category"], "gamma", **extra), 0, answers)


def test_awkward_replies_count_as_in_the_script() -> None:
    """Four cases, one awkward reply; all other replies are 4, or 1 for logical cases."""
    cases = {case["id"]: case for case in read_lines("risebench/cases.jsonl")}
    for awkward in read_numbers("risebench/original.json")["awkward"]:
        if awkward["question"] is None:
            continue
        edits = []
        for name in (awkward["id"], *awkward["other_cases"]):
            logical = cases[name]["category"] == LOGICAL
            asked = ["consistency", "reasoning"] if logical else ["consistency", "reasoning", "plausibility"]
            if cases[name].get("consistency_free"):
                asked.remove("consistency")
            replies: dict[str, str | None] = dict.fromkeys(asked, f"**Final Score:** {1 if logical else 4}")
            if name == awkward["id"]:
                replies[awkward["question"]] = awkward["reply"]
            edits.append(build_raw(cases[name], replies))
        (table,) = PUBLISHED.tables({"gamma": edits}, PUBLISHED.choose({}, published=True))
        cells = dict(zip(table.columns, table.rows["gamma"], strict=True))
        if isinstance(awkward["original"], str):
            assert cells["Overall score"] is None, awkward["kind"]
            assert "ValueError" in " ".join(table.irreproducible)
        else:
            found = [cells[f"Overall {end}"] for end in ("score", "percent", "accuracy")]
            assert found == pytest.approx(awkward["original"]["overall"], abs=1e-9), awkward["kind"]


def test_a_missing_output_stops_the_script() -> None:
    case = next(case for case in read_lines("risebench/cases.jsonl") if case["category"] == LOGICAL)
    raw = build_raw(case, dict.fromkeys(("consistency", "reasoning"), "**Final Score:** 1"))
    edits = [raw, RawEdit(edit("other", LOGICAL, "gamma", output="missing"), 0, {}, missing=True)]
    for choices, value in (
        (PUBLISHED.choose({}, published=True), None),
        (PUBLISHED.choose({"reading": "final_score"}), 5),
    ):
        (table,) = PUBLISHED.tables({"gamma": edits}, choices)
        assert dict(zip(table.columns, table.rows["gamma"], strict=True))["Overall score"] == value
    assert len(SUBTASKS) == len(CATEGORIES)

"""ImgEdit-Bench's numbers for stored replies, through `batch`, `import` and `report`: by the stated rule and as published.

The script takes every line that ends in a number; the judge here answers under three names. Replies that are read differently
leave the cells that depend on them aside, all others are compared.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from editloupe.cli.main import run
from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.rubrics.imgedit import CRITERION, IMGEDIT, NAMES, TITLE, to_key
from tests.conftest import StartServer
from tests.evals.manifests.benchmarks import touch
from tests.evals.stats.scores.paper_tables.conformance import (
    Outputs,
    judge_once,
    needs_fixtures,
    read_lines,
    read_numbers,
    report,
)
from tests.scripted import Fault, Request, say

pytestmark = needs_fixtures("imgedit", pytest.mark.long, pytest.mark.timeout(900))
OURS = "ImgEdit-Bench"


def read_cases() -> dict[str, dict[str, Any]]:
    return {case["key"]: case for case in read_lines("imgedit/cases.jsonl")}


def write_benchmark(data: Path, results: Path, outputs: Outputs) -> None:
    (data / "Basic").mkdir(parents=True)
    items = {
        key: {"id": case["source"], "prompt": case["prompt"], "edit_type": case["edit_type"]}
        for key, case in read_cases().items()
    }
    (data / "Basic/basic_edit.json").write_text(json.dumps(items), "utf-8")
    touch(*(data / "pictures" / case["source"] for case in read_cases().values()))
    for line in read_lines("imgedit/verdicts.jsonl"):
        if line["output"]:
            outputs.write(results / line["model"] / f"{line['id']}.png", (line["model"], line["id"]))


def translate(line: Mapping[str, Any]) -> str:
    """Return a reply with a whole number for each name in our form, and any other as it is."""
    names = NAMES[line["question"]]
    pairs = [part.strip("- ").split(": ") for part in str(line["reply"]).splitlines()]
    given = {pair[0]: int(pair[1]) for pair in pairs if pair[0] in names and len(pair) == 2 and pair[1].isdigit()}
    if set(given) != set(names):
        return str(line["reply"])
    return json.dumps({"reason": "seen", **{to_key(name): score for name, score in given.items()}})


@pytest.fixture
def out(folder: Path, scripted: StartServer) -> Path:
    """The run, judged once."""
    lines = {(line["model"], line["id"]): line for line in read_lines("imgedit/verdicts.jsonl") if line["output"]}

    def reply(output: Any, request: Request) -> Any:
        line = lines[output]
        (asked,) = {rubric.variant for rubric in IMGEDIT.rubrics if f"{rubric.question}\n" in request.system}
        assert asked == line["question"]
        return Fault(400, "no answer from the service") if line["reply"] is None else say(translate(line))

    return judge_once(folder, "imgedit", scripted, write_benchmark, reply)


def read_scores(out: Path) -> dict[tuple[str, str], float | None]:
    """Return the scores from 1 to 5 by model and key."""
    return {
        (row.model, row.edit.id): None if (unit := row.units[CRITERION][0]).score is None else 1 + 4 * unit.score
        for row in read_run_table(out).rows
    }


def find_differences(scores: Mapping[tuple[str, str], float | None], model: str, wanted: Mapping[str, Any]) -> set[str]:
    """Return the types with an edit that is read differently here. Every clean reply must be read as it is."""
    types = set()
    for line in read_lines("imgedit/verdicts.jsonl"):
        if line["model"] != model:
            continue
        score, theirs = scores[model, line["id"]], wanted.get(line["id"])
        if line["output"] and line["scores"]:
            assert score == pytest.approx(fmean(line["scores"].values())), line
        if (score is None) != (theirs is None) or (score and round(score, 2) != theirs):
            assert line.get("awkward"), line
            types.add(read_cases()[line["id"]]["edit_type"])
    return types


def results() -> dict[str, dict[str, Any]]:
    own: dict[str, dict[str, Any]] = read_numbers("imgedit/original.json")["results"]
    return own


def formula(model: str) -> dict[str, Any]:
    own: dict[str, Any] = read_numbers("imgedit/formula.json")["results"][model]
    return own


def test_the_default_report_has_the_numbers_of_the_formula(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed, scores = report(capsys, out)[OURS], read_scores(out)
    for model in ("alpha", "beta", "epsilon"):
        wanted, row = formula(model), printed[model]
        for name, value in wanted["types"].items():
            assert row[name] == (None if value is None else pytest.approx(value, abs=1e-9)), (model, name)
        assert row["Overall"] == pytest.approx(wanted["mean_of_types"], abs=1e-9)
        assert row["Mean of edits"] == pytest.approx(wanted["mean_of_edits"], abs=1e-9)
        assert (row["judged"], row["expected"]) == (wanted["edits"], len(read_cases()))
    for name in NAMES:  # gamma: the formula leaves all awkward replies out, and some of them are answers here
        own = [scores["gamma", key] for key, case in read_cases().items() if case["edit_type"] == name]
        assert printed["gamma"][name] == pytest.approx(fmean(score for score in own if score is not None), abs=1e-9)


def test_every_cell_as_published_is_the_script_s(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = report(capsys, out, "--as-published")[TITLE]
    left_out = report(capsys, out, "--as-published", "--rule", "failed=left_out")[TITLE]
    by_edits = report(capsys, out, "--as-published", "--rule", "failed=left_out", "--rule", "overall=mean_of_edits")[
        TITLE
    ]
    compared, scores = 0, read_scores(out)
    for model, original in results().items():
        aside = find_differences(scores, model, original["edits"])
        assert not aside or model == "gamma"
        if "as_published" in original:
            assert {whole[model][name] for name in NAMES} == {None}, "the script stops"
        else:
            assert whole[model] == left_out[model]
        for name in NAMES:
            if name not in aside:
                assert left_out[model][name] == original["types"].get(name), (model, name)
                compared += 1
        if not aside:
            assert by_edits[model]["Overall"] == original["mean_by_the_UGE_script"]
            second = read_numbers("imgedit/original.json")["second_harness"]["results"][model]["types"]["overall"]
            assert by_edits[model]["Overall"] == second
        assert left_out[model]["Overall"] is None, "the script prints none"
    assert compared >= 30


def test_a_model_for_which_the_script_stops_is_listed(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert run(["report", str(out), "--as-published"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Cannot be reproduced: beta: the script stops at 4 edits without an output or with a failed request" in text
    assert "Cannot be reproduced: epsilon: the script stops at 2 edits" in text


def test_other_means_roundings_and_the_cap_are_rules(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capped = report(capsys, out, "--rule", "cap=not_above_first")[TITLE]
    capped_edits = report(capsys, out, "--rule", "cap=not_above_first", "--rule", "overall=mean_of_edits")[TITLE]
    rounded = report(capsys, out, "--rule", "rounding=two_decimals")[TITLE]
    zero = report(capsys, out, "--rule", "failed=zero", "--rule", "overall=mean_of_edits")[TITLE]
    for model in ("alpha", "beta", "epsilon"):
        wanted = formula(model)
        for name, value in wanted["capped"]["types"].items():
            assert capped[model][name] == (None if value is None else pytest.approx(value, abs=1e-9))
        assert capped[model]["Overall"] == pytest.approx(wanted["capped"]["mean_of_types"], abs=1e-9)
        assert capped_edits[model]["Overall"] == pytest.approx(wanted["capped"]["mean_of_edits"], abs=1e-9)
        assert rounded[model]["Overall"] == pytest.approx(wanted["mean_of_rounded_type_scores"], abs=1e-9)
        third = read_numbers("imgedit/original.json")["third_harness"]["results"][model]["metrics"]["imgedit_avg_score"]
        assert zero[model]["Overall"] == pytest.approx(third, abs=1e-9)


def write_result_files(folder: Path, averages: bool = False) -> None:
    """Write what the scripts write, with the list of edits above."""
    items = {
        k: {"id": c["source"], "prompt": c["prompt"], "edit_type": c["edit_type"]} for k, c in read_cases().items()
    }
    for model, original in results().items():
        (folder / model).mkdir(parents=True)
        if averages:
            (folder / model / "average_score.json").write_text(json.dumps(original["edits"]), "utf-8")
            continue
        own = {
            line["id"]: line.get("reply") or {"error": "no answer"}
            for line in read_lines("imgedit/verdicts.jsonl")
            if line["model"] == model
        }
        (folder / model / "result.json").write_text(json.dumps(own), "utf-8")
    (folder / "basic_edit.json").write_text(json.dumps(items), "utf-8")


def test_imported_replies_of_the_script_give_the_formula(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Replies of which the scores are clear are read, whatever the script made of them."""
    write_result_files(tmp_path / "results")
    out = tmp_path / "run"
    command = ["import", str(tmp_path / "results"), "--judge", "gpt-4o", "--protocol", "imgedit", "--out", str(out)]
    assert run(command) == 0
    printed, scores = report(capsys, out)[OURS], read_scores(out)
    for model in ("alpha", "beta", "epsilon"):
        assert printed[model]["Overall"] == pytest.approx(formula(model)["mean_of_types"], abs=1e-9)
        assert printed[model]["Mean of edits"] == pytest.approx(formula(model)["mean_of_edits"], abs=1e-9)
    no_score = {"decimal", "out_of_range", "one_line_missing", "unreadable", "zero"}
    for line in read_lines("imgedit/verdicts.jsonl"):
        if line["model"] == "gamma" and line.get("awkward") and line["output"]:
            assert (scores["gamma", line["id"]] is None) == (line["awkward"] in no_score), line


def test_imported_averages_of_the_script_give_its_types(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Averages outside 1 to 5, which the script takes from such replies, are unjudged."""
    write_result_files(tmp_path / "results", averages=True)
    out = tmp_path / "run"
    command = ["import", str(tmp_path / "results"), "--judge", "gpt-4o", "--protocol", "imgedit", "--out", str(out)]
    assert run(command) == 0
    printed = report(capsys, out, "--as-published", "--rule", "failed=left_out")[TITLE]
    for model, original in results().items():
        outside = {read_cases()[key]["edit_type"] for key, score in original["edits"].items() if not 1 <= score <= 5}
        for name, value in original["types"].items():
            assert name in outside or printed[model][name] == value, (model, name)

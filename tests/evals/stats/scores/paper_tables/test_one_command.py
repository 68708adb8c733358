"""A benchmark in its published layout, the outputs of three models, one command, and the paper's table, cell by cell.

The scripted judge knows whose picture it sees by its size, so that every number of the table is known beforehand.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from editloupe.cli.main import run
from editloupe.rubrics.model import ChecksAnswer, LabelAnswer, NumberAnswer
from editloupe.rubrics.registry import get_protocol
from tests.conftest import StartServer
from tests.evals.manifests import benchmarks as b
from tests.scripted import Request, say

MODELS = ("good", "middling", "poor")
SIDE = 8
NUMBERS = {"wiseedit": (10, 4, 1), "edit-compass": (5, 3, 2)}
LABELS = {
    "instruction_following": ("Flawless Execution", "Wrong Action", "Localization Failure"),
    "visual_consistency": ("Perfect Consistency", "Perfect Consistency", "Multiple Anomalies"),
}
FAILED_CHECKS = ((), ("seams", "artifacts", "path"), ("preserved", "context"))
"""Checks that a model's pictures do not pass."""


def sized(folder: Path, model: str) -> None:
    """Give all pictures of a model its size."""
    for path in folder.rglob("*.png"):
        Image.new("RGB", (SIDE + MODELS.index(model), SIDE), "red").save(path)


def judge(name: str) -> Callable[[Request], Any]:
    """A judge of one protocol whose answers hang on whose picture it is shown."""

    def answers(request: Request) -> Any:
        widths = [image.pixels[0] for message in request.messages for image in message.images]
        number = max(widths) - SIDE
        if "List of differences" in request.system:
            return say(json.dumps({"differences": "none"}))
        rubric = next(
            one
            for one in get_protocol(name).rubrics
            if f"# Criterion: {one.title}\n{one.question.strip()}" in request.system
        )
        answer = rubric.answer
        if isinstance(answer, LabelAnswer):
            return say(f"<Start Final Answer>{LABELS[rubric.criterion][number]}</Start Final Answer>")
        if isinstance(answer, NumberAnswer):
            return say(json.dumps({"reason": "seen", answer.key: NUMBERS[name][number]}))
        assert isinstance(answer, ChecksAnswer)
        given = {check.key: "0" if check.key in FAILED_CHECKS[number] else "1" for check in answer.checks}
        return say(json.dumps({"reason": "seen", **given}))

    return answers


def dlebench(folder: Path) -> Path:
    lines = []
    for number, kind in enumerate(("color", "object")):
        b.touch(folder / f"src/{number}.png")
        lines.append(
            {"id": f"s{number}", "source_image": f"src/{number}.png", "q_type": kind, "edit_instruction": "Do"}
        )
        lines[-1]["edit_ops"] = "replace" if kind == "object" else "change"
    (folder / "samples.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder / "samples.jsonl"


def write(name: str, folder: Path) -> Path:
    """Write a benchmark and the outputs of three models; return where the benchmark lies."""
    data = folder / "data"
    data.mkdir()
    for model in MODELS:
        out = folder / "outputs" / model
        if name == "wiseedit":
            b.write_wiseedit_results(out, b.WISEEDIT_SUBSETS, ("en",))
        elif name == "vibe":
            b.write_vibe_results(out, b.VIBE_TASKS)
        elif name == "edit-compass":
            places = ("Part1/ADD", "Part3/Chemical", "Part6/Complex_Instruction")
            b.touch(*(out / "en" / place / f"{item}.png" for place in places for item in ("a", "b")))
        else:
            b.touch(*(out / f"s{number}.png" for number in (0, 1)))
        sized(out, model)
    made = {"wiseedit": b.write_wiseedit, "vibe": b.write_vibe, "edit-compass": b.write_compass, "dlebench": dlebench}
    return made[name](data)


EXPECTED = {
    # Table 1: (IF + VC) / 2 of each type, and their mean.
    "dlebench": ("Table 1", "Average", (100.0, (100 / 3 + 100) / 2, (0 + 100 / 3) / 2)),
    # Table 5: (s − 1) / 9 × 100 on every metric.
    "wiseedit": ("Table 5", "Overall AVG", (100.0, 100 / 3, 0.0)),
    # Table 1: cbrt(IA · CP · VC) of Addition.
    "vibe": ("Table 1", "AD", (100.0, 100 * (1 / 3) ** (1 / 3), 0.0)),
    # Table 3: IA^.4 · VC^.4 · VQ^.2 of equal scores is that score.
    "edit-compass": ("Table 3", "Overall AVG", (5.0, 3.0, 2.0)),
}


@pytest.mark.long
@pytest.mark.parametrize("name", EXPECTED)
def test_a_paper_s_table_comes_from_one_command(
    name: str, tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    data, server = write(name, tmp_path), scripted(judge(name))
    out = str(tmp_path / "run")
    given = ["batch", str(data), "--layout", name, "--results", str(tmp_path / "outputs"), "--out", out, "--quiet"]
    assert run([*given, "--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "--mode", "plain"]) == 0
    capsys.readouterr()
    assert run(["report", out, "--format", "json"]) == 0
    title, column, values = EXPECTED[name]
    tables = json.loads(capsys.readouterr().out)["tables"]
    table = next(one for one in tables if title in one["title"] and column in one["columns"])
    place = table["columns"].index(column)
    found = {row[0]: row[place] for row in table["rows"]}
    assert {model: float(found[model]) for model in MODELS} == pytest.approx(
        dict(zip(MODELS, values, strict=True)), abs=0.006
    )
    assert all(row[-2] == row[-1] > 0 for row in table["rows"]), "judged and expected"


@pytest.mark.long
def test_wiseedit_counts_the_subsets_a_model_cannot_handle(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """All verdicts are 7 (66.67), and a model without outputs for several input pictures has 0 on those cases."""
    subsets = {
        "Awareness_1": "WiseEdit/Awareness",
        "Awareness_2": "WiseEdit/Awareness",
        "Interpretation_1": "WiseEdit/Interpretation",
        "Imagination_1": "WiseEdit/Imagination",
        "Imagination_2": "WiseEdit/Imagination",
        "WiseEdit_Complex_2": "WiseEdit-Complex",
    }
    cases = {"Awareness_2": 1, "Interpretation_1": 1, "Imagination_1": 1, "Imagination_2": 1, "WiseEdit_Complex_2": 1}
    data, results = b.write_wiseedit(tmp_path / "data", subsets=subsets, cases=cases), tmp_path / "results"
    b.write_wiseedit_results(results / "every", subsets, ("en",))
    b.write_wiseedit_results(results / "single", [name for name in subsets if name.endswith("_1")], ("en",))
    server = scripted(lambda request: say('{"reason": "seen", "score": 7}'))
    out = str(tmp_path / "run")
    given = ["batch", str(data), "--layout", "wiseedit", "--results", str(results), "--out", out, "--quiet"]
    assert run([*given, "--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "--mode", "plain"]) == 0
    assert "single: no outputs for cn (8 cases): absent, not counted" in (told := capsys.readouterr().err)
    assert (
        "single: no outputs for en Awareness_2 (1 case), en Imagination_2 (1 case), en WiseEdit_Complex_2 (1 case): "
        "they count 0, by the paper's rule" in told
    )
    assert run(["report", out, "--format", "json"]) == 0
    printed = {table["title"]: table for table in json.loads(capsys.readouterr().out)["tables"]}
    table = printed["WiseEdit, Table 5: English instructions, all cases"]
    rows = {row[0]: dict(zip(table["columns"], row, strict=True)) for row in table["rows"]}
    assert float(rows["every"]["Overall AVG"]) == pytest.approx(200 / 3, abs=0.006)
    averages = [float(rows["single"][f"{name} AVG"]) for name in ("Awareness", "Imagination", "Overall")]
    assert averages == pytest.approx([50.0, 100 / 3, 50.0], abs=0.006)
    note = "single: 2 outputs are missing and count 0 on every metric (Supplement C); without any output, which"
    assert f"{note} `--absent leave-out` leaves out: Awareness_2, Imagination_2." in table["notes"]
    assert run(["report", out, "--format", "json", "--absent", "leave-out"]) == 0
    left = next(t for t in json.loads(capsys.readouterr().out)["tables"] if t["title"] == table["title"])
    rows = {row[0]: dict(zip(left["columns"], row, strict=True)) for row in left["rows"]}
    assert float(rows["single"]["Overall AVG"]) == pytest.approx(200 / 3, abs=0.006)
    parts = "en Awareness_2, en Imagination_2, en WiseEdit_Complex_2"
    assert f"Left out, because single has no output there: 3 cases of {parts}." in left["notes"]
    assert run(["report", out, "--absent", "zero"]) == 2
    assert '--absent is count or leave-out, not "zero"' in capsys.readouterr().err
    table = printed["WiseEdit, Table 5: English instructions, cases with one input picture"]
    assert {row[0]: float(row[table["columns"].index("Overall AVG")]) for row in table["rows"]} == pytest.approx(
        {"every": 200 / 3, "single": 200 / 3}, abs=0.006
    )

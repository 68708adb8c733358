import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from editloupe.cli.compare import compare
from editloupe.evals.preferences.draw import DrawSettings, draw_pairs
from editloupe.evals.report.comparison_blocks import comparison_blocks
from editloupe.evals.report.text_renderer import as_text
from editloupe.evals.stats.comparison.run_comparison import compare_runs
from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.types import UserError
from tests.evals.model_runs import Scores, model_run
from tests.evals.sample_runs import IF, Line, make_run

app = typer.Typer()
app.command()(compare)
GOOD: list[Scores | None] = [(4, 4)] * 12
POOR: list[Scores | None] = [(2, 3)] * 12
MODELS: dict[str | None, list[Scores | None]] = {
    "an-editing-model-of-a-long-name-1": GOOD,
    "y": POOR,
    "blur": [(1, 4)] * 12,
}


def told(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def flat(text: str) -> str:
    return " ".join(text.replace("│", " ").split())


@pytest.mark.long
def test_two_runs_of_two_models_are_compared_as_models_and_it_says_so(tmp_path: Path) -> None:
    a, b = (
        model_run(tmp_path / "a", {"x": [*GOOD[:10], None, None]}),
        model_run(tmp_path / "b", {"y": [None, *POOR[1:]]}),
    )
    text = flat(told(a, b))
    assert "A scores higher than B on 9 shared cases" in text
    assert "Compared as two editing models on the same sources, instructions and targets (9 cases" in text
    assert "1 edit not compared: only in the first run." in text
    assert "2 edits not compared: only in the second run." in text


@pytest.mark.long
def test_a_hint_that_only_one_model_has_does_not_separate_the_cases(tmp_path: Path) -> None:
    hints = {"x": "The cup is on the left."}
    a, b = model_run(tmp_path / "a", {"x": GOOD}, hints=hints), model_run(tmp_path / "b", {"y": POOR})
    assert "A scores higher than B on 12 shared cases" in flat(told(a, b))
    both = model_run(tmp_path / "both", {"x": GOOD, "y": POOR}, hints=hints)
    (pair,) = json.loads(told(both, "--models", "--format", "json"))["pairs"]
    assert pair["overall"]["difference"]["n"] == 12
    plain = model_run(tmp_path / "plain", {"x": GOOD, "y": POOR})
    drawn = [draw_pairs([read_run_table(run)], DrawSettings(), tmp_path).pairs for run in (both, plain)]
    assert len(drawn[0]) == len(drawn[1]) > 0


@pytest.mark.long
def test_two_judges_are_compared_on_the_same_pictures_and_it_says_so(tmp_path: Path) -> None:
    a, b = model_run(tmp_path / "a", {"x": GOOD}), model_run(tmp_path / "b", {"x": POOR}, judge="openai:other")
    assert "Compared as two judges of the same edited pictures (12 edits that both judged)." in flat(told(a, b))
    assert json.loads(told(a, b, "--json"))["question"] == "judges"


@pytest.mark.long
def test_all_models_of_one_run_are_compared_pair_by_pair_within_100_columns(tmp_path: Path) -> None:
    text = told(model_run(tmp_path / "run", MODELS), "--models")
    assert max(map(len, text.splitlines())) <= 100
    assert "Best of 3 editing models: an-editing-model-of-a-long-name-1" in flat(text)
    for pair in ("A − B", "A − C", "B − C", "A − nothing"):
        assert pair in text
    assert "(nothing edited: reference)" in text
    assert "blur: 12 of 12 outputs are unedited" in flat(text)


def test_a_model_called_by_a_letter_is_not_taken_for_another_models_short_name(tmp_path: Path) -> None:
    text = told(model_run(tmp_path / "run", {"painter": GOOD, "A": POOR}), "--models")
    row = next(line for line in text.splitlines() if "#1 − #2" in line)
    assert row.split()[-2:] == ["12", "#1"], "painter is better, and A is not painter's letter"
    assert "#2 A" in text


@pytest.mark.long
def test_a_run_of_several_models_needs_no_option(tmp_path: Path) -> None:
    run = model_run(tmp_path / "run", MODELS)
    assert told(run) == told(run, "--models")


def test_the_json_of_models_has_every_pair_with_its_interval_and_p_value(tmp_path: Path) -> None:
    data = json.loads(told(model_run(tmp_path / "run", MODELS), "--models", "--format", "json"))
    assert data["question"] == "models"
    assert len(data["pairs"]) == 3
    for pair in data["pairs"]:
        assert {"a", "b", "difference", "p", "better"} <= pair["overall"].keys()
        assert {"value", "low", "high", "n"} <= pair["overall"]["difference"].keys()
        assert IF in pair["criteria"]


@pytest.mark.long
def test_several_runs_of_several_models_are_pooled(tmp_path: Path) -> None:
    runs = [model_run(tmp_path / f"{name}", {name: rows}) for name, rows in MODELS.items()]
    assert len(json.loads(told(*runs, "--json"))["pairs"]) == 3


def test_two_configurations_of_one_run_are_two_judges(tmp_path: Path) -> None:
    run = model_run(tmp_path / "run", {"x": GOOD})
    model_run(run, {"x": POOR}, judge="openai:other")
    data = json.loads(told(run, "--configuration", "openai:gpt-5.1", "--configuration", "openai:other", "--json"))
    assert (data["question"], data["edits"]) == ("judges", 12)
    assert data["overall"]["difference"]["value"] == pytest.approx(50)
    assert data["a"] != data["b"]


def test_markdown_goes_into_a_file(tmp_path: Path) -> None:
    assert told(model_run(tmp_path / "run", MODELS), "--models", "--out", tmp_path / "pairs.md") == ""
    assert (tmp_path / "pairs.md").read_text("utf-8").startswith("# Editing models in run")


@pytest.mark.long
def test_only_some_of_the_edits_can_be_compared(tmp_path: Path) -> None:
    run = model_run(tmp_path / "run", MODELS, types=("Change Color", "Change OCR"))
    data = json.loads(told(run, "--json", "--where", "instruction_type=Change OCR"))
    assert data["cases"] == 6
    for said, sentence in (
        ("language=en", 'no edit of run has a column "language"; there are: id, instruction, instruction_type, model'),
        ("instruction_type=x", 'no edit with instruction_type "x"; it has: Change Color, Change OCR'),
        ("instruction_type=", 'no edit with instruction_type ""; it has: Change Color, Change OCR'),
        ("x", "--where takes COLUMN=VALUE"),
    ):
        with pytest.raises(UserError, match=sentence):
            told(run, "--where", said)


@pytest.mark.long
def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    a, b = model_run(tmp_path / "a", {"x": GOOD}), model_run(tmp_path / "b", {"y": POOR})
    for arguments, sentence in (
        ((a, b, "--models", "--judges"), "name one of them"),
        ((a,), "name a second run"),
        ((a, "--models"), "only one editing model"),
        ((a, "--judges"), "two judges are compared at a time"),
        ((a, b, "--judges"), "share no edited picture that both judged"),
        ((a, b, a, "--configuration", "x", "--configuration", "y"), "--configuration is given once"),
        ((a, tmp_path / "nowhere"), "is not a run"),
        ((a, b, "--format", "html"), "--format is one of text, md, json"),
    ):
        with pytest.raises(UserError, match=sentence):
            told(*arguments)


def test_the_ranking_of_models_comes_as_latex_with_the_best_in_bold(tmp_path: Path) -> None:
    run = model_run(tmp_path / "run", MODELS)
    latex = told(run, "--models", "--format", "latex")
    rows = [line for line in latex.splitlines() if line.endswith(r"\\")]
    assert rows[0] == r"model & score [interval] & rank \\"
    assert rows[1].startswith(r"\textbf{an-editing-model-of-a-long-name-1} & \textbf{100.0 [")
    assert rows[1].endswith(r"] & \textbf{1} \\".replace("] &", "]} &"))
    assert {row.partition(" ")[0] for row in rows[2:]} == {"y", "blur"}
    assert latex.count(r"\label{") == 1
    other = model_run(tmp_path / "other", {"z": GOOD})
    assert r"z (other)" in told(run, other, "--models", "--format", "latex")
    with pytest.raises(UserError, match="add --models"):
        told(run, run, "--judges", "--format", "latex")


def test_disagreements_are_one_table_with_confidence_that_keeps_to_80_columns(tmp_path: Path) -> None:
    a, b = (
        read_run_table(
            make_run(
                tmp_path / mode, [Line(f"e{n}", score, confidence=0.25) for n in range(6)], mode=mode, pictures=True
            )
        )
        for mode, score in (("tools", 4), ("oracle", 1))
    )
    text = as_text(tuple(comparison_blocks(compare_runs(a, b), {})), 80)
    table = text[text.index("Where they disagree") :]
    assert max(map(len, table.splitlines())) <= 80
    assert table.count("e0") == 1
    assert "Flawless" in table
    assert table.count("0.25") == 12

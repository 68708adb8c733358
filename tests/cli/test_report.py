import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from editloupe.cli.agree import agree
from editloupe.cli.compare import compare
from editloupe.cli.report import report
from editloupe.types import UserError
from tests.evals.sample_runs import IF, VC, Line, make_run

app = typer.Typer()
for command in (report, agree, compare):
    app.command()(command)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    lines = [
        Line(
            f"e{n}",
            1 + n % 4,
            2 + n % 3,
            type=("Change Color", "Change OCR")[n % 2],
            human={IF: str(1 + n % 3)},
            model="m",
        )
        for n in range(8)
    ]
    return make_run(tmp_path / "run", lines, pictures=True)


@pytest.mark.long
def test_options_of_the_former_bootstrap_are_taken_and_have_no_effect(run: Path) -> None:
    result = CliRunner().invoke(app, ["report", str(run), "--resamples", "500"])
    assert result.exit_code == 0
    assert "--resamples and --seed have no effect" in result.stderr
    assert result.stdout == CliRunner().invoke(app, ["report", str(run)]).stdout


def told(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


@pytest.mark.long
def test_report_as_json_has_overall_by_type_and_coverage(run: Path) -> None:
    data = json.loads(told("report", run, "--format", "json"))
    assert {"value", "low", "high", "n"} <= data["overall"].keys()
    assert data["by_type"]["Change OCR"]["criteria"][IF]["n"] == 4
    assert data["coverage"]["share"] == 1


@pytest.mark.long
def test_report_in_the_terminal_begins_with_the_answer(run: Path) -> None:
    text = told("report", run)
    assert text.index("Overall score") < text.index("How sure is that?") < text.index("Scores")
    assert "\x1b" not in text


def test_report_groups_by_a_column(run: Path) -> None:
    data = json.loads(told("report", run, "--format", "json", "--by", "instruction_type"))
    assert list(data["by"]) == ["model", "instruction_type"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("r.html", "<!doctype html>"),
        ("r.md", "# run"),
        ("r.txt", "run"),
        ("r.json", "{"),
        ("r.tex", "% needs"),
        ("r.csv", "# "),
    ],
)
def test_the_suffix_of_the_file_says_the_format(run: Path, tmp_path: Path, name: str, start: str) -> None:
    assert told("report", run, "--out", tmp_path / "new" / name) == ""
    assert (tmp_path / "new" / name).read_text("utf-8").startswith(start)


@pytest.mark.long
def test_markdown_in_a_file_has_its_figures_beside_it(run: Path, tmp_path: Path) -> None:
    told("report", run, "--out", tmp_path / "r.md")
    text = (tmp_path / "r.md").read_text("utf-8")
    assert "(r_figures/score_per_type.png)" in text
    assert (tmp_path / "r_figures" / "score_per_type.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.long
def test_figures_are_saved_for_a_paper(run: Path, tmp_path: Path) -> None:
    told("report", run, "--figures", tmp_path / "figures")
    assert (tmp_path / "figures" / "confusion.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.long
def test_several_runs_make_a_leaderboard(run: Path, tmp_path: Path) -> None:
    other = make_run(tmp_path / "other", [Line(f"e{n}", 4) for n in range(5)])
    data = json.loads(told("report", run, other, "--format", "json"))
    assert [(entry["run"], entry["rank"]) for entry in data["leaderboard"]] == [("run", 1), ("other", 1)]


def test_agree_has_every_measure_under_its_criterion(run: Path, tmp_path: Path) -> None:
    data = json.loads(told("agree", run, "--format", "json"))
    for name in ("spearman", "pearson", "mae", "krippendorff_alpha"):
        assert data[IF] == data["criteria"][IF]
        assert data[IF][name]["n"] == 8
        assert data[IF][name]["low"] <= data[IF][name]["value"] <= data[IF][name]["high"]
        assert data[VC][name]["value"] is None
        assert data[VC][name]["why"]


def test_agree_takes_labels_from_a_file(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "labels.csv"
    file.write_text(
        "edit_id,annotator,criterion,label\n" + "".join(f"e{n},Ada,{VC},{2 + n % 3}\n" for n in range(8)), "utf-8"
    )
    text = told("agree", run, "--human", file)
    assert "Visual Consistency: Spearman ρ 1.00" in " ".join(text.replace("│", "").split())
    assert "Labels from the manifest and labels.csv (annotator 1: 8 labels, Ada: 8 labels)" in text


@pytest.mark.long
def test_agree_and_report_merge_several_files_in_the_same_way(run: Path, tmp_path: Path) -> None:
    files = []
    for name, shift in (("ada", 0), ("bo", 1)):
        path = tmp_path / f"{name}.csv"
        lines = "".join(f"e{n},{name},{1 + (n + shift * (n % 3 == 0)) % 4}\n" for n in range(8))
        path.write_text(f"edit_id,rater,{IF}\n{lines}", "utf-8")
        files += ["--human", path]
    alone = json.loads(told("agree", run, *files, "--format", "json"))
    assert alone["annotators"] == {"annotator 1": 8, "ada": 8, "bo": 8}
    assert alone["models"] == ["m"]
    assert [pair["names"] for pair in alone[IF]["people"]["pairs"]][-1] == ["ada", "bo"]
    assert json.loads(told("report", run, *files, "--format", "json"))["agreement"]["criteria"] == alone["criteria"]
    assert alone["by"] == {}
    assert json.loads(told("agree", run, *files, "--by", "model", "--format", "json"))["by"]["model"]["m"][IF]["n"] == 8
    text = " ".join(told("agree", run, *files, "--by", "model").split())
    assert "People among themselves" in text
    assert "ada and bo" in text


@pytest.mark.long
def test_compare_names_the_higher_and_the_closer_run(run: Path, tmp_path: Path) -> None:
    lines = [Line(f"e{n}", 1, 2 + n % 3, type=("Change Color", "Change OCR")[n % 2], model="m") for n in range(8)]
    other = make_run(tmp_path / "other", lines, pictures=True)
    text = " ".join(told("compare", run, other).split())
    assert "A scores higher than B on 8 shared edits" in text
    assert "Where they disagree" in text
    data = json.loads(told("compare", run, other, "--format", "json"))
    assert data["criteria"][VC]["difference"]["value"] == 0
    assert len(data["disagreements"]) == 6
    assert told("compare", run, other, "--format", "md").startswith("# A = run against B = other")


@pytest.mark.long
def test_mistakes_are_one_sentence(run: Path, tmp_path: Path) -> None:
    for arguments, sentence in (
        (("report", run, "--format", "pdf"), "--format is one of text, md, html, json"),
        (("report", run, "--unjudged", "best"), "--unjudged is left_out or worst"),
        (("report", tmp_path / "nowhere"), "is not a run"),
        (("agree", run, "--format", "html"), "--format is one of text, md, json, latex, csv"),
        (("agree", run, "--human", tmp_path / "none.csv"), "was not found"),
        (("compare", run, tmp_path / "nowhere"), "is not a run"),
        (("report", run, "--out", run / "run.sqlite" / "x.html"), "cannot be written"),
    ):
        with pytest.raises(UserError, match=sentence):
            told(*arguments)

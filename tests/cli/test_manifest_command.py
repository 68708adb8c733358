"""`editloupe manifest stats`: tables on the terminal, JSON, figures, and mistakes in one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from editloupe.cli.main import run
from editloupe.evals.manifests.stats import manifest_stats
from editloupe.evals.report import figures
from tests.evals.manifests.test_stats import sample, write


@pytest.fixture
def two(tmp_path: Path) -> list[Path]:
    small = [sample(n, [0, 0, 4 + n, 5], instruction_type="Change Color") for n in range(8)]
    large = [sample(n, [0, 0, 100, 60 + n], instruction_type="add") for n in range(3)]
    return [write(tmp_path / "one", small, "small.jsonl"), write(tmp_path / "two", large, "large.jsonl")]


def test_two_manifests_stand_beside_each_other(two: list[Path], capsys: Any) -> None:
    assert run(["manifest", "stats", *map(str, two)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "small: 8 samples in 8 rows. large: 3 samples in 3 rows." in told
    assert "Change Color 8 0" in told
    assert "samples up to 1 % 100.0 % 0.0 %" in told


def test_json_has_every_count_and_nothing_else_on_stdout(two: list[Path], capsys: Any) -> None:
    assert run(["manifest", "stats", *map(str, two), "--json"]) == 0
    small, large = json.loads(capsys.readouterr().out)["manifests"]
    assert small["types"] == {"Change Color": 8}
    assert large["area"]["maximum"] == pytest.approx(100 * 62 / 20000 * 100)
    assert sum(one["samples"] for one in large["intervals"]) == 3


@pytest.mark.long
def test_figures_are_written_as_png_and_svg(two: list[Path], tmp_path: Path, capsys: Any) -> None:
    assert run(["manifest", "stats", *map(str, two), "--out", str(tmp_path / "figures")]) == 0
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert names == {
        f"{name}.{kind}" for name in ("samples_by_type", "area_curves", "area_intervals") for kind in ("png", "svg")
    }
    assert "3 figures" in capsys.readouterr().err


def test_the_figures_show_the_counts(two: list[Path]) -> None:
    found = [manifest_stats(path) for path in two]
    curves = figures.area_curves(found).axes[0]
    line = next(one for one in curves.lines if str(one.get_label()).startswith("small"))
    assert list(line.get_ydata())[1:] == pytest.approx([100 * (n + 1) / 8 for n in range(8)])
    assert list(line.get_xdata())[1:] == pytest.approx([(4 + n) * 5 / 20000 * 100 for n in range(8)])
    assert curves.get_xscale() == "log"
    bars = figures.area_intervals(found).axes
    assert [axes.get_title(loc="left") for axes in bars] == ["small", "large"]
    assert sum(bar.get_height() for bar in bars[0].patches) == 8
    kinds = figures.samples_by_type(found).axes[1]
    assert [text.get_text() for text in kinds.texts] == ["3 (100.0 %)"]


@pytest.mark.long
def test_manifests_without_targets_have_no_figures_of_areas(tmp_path: Path, capsys: Any) -> None:
    path = write(tmp_path, [sample(1, instruction_type="add")])
    assert run(["manifest", "stats", str(path), "--out", str(tmp_path / "figures")]) == 0
    assert {path.stem for path in (tmp_path / "figures").iterdir()} == {"samples_by_type"}
    assert "no annotated target" in capsys.readouterr().out


def test_two_files_of_one_name_go_by_their_folders(tmp_path: Path, capsys: Any) -> None:
    paths = [write(tmp_path / name, [sample(1, [0, 0, 9, 9])]) for name in ("a", "b")]
    assert run(["manifest", "stats", *map(str, paths)]) == 0
    assert "a/edits: 1 sample in 1 row" in capsys.readouterr().out


def test_a_papers_names_of_fields_are_read(tmp_path: Path, capsys: Any) -> None:
    path = write(tmp_path, [{"source_image": "wide.png", "edit_type": "Change Color", "bbox": [0, 0, 20, 10]}])
    assert run(["manifest", "stats", str(path), "--layout", "dlebench", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["manifests"]
    assert (found["types"], found["area"]["median"]) == ({"Change Color": 1}, 1.0)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["nowhere.jsonl"], "there is no manifest at nowhere.jsonl"),
        (["FILE", "--layout", "vibe"], "--layout is one of"),
        ([], "Missing argument"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    given: list[str], sentence: str, tmp_path: Path, capsys: Any
) -> None:
    path = write(tmp_path, [sample(1)])
    assert run(["manifest", "stats", *(str(path) if part == "FILE" else part for part in given)]) == 2
    told = capsys.readouterr().err
    assert sentence in told
    assert len(told.strip().splitlines()) == 1


def test_types_go_by_the_names_of_a_report_and_by_the_papers_families(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = ["removal", "Removal Object", "colour", "Style"]
    path = write(tmp_path, [sample(number, instruction_type=kind) for number, kind in enumerate(kinds)])
    assert run(["manifest", "stats", str(path), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["manifests"]
    assert found["types"] == {"Removal Object": 2, "Change Color": 1, "Style": 1}
    assert found["families"] == {
        "attribute-level": {"Change Color": 1},
        "object-level": {"Removal Object": 2},
        "other": {"Style": 1},
    }
    figure = figures.samples_by_type([manifest_stats(path, families={"a": ["removal"], "b": ["colour"]})])
    assert [axes.get_title("left") for axes in figure.axes] == [
        "edits, a: 1 sample",
        "edits, b: 1 sample",
        "edits, other: 2 samples",
    ]
    assert run(["manifest", "stats", str(path), "--protocol", "vibe"]) == 2
    assert "does not say which task of VIBE it is" in capsys.readouterr().err


def test_misspelt_columns_are_listed(tmp_path: Path, capsys: Any) -> None:
    lines = [
        sample(n, [0, 0, 4, 5], instruction_typ="Change Color", human={"instruction_folowing": "x"}) for n in range(2)
    ]
    assert run(["manifest", "stats", str(write(tmp_path, lines, "a.jsonl"))]) == 0
    told = capsys.readouterr().err
    assert (
        told.count(
            "a: not fields of an edit, kept as further columns: instruction_typ (did you mean instruction_type?)"
        )
        == 1
    )
    assert "human labels on instruction_folowing (did you mean instruction_following?)" in told

"""Agreement on the score of an edit, by the protocol's formula over people's labels and over the judge's verdicts."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

from editloupe.cli.main import run as command
from editloupe.evals.labels.human import load_human_labels
from editloupe.evals.report.figures import scores_against_people
from editloupe.evals.stats.agreement.edit_scores import measure_score_agreement
from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.types import UserError
from tests.evals.sample_runs import IF, VC, Line, make_run

NAMES = ("Localization Failure", "Wrong Action", "Over Modification", "Flawless Execution")
PLACES = ("Scene Collapse", "Multiple Anomalies", "Single Anomaly", "Perfect Consistency")
JUDGE = [(1, 4), (2, 4), (3, 3), (4, 2), (4, 4), (1, 1)]
PEOPLE = [(1, 4), (3, 4), (3, 2), (4, 1), (4, 3), (2, 1)]


def labelled_run(folder: Path) -> Path:
    lines = [
        Line(f"e{n}", *judge, human={IF: NAMES[people[0] - 1], VC: PLACES[people[1] - 1]}, model="ab"[n % 2])
        for n, (judge, people) in enumerate(zip(JUDGE, PEOPLE, strict=True))
    ]
    lines.append(Line("partly", 4, 4, human={IF: NAMES[0]}, model="a"))
    return make_run(folder, lines)


def test_the_score_of_an_edit_is_compared_by_the_protocols_formula(tmp_path: Path) -> None:
    table = read_run_table(labelled_run(tmp_path / "run"))
    found = measure_score_agreement(table, load_human_labels(table))
    assert found is not None
    x, y = (np.array([(a + b - 2) * 50 / 3 for a, b in scores]) for scores in (JUDGE, PEOPLE))
    assert found.n == 6, "an edit with a label on one criterion has no score by people"
    assert found.pearson.value == pytest.approx(np.corrcoef(x, y)[0, 1])
    assert found.mae.value == pytest.approx(np.abs(x - y).mean())
    assert {name: part.n for name, part in found.by_model.items()} == {"a": 3, "b": 3}


@pytest.mark.long
def test_agree_prints_the_row_score(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = labelled_run(tmp_path / "run")
    assert command(["agree", str(folder), "--format", "json"]) == 0
    score = json.loads(capsys.readouterr().out)["score"]
    assert score["n"] == 6
    assert score["pearson"]["value"] is not None
    assert command(["agree", str(folder)]) == 0
    assert "score of an edit" in capsys.readouterr().out


@pytest.mark.long
def test_a_leaderboard_has_r_with_people_as_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [str(labelled_run(tmp_path / name)) for name in ("one", "two")]
    assert command(["report", *folders]) == 0
    assert "Pearson r with people" in capsys.readouterr().out


def test_ratings_of_whole_edits_are_compared_instead_of_the_formula(tmp_path: Path) -> None:
    lines = [Line(f"e{n}", *judge, human={"score": (str(10 * n), str(10 * n + 4))}) for n, judge in enumerate(JUDGE)]
    table = read_run_table(make_run(tmp_path / "run", [*lines, Line("unrated", 4, 4)]))
    found = measure_score_agreement(table, load_human_labels(table))
    assert found is not None
    assert (found.n, found.people, found.notes) == (6, "ratings", ())
    judge = np.array([(a + b - 2) * 50 / 3 for a, b in JUDGE])
    assert found.mae.value == pytest.approx(np.abs(judge - np.arange(2, 62, 10)).mean())
    assert [point[0] for point in found.points] == [2, 12, 22, 32, 42, 52]


@pytest.mark.parametrize(("rating", "sentence"), [(173, "from 0 to 100"), (-3, "from 0 to 100"), ("good", "from 0")])
def test_a_rating_outside_0_to_100_is_refused(tmp_path: Path, rating: object, sentence: str) -> None:
    table = read_run_table(make_run(tmp_path / "run", [Line("e0", human={"score": str(rating)})]))
    with pytest.raises(
        UserError, match=f'edit "e0": "{rating}" is not an answer to score; it takes numbers {sentence}'
    ):
        load_human_labels(table)


def test_ratings_on_a_scale_of_five_get_a_note(tmp_path: Path) -> None:
    table = read_run_table(
        make_run(tmp_path / "run", [Line(f"e{n}", 1 + n % 4, human={"score": str(n)}) for n in range(6)])
    )
    found = measure_score_agreement(table, load_human_labels(table))
    assert found is not None
    assert "read from 0 to 100" in found.notes[0]


@pytest.mark.long
def test_agree_draws_scores_of_edits_and_prints_every_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = labelled_run(tmp_path / "run")
    assert command(["agree", str(folder), "--figures", str(tmp_path / "figures")]) == 0
    assert {"agreement_of_scores.pdf", "agreement_of_scores.png", "confusion.png"} <= {
        path.name for path in (tmp_path / "figures").iterdir()
    }
    capsys.readouterr()
    assert command(["agree", str(folder), "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {row["criterion"] for row in rows} == {IF, VC, "score"}
    assert [float(row["n"]) for row in rows if (row["criterion"], row["group"]) == ("score", "b")] == [3, 3, 3]
    assert command(["agree", str(folder), "--format", "latex"]) == 0
    assert r"\caption{score of an edit}" in capsys.readouterr().out
    assert command(["agree", str(folder), "--format", "md"]) == 0
    assert "| score of an edit | Spearman ρ |" in capsys.readouterr().out


def test_the_figure_of_scores_states_r(tmp_path: Path) -> None:
    table = read_run_table(labelled_run(tmp_path / "run"))
    found = measure_score_agreement(table, load_human_labels(table))
    assert found is not None
    assert found.pearson.value is not None
    (axes,) = scores_against_people(found).axes
    assert f"r = {found.pearson.value:.3f}" in axes.texts[0].get_text()
    assert sum(len(points.get_offsets()) for points in axes.collections) == 6

from pathlib import Path

import pytest

from editloupe.evals.manifests.cases import NOTHING_EDITED
from editloupe.evals.report import Leaderboard, Report, build_leaderboard, build_report
from editloupe.evals.report.report_blocks import build_blocks
from editloupe.evals.report.text_renderer import as_markdown, as_text
from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.rubrics.tables import PrintedTable
from tests.evals.model_runs import Scores, model_run
from tests.evals.sample_runs import IF, LABELS, Line, make_run

EDITORS: dict[str | None, list[Scores | None]] = {"good": [(4, 4)] * 12, "fair": [(2, 4)] * 12, "blur": [(1, 4)] * 12}


def grid_of(found: Report | Leaderboard, head: str) -> PrintedTable:
    return next(b for b in build_blocks(found) if isinstance(b, PrintedTable) and b.columns[:2] == (head, "rank"))


def board_of(*runs: Path) -> Leaderboard:
    tables = [read_run_table(run) for run in runs]
    return build_leaderboard([build_report(table) for table in tables], tables)


@pytest.mark.long
def test_a_best_model_is_named_where_the_tests_say_so(tmp_path: Path) -> None:
    report = build_report(model_run(tmp_path / "run", EDITORS))
    assert "Best of 3 editing models: good with 100.0, better than each of the others" in report.answer
    assert "Not clearly better than an unedited source, which scores 50.0: blur." in report.answer


@pytest.mark.long
def test_models_that_cannot_be_told_apart_have_no_best(tmp_path: Path) -> None:
    mixed: list[Scores | None] = [(1 + n % 4, 4) for n in range(12)]
    given = {"x": mixed, "y": mixed[1:] + mixed[:1]}
    report = build_report(model_run(tmp_path / "run", {**given, "z": [(4, 4), *mixed[1:]]}))
    assert "No best of 3 editing models: z scores highest" in report.answer
    assert "cannot be told apart from" in report.answer


@pytest.mark.long
def test_the_reference_is_the_last_line_under_the_models_and_has_no_rank(tmp_path: Path) -> None:
    report = build_report(model_run(tmp_path / "run", EDITORS))
    shown = grid_of(report, "model")
    place = {name: number for number, name in enumerate(shown.columns)}
    assert [row[0] for row in shown.rows] == ["good", "fair", "blur", "(nothing edited: reference)"]
    assert [row[place["rank"]] for row in shown.rows] == ["1", "2", "3", "–"]
    assert [row[place["unedited"]] for row in shown.rows] == ["0", "0", "12", "–"]
    assert shown.rows[-1][place["score"]] == "50.0"
    assert shown.rows[-1][place["Instruction Following"]] == "0.0"
    assert "Reference, not ranked" in shown.note


def test_a_mean_that_unedited_outputs_carry_is_noted(tmp_path: Path) -> None:
    report = build_report(model_run(tmp_path / "run", EDITORS, {"blur": range(5)}))
    (note,) = [note for note in report.notes if "outputs are unedited" in note]
    assert note.startswith(
        "blur: 12 of 12 outputs are unedited or judged as if they were (5 are the source itself, 7 more"
    )
    assert note.endswith("they bring 50.0 of its 50.0 points.")


def test_a_single_model_is_held_against_the_reference_too(tmp_path: Path) -> None:
    poor = build_report(model_run(tmp_path / "poor", {"poor": [(2, 1)] * 12}))
    assert poor.answer.endswith("That is not clearly better than an unedited source, which scores 50.0.")
    good = build_report(model_run(tmp_path / "good", {"good": [(4, 4)] * 12}))
    assert "unedited" not in good.answer
    assert any("Every source handed in unedited would score 50.0" in note for note in good.notes)


@pytest.mark.long
def test_a_judged_reference_is_no_part_of_any_mean(tmp_path: Path) -> None:
    given = {**EDITORS, NOTHING_EDITED: [(1, 3)] * 12}
    with_it = build_report(model_run(tmp_path / "a", given, {NOTHING_EDITED: range(12)}))
    without = build_report(model_run(tmp_path / "b", EDITORS))
    assert with_it.overall.value == without.overall.value
    assert list(with_it.by["model"]) == list(without.by["model"])
    assert with_it.rankings[0].reference.overall.value == pytest.approx(100 / 3)
    assert "judged like the others" in " ".join(with_it.notes)


def test_models_with_other_cases_are_said_to_have_them(tmp_path: Path) -> None:
    given = {"good": EDITORS["good"], "fair": [*[(2, 4)] * 8, *[None] * 4]}
    report = build_report(model_run(tmp_path / "run", given))  # type: ignore[arg-type]
    assert any("do not have the same cases (fair 8, good 12)" in note for note in report.notes)


@pytest.mark.long
def test_runs_of_one_model_each_are_ranked_on_their_shared_cases(tmp_path: Path) -> None:
    board = board_of(*(model_run(tmp_path / f"run-{name}", {name: rows}) for name, rows in EDITORS.items()))
    assert board.answer.startswith("Best of 3 editing models: good with 100.0")
    assert [(entry.run, entry.ranks) for entry in board.leaderboard] == [
        ("run-good", (1, 1)),
        ("run-fair", (2, 2)),
        ("run-blur", (3, 3)),
    ]
    shown = grid_of(board, "run")
    assert shown.rows[-1][:3] == ("(nothing edited: reference)", "–", "50.0")
    assert "outputs are unedited" in " ".join(board.notes)


@pytest.mark.long
def test_runs_that_are_not_told_apart_share_their_ranks(tmp_path: Path) -> None:
    mixed: list[Scores | None] = [(1 + n % 4, 4) for n in range(12)]
    runs = [model_run(tmp_path / name, {name: rows}) for name, rows in (("x", mixed), ("y", mixed[2:] + mixed[:2]))]
    board = board_of(*runs)
    assert [row[1] for row in grid_of(board, "run").rows] == ["1–2", "1–2", "–"]
    assert board.answer.startswith("No best of 2 editing models")


def test_two_judges_of_one_model_are_no_ranking_of_models(tmp_path: Path) -> None:
    runs = [model_run(tmp_path / judge, {"x": EDITORS["good"]}, judge=f"openai:{judge}") for judge in ("a", "b")]
    board = board_of(*runs)
    assert board.rankings == ()
    assert "2 groups that are ranked apart" in board.answer
    assert any("They have different judges (openai:a and openai:b)." in note for note in board.notes)


def test_runs_on_other_edits_are_ranked_apart(tmp_path: Path) -> None:
    a = make_run(tmp_path / "a", [Line(f"a{n}", 4, model="x") for n in range(6)])
    b = make_run(tmp_path / "b", [Line(f"b{n}", 1, model="y") for n in range(6)])
    board = board_of(a, b)
    assert board.rankings == ()
    assert [entry.rank for entry in board.leaderboard] == [1, 1]
    assert any(note.startswith("Ranked apart from a: b. They do not have the same cases") for note in board.notes)


@pytest.mark.long
def test_the_reference_is_in_every_form_of_the_report(tmp_path: Path) -> None:
    report = build_report(model_run(tmp_path / "run", EDITORS))
    assert "reference)" in as_text(build_blocks(report))
    assert "nothing edited: reference" in as_markdown(build_blocks(report))
    assert report.model_dump(mode="json")["rankings"][0]["reference"]["criteria"][IF]["value"] == 0


def test_equal_scores_share_a_rank_of_the_leaderboard(tmp_path: Path) -> None:
    scores = {"best": 4, "one": 3, "two": 3, "last": 1}
    runs = [
        make_run(tmp_path / name, [Line(f"e{n}", score, score) for n in range(6)]) for name, score in scores.items()
    ]
    board = build_leaderboard([build_report(run) for run in runs])
    assert [(entry.run, entry.rank) for entry in board.leaderboard] == [
        ("best", 1),
        ("one", 2),
        ("two", 2),
        ("last", 4),
    ]


@pytest.mark.long
def test_three_runs_keep_rank_ranges_caveats_and_agreement_in_one_table(tmp_path: Path) -> None:
    """A run of three models, and two runs of other judges: what can be compared is ranked with the ranges of its tests."""
    mixed: list[Scores | None] = [(1 + n % 4, 4) for n in range(12)]
    models = model_run(tmp_path / "models", {"x": mixed, "y": mixed[1:] + mixed[:1], "z": [(4, 4), *mixed[2:]]})
    lines = [Line(f"e{n}", 1 + n % 4, 4, human={IF: LABELS[IF][n % 4]}) for n in range(12)]
    others = [make_run(tmp_path / mode, lines, mode=mode) for mode in ("oracle", "plain")]
    board = board_of(models, *others)
    shown = grid_of(board, "run")
    rank, rho = (shown.columns.index(name) for name in ("rank", "ρ, Instruction Following"))
    rows = {row[0]: row for row in shown.rows}
    assert [rows[f"models · {name}"][rank] for name in "xyz"] == ["1–3"] * 3
    assert (rows["oracle"][rank], rows["plain"][rank]) == ("–", "–")
    assert str(rows["oracle"][rho]).startswith("1.00")
    assert rows["models · x"][rho] == "–"
    assert any(note.startswith("models: The models do not have the same cases") for note in board.notes)
    assert "models: No best of 3 editing models" in board.answer
    assert [row for row in rows if "reference" in row] == ["(nothing edited: reference) · models"]


@pytest.mark.long
def test_a_note_that_several_groups_share_is_written_once_with_their_names(tmp_path: Path) -> None:
    mixed: list[Scores | None] = [(1 + n % 4, 4) for n in range(12)]
    scores = {"x": mixed, "y": mixed[1:] + mixed[:1], "z": [(4, 4), *mixed[2:]]}
    runs = [model_run(tmp_path / name, scores, judge=f"openai:{name}") for name in ("a", "b")]
    board = board_of(*runs)
    shared = [note for note in board.notes if "do not have the same cases (x 12, y 12, z 11)" in note]
    assert [note.partition(": ")[0] for note in shared] == ["a, b"]
    assert sum("Every source handed in unedited" in note for note in board.notes) == 1
    assert board.answer.count("No best of 3 editing models") == 1
    assert [row[0] for row in grid_of(board, "run").rows if "reference" in row[0]] == ["(nothing edited: reference)"]

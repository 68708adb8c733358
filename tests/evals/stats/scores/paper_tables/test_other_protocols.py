"""Numbers and check lists go through the same tables, agreement and report as labels do."""

from pathlib import Path

import pytest

from editloupe.evals.report import build_report
from editloupe.evals.report.html_renderer import as_html
from editloupe.evals.report.report_blocks import build_blocks
from editloupe.evals.report.report_figures import build_figures
from editloupe.evals.report.text_renderer import as_text
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import JudgementRecord
from editloupe.evals.stats.agreement.judge_vs_human import measure_agreement
from editloupe.evals.stats.scores.distribution import count_answers
from editloupe.evals.stats.scores.run_scores import compute_scores
from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.types import Edit, Judgement, Verdict

WISE = ("instruction_following", "detail_preserving", "visual_quality", "knowledge_fidelity", "creative_fusion")


def save(
    folder: Path, protocol: str, rows: list[tuple[str, str, dict[str, float], dict[str, str]]], low: float, high: float
) -> Path:
    """Keep rows of id, task, score by criterion and human label by criterion."""
    with Run.write(folder) as run:
        filings = []
        for edit_id, task, given, human in rows:
            name, _, repeat = edit_id.partition("#")
            edit = Edit(
                id=name,
                source=Path(f"{name}.png"),
                edited=Path(f"{name}-e.png"),
                instruction="Do it",
                instruction_type=task,
                human=human,
            )
            verdicts = tuple(
                Verdict(criterion=c, score=value, score_100=(value - low) / (high - low) * 100)
                for c, value in given.items()
            )
            whole = Judgement(edit=edit, protocol=protocol, mode="plain", judge="openai:gpt-5.1", verdicts=verdicts)
            filings.append(JudgementRecord(whole, int(repeat or 0)))
        run.save_all(filings)
    return folder


@pytest.fixture
def wise(tmp_path: Path) -> Path:
    first, second, third = WISE[:3], (*WISE[:3], WISE[3]), (*WISE[:3], WISE[4])
    rows = [
        ("a", "Awareness", dict.fromkeys(second, 10.0), {first[0]: "9"}),
        ("b", "Awareness", dict.fromkeys(second, 1.0), {first[0]: "2"}),
        ("c", "Interpretation", {**dict.fromkeys(second, 10.0), WISE[3]: 1.0}, {first[0]: "10"}),
        ("d", "Imagination", dict.fromkeys(third, 5.5), {first[0]: "5"}),
        ("e", "WiseEdit-Complex", dict.fromkeys(WISE, 10.0), {}),
    ]
    return save(tmp_path / "run", "wiseedit", rows, 1, 10)


def test_wiseedit_averages_cases_tasks_and_three_of_the_four_tasks(wise: Path) -> None:
    found = compute_scores(wise)
    by_hand = {"Awareness": 50.0, "Interpretation": 75.0, "Imagination": 50.0, "WiseEdit-Complex": 100.0}
    assert {kind: score.value for kind, score in found.by_type.items()} == pytest.approx(by_hand)
    assert found.overall.value == pytest.approx((50 + 75 + 50) / 3)
    assert "Complex is reported apart" in found.arithmetic
    assert "creative_fusion" not in found.by_type["Awareness"].criteria
    assert found.overall.criteria["creative_fusion"].n == 1


def test_numbers_agree_with_people_on_their_own_scale(wise: Path) -> None:
    one = measure_agreement(wise).criteria["instruction_following"]
    assert one.mae.value == pytest.approx((1 + 1 + 0 + 0.5) / 4)
    assert one.mae_100.value == pytest.approx(2.5 / 4 / 9 * 100)
    assert one.n == 4


def test_numbers_are_counted_as_they_are_and_many_of_them_in_bins(wise: Path, tmp_path: Path) -> None:
    one = count_answers(read_run_table(wise), "instruction_following")
    assert one.answers == ("1", "5.5", "10", "unjudged")
    assert one.counts == {"all edits": (1, 1, 3, 0)}
    rows = [(f"e{n}", "Awareness", {"visual_quality": 1 + n / 3}, {}) for n in range(27)]
    many = count_answers(read_run_table(save(tmp_path / "many", "wiseedit", rows, 1, 10)), "visual_quality")
    assert many.answers == ("0–20", "20–40", "40–60", "60–80", "80–100", "unjudged")
    assert sum(many.counts["all edits"]) == 27


def test_vibe_averages_repeats_and_has_no_overall_without_a_whole_level(tmp_path: Path) -> None:
    marks = ("instruction_adherence", "contextual_preservation", "visual_coherence")
    rows = []
    for repeat, share in enumerate((1.0, 1.0, 0.125)):
        rows += [
            (f"ad#{repeat}", "AD", {marks[0]: share, marks[1]: 1.0, marks[2]: 1.0}, {}),
            (f"rm#{repeat}", "RM", {marks[0]: 0.0, marks[1]: 1.0, marks[2]: 1.0}, {}),
            (f"bi#{repeat}", "BI", {"billiards": 0.25}, {}),
        ]
    found = compute_scores(save(tmp_path / "run", "vibe", rows, 0, 1))
    assert found.by_type["AD"].value == pytest.approx((100 + 100 + 50) / 3)
    assert found.by_type["RM"].value == pytest.approx(0)
    assert found.by_level == {}
    assert found.overall.value is None, "no level has all its tasks"


@pytest.mark.long
def test_the_report_of_numbers_is_whole(wise: Path) -> None:
    report = build_report(wise)
    text = as_text(build_blocks(report))
    assert "WiseEdit (" in report.methods
    assert "not asked" in text
    assert "Overall AVG" in text
    assert report.tables[0].rows[0][:2] == ("(no model)", pytest.approx(50))
    assert "nan" not in text.lower().replace("dominan", "")
    assert as_html(build_blocks(report), build_figures(report), "t", "m").count('class="chart-svg"') == len(
        build_figures(report)
    )


def test_a_rubric_of_the_users_own_is_read_from_the_run(tmp_path: Path) -> None:
    labels = [{"name": name, "score": score, "meaning": "m"} for score, name in enumerate(("poor", "fine", "superb"))]
    rubric = {"criterion": "mood", "title": "The mood", "answer": {"kind": "label", "labels": labels}}
    edit = Edit(id="e", source=Path("a.png"), edited=Path("b.png"), instruction="Cheer it up", human={"mood": "Superb"})
    verdict = Verdict(criterion="mood", label="fine", score=1, score_100=50)
    whole = Judgement(edit=edit, protocol="own", mode="plain", judge="openai:gpt-5.1", verdicts=(verdict,))
    with Run.write(tmp_path / "run") as run:
        name = run.configure({"protocol": "own", "rubrics": {"mood": rubric}})
        run.save_all([JudgementRecord(whole, configuration=name)])
    table = read_run_table(tmp_path / "run")
    assert (table.labels("mood"), table.title_of("mood")) == (("poor", "fine", "superb"), "The mood")
    found = measure_agreement(table).criteria["mood"]
    assert found.mae.value == 1
    assert found.confusion is not None
    assert found.confusion.counts[2] == (0, 1, 0)
    assert compute_scores(table).overall.value == 50


def test_all_numbers_of_a_scale_have_their_place_given_or_not(tmp_path: Path) -> None:
    rows = [("a", "Awareness", {"visual_quality": 3.0}, {}), ("b", "Awareness", {"visual_quality": 2.0}, {})]
    one = count_answers(read_run_table(save(tmp_path / "few", "wiseedit", rows, 1, 10)), "visual_quality")
    assert one.answers == (*(str(number) for number in range(1, 11)), "unjudged")
    assert one.counts == {"all edits": (0, 1, 1, *(0,) * 8)}

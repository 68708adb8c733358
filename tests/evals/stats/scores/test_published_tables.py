"""Tables by the rules of a public script: named rules, their notes, and what a run recorded."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from editloupe.cli.main import run
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import JudgementRecord
from editloupe.evals.stats.scores.published_tables import choose_rules, list_raw_edits
from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.judge.settings import read_setup
from editloupe.rubrics.published import Published, PublishedTable, Rule
from editloupe.rubrics.registry import find_paper
from editloupe.rubrics.wiseedit import METRICS, MISSING
from editloupe.types import Edit, Judgement, Outcome, Reason, Unjudged, UserError, Verdict
from tests.evals.stats.scores.paper_tables.judged_runs import edit, keep

SCRIPT = Published(
    source="example",
    rules=(Rule("paper.rounding", "tenths", "none", {"tenths": "To 0.1.", "none": "Not."}),),
    tables=lambda models, choices: (),
)


def outcome(criterion: str, score: int | str | None) -> Outcome:
    if score == MISSING:
        return Verdict(criterion=criterion, label=MISSING, score=0.0, score_100=0.0)
    if score is None:
        return Unjudged(criterion=criterion, reason=Reason.UNREADABLE, detail="No number.")
    return Verdict(criterion=criterion, score=int(score), score_100=(int(score) - 1) / 9 * 100)


def store(folder: Path, lines: Iterable[tuple[Edit, int | str | None]]) -> Path:
    """Write a run of WiseEdit in which every metric of a case has the same score."""
    with Run.write(folder) as kept:
        kept.save_all(
            JudgementRecord(
                Judgement(
                    edit=case,
                    protocol="wiseedit",
                    mode="plain",
                    judge="openai:x",
                    verdicts=tuple(outcome(name, score) for name in METRICS[str(case.instruction_type)]),
                ),
                0,
            )
            for case, score in lines
        )
    return folder


@pytest.fixture
def wise(tmp_path: Path) -> Path:
    """Two Awareness cases in two languages of two models: 5 and 8 for A, and the second case of B failed in Chinese."""
    lines: list[tuple[Edit, int | str | None]] = []
    for model in "AB":
        for language in ("en", "cn"):
            for number, score in (("1", 5), ("2", 8)):
                case = edit(
                    f"{model}/Awareness_1/{language}/{number}",
                    "Awareness",
                    model,
                    subset="Awareness_1",
                    language=language,
                )
                failed = (model, language, number) == ("B", "cn", "2")
                lines.append((case, None if failed else score))
    return store(tmp_path / "run", lines)


def read(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["report", *arguments, "--format", "json"]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


def cells(report: Mapping[str, Any], title: str) -> dict[str, dict[str, Any]]:
    (table,) = (table for table in report["tables"] if title in table["title"])
    return {row[0]: dict(zip(table["columns"], row, strict=True)) for row in table["rows"]}


@pytest.mark.long
def test_the_script_s_table_replaces_the_paper_s_and_lists_every_rule(
    wise: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = read(capsys, str(wise), "--as-published")
    assert report["rules"]["wiseedit.rounding"] == "metric"
    assert not [table for table in report["tables"] if "Table 5" in table["title"]]
    rows = cells(report, "public script, all cases")
    assert rows["A"]["Awareness IF en"] == 61.1
    assert rows["B"]["Awareness IF en"] == 44.4  # the second case failed in Chinese and is lost in English too
    assert (rows["B"]["judged"], rows["B"]["expected"]) == (12, 16)
    notes = next(table["notes"] for table in report["tables"] if "all cases" in table["title"])
    assert any("wiseedit.incomplete_row=drop_both_languages (script)" in n and "1 case of B" in n for n in notes)


@pytest.mark.long
def test_one_rule_can_be_switched_with_and_without_the_others(wise: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = cells(read(capsys, str(wise), "--as-published", "--rule", "wiseedit.rounding=none"), "all cases")
    assert rows["B"]["Awareness IF en"] == pytest.approx(400 / 9)
    report = read(capsys, str(wise), "--rule", "rounding=metric")
    assert report["rules"]["wiseedit.incomplete_row"] == "zero_in_its_language"
    assert cells(report, "all cases")["B"]["Awareness IF en"] == 61.1


@pytest.mark.long
def test_a_missing_output_reaches_the_script_as_missing(tmp_path: Path) -> None:
    case = edit("A/Awareness_1/en/1", "Awareness", "A", subset="Awareness_1", language="en")
    table = read_run_table(store(tmp_path / "run", [(case, MISSING)]))
    paper = find_paper("wiseedit")
    assert paper is not None
    assert paper.published is not None
    (raw,) = list_raw_edits(table, paper, paper.published)
    assert raw.missing
    assert raw.answers == {}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--rule", "rounding"], '--rule takes NAME=VALUE, not "rounding"'),
        (["--rule", "wiseedit.colour=1"], 'there is no rule "wiseedit.colour" here; there are: wiseedit.rounding'),
        (["--rule", "wiseedit.rounding=2"], 'wiseedit.rounding is metric or none, not "2"'),
        (["--as-published", "--intervals"], "--as-published goes without --intervals"),
    ],
)
@pytest.mark.long
def test_a_mistake_is_one_sentence(
    wise: Path, options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", str(wise), *options]) == 2
    assert sentence in capsys.readouterr().err


def test_a_paper_without_a_public_script_says_so(tmp_path: Path) -> None:
    lines = [(edit("1", "Change Color", "A"), {"instruction_following": 100.0})]
    table = read_run_table(keep(tmp_path / "run", "dlebench", lines))
    with pytest.raises(UserError, match="no public script is known for dlebench; it is for: wiseedit"):
        choose_rules(table, published=True)
    assert choose_rules(table) is None


def test_rules_that_a_run_recorded_hold_until_others_are_chosen(wise: Path) -> None:
    table = read_run_table(wise)
    setup = {"name": "mine", "protocol": "wiseedit", "rules": {"rounding": "metric"}}
    about = {"configurations": [{"name": table.configuration, "setup": setup}]}
    table = type(table)(**{**vars(table), "about": about})
    chosen = choose_rules(table)
    assert chosen is not None
    assert chosen["wiseedit.rounding"] == "metric"
    assert chosen["wiseedit.incomplete_row"] == "zero_in_its_language"
    assert choose_rules(table, changes={"wiseedit.rounding": "none"}) != chosen


def test_a_preset_takes_rules_of_the_script_and_refuses_others() -> None:
    setup = read_setup({"name": "x", "protocol": "wiseedit", "rules": {"wiseedit.rounding": "metric"}}, "x.yaml")
    assert setup.rule_settings() is None  # nothing that changes what is asked
    assert setup.describe()["rules"] == {"wiseedit.rounding": "metric"}
    with pytest.raises(UserError, match=r"wiseedit\.rounding is metric or none"):
        read_setup({"name": "x", "protocol": "wiseedit", "rules": {"rounding": "2"}}, "x.yaml")
    with pytest.raises(UserError, match='there is no rule "colour"'):
        read_setup({"name": "x", "protocol": "wiseedit", "rules": {"colour": "2"}}, "x.yaml")


def test_notes_name_the_value_its_origin_what_it_changed_and_what_is_lost() -> None:
    table = PublishedTable("T", ("x",), {"A": (1.0,)}, {"paper.rounding": "3 cases of A"}, ("A draws lots.",))
    printed = SCRIPT.print(table, SCRIPT.choose({}, published=True))
    assert printed.columns == ("model", "x")
    assert printed.notes == (
        "Cannot be reproduced: A draws lots.",
        "paper.rounding=tenths (script): To 0.1. Concerned: 3 cases of A.",
    )

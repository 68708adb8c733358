"""Judgements and tables are readable in a terminal and in a notebook, and convert to pandas."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from editloupe.demo import demo_manifest
from editloupe.evals.manifests.layouts import load_manifest
from editloupe.evals.runs.store import Run
from editloupe.evals.stats import compute_scores, measure_agreement
from editloupe.judge import Judge
from editloupe.rubrics.tables import PrintedTable
from editloupe.types import Edit, Judgement, Reason, Unjudged, Verdict

EDIT = Edit(id="cup <1>", source="a.png", edited="b.png", instruction="Make it red")
JUDGED = Verdict(criterion="following", label="Wrong Action", score=1, score_100=100 / 3, rationale="It is <blue>.")
FAILED = Unjudged(criterion="quality", reason=Reason.BAD_IMAGE, detail="b.png is an empty file")
JUDGEMENT = Judgement(edit=EDIT, protocol="dlebench", mode="plain", judge="rules", verdicts=(JUDGED, FAILED))
TABLE = PrintedTable("Scores & ranks", ("model", "score"), (("<a>", 66.666), ("b", None)), ("One note.",))


def test_a_judgement_prints_one_line_per_criterion() -> None:
    assert repr(JUDGEMENT).splitlines() == [
        "Judgement of 'cup <1>' by rules (dlebench, plain)",
        "  following: Wrong Action (33.33 of 100)",
        "  quality: unjudged (bad_image): b.png is an empty file",
    ]
    assert str(JUDGEMENT) == repr(JUDGEMENT)


def test_a_verdict_without_a_label_prints_its_values() -> None:
    verdict = Verdict(criterion="checks", score=None, score_100=50.0, values={"path": 1, "context": 0.5})
    judgement = JUDGEMENT.model_copy(update={"verdicts": (verdict,)})
    assert repr(judgement).endswith("checks: path: 1, context: 0.5 (50 of 100)")


def test_a_judgement_is_a_small_escaped_table_in_a_notebook() -> None:
    html = JUDGEMENT._repr_html_()
    assert html.startswith("<table><caption>cup &lt;1&gt;: dlebench, plain, judged by rules</caption>")
    assert "<td>following</td><td>Wrong Action</td><td>33.33</td><td>It is &lt;blue&gt;.</td>" in html
    assert "<td>quality</td><td>unjudged</td><td>–</td><td>bad_image: b.png is an empty file</td>" in html


def test_the_rows_of_a_judgement_have_the_same_fields_for_verdicts_and_unjudged_criteria() -> None:
    first, second = JUDGEMENT.rows()
    assert first.keys() == second.keys()
    assert (first["label"], first["score_100"], first["reason"]) == ("Wrong Action", 100 / 3, None)
    assert (second["label"], second["score_100"], second["reason"]) == (None, None, Reason.BAD_IMAGE)


def test_the_readable_forms_change_neither_equality_nor_json() -> None:
    assert Judgement.model_validate_json(JUDGEMENT.model_dump_json()) == JUDGEMENT
    assert set(JUDGEMENT.model_dump()) == {"edit", "protocol", "mode", "judge", "verdicts", "traces", "notes"}


def test_a_printed_table_is_readable_as_text_and_as_html() -> None:
    assert repr(TABLE).splitlines() == ["Scores & ranks", "model  score", "<a>    66.67", "b      –", "One note."]
    html = TABLE._repr_html_()
    assert "<caption>Scores &amp; ranks</caption>" in html
    assert "<td>&lt;a&gt;</td><td>66.67</td>" in html
    assert html.endswith("<p>One note.</p>")


def test_long_tables_say_how_many_rows_are_left_out() -> None:
    table = PrintedTable("", ("row",), tuple((number,) for number in range(75)))
    assert repr(table).endswith("… and 15 more rows")
    assert "… and 15 more rows" in table._repr_html_()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the bundled edits."""
    folder = tmp_path_factory.mktemp("runs") / "demo"
    with Judge("rules", mode="oracle") as judge, Run.write(folder) as written:
        written.configure(judge.describe())
        for judgement in judge.batch(load_manifest(demo_manifest()), concurrency=2):
            written.save(judgement)
    return folder


@pytest.mark.long
@pytest.mark.parametrize(("measure", "title"), [(compute_scores, "Scores by "), (measure_agreement, "Agreement of ")])
def test_scores_and_agreement_are_readable_as_text_and_as_html(
    run: Path, measure: Callable[[Path], Any], title: str
) -> None:
    record = measure(run)
    first, columns, *rows = repr(record).splitlines()
    assert first.startswith(title)
    assert columns.split()[-4:] == ["value", "low", "high", "n"]
    assert rows
    assert record._repr_html_().startswith(f"<table><caption>{title}")


@pytest.mark.parametrize("record", [JUDGEMENT, TABLE], ids=["judgement", "table"])
def test_to_pandas_returns_one_row_per_row(record: Judgement | PrintedTable) -> None:
    pytest.importorskip("pandas")
    assert len(record.to_pandas()) == 2


@pytest.mark.skipif(importlib.util.find_spec("pandas") is not None, reason="pandas is installed")
@pytest.mark.parametrize("record", [JUDGEMENT, TABLE], ids=["judgement", "table"])
def test_without_pandas_one_sentence_says_what_to_install(record: Judgement | PrintedTable) -> None:
    from editloupe import UserError

    with pytest.raises(UserError, match="needs pandas, which is not installed; install it with `pip install pandas`"):
        record.to_pandas()

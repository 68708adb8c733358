"""People's labels come to one score, and a score that is not on the rubric's scale has no place from 0 to 100."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from editloupe.evals.labels.files import parse_label
from editloupe.evals.labels.human import load_human_labels
from editloupe.evals.labels.merge import find_consensus, format_score_label, to_score_100
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import JudgementRecord
from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.evals.traces import find_traces
from editloupe.rubrics.model import (
    Answer,
    Check,
    ChecksAnswer,
    Label,
    LabelAnswer,
    NumberAnswer,
    TextAnswer,
    YesNoAnswer,
)
from editloupe.types import Edit, Judgement, UserError, Verdict
from tests.evals.sample_runs import IF, Line, make_run

LABELS = LabelAnswer(
    labels=tuple(Label(name=name, score=score, meaning="x") for name, score in (("bad", 1), ("fair", 3), ("good", 5)))
)
CHECKS = ChecksAnswer(checks=(Check(key="a", question="Is it?"),))
SCALE = NumberAnswer(low=1, high=10)


def test_the_consensus_is_the_lower_median() -> None:
    agreed = find_consensus(LABELS, [5.0, 1.0, 3.0, 3.0, 5.0, 1.0])
    assert agreed is not None
    assert (agreed.label, agreed.score, agreed.place, agreed.count) == ("fair", 3.0, 50.0, 6)
    assert find_consensus(LABELS, []) is None


@pytest.mark.parametrize(
    ("answer", "score"),
    [(None, 3.0), (TextAnswer(), 3.0), (LABELS, 2.0), (SCALE, 12.0), (CHECKS, 7.0), (YesNoAnswer(), 0.5)],
)
def test_a_score_off_the_scale_or_of_an_unknown_rubric_has_no_place_anywhere(
    answer: Answer | None, score: float
) -> None:
    assert to_score_100(answer, score) is None
    agreed = find_consensus(answer, [score])
    assert agreed is not None
    assert (agreed.score, agreed.place) == (score, None)


@pytest.mark.parametrize(
    ("answer", "text"),
    [(LABELS, "2"), (SCALE, "12"), (CHECKS, "7"), (CHECKS, "-1"), (YesNoAnswer(), "0.5"), (TextAnswer(), "7")],
)
def test_a_label_that_is_not_on_the_scale_has_no_score(answer: Answer, text: str) -> None:
    assert parse_label(answer, text) is None


def test_scores_of_the_scale_keep_their_place_and_their_name() -> None:
    assert [to_score_100(LABELS, score) for score in (1, 3, 5)] == [0, 50, 100]
    assert (to_score_100(CHECKS, 0.25), to_score_100(SCALE, 10), to_score_100(YesNoAnswer(), 0)) == (25, 100, 0)
    assert (format_score_label(LABELS, 5), format_score_label(LABELS, 2), format_score_label(None, 2.5)) == (
        "good",
        "2",
        "2.5",
    )
    assert parse_label(None, "12") == 12, "numbers on an unknown scale are compared as they are"


def test_labels_on_a_rubric_that_is_not_known_are_said_in_the_report_and_in_the_search(tmp_path: Path) -> None:
    folder = write_unknown_run(tmp_path / "run")
    (folder / "labels.jsonl").write_text(json.dumps({"edit_id": "a", "criterion": IF, "label": "3"}) + "\n", "utf-8")
    note = f"The rubric of {IF} is not known: its labels are compared as numbers and have no place from 0 to 100."
    assert note in load_human_labels(read_run_table(folder)).notes
    found = find_traces(folder, "")
    assert [(hit.human, hit.human_score, hit.human_place) for hit in found] == [("3", 3.0, None)]
    assert note in found.notes


def test_a_number_that_no_label_of_a_rubric_has_is_refused(tmp_path: Path) -> None:
    table = read_run_table(make_run(tmp_path / "run", [Line("a")]))
    file = tmp_path / "people.jsonl"
    file.write_text(json.dumps({"edit_id": "a", "criterion": IF, "label": "2.5"}), "utf-8")
    with pytest.raises(UserError, match=r'"2\.5" is not an answer to'):
        load_human_labels(table, file)


def write_unknown_run(folder: Path) -> Path:
    """Write a run of a protocol that is not installed, without a record of its rubrics."""
    edit = Edit(id="a", source=Path("a.png"), edited=Path("b.png"), instruction="Paint the cup red")
    verdict = Verdict(criterion=IF, score=4, score_100=75, rationale="Because.")
    with Run.write(folder) as run:
        judgement = Judgement(edit=edit, protocol="gone", mode="plain", judge="openai:m", verdicts=(verdict,))
        run.save_all([JudgementRecord(judgement, position=0)])
    return folder

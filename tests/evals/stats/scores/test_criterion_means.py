"""What `batch` prints for a criterion is what `report` shows, model by model."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import JudgementRecord
from editloupe.evals.stats.scores.run_scores import compute_criterion_means, compute_scores
from editloupe.evals.stats.scores.run_table import read_configuration_table, read_run_table
from editloupe.rubrics.registry import get_protocol as registered
from editloupe.types import Edit, Judgement, Verdict
from tests.evals.sample_runs import IF, VC, Line, make_run


def test_the_mean_is_over_types_and_the_same_as_in_the_report(tmp_path: Path) -> None:
    lines = [
        Line("1", 4, 4, type="Change Color", model="a"),
        Line("2", 4, 4, type="Change Color", model="a"),
        Line("3", 1, None, type="Change OCR", model="a"),
        Line("1", 1, 1, type="Change Color", model="b"),
    ]
    run = make_run(tmp_path / "run", lines)
    found = {(one.model, one.criterion): one for one in compute_criterion_means(read_run_table(run))}
    assert found["a", IF].mean == 50, "100 and 0, each type counting the same"
    assert (found["a", VC].mean, found["a", VC].judged, found["a", VC].units) == (100, 2, 3)
    assert found["b", IF].mean == 0
    for label, part in compute_scores(run).parts.items():
        for criterion, score in part.overall.criteria.items():
            assert found[label, criterion].mean == pytest.approx(score.value)


def test_repeats_have_a_spread_and_a_run_without_models_names_none(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [Line("1", (4, 1), (4, 4)), Line("2", (4, 4), (4, 4))])
    following, consistent = compute_criterion_means(read_run_table(run))
    assert (following.model, following.mean, following.repeats) == (None, 75, 2)
    assert following.deviation == pytest.approx(50 / 2**0.5)
    assert consistent.deviation == 0


@pytest.mark.long
@pytest.mark.parametrize("name", ["dlebench", "wiseedit", "vibe", "edit-compass"])
def test_edits_that_are_shortened_to_save_memory_have_the_means_of_whole_ones(name: str, tmp_path: Path) -> None:
    protocol, dice = registered(name), random.Random(name)
    filings = []
    for number in range(len(protocol.types) * 6):
        edit = Edit(
            id=f"e{number}",
            source=Path(f"s{number}.png"),
            edited=Path(f"e{number}.png"),
            instruction=f"Paint cup {number} red",
            instruction_type=protocol.types[number % len(protocol.types)],
            model=("a", "b", None)[number % 3],
            extra={"language": ("en", "cn")[number % 2], "column": number},
        )
        verdicts = tuple(
            Verdict(criterion=rubric.criterion, label=None, score=1, score_100=dice.choice((0.0, 40.0, 100.0)))
            for rubric in protocol.rubrics_for(edit)
        )
        whole = Judgement(edit=edit, protocol=name, mode="plain", judge="openai:gpt-5.1", verdicts=verdicts)
        filings.append(JudgementRecord(whole, position=number))
    with Run.write(tmp_path / "run") as run:
        run.save_all(filings)
    with Run.open(tmp_path / "run") as run:
        (one,) = run.configurations()
        whole_edits, short = (read_configuration_table(run, one.name, for_means) for for_means in (False, True))
    assert whole_edits
    assert short
    assert compute_criterion_means(short) == compute_criterion_means(whole_edits)
    kept = len({id(row.edit) for row in short.rows})
    assert kept < len(short.rows) if protocol.edit_score is None else kept == len(short.rows)

"""How far a run can be trusted: agreement and ceiling, bias, labels to halve the interval, what is wrong most, what to do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from editloupe.evals.report.trust_blocks import describe_trust
from editloupe.evals.stats.agreement.judge_vs_human import measure_agreement
from editloupe.evals.stats.intervals import Estimate
from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.evals.stats.trust import correct_scores
from editloupe.evals.stats.trust.corrected_scores import Corrected
from editloupe.evals.stats.trust.prediction_powered import correct_mean
from editloupe.evals.stats.trust.trust_summary import count_labels_to_halve, summarize_trust
from tests.evals.sample_runs import IF, IF_LABELS, VC, VC_LABELS, Line, make_run
from tests.evals.stats.trust.samples import kind_judge, write_labels


def test_a_run_without_labels_says_that_nothing_is_known_and_how_to_start(tmp_path: Path) -> None:
    run, _ = kind_judge(tmp_path, edits=30)
    summary = summarize_trust(read_run_table(run))
    assert summary.advice == "label"
    assert summary.agreement == ()
    sentences = describe_trust(summary, {}, "runs/a b")
    assert len(sentences) == 5
    assert sentences[0].startswith("It is not known how far")
    assert "`editloupe label-queue 'runs/a b' --budget 60`" in sentences[4]


def test_the_advice_never_asks_for_more_labels_than_there_are_edits(tmp_path: Path) -> None:
    run, people = kind_judge(tmp_path, edits=12)
    few = [label for label in people if label["edit_id"] in {f"e{number}" for number in range(5)}]
    labels = write_labels(tmp_path / "few.jsonl", few)
    sentences = describe_trust(summarize_trust(read_run_table(run), labels), {}, "runs/a")
    assert "`editloupe label-queue runs/a --budget 14`" in sentences[4], "12 edits of 2 models, 5 of each labelled"
    assert " ".join(sentences).count("How far people agree with each other on ") == 1


@pytest.mark.long
def test_the_summary_repeats_what_agree_and_corrected_scores_say(tmp_path: Path) -> None:
    run, people = kind_judge(tmp_path, edits=60)
    labels = write_labels(tmp_path / "people.jsonl", people)
    table = read_run_table(run)
    summary = summarize_trust(table, labels)
    agreement, corrected = measure_agreement(table, labels), correct_scores(table, labels)
    assert {own.criterion: own.spearman for own in summary.agreement} == {
        name: own.spearman for name, own in agreement.criteria.items()
    }
    for model in summary.models:
        overall = corrected.parts[model.name].overall
        assert (model.mean.judge, model.mean.corrected, model.mean.low) == (
            overall.judge,
            overall.corrected,
            overall.low,
        )
        assert model.mean.bias == pytest.approx((overall.judge or 0) - (overall.corrected or 0))
        # Edits that move both means cancel out, so the bias is known better than the mean.
        assert 0 < (model.mean.bias_high or 0) - (model.mean.bias_low or 0) < (overall.high or 0) - (overall.low or 0)
    sentences = describe_trust(summary, table.titles, str(run))
    assert "a bias of" in sentences[1]
    assert "only more edits" in sentences[2]


def test_what_is_wrong_most_is_the_type_with_the_largest_distance_and_the_most_frequent_pair_of_labels(
    tmp_path: Path,
) -> None:
    lines = [
        Line(
            f"e{number}", 4 if number < 20 else 1 + number % 4, 2, type="T" if number < 20 else "U", source=f"s{number}"
        )
        for number in range(60)
    ]
    people = [
        {"edit_id": f"e{number}", IF: 1 if number < 20 else 1 + number % 4, VC: 2, "rater": rater}
        for number in range(60)
        for rater in ("a", "b")
    ]
    table = read_run_table(make_run(tmp_path / "run", lines))
    summary = summarize_trust(table, write_labels(tmp_path / "people.jsonl", people))
    assert [(worst.field, worst.name, worst.n) for worst in summary.worst] == [("instruction_type", "T", 20)]
    (mistake,) = [own for own in summary.mistakes if own.criterion == IF]
    names = table.labels(IF)
    assert (mistake.people, mistake.judge, mistake.count) == (names[0], names[3], 20)
    assert "too kind" in describe_trust(summary, table.titles, "run")[1]
    ceiling = {own.criterion: own.ceiling for own in summary.agreement}[IF]
    assert ceiling is not None
    assert ceiling.value == pytest.approx(1)


def test_a_ceiling_is_known_for_the_criteria_with_labels_of_two_and_the_sentence_says_which(tmp_path: Path) -> None:
    lines = [
        Line(f"e{n}", 1 + n % 4, 1 + n // 4 % 4, human={IF: [IF_LABELS[n % 4]] * 2, VC: VC_LABELS[n // 4 % 4]})
        for n in range(32)
    ]
    table = read_run_table(make_run(tmp_path / "run", lines))
    first, *_ = describe_trust(summarize_trust(table), table.titles, "run")
    assert first.count("(one annotator against the others reaches 1.00 ") == 1
    of_following = first.partition("Instruction Following with ρ")[2].partition(" with ρ ")[0]
    assert "(one annotator against the others reaches 1.00 " in of_following
    assert first.endswith("on Visual Consistency is not known, because no edit has two people's labels for it.")


def test_a_judge_that_does_not_follow_people_is_to_be_replaced(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    lines = [Line(f"e{n}", int(random.integers(1, 5)), int(random.integers(1, 5)), source=f"s{n}") for n in range(80)]
    people = [{"edit_id": f"e{n}", IF: int(random.integers(1, 5)), VC: int(random.integers(1, 5))} for n in range(80)]
    table = read_run_table(make_run(tmp_path / "run", lines))
    summary = summarize_trust(table, write_labels(tmp_path / "people.jsonl", people))
    assert max(own.spearman.value or 0 for own in summary.agreement) < 0.2
    assert summary.advice == "another judge"
    assert "hardly follows people" in describe_trust(summary, table.titles, "run")[4]


@pytest.mark.long
def test_that_many_labels_do_halve_the_interval() -> None:
    """Draw 60 of 2 000 labels, ask how many halve the interval, and draw that many."""
    random = np.random.default_rng(1)
    people = random.normal(50, 20, 2000).clip(0, 100)
    judge = (people + random.normal(5, 15, 2000)).clip(0, 100)
    shares = np.full(2000, 1 / 2000)

    def width(labels: int) -> tuple[float, Corrected]:
        labelled = np.argsort(np.argsort(random.random((400, 2000)), 1), 1) < labels
        found = correct_mean(np.broadcast_to(people, labelled.shape), judge, labelled, shares)
        low, high = found.interval()
        middle = float(found.value.mean())
        half = float((high - low).mean()) / 2
        weight = float(found.weight.mean())
        mean = Corrected(
            judge=55, corrected=middle, low=middle - half, high=middle + half, labels=labels, edits=2000, weight=weight
        )
        return 2 * half, mean

    before, mean = width(60)
    spread = 1.96 * float(judge.std()) / 2000**0.5
    own = Estimate(value=55, low=55 - spread, high=55 + spread, n=2000)
    needed = count_labels_to_halve(mean, own)
    assert needed is not None
    assert 240 < needed < 300
    assert width(needed)[0] / before == pytest.approx(0.5, abs=0.03)
    assert count_labels_to_halve(mean.model_copy(update={"edits": 200}), own) is None

"""Queues of edits to label: known probabilities, the same queue for the same seed, nothing overwritten."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from editloupe.cli.main import run as command
from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.evals.stats.trust.label_queue import (
    LabelQueue,
    draw_evenly,
    draw_queue,
    drawing_probabilities,
    find_queue,
    sample_systematically,
)
from editloupe.types import UserError
from tests.evals.sample_runs import Line, make_run
from tests.evals.stats.trust.samples import kind_judge


def test_probabilities_follow_the_formula_and_spend_the_budget() -> None:
    unsure = np.random.default_rng(0).random(500)
    found = drawing_probabilities(unsure, 50, 0.5)
    assert found == pytest.approx(0.5 * (0.1 / unsure.mean()) * unsure + 0.05)
    assert found.sum() == pytest.approx(50)
    assert drawing_probabilities(np.zeros(10), 5, 0.5) == pytest.approx(np.full(10, 0.5)), (
        "no doubt anywhere: all alike"
    )
    assert drawing_probabilities(unsure, 2000, 0.5) == pytest.approx(np.clip(0.5 * unsure / unsure.mean() + 0.5, 0, 1))


@pytest.mark.long
def test_items_are_drawn_as_often_as_their_probabilities_say() -> None:
    random = np.random.default_rng(1)
    chances = drawing_probabilities(random.random(40), 10, 0.4)
    counts = np.zeros(40)
    for _ in range(4000):
        picked = sample_systematically(chances, random)
        assert len(picked) == len(set(picked.tolist())) == 10
        counts[picked] += 1
    assert np.abs(counts / 4000 - chances).max() < 0.04


@pytest.mark.long
def test_the_same_seed_gives_the_same_queue_and_doubt_is_drawn_more_often(tmp_path: Path) -> None:
    table = read_run_table(kind_judge(tmp_path)[0])
    one, kind = draw_queue(table, 60, seed=7)
    assert kind == "confidence"
    assert one == draw_queue(table, 60, seed=7)[0]
    assert one != draw_queue(table, 60, seed=8)[0]
    assert abs(len(one.drawn) - 60) <= 1
    doubts = [(entry.uncertainty, entry.probability) for entry in one.drawn]
    assert sorted(doubts) == sorted(doubts, key=lambda pair: pair[1])


@pytest.mark.long
def test_a_queue_survives_its_file_and_is_found_in_its_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, _ = kind_judge(tmp_path)
    assert find_queue(read_run_table(run)) is None
    assert command(["label-queue", str(run), "--budget", "30"]) == 0
    assert "30 of 240 edits" in capsys.readouterr().err
    found = find_queue(read_run_table(run))
    assert found is not None
    assert found.chances == draw_queue(read_run_table(run), 30)[0].chances
    assert command(["label-queue", str(run), "--budget", "30"]) == 0, "the same again changes nothing"
    assert command(["label-queue", str(run), "--budget", "31"]) == 2, "labels may have been drawn by the first"
    assert command(["label-queue", str(run), "--budget", "31", "--out", str(tmp_path / "q.jsonl")]) == 0
    assert len(LabelQueue.read(tmp_path / "q.jsonl").drawn) == 31


def test_repeats_that_differ_are_a_doubt_and_unjudged_edits_are_not_drawn(tmp_path: Path) -> None:
    lines = [Line(f"e{n}", (4, 4, 4) if n % 2 else (1, 2, 4), "") for n in range(20)]
    run = make_run(tmp_path / "run", [*lines, Line("gone", (None, None, None), "")])
    queue, kind = draw_queue(read_run_table(run), 20, tau=0.2)
    assert kind == "repeats"
    chances = queue.chances
    assert chances.get("e0", 1) > chances.get("e1", 0)
    assert "gone" not in chances


@pytest.mark.parametrize(("budget", "tau"), [(0, 0.5), (5, 0.0), (5, 1.5)])
def test_what_cannot_be_drawn_is_refused(tmp_path: Path, budget: int, tau: float) -> None:
    table = read_run_table(make_run(tmp_path / "run", [Line("e0"), Line("e1")]))
    with pytest.raises(UserError, match=r"--budget is|--tau is"):
        draw_queue(table, budget, tau)


def test_a_file_that_is_no_queue_is_told_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text('{"edit_id": "e0", "name": "e0", "probability": 0}\n')
    with pytest.raises(UserError, match="line 1"):
        LabelQueue.read(path)


def test_names_that_look_the_same_are_one_annotator(tmp_path: Path) -> None:
    run, _ = kind_judge(tmp_path, edits=30, models=("x",))
    queue, _ = draw_queue(read_run_table(run), 10)
    assert queue.split(["Ana", "Ana\u200b", "Ben"], 0).annotators == ("Ana", "Ben")
    with pytest.raises(UserError, match="two annotators or more"):
        queue.split(["Ana", "\u202eAna"], 0)


def test_each_group_is_drawn_with_its_own_probability(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, _ = kind_judge(tmp_path, edits=30)
    path = tmp_path / "q.jsonl"
    assert command(["label-queue", str(run), "--per", "model,instruction_type", "6", "--out", str(path)]) == 0
    assert "drew 32 of 60 edits" in (said := capsys.readouterr().err)
    assert "6 of each of 6 groups by model and instruction_type; 4 groups with fewer (x · Change Color: 5" in said
    queue, table = LabelQueue.read(path), read_run_table(run)
    groups = {row.name: (row.model, row.edit.instruction_type) for row in table.rows}
    sizes, drawn = Counter(groups.values()), Counter(groups[edit.name] for edit in queue.drawn)
    assert drawn == {group: min(6, size) for group, size in sizes.items()}
    assert all(edit.probability == min(6, size := sizes[groups[edit.name]]) / size for edit in queue.drawn)
    assert queue.whole == 60
    assert [groups[edit.name] for edit in queue.drawn] != sorted(groups[edit.name] for edit in queue.drawn)


def test_groups_of_a_draw_follow_their_probabilities() -> None:
    edits = [(f"e{n}", f"e{n}", None) for n in range(12)]
    groups = ["small"] * 3 + ["large"] * 9
    counts: Counter[str] = Counter()
    for seed in range(600):
        counts.update(edit.name for edit in draw_evenly(edits, 2, seed, groups=groups).drawn)
    assert max(abs(counts[f"e{n}"] / 600 - 2 / 3) for n in range(3)) < 0.08
    assert max(abs(counts[f"e{n}"] / 600 - 2 / 9) for n in range(3, 12)) < 0.07


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ([], "one of the two"),
        (["--budget", "3", "--per", "model", "2"], "one of the two"),
        (["--per", "stile", "2"], 'no edit has a column "stile"; there are: id, instruction'),
        (["--per", "model", "0"], "a number of at least 1"),
        (["--per", "model", "2", "--tau", "0.3"], "--tau and --by go with --budget"),
    ],
)
def test_a_draw_per_group_that_makes_no_sense_is_refused(
    tmp_path: Path, options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run", [Line("e0", model="x"), Line("e1", model="y")])
    assert command(["label-queue", str(run), *options]) == 2
    assert sentence in capsys.readouterr().err

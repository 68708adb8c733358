"""Several queues are one: each estimates the whole, they are averaged by size, and what cannot be joined is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from editloupe.cli.main import run as command
from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.evals.stats.trust.corrected_scores import correct_scores
from editloupe.evals.stats.trust.label_queue import (
    LabelQueue,
    QueuedEdit,
    draw_queue,
    drawing_probabilities,
    join_queues,
    sample_systematically,
)
from editloupe.types import UserError
from tests.evals.sample_runs import Line, make_run
from tests.evals.stats.trust.samples import kind_judge, write_labels


def queue(name: str, chances: dict[str, float], of: int | None = 100) -> LabelQueue:
    return LabelQueue(name, tuple(QueuedEdit(one, one, None, chance, None, "", of) for one, chance in chances.items()))


def test_a_label_counts_by_its_queues_sizes_over_its_probabilities() -> None:
    joined = join_queues([queue("a", {"x": 0.5, "y": 0.25}), queue("b", {"y": 0.1, "z": 0.2})])
    weights = {name: 1 / chance for name, chance in joined.chances.items()}
    assert weights == {
        "x": pytest.approx(0.5 / 0.5),
        "y": pytest.approx(0.5 / 0.25 + 0.5 / 0.1),
        "z": pytest.approx(2.5),
    }
    assert joined.name == "a and b"


@pytest.mark.long
def test_the_weights_of_joined_queues_add_up_to_the_whole_on_average() -> None:
    random = np.random.default_rng(5)
    values = random.random(60)
    first, second = drawing_probabilities(random.random(60), 12, 0.5), drawing_probabilities(random.random(60), 20, 0.3)
    totals = []
    for _ in range(3000):
        queues = [
            queue(name, {str(one): float(chances[one]) for one in sample_systematically(chances, random)})
            for name, chances in (("a", first), ("b", second))
        ]
        joined = join_queues(queues)
        totals.append(sum(values[int(name)] / chance for name, chance in joined.chances.items()))
    error = np.std(totals) / np.sqrt(len(totals))
    assert abs(np.mean(totals) - values.sum()) < 4 * error


def test_queues_of_different_wholes_and_the_same_draw_twice_are_refused() -> None:
    with pytest.raises(UserError, match=r"different numbers of edits \(100 and 90\)"):
        join_queues([queue("a", {"x": 0.5}), queue("b", {"y": 0.5}, of=90)])
    with pytest.raises(UserError, match="the same draw"):
        join_queues([queue("a", {"x": 0.5}), queue("b", {"x": 0.5})])


@pytest.mark.long
def test_the_report_and_the_calibration_take_labels_of_two_queues(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, people = kind_judge(tmp_path)
    given = ["--human", str(write_labels(tmp_path / "h.jsonl", people))]
    for seed, name in ((1, "one.jsonl"), (2, "two.jsonl")):
        assert (
            command(["label-queue", str(run), "--budget", "80", "--seed", str(seed), "--out", str(tmp_path / name)])
            == 0
        )
        given += ["--queue", str(tmp_path / name)]
    capsys.readouterr()
    assert command(["report", str(run), "--corrected", *given]) == 0
    assert "drawn by one.jsonl and two.jsonl, averaged by their sizes" in " ".join(capsys.readouterr().out.split())
    assert command(["calibrate", str(run), "--agreement", "0.3", "--out", str(tmp_path / "t.yaml"), *given]) == 0
    assert "thinned to an even sample" in capsys.readouterr().out


def test_edits_that_need_a_person_are_drawn_first_and_alone_correct_nothing(tmp_path: Path) -> None:
    lines = [Line(f"e{n}", 1 + n % 4, "", confidence=0.5) for n in range(40)]
    table = read_run_table(make_run(tmp_path / "run", lines))
    needing = table.rows[3]
    units = {
        name: (found[0].with_kind(status="unjudged", reason="needs_a_person"),) for name, found in needing.units.items()
    }
    from dataclasses import replace

    table = table.with_rows(replace(row, units=units) if row is needing else row for row in table.rows)
    drawn, _ = draw_queue(table, 10)
    assert len(drawn.drawn) == 10
    assert [(one.name, one.probability) for one in drawn.drawn if one.why] == [("e3", 1.0)]
    alone, _ = draw_queue(table, 1)
    assert [one.name for one in alone.drawn] == ["e3"]
    people = write_labels(tmp_path / "h.jsonl", [{"edit_id": "e3", "instruction_following": 2}])
    with pytest.raises(UserError, match="only edits that need a person"):
        correct_scores(table, [people], alone)

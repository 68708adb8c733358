"""Drift: same, changed, or cannot tell, and an exit code for each."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from editloupe.cli.main import run as command
from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.evals.stats.trust.drift import ONE_REPEAT, assess_shift, draw_anchor_rows, measure_drift
from editloupe.types import UserError
from tests.conftest import StartServer
from tests.evals.sample_runs import IF, Line, make_run
from tests.evals.samples import write_manifest
from tests.judge.samples import GOOD, SMALL, batch
from tests.judge.samples import run as run_batch
from tests.scripted import final


def runs(folder: Path, before: list[object], after: list[object]) -> tuple[Path, Path]:
    """Write two judgings of the same edits."""
    return tuple(  # type: ignore[return-value]
        make_run(folder / name, [Line(f"e{n}", given, "") for n, given in enumerate(values)])  # type: ignore[arg-type]
        for name, values in (("anchor", before), ("again", after))
    )


@pytest.mark.long
def test_the_same_labels_on_many_edits_are_the_same_judge_and_on_few_cannot_be_told(tmp_path: Path) -> None:
    labels: list[object] = [1 + n % 4 for n in range(120)]
    a, b = runs(tmp_path / "many", labels, labels)
    found = measure_drift(read_run_table(a), read_run_table(b))
    assert (found.answer, found.criteria[IF].exact, found.criteria[IF].kappa) == ("same", 1.0, 1.0)
    assert "no mean moved by 5 points of 100 or more (same label: Instruction Following 100 %)" in found.sentence
    assert found.sentence.endswith(ONE_REPEAT)
    a, b = runs(tmp_path / "twice", [(label, label) for label in labels], labels)
    assert ONE_REPEAT not in measure_drift(read_run_table(a), read_run_table(b)).sentence
    a, b = runs(tmp_path / "few", labels[:30], labels[:30])
    assert measure_drift(read_run_table(a), read_run_table(b)).answer == "cannot tell"
    a, b = runs(tmp_path / "fewer", labels[:12], labels[:12])
    assert "at least 20 are needed" in measure_drift(read_run_table(a), read_run_table(b)).criteria[IF].why


def test_a_judge_that_became_kinder_has_changed(tmp_path: Path) -> None:
    labels = [1 + n % 4 for n in range(100)]
    a, b = runs(tmp_path, list(labels), [min(label + (n % 3 == 0), 4) for n, label in enumerate(labels)])
    found = measure_drift(read_run_table(a), read_run_table(b))
    assert found.answer == "changed"
    one = found.criteria[IF]
    assert one.shift is not None
    assert one.shift > 5
    assert (one.low or 0) > 0


@pytest.mark.long
def test_a_judge_that_became_a_dice_has_changed_where_its_own_repeats_are_known(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    labels = [int(label) for label in random.integers(1, 5, 200)]
    again = [int(label) for label in random.permutation(labels)]
    a, b = runs(tmp_path, [(label, label) for label in labels], [(label, label) for label in again])
    found = measure_drift(read_run_table(a), read_run_table(b))
    assert found.answer == "changed"
    assert "less often than by the judge's own repeats" in found.sentence


def test_runs_without_an_edit_in_common_are_refused(tmp_path: Path) -> None:
    a = make_run(tmp_path / "a", [Line("one")])
    b = make_run(tmp_path / "b", [Line("two")])
    with pytest.raises(UserError, match="share no edit"):
        measure_drift(read_run_table(a), read_run_table(b))


def test_anchors_are_drawn_as_labels_occur_and_alike_for_the_same_seed(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [Line(f"e{n}", 1 if n < 40 else 4, "") for n in range(400)])
    table = read_run_table(run)
    rows = draw_anchor_rows(table, 100, seed=3)
    assert len({row.name for row in rows}) == 100
    assert sum(row.units[IF][0].score == 1 for row in rows) in (9, 10, 11)
    assert rows == draw_anchor_rows(table, 100, seed=3)
    assert rows != draw_anchor_rows(table, 100, seed=4)


@pytest.mark.long
def test_false_alarms_stay_below_the_error_that_was_named() -> None:
    random = np.random.default_rng(0)
    alarms = 0
    for _ in range(800):
        noise = random.choice([-100 / 3, 0, 100 / 3], (2, 60), p=[0.2, 0.6, 0.2])
        alarms += assess_shift(noise[0] - noise[1], np.arange(60), 5, 0.05, 0.05)[0] == "changed"
    assert alarms / 800 <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 800)


@pytest.mark.long
def test_the_command_judges_the_anchor_again_and_ends_with_a_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest, anchor = write_manifest(tmp_path, 24), tmp_path / "anchor"
    manifest.write_text(
        manifest.read_text("utf-8").replace('"Do ', '"Change the color of the cup from white to red '), "utf-8"
    )
    assert command(["batch", str(manifest), "--out", str(anchor), "--judge", "rules", "--quiet"]) in (0, 3)
    capsys.readouterr()
    code = command(["drift", str(anchor), "--judge", "rules", "--edits", "24", "--format", "json"])
    found = json.loads(capsys.readouterr().out)
    assert (code, found["answer"]) == (4, "cannot tell"), "24 edits are too few to show that nothing changed"
    assert command(["drift", str(anchor), "--judge", "rules", "--edits", "24", "--margin", "20"]) == 0
    assert "Same: on 24 edits" in capsys.readouterr().out


def test_too_few_source_pictures_are_named_where_nothing_can_be_told(tmp_path: Path) -> None:
    before, after = (
        make_run(tmp_path / name, [Line(f"e{n}", given, "", source=f"s{n % 4}") for n in range(40)])
        for name, given in (("anchor", 4), ("again", 3))
    )
    assert (
        "Cannot tell with 40 edits of 4 source pictures"
        in measure_drift(read_run_table(before), read_run_table(after)).sentence
    )


@pytest.mark.long
def test_another_version_that_is_served_is_named(scripted: StartServer, tmp_path: Path) -> None:
    manifest = write_manifest(tmp_path, 2)
    for name in ("v1", "v2"):
        run_batch(batch(scripted(lambda _, name=name: final(GOOD).but(served=name)), SMALL, manifest, tmp_path / name))
    first, second = (read_run_table(tmp_path / name) for name in ("v1", "v2"))
    assert any(
        note.startswith("Served then: v1") and "Served again: v2" in note for note in measure_drift(first, second).notes
    )
    assert not any("Served" in note for note in measure_drift(first, first).notes)

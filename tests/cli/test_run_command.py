"""`editloupe run`: info, merge and prune, over runs of several models and judges."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from editloupe.cli.main import run as command
from editloupe.evals.runs import run_folder
from editloupe.evals.runs.merging import merge_runs
from editloupe.evals.runs.store import Run
from editloupe.judge.question_key import QuestionSpec
from tests.conftest import StartServer
from tests.evals.sample_runs import Line, make_run
from tests.evals.samples import judgement, write_picture
from tests.scripted import final


def told(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_info_measures_some_pictures_of_a_large_run_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_run(tmp_path / "run", [Line(f"e{number}") for number in range(4)])
    for number in range(40):
        file = folder / "pictures" / f"{number:02x}" / f"{number:064x}.png"
        file.parent.mkdir(parents=True)
        file.write_bytes(bytes(1000))
    monkeypatch.setattr(run_folder, "MEASURED", 10)
    assert command(["run", "info", str(folder), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["pictures"], facts["picture_bytes"], facts["picture_bytes_estimated"]) == (40, 40_000, True)
    assert command(["run", "info", str(folder)]) == 0
    assert "40 pictures (about 0.0 MB), tables" in capsys.readouterr().out


def test_info_says_who_judged_what_of_which_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_run(tmp_path / "run", [Line("x", model="a"), Line("y", None, model="b")])
    make_run(folder, [Line("x", model="a")], judge="rules")
    assert command(["run", "info", str(folder)]) == 0
    said = told(capsys)
    assert "2 edits" in said
    assert "a (1), b (1)" in said
    assert "openai:gpt-5.1 · dlebench · tools mode" in said
    assert "3 judged, 1 unjudged" in said
    assert command(["run", "info", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["models"] == {"a": 1, "b": 1}
    assert [one["judge"] for one in found["configurations"]] == ["openai:gpt-5.1", "rules"]


def test_merged_runs_hold_everything_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = make_run(tmp_path / "one", [Line("x", model="a"), Line("y", model="a")], pictures=True)
    second = make_run(tmp_path / "two", [Line("x", 1, model="a"), Line("z", model="b")], pictures=True)
    out = tmp_path / "both"
    assert command(["run", "merge", str(first), str(second), "--out", str(out)]) == 0
    assert "3 edits, 6 verdicts" in told(capsys)
    with Run.open(out) as run, Run.open(first) as one:
        assert sorted((unit.edit_id, unit.model) for unit in run.units()) == sorted(
            [("x", "a")] * 2 + [("y", "a")] * 2 + [("z", "b")] * 2
        )
        assert [u.outcome.label for u in run.units("x")] == [u.outcome.label for u in one.units("x")], (
            "the first stands"
        )
        assert all(run.pictures.find(shas[0]) for _, pictures, _ in run.edits() for shas in pictures.values())
    assert command(["run", "merge", str(first), str(second), "--out", str(out)]) == 2
    assert "is a run already" in capsys.readouterr().err
    assert command(["run", "merge", str(first), "--out", str(tmp_path / "c")]) == 2


def test_a_verdict_stands_before_a_unit_left_unjudged(tmp_path: Path) -> None:
    first = make_run(tmp_path / "one", [Line("x", None, model="a")], pictures=True)
    second = make_run(tmp_path / "two", [Line("x", 3, 2, model="a")], pictures=True)
    assert command(["run", "merge", str(first), str(second), "--out", str(tmp_path / "both")]) == 0
    with Run.open(tmp_path / "both") as run:
        assert [getattr(unit.outcome, "score", None) for unit in run.units()] == [3, 4]


def test_configurations_of_one_name_that_ask_different_things_stay_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both_follow = QuestionSpec("instruction_following", {"criterion": "instruction_following"})
    for name, wording in (("one", "a"), ("two", "b")):
        make_run(tmp_path / name, [Line("x", 3, 2)], pictures=True)
        with Run.write(tmp_path / name) as run:
            began = run.configure({"judge": "j"}, [both_follow])
            asked = QuestionSpec("visual_consistency", {"criterion": "visual_consistency", "wording": wording})
            assert run.configure({"judge": "j"}, [both_follow, asked]) == began
            with run.transaction() as connection:
                for one in (both_follow, asked):
                    connection.execute("UPDATE answers SET asked = ? WHERE criterion = ?", (one.key, one.criterion))
    assert command(["run", "merge", str(tmp_path / "one"), str(tmp_path / "two"), "--out", str(tmp_path / "both")]) == 0
    with Run.open(tmp_path / "both") as run:
        names = [one.name for one in run.configurations()]
        assert len(names) == 2
        for name in names:
            assert [unit.criterion for unit in run.units(configuration=name)] == [
                "instruction_following",
                "visual_consistency",
            ]
        assert set(names) <= {one["name"] for one in run.about()["configurations"]}


def test_a_merge_that_cannot_be_finished_leaves_nothing_that_looks_like_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (make_run(tmp_path / name, [Line(name)]) for name in ("one", "two"))
    out = ["--out", str(tmp_path / "new" / "both")]
    assert command(["run", "merge", str(first), str(first), *out]) == 2
    assert "the same run is named twice" in capsys.readouterr().err
    monkeypatch.setattr("editloupe.evals.runs.merging._copy_pictures", _stop)
    with pytest.raises(KeyboardInterrupt):
        merge_runs([first, second], tmp_path / "new" / "both")
    assert list((tmp_path / "new").iterdir()) == []
    monkeypatch.undo()
    assert command(["run", "merge", str(first), str(second), *out]) == 0
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["both"]


def _stop(*_: object) -> None:
    raise KeyboardInterrupt


def test_pruning_takes_what_nothing_refers_to_and_keeps_the_edits_pictures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, album = judgement(tmp_path)
    folder = tmp_path / "run"
    with Run.write(folder) as run:
        run.save(whole, album=album)
        pictures = sorted(run.pictures.folder.glob("*/*"))
    left_over = folder / "pictures" / "ab" / ("ab" * 16 + ".png")
    left_over.parent.mkdir(exist_ok=True)
    left_over.write_bytes(b"old")
    assert command(["run", "prune", str(folder), "--dry-run"]) == 0
    assert "0 replaced verdicts and 1 picture (3 bytes) would be removed" in told(capsys)
    assert left_over.exists()
    assert command(["run", "prune", str(folder)]) == 0
    assert not left_over.exists()
    assert sorted((folder / "pictures").glob("*/*")) == pictures
    assert command(["run", "prune", str(folder), "--pictures"]) == 0
    with Run.open(folder) as run:
        _, kept, _ = run.edit("e0")
        assert sorted(path.stem for path in (folder / "pictures").glob("*/*")) == sorted(
            sha for shas in kept.values() for sha in shas
        )
        assert run.load_trace("e0")[0].steps[0].thought == "I look."


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        ('UPDATE edits SET pictures = \'{"source": ["\'', "edit e0 cannot be read"),
        ("UPDATE steps SET step = '{}'", "trace 1 cannot be read"),
    ],
)
def test_pruning_a_damaged_run_removes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str, sentence: str
) -> None:
    whole, album = judgement(tmp_path)
    folder = tmp_path / "run"
    with Run.write(folder) as run:
        run.save(whole, album=album)
        with run.transaction() as connection:
            connection.execute(damage)
            connection.execute("DELETE FROM answers WHERE rowid = (SELECT max(rowid) FROM answers)")
    pictures = sorted((folder / "pictures").glob("*/*"))
    pictures_only = ["--pictures"] if "edits" in damage else []
    for dry in ([], ["--dry-run"]):
        assert command(["run", "prune", str(folder), *pictures_only, *dry]) == 2
        assert f"nothing was removed: {sentence}" in " ".join(capsys.readouterr().err.split())
    assert sorted((folder / "pictures").glob("*/*")) == pictures
    with Run.open(folder) as run:
        (units,) = run.reader().connection.execute("SELECT count(*) FROM units").fetchone()
    assert units == len(whole.verdicts)


def test_a_folder_that_is_no_run_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("info", "prune"):
        assert command(["run", name, str(tmp_path)]) == 2
        assert "is not a run" in capsys.readouterr().err


@pytest.mark.long
def test_a_merge_counts_verdicts_as_a_report_does_also_where_one_answers_two_edits(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = write_picture(tmp_path / "s.png", 1), write_picture(tmp_path / "e.png", 2)
    names = [path.name for path in picture]
    lines = [dict(zip(("source", "edited"), names, strict=True), id=name, instruction="Do it") for name in ("x", "y")]
    (tmp_path / "m.jsonl").write_text("\n".join(map(json.dumps, lines)), "utf-8")
    server = scripted(
        lambda request: final("Multiple Anomalies" if "Scene Collapse" in request.system else "Wrong Action")
    )
    judged = ["--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "--mode", "plain", "--quiet"]
    assert command(["batch", str(tmp_path / "m.jsonl"), *judged, "--out", str(tmp_path / "alike")]) == 0
    assert server.served == 2
    other = make_run(tmp_path / "other", [Line("z")], pictures=True)
    capsys.readouterr()
    assert command(["run", "merge", str(tmp_path / "alike"), str(other), "--out", str(tmp_path / "both")]) == 0
    assert "3 edits, 6 verdicts" in told(capsys), "two edits share the two units of the first run"
    assert command(["run", "merge", str(tmp_path / "both"), str(other), "--out", str(tmp_path / "more")]) == 0
    said = capsys.readouterr()
    assert "3 edits, 6 verdicts" in " ".join(said.out.split())
    assert "2 verdicts were in more than one run; the first one of each stands" in " ".join(said.err.split())
    with Run.open(tmp_path / "both") as run:
        assert len(list(run.units())) == 6

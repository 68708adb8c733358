"""Several models' results judged into one run, at once or one after another, and reported beside each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from editloupe.cli.main import run
from editloupe.evals.edival import judge as edival_judge
from editloupe.evals.edival.metrics import compute_figures
from editloupe.evals.runs.store import Run
from editloupe.types import UserError
from tests.conftest import StartServer
from tests.drawn_pictures import save
from tests.evals.edival import stand_ins as s
from tests.evals.edival.evaluate_once import stand_ins
from tests.faults.commands import KEY
from tests.scripted import ScriptedServer

HALF = {1: s.GOOD[0], 2: s.GOOD[0], 3: s.GOOD[0]}
"""Recolors the cup and then does nothing: the lamp never comes and the box never goes."""


class Place:
    """Chains, and three models' folders that lie apart: one does all, one the first turn, one nothing."""

    def __init__(self, root: Path, server: ScriptedServer) -> None:
        self.root, self.server = root, server
        s.kitchen_chain(root / "chains", s.save_base(root / "photos"))
        for name, pictures in {
            "all": dict(enumerate(s.GOOD, 1)),
            "half": HALF,
            "none": dict.fromkeys((1, 2, 3), s.BASE),
        }.items():
            s.put(root / "outputs", name, "multi", pictures)

    def evaluate(self, *more: str, out: str = "run") -> int:
        looking = ["--features", "none", "--quality", "none", "--concurrency", "1", "-q"]
        given = ["--judge", "openai:gpt-4.1", "--base-url", self.server.openai_url, "--out", str(self.root / out)]
        return run(["edival", "evaluate", str(self.root / "chains"), *more, *given, *looking])

    def of(self, *names: str) -> list[str]:
        return [part for name in names for part in ("--results", f"{name}={self.root / 'outputs' / name}")]

    def report(self, *more: str) -> int:
        return run(["edival", "report", str(self.root / "run"), *more])


@pytest.fixture
def place(tmp_path: Path, scripted: StartServer, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(edival_judge, "open_instruments", stand_ins)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    return Place(tmp_path, scripted(s.seeing))


@pytest.mark.long
def test_three_models_are_one_run_and_one_table(place: Place, capsys: Any) -> None:
    assert place.evaluate(*place.of("all", "half", "none")) == 0
    with Run.open(place.root / "run") as opened:
        assert {unit.model for unit in opened.units()} == {"all", "half", "none"}
    capsys.readouterr()
    assert place.report("--table", "3", "--format", "csv") == 0
    lines = [line.split(",")[:4] for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["model", "IF T1", "IF T2", "IF T3"],
        ["all", "100.0", "100.0", "100.0"],
        ["half", "100.0", "0.0", "0.0"],
        ["none", "0.0", "0.0", "0.0"],
    ]
    assert place.report("--table", "3", "--table", "16", "--format", "latex") == 0
    told = capsys.readouterr().out
    assert "half & 100.00 & 0.00 & 0.00" in told
    assert told.count(r"\begin{table}") == 2
    assert place.report("--format", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [table["title"].partition(":")[0] for table in found["tables"][:2]] == ["Table 2", "Table 3"]
    assert {one["model"] for one in found["models"]} == {"all", "half", "none"}


@pytest.mark.long
def test_a_model_that_comes_later_joins_the_run_and_nothing_is_judged_again(place: Place) -> None:
    assert place.evaluate(*place.of("all")) == 0
    before = place.server.served
    assert place.evaluate(*place.of("none")) == 0
    asked = place.server.served
    assert asked == before + 1, "the color of one more first turn"
    assert place.evaluate(str(place.root / "outputs"), "--model", "all", "--model", "none") == 0
    assert place.server.served == asked, "the same pictures in a folder of results are the same edits"
    found = compute_figures(place.root / "run")
    assert [one.model for one in found.of("multi")] == ["all", "none"]


@pytest.mark.long
def test_two_settings_in_one_run_are_never_mixed(place: Place, capsys: Any) -> None:
    assert place.evaluate(*place.of("all", "half")) == 0
    settings = place.root / "s.yaml"
    settings.write_text("threshold: 0.95\n")
    assert place.evaluate(*place.of("all", "half"), "--settings", str(settings)) == 0
    capsys.readouterr()
    assert place.report() == 0
    printed = " ".join("".join(capsys.readouterr()).split())
    assert "was judged in several ways; this is the newest" in printed
    with Run.open(place.root / "run") as opened:
        first, second = (one.name for one in opened.configurations("edival"))
    one, other = (compute_figures(place.root / "run", configuration=name).of("multi")[0] for name in (first, second))
    assert [turn.marginal.value for turn in one.turns] == [1, 1, 1]
    assert [turn.marginal.value for turn in other.turns] == [0, 0, 1], "removal has a threshold of its own"
    assert run(["edival", "compare", str(place.root / "run")]) == 0
    assert "rules.threshold: 0.35 → 0.95" in " ".join(capsys.readouterr().out.split())


@pytest.mark.long
def test_runs_of_one_model_each_make_one_table(place: Place) -> None:
    for name in ("all", "half"):
        assert place.evaluate(*place.of(name), out=name) == 0
    found = compute_figures([place.root / "all", place.root / "half"])
    assert [one.model for one in found.of("multi")] == ["all", "half"]
    assert place.evaluate("--results", f"all={place.root / 'outputs/none'}", out="again") == 0
    found = compute_figures([place.root / "all", place.root / "again"])
    assert [one.model for one in found.of("multi")] == ["all (all)", "all (again)"], "told apart by their runs"


@pytest.mark.long
def test_of_a_picture_that_was_made_again_the_last_form_counts_and_is_told(place: Place) -> None:
    assert place.evaluate(*place.of("half")) == 0
    save(s.GOOD[1], place.root / "outputs/half/multi/kitchen/2.png")
    assert place.evaluate(*place.of("half")) == 0
    found = compute_figures(place.root / "run")
    (model,) = found.models
    assert [turn.marginal.value for turn in model.turns] == [1, 1, 0]
    assert model.last.chain.judged == 1
    assert any("in an earlier form too" in note for note in found.notes)


@pytest.mark.long
@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([], "there is nothing to judge"),
        (["--results", "outputs"], "--results takes MODEL=FOLDER"),
        (["--results", "all=OUT/all", "--results", "all=OUT/half"], "names all twice"),
        (["--results", "a/b=OUT/all"], "holds a slash"),
        (["--results", "al=OUT/al"], "is not a folder of results of al"),
        (["--results", "all=OUT"], "is not a mode"),
        (["OUT", "--results", "all=OUT/half"], "both have results of all"),
        (["OUT", "--model", "hal"], 'no results of the model "hal"; there are: all, half, none'),
        (["OUT", "--mode", "complex"], 'no results of the mode "complex"; there are: multi'),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_folders_that_cannot_be_meant_are_one_sentence(
    place: Place, given: list[str], sentence: str, capsys: Any
) -> None:
    assert place.evaluate(*(part.replace("OUT", str(place.root / "outputs")) for part in given)) == 2
    told = capsys.readouterr().err.strip()
    assert sentence in told
    assert len(told.splitlines()) == 1
    assert not (place.root / "run").exists()


@pytest.mark.long
def test_an_unknown_configuration_is_told_with_those_there_are(place: Place) -> None:
    assert place.evaluate(*place.of("none"), "--criterion", "visual_quality") == 0
    with pytest.raises(UserError, match='has no configuration "other"; it has'):
        compute_figures(place.root / "run", configuration="other")

"""A user's own paper, as docs/guides/extending.md shows it, works without touching general code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, cast

import pytest

from editloupe import Judge, UserError
from editloupe.cli.main import run
from editloupe.evals.manifests import load_benchmark, load_manifest, load_outputs
from editloupe.evals.report import build_report
from editloupe.rubrics import Paper, papers, register, registry
from editloupe.rubrics.registry import DEFAULT, OWN, find_protocol
from editloupe.rubrics.user_rubrics import protocol_from_folder
from tests.conftest import StartServer
from tests.drawn_pictures import save, textured
from tests.evals.sample_runs import Line, make_run
from tests.scripted import Request, ScriptedServer, say

PAGE = (Path(__file__).parents[5] / "docs" / "guides" / "extending.md").read_text("utf-8")


@pytest.fixture(autouse=True)
def _unregistered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let what a test registers or installs go with it."""
    monkeypatch.setattr(registry, "_registered", {})
    installed_papers = registry.installed_papers
    installed_papers.cache_clear()
    yield
    installed_papers.cache_clear()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Write the package of the documents, with its entry point, where Python would install it; return that place."""
    place = tmp_path / "site"
    for name, text in re.findall(r"^`(sketchbench/\S+)`\n\n```\w+\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text, "utf-8")
    section = re.search(r'^\[project\.entry-points\."(\S+)"\]\n(\w+) = "(\S+)"$', PAGE, re.MULTILINE)
    assert section
    about = place / "sketchbench-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: sketchbench\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{section[1]}]\n{section[2]} = {section[3]}\n")
    return place


@pytest.fixture
def paper(package: Path) -> Paper:
    """Return the record, out of a package that is not installed."""
    spec = spec_from_file_location("sketchbench", package / "sketchbench" / "__init__.py")
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    assert isinstance(module.PAPER, Paper)
    return module.PAPER


@pytest.fixture
def benchmark(tmp_path: Path) -> list[str]:
    """A benchmark of three sketches and one model's results, as arguments of `batch`."""
    tasks = []
    for folder in ("data/sketches", "results/mine"):
        (tmp_path / folder).mkdir(parents=True)
    for number, subject in enumerate(("people", "people", "places")):
        save(textured(seed=number), tmp_path / f"data/sketches/{number}.png")
        save(textured(seed=number + 10), tmp_path / f"results/mine/{number}.png")
        tasks.append({"id": number, "sketch": f"sketches/{number}.png", "subject": subject})
    (tmp_path / "data/tasks.json").write_text(json.dumps(tasks))
    return [str(tmp_path / "data"), "--layout", "sketchbench", "--results", str(tmp_path / "results/mine")]


def judging(server: ScriptedServer, out: Path) -> list[str]:
    return [
        "--protocol",
        "sketchbench",
        "--judge",
        "openai:gpt-4.1",
        "--base-url",
        server.openai_url,
        "--out",
        str(out),
    ]


def answer(request: Request) -> object:
    return say(
        '{"reason": "seen", "answer": "yes"}' if "photograph?" in request.system else '{"reason": "seen", "score": 4}'
    )


@pytest.mark.long
def test_a_registered_paper_is_read_judged_and_tabled(
    paper: Paper, benchmark: list[str], tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    register(paper)
    out = tmp_path / "run"
    assert run(["batch", *benchmark, *judging(scripted(answer), out), "-q"]) == 0
    report = build_report(out)
    (table,) = report.tables
    assert (table.title, table.columns) == ("SketchBench, Table 1", ("subject", "score", "photographs"))
    assert table.rows == (("people", 75.0, 2.0), ("places", 75.0, 1.0))
    assert report.overall.value == 75.0
    assert "lower of its two criteria" in report.arithmetic
    assert list(report.by_type) == ["people", "places"]
    capsys.readouterr()
    assert run(["report", str(out)]) == 0
    assert "SketchBench, Table 1" in capsys.readouterr().out
    assert run(["protocols", "show", "sketchbench"]) == 0
    assert "Could Edited Image be a photograph?" in capsys.readouterr().out


@pytest.mark.long
def test_a_run_whose_paper_is_gone_is_reported_with_the_plain_tables(
    paper: Paper, benchmark: list[str], tmp_path: Path, scripted: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(paper)
    assert run(["batch", *benchmark, *judging(scripted(answer), tmp_path / "run"), "-q"]) == 0
    monkeypatch.setattr(registry, "_registered", {})
    report = build_report(tmp_path / "run")
    assert report.tables == ()
    assert report.overall.value == pytest.approx((75 + 100) / 2)
    assert "place on the rubric's scale" in report.arithmetic
    assert "No paper called sketchbench is installed, so its own arithmetic and tables are left out." in report.notes
    with pytest.raises(UserError, match='no protocol "sketchbench"'):
        Judge("rules", protocol="sketchbench")


@pytest.mark.long
def test_a_run_of_rubric_files_has_no_paper_and_nothing_to_say_about_that(
    package: Path, tmp_path: Path, scripted: StartServer
) -> None:
    lines = [{"id": "a", "source": "s.png", "edited": "e.png", "instruction": "x"}]
    for number, name in enumerate(("s.png", "e.png")):
        save(textured(seed=number), tmp_path / name)
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = ["batch", str(tmp_path / "m.jsonl"), "--rubric", str(package / "sketchbench/rubrics/fidelity.yaml")]
    command += judging(scripted(answer), tmp_path / "run")[2:]
    assert run([*command, "-q"]) == 0
    report = build_report(tmp_path / "run")
    assert (report.protocol, report.tables) == (OWN, ())
    assert not [note for note in report.notes if "paper" in note]


@pytest.mark.long
def test_an_installed_paper_is_known_to_the_command(package: Path, benchmark: list[str], tmp_path: Path) -> None:
    def command(*arguments: str) -> str:
        where = os.pathsep.join((str(package), *filter(None, sys.path)))
        done = subprocess.run(
            [sys.executable, "-m", "editloupe", *arguments],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": where, "COLUMNS": "200"},
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert " or sketchbench" in command("batch", "--help")
    assert "SketchBench: Photographs from Sketches" in command("protocols")
    planned = command(
        "batch", *benchmark, "--protocol", "sketchbench", "--judge", "rules", "--out", str(tmp_path / "r"), "--dry-run"
    )
    assert planned.startswith("6 units to judge")


@pytest.mark.parametrize(
    ("code", "why"), [("PAPER = 1 / 0", "ZeroDivisionError"), ("import sys; sys.exit(7)", "SystemExit: 7")]
)
def test_a_package_that_cannot_be_loaded_is_left_out_and_named(
    package: Path, monkeypatch: pytest.MonkeyPatch, code: str, why: str
) -> None:
    (package / "sketchbench" / "__init__.py").write_text(f"{code}\n")
    monkeypatch.syspath_prepend(str(package))
    with pytest.warns(UserWarning, match=f"the paper sketchbench cannot be loaded: {why}"):
        assert "sketchbench" not in [one.name for one in papers()]
    assert find_protocol("sketchbench") is None


def test_the_command_says_so_in_one_sentence_and_goes_on(
    package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (package / "sketchbench" / "__init__.py").write_text("raise RuntimeError('first\\nsecond \\x1b[31m')\n")
    monkeypatch.syspath_prepend(str(package))
    assert run(["protocols"]) == 0
    (sentence,) = capsys.readouterr().err.splitlines()
    assert sentence.startswith("editloupe: the paper sketchbench cannot be loaded: RuntimeError: first")
    assert "\x1b" not in sentence


def test_what_is_no_paper_is_not_registered() -> None:
    with pytest.raises(UserError, match="not int"):
        register(cast(Any, 5))


def test_an_installed_paper_with_a_name_that_is_taken_is_left_out_and_named(
    paper: Paper, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = replace(paper, protocol=replace(paper.protocol, name=DEFAULT.name))
    monkeypatch.setattr(registry, "installed_papers", lambda: (taken,))
    with pytest.warns(UserWarning, match=f'skipped: there is already a protocol "{DEFAULT.name}"'):
        assert papers() == registry.PAPERS


def test_a_folder_without_rubrics_or_with_somebody_elses_is_told_in_one_sentence(package: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no rubric file"):
        protocol_from_folder(tmp_path / "nothing", name="x", title="X", source="")
    rubrics = package / "sketchbench" / "rubrics"
    (rubrics / "other.yaml").write_text("extends: sketchbench/realism\nquestion: Is it real?\n")
    with pytest.raises(UserError, match="rewords another rubric"):
        protocol_from_folder(rubrics, name="x", title="X", source="")


def test_a_name_that_is_taken_and_rubrics_of_somebody_else_are_refused(paper: Paper) -> None:
    named = paper.protocol.rubrics[0].model_copy(update={"protocol": "other"})
    for wrong, words in (
        (replace(paper.protocol, name=DEFAULT.name), "already"),
        (replace(paper.protocol, name=OWN), "already"),
        (replace(paper.protocol, name="Sketch Bench"), "is not a valid name"),
        (replace(paper.protocol, rubrics=(named,)), 'names the protocol "other"'),
    ):
        with pytest.raises(UserError, match=words):
            register(replace(paper, protocol=wrong))
    assert find_protocol("sketchbench") is None
    assert len(papers()) == len(registry.PAPERS)


def test_the_last_one_registered_under_a_name_holds(paper: Paper) -> None:
    register(paper)
    register(again := replace(paper, tables=None))
    assert papers()[len(registry.PAPERS) :] == (again,)


@pytest.mark.long
def test_a_paper_may_read_sample_files_and_folders_both(
    paper: Paper, benchmark: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    register(replace(paper, fields=lambda line: {**line, "source": line["sketch"], "edited": line["photo"]}))
    (tmp_path / "m.jsonl").write_text('{"id": "a", "sketch": "s.png", "photo": "e.png", "instruction": "x"}\n')
    (edit,) = load_manifest(tmp_path / "m.jsonl", layout="sketchbench")
    assert (edit.source.name, edit.edited.name) == ("s.png", "e.png")
    assert len(list(load_benchmark("sketchbench", tmp_path / "data", tmp_path / "results/mine"))) == 3
    wanted = ["--protocol", "sketchbench", "--judge", "rules", "--out", str(tmp_path / "r"), "--dry-run"]
    assert run(["batch", *benchmark, *wanted]) == 0
    assert run(["batch", str(tmp_path / "m.jsonl"), "--layout", "sketchbench", *wanted]) == 0


def test_a_paper_of_ones_own_takes_many_models_and_says_what_they_are_run_on(
    paper: Paper, benchmark: list[str], tmp_path: Path
) -> None:
    register(replace(paper, part=lambda edit: (str(edit.instruction_type),)))
    save(textured(seed=5), tmp_path / "results/other.png")
    (tmp_path / "results/yours").mkdir()
    (tmp_path / "results/other.png").rename(tmp_path / "results/yours/1.png")
    found = load_outputs(tmp_path / "data", tmp_path / "results", "sketchbench")
    assert [(edit.model, edit.id, edit.extra.get("output")) for edit in found.edits()] == [
        ("mine", "0", None),
        ("yours", "0", "missing"),
        ("mine", "1", None),
        ("yours", "1", None),
        ("mine", "2", None),
    ]
    assert found.notes[0] == "model yours: no outputs for places (1 case): absent, not counted"
    register(paper)
    assert len(list(load_outputs(tmp_path / "data", tmp_path / "results", "sketchbench").edits())) == 6


def test_a_missing_output_is_marked_where_the_papers_rule_decides_it(tmp_path: Path) -> None:
    from editloupe.evals.stats.scores.paper_tables import list_scored_edits
    from editloupe.evals.stats.scores.run_table import read_run_table

    table = read_run_table(make_run(tmp_path / "run", [Line("a", 4, 4), Line("b", 1, 1)]))
    label = table.rows[1].units["instruction_following"][0].outcome.label  # type: ignore[union-attr]
    assert [one.missing for one in list_scored_edits(table, Paper(DEFAULT))] == [False, False]
    only = [row for row in table.rows if row.edit.id == "b"]
    kept = replace(table, rows=tuple(replace(row, units={"x": row.units["instruction_following"]}) for row in only))
    assert [one.missing for one in list_scored_edits(kept, Paper(DEFAULT, missing_output=label))] == [True]

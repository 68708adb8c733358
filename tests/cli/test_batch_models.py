"""`editloupe batch` with the outputs of several models: one run, what was assumed, and mistakes in one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from editloupe.cli.main import run
from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.rubrics.registry import get_protocol
from tests.conftest import StartServer
from tests.evals.manifests.benchmarks import write_wiseedit, write_wiseedit_results
from tests.evals.samples import write_picture
from tests.rubrics.samples import reply_for
from tests.scripted import Request, final, say


def answers(request: Request) -> Any:
    return final("Perfect Consistency" if "Scene Collapse" in request.system else "Wrong Action")


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A manifest of two samples in DLEBench's own fields, with outputs of two models, one of them lacking one."""
    monkeypatch.chdir(tmp_path)
    lines = []
    for number in (1, 2):
        write_picture(tmp_path / f"src/{number}.png", number)
        lines.append(
            {"id": number, "source_image": f"src/{number}.png", "q_type": "color", "edit_instruction": [f"Do {number}"]}
        )
        write_picture(tmp_path / f"outputs/a/{number}.png", 10 + number)
    write_picture(tmp_path / "outputs/b/1.png", 21)
    (tmp_path / "samples.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def command(url: str, *more: str) -> list[str]:
    judge = ["--judge", "openai:gpt-4.1", "--base-url", url, "--mode", "plain", "--out", "run", "--quiet"]
    return ["batch", "samples.jsonl", "--layout", "dlebench", *judge, *more]


@pytest.mark.long
def test_one_run_holds_the_outputs_of_every_model_and_a_further_one_is_added(
    bench: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server = scripted(answers)
    given = command(server.openai_url, "--results", "A=outputs/a", "--results", "B=outputs/b", "--json")
    assert run(given) == 3
    told = capsys.readouterr()
    facts = json.loads(told.out)
    note = (
        f"model B: 1 of 2 outputs missing, such as {bench / 'outputs/b/2.png'}: they stay unjudged and are not counted"
    )
    boxes, missing = facts["assumed"]
    assert boxes.startswith("samples.jsonl: no column has a known name of target boxes")
    assert missing == note
    assert told.err.count(note) == 1
    assert (facts["units"], facts["judged"], facts["unjudged"]) == (8, 6, {"bad_image": 2})
    rows = {(row.model, row.edit.id): row for row in read_run_table(bench / "run").rows}
    assert set(rows) == {("A", "1"), ("A", "2"), ("B", "1"), ("B", "2")}
    assert {row.edit.instruction_type for row in rows.values()} == {"Change Color"}
    write_picture(bench / "outputs/c/1.png", 31)
    served = server.served
    assert run([*given, "--results", "C=outputs/c"]) == 3
    assert server.served == served + 2
    assert {row.model for row in read_run_table(bench / "run").rows} == {"A", "B", "C"}


@pytest.mark.long
def test_a_papers_layout_is_judged_by_its_protocol_and_a_language_that_was_not_run_counts_nothing(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    write_wiseedit(tmp_path / "data", subsets={"Awareness_1": "WiseEdit/Awareness"})
    left_out = {("Awareness_1", "en", 3)}
    for number, model in enumerate(("one", "two")):
        write_wiseedit_results(tmp_path / "out" / model, ("Awareness_1",), ("en",), left_out if number else ())
    server = scripted(lambda request: say(reply_for(get_protocol("wiseedit"), request.system)))
    given = ["batch", str(tmp_path / "data"), "--layout", "wiseedit", "--results", str(tmp_path / "out"), "--json"]
    given += ["--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "--out", str(tmp_path / "run"), "--quiet"]
    assert run(given) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["units"] == facts["judged"] + facts["held"] == 2 * 3 * 4
    assert [note.partition(": ")[0] for note in facts["assumed"]] == ["model one", "model two", "model two"]
    assert "cn (3 cases)" in facts["assumed"][0]
    labels = [
        (row.model, row.edit.id[-1], unit.outcome.label)  # type: ignore[union-attr]
        for row in read_run_table(tmp_path / "run").rows
        for unit in row.units["visual_quality"]
    ]
    assert [place for *place, label in labels if label == "missing output"] == [["two", "3"]]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--results", "A=outputs/aa"], "outputs/aa, does not exist; is a meant?"),
        (["--results", "A=outputs/a", "--results", "A=outputs/b"], "model A is named twice"),
        (["--results", "outputs", "--model", "bb"], 'there are no results of a model "bb"; is b meant?'),
        (
            ["--results", "A=outputs"],
            "has no output of this benchmark; looked for 1{.png,.jpg,.jpeg,.webp} and the like",
        ),
        (
            ["--results", "outputs", "--protocol", "vibe"],
            'line 1: edit 1 does not say which task of VIBE it is ("Change Color" is not one of them)',
        ),
        (["--model", "A"], "--model and --language pick among outputs, and go with --results"),
        (["--results", "outputs", "--language", "fr"], 'the languages are en and cn, not "fr"'),
    ],
)
def test_a_mistake_about_outputs_is_2_with_one_sentence_and_nothing_is_asked(
    bench: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str], more: list[str], sentence: str
) -> None:
    server = scripted(answers)
    assert run(command(server.openai_url, *more)) == 2
    told = capsys.readouterr().err
    assert sentence in told
    assert len(told.strip().splitlines()) == 1
    assert server.served == 0
    assert not (bench / "run").exists()


@pytest.mark.long
def test_a_type_that_a_protocol_does_not_know_is_told_once(bench: Path, scripted: StartServer, capsys: Any) -> None:
    text = (bench / "samples.jsonl").read_text().replace('"color"', '"smell"')
    (bench / "samples.jsonl").write_text(text)
    assert run(command(scripted(answers).openai_url, "--results", "A=outputs/a")) == 0
    assert capsys.readouterr().err.count('"smell" is not a type of DLEBench; it is counted as a separate type') == 1


@pytest.mark.long
def test_a_manifest_may_hold_an_id_once_for_each_model(tmp_path: Path, scripted: StartServer) -> None:
    lines = []
    for number, model in enumerate(("A", "B")):
        write_picture(tmp_path / f"{model}.png", number)
        lines.append({"id": "x", "source": "s.png", "edited": f"{model}.png", "instruction": "Do it", "model": model})
    write_picture(tmp_path / "s.png", 9)
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    server = scripted(answers)
    given = ["batch", str(tmp_path / "m.jsonl"), "--judge", "openai:gpt-4.1", "--base-url", server.openai_url]
    given += ["--mode", "plain", "--out", str(tmp_path / "run"), "--quiet"]
    assert run(given) == 0
    assert [(row.edit.id, row.model) for row in read_run_table(tmp_path / "run").rows] == [("x", "A"), ("x", "B")]


def test_a_preset_for_another_protocol_than_the_layout_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = write_wiseedit_results(tmp_path / "r/m", ["Awareness_1"], ["en"])
    given = ["batch", str(write_wiseedit(tmp_path / "d")), "--layout", "wiseedit", "--results", f"m={results}"]
    given += ["--judge", "openai:gpt-4.1", "--base-url", "http://127.0.0.1:9", "--out", str(tmp_path / "run")]
    given += ["--dry-run", "--setup"]
    assert run([*given, "vibe-published"]) == 2
    sentence = "--setup vibe-published is for vibe, and --layout wiseedit for wiseedit; name the protocol"
    assert sentence in capsys.readouterr().err
    assert run([*given, "wiseedit-published"]) == 0
    assert run([*given, "vibe-published", "--protocol", "wiseedit"]) == 0
    sentence = "the rules and words of --setup vibe-published are for vibe and have no effect here"
    assert sentence in capsys.readouterr().err

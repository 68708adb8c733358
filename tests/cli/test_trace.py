import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from editloupe.cli.trace import trace
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import JudgementRecord
from editloupe.types import UserError
from tests.evals.samples import judgement

app = typer.Typer()
app.command()(trace)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    whole, album = judgement(tmp_path, thought="I see [red]nothing[/red] \x1b[2Jyet.\x07")
    with Run.write(tmp_path / "run") as opened:
        opened.save(whole, album=album)
    return tmp_path / "run"


def told(*arguments: str) -> str:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_the_story_has_thought_call_observation_picture_and_verdict(run: Path) -> None:
    story = told(str(run), "e0")
    call = "zoom_in_image(bbox_2d=[1, 2, 3, 4])"
    for part in ("step 1", "250 ms", "100 + 10 tokens", call, "← The cup.", "Wrong Action"):
        assert part in story
    assert "the cup, enlarged: pictures/" in story
    assert "unjudged (unreadable_answer): No label." in story
    assert "33.3 of 100" in story


def test_two_edits_are_shown_next_to_each_other(tmp_path: Path) -> None:
    with Run.write(tmp_path / "run") as opened:
        for name in ("e0", "e1"):
            whole, album = judgement(tmp_path, name, thought=f"I look at {name}.")
            opened.save(whole, album=album)
    arguments = (str(tmp_path / "run"), "e0", "--beside", "e1", "--criterion", "instruction_following")
    story = told(*arguments)
    assert story.index("I look at e0.") < story.index("I look at e1.")
    whole = json.loads(told(*arguments, "--json"))
    assert (whole["edit"]["id"], whole["beside"]["edit"]["id"]) == ("e0", "e1")
    told(*arguments, "--format", "html", "--out", str(tmp_path / "both.html"))
    page = (tmp_path / "both.html").read_text("utf-8")
    assert page.count("<main>") == 2
    assert page.count("<h2>") == 2


def test_people_and_the_prompt_are_shown_with_the_steps(tmp_path: Path) -> None:
    whole, album = judgement(tmp_path)
    edit = whole.edit.model_copy(update={"human": {"instruction_following": ("Flawless Execution",)}})
    with Run.write(tmp_path / "run") as opened:
        opened.save(whole.model_copy(update={"edit": edit}), album=album)
    story = told(str(tmp_path / "run"), "e0")
    assert "people: Flawless Execution" in story
    assert "prompt: " not in story
    assert whole.traces[0].prompt[0] in told(str(tmp_path / "run"), "e0", "--prompt")


def test_text_from_a_model_neither_steers_the_terminal_nor_vanishes_as_markup(run: Path) -> None:
    story = told(str(run), "e0")
    assert "I see [red]nothing[/red] [2Jyet." in story
    assert "Paint the [bold]cup[/bold] red" in story
    assert "\x1b" not in story
    assert "\x07" not in story


def test_json_holds_the_whole_trace_and_the_paths_of_its_pictures(run: Path) -> None:
    data = json.loads(told(str(run), "e0", "--criterion", "instruction_following", "--json"))
    (unit,) = data["units"]
    assert unit["traces"][0]["steps"][0]["thought"].endswith("\x1b[2Jyet.\x07")
    for path in data["pictures"].values():
        assert (run / path).is_file()
    assert len(data["pictures"]) == 2


def test_an_unknown_edit_or_criterion_is_one_sentence(run: Path) -> None:
    with pytest.raises(UserError, match="did you mean e0"):
        told(str(run), "E0")
    with pytest.raises(UserError, match="it has instruction_following"):
        told(str(run), "e0", "--criterion", "beauty")


def test_an_edit_of_several_models_says_whose_output_it_is_and_where_the_others_are(tmp_path: Path) -> None:
    with Run.write(tmp_path / "run") as opened:
        for position, model in enumerate(("big", "small")):
            whole, album = judgement(tmp_path)
            whole = whole.model_copy(update={"edit": whole.edit.model_copy(update={"model": model})})
            opened.save_all([JudgementRecord(whole, album=album, position=position)])
    run = str(tmp_path / "run")
    said = told(run, "e0")
    assert "edit e0 · edited by big" in said
    assert "this is the output of big; others of the same edit: e0@small" in said
    assert "edit e0 · edited by small" in told(run, "e0@small")
    assert "edit e0 · edited by big" in told(run, "e0@big"), "ID@MODEL holds for the first model, too"
    with pytest.raises(UserError, match='no edit "e0@none"'):
        told(run, "e0@none")
